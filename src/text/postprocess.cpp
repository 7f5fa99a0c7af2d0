#include "text/postprocess.h"

#include "text/vocabulary.h"

namespace ridge {
namespace {

int32_t checked_id(const Json& id, const JsonSection& s) {
  if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= Vocabulary::kMaxTokens) s.refuse("a token id that is not a small whole number");
  return id.get<int32_t>();
}

// ["[SEP]", 102]
int32_t pair_id(const JsonSection& s, const char* key) {
  if (!s.has(key)) s.refuse(std::string("has no \"") + key + "\"");
  const Json& pair = s.json()[key];
  if (!pair.is_array() || pair.size() != 2) s.refuse(std::string("\"") + key + "\" must be [token, id]");
  return checked_id(pair[1], s);
}

void add_template(SpecialFrame& frame, const JsonSection& s) {
  SpecialFrame added;
  bool seen_text = false;
  for (const JsonSection& item : s.sections("single")) {
    if (item.has("Sequence")) {
      if (seen_text) item.refuse("the text occurs twice in the template");
      seen_text = true;
      continue;
    }
    const std::string name = item.section("SpecialToken").string("id");
    const JsonSection token = s.section("special_tokens").section(name);
    if (!token.has("ids") || !token.json()["ids"].is_array()) token.refuse("\"ids\" must be a list");
    for (const Json& id : token.json()["ids"]) (seen_text ? added.after : added.before).push_back(checked_id(id, token));
  }
  if (!seen_text) s.refuse("the template \"single\" has no place for the text");
  frame.before.insert(frame.before.begin(), added.before.begin(), added.before.end());
  frame.after.insert(frame.after.end(), added.after.begin(), added.after.end());
}

}  // namespace

void add_post_processor(SpecialFrame& frame, const JsonSection& s) {
  const std::string type = s.type();
  if (type == "Sequence") {
    for (const JsonSection& part : s.sections("processors")) add_post_processor(frame, part);
  } else if (type == "TemplateProcessing") {
    add_template(frame, s);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    frame.before.insert(frame.before.begin(), pair_id(s, "cls"));
    frame.after.push_back(pair_id(s, "sep"));
  } else if (type != "ByteLevel") {           // ByteLevel only moves offsets
    s.refuse("the post-processor \"" + type + "\" is not supported");
  }
}

}  // namespace ridge
