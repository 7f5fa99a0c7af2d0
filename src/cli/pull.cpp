// `ridge pull`: a model from elsewhere into the cache folder.
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/downloads.h"

namespace ridge {
namespace {

HubRequest parse_request(const std::string& model, const std::string& revision) {
  HubRequest request{.id = model, .file = "", .revision = revision};
  if (const size_t colon = model.find(':'); colon != std::string::npos) {
    request.id = model.substr(0, colon);
    request.file = model.substr(colon + 1);
  }
  for (const char* prefix : {"https://huggingface.co/", "hf.co/", "huggingface.co/"})
    if (model.starts_with(prefix)) return parse_request(model.substr(std::string(prefix).size()), revision);
  return request;
}

}  // namespace

void add_pull(CLI::App& app) {
  auto* sub = app.add_subcommand("pull", "Fetch a model, to be run by its name afterwards");
  struct Flags { std::string model, revision = "main"; bool again = false; };
  auto flags = std::make_shared<Flags>();
  sub->add_option("model", flags->model, "smollm2, org/name of the Hugging Face Hub, or org/name:file")->required();
  sub->add_option("--revision", flags->revision, "Branch, tag or commit of the Hub's repository")->capture_default_str();
  sub->add_flag("--again", flags->again, "Fetch smollm2 even when it is there");
  sub->footer(R"(
Models of the Hub go to its own cache folder (HF_HOME), so that other tools find them too. An interrupted transfer goes on where it stopped.
HF_TOKEN is for private models, HF_ENDPOINT for a mirror.

Examples:
  ridge pull smollm2
  ridge pull Qwen/Qwen3-0.6B
  ridge pull unsloth/Qwen3-0.6B-GGUF:Q8_0)");
  sub->callback([flags] {
    const bool ours = flags->model == "smollm2";
    if (!ours && flags->model.find('/') == std::string::npos) fail("unknown model '{}'; give smollm2, or org/name as on the Hugging Face Hub", flags->model);
    const std::string path = ours ? pull_smollm2(flags->again) : pull_from_hub(parse_request(flags->model, flags->revision));
    fmt::print("{}\n", path);
    fmt::print(stderr, "Talk to it with: ridge run {}\n", ours ? "smollm2" : path.ends_with(".gguf") ? path : flags->model);
  });
}

}  // namespace ridge
