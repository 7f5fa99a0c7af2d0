// A model ready to talk: found (fetched when it is ours or the Hub's and not here yet), opened and on its device.
#pragma once
#include <memory>
#include <string>

#include "cli/model_flags.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace ridge {

struct LoadedModel {
  Checkpoint checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
  double load_seconds = 0;
};
LoadedModel load_for_text(const std::string& model, const ModelFlags& flags);           // with a progress bar

// An argument that was meant as a model, here or not: smollm2, an existing folder or file, org/name, or anything that looks like a path.
bool looks_like_model(const std::string& argument);

// What to open for a model argument. Empty: smollm2, fetched on first use, or where it cannot be had the tiny model that ships with the program; it is said which.
std::string resolve_model(const std::string& model, bool offline);

}  // namespace ridge
