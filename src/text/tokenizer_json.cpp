#include "text/tokenizer_json.h"

#include <limits>

#include "base/error.h"

namespace ridge {
namespace {

constexpr size_t kMaxNesting = 64;
constexpr size_t kMaxKeys = 4096;             // of one small object: ordered objects are searched linearly
constexpr size_t kMaxEntries = 1 << 23;       // of the vocabulary or the merges

// The parser's events. In `Where::rest` they build a Json; below model.vocab and model.merges they fill the arrays.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(TokenizerJson& out) : out_(out) {}
  std::string problem;
  size_t byte = 0;

  bool null() override { return value(Json(nullptr)); }
  bool boolean(bool v) override { return value(Json(v)); }
  bool number_integer(number_integer_t v) override { return number(static_cast<double>(v), v, Json(v)); }
  bool number_unsigned(number_unsigned_t v) override {
    const auto limited = v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(v);
    return number(static_cast<double>(v), limited, Json(v));
  }
  bool number_float(number_float_t v, const string_t&) override {
    if (where_ == Where::vocab_object) return refuse("model.vocab: an id that is not a whole number");
    return number(v, -1, Json(v));
  }
  bool binary(binary_t&) override { return refuse("binary values are not JSON"); }

  bool string(string_t& v) override {
    switch (where_) {
      case Where::vocab_pair:
        if (n_in_pair_++ != 0) return refuse("model.vocab: a pair must be [token, score]");
        left_ = std::move(v);
        return true;
      case Where::merges: return merge_line(v);
      case Where::merge_pair:
        if (n_in_pair_ == 0) left_ = std::move(v);
        else if (n_in_pair_ == 1) right_ = std::move(v);
        else return refuse("model.merges: a pair has more than two strings");
        ++n_in_pair_;
        return true;
      case Where::rest: return value(Json(std::move(v)));
      default: return refuse("model.vocab: a string where an id belongs");
    }
  }

  bool start_object(size_t) override {
    if (where_ == Where::rest && pending_ == Where::vocab_object) { where_ = Where::vocab_object; out_.has_vocab = true; return true; }
    if (where_ != Where::rest) return refuse("an object inside model.vocab or model.merges");
    return open(Json::object());
  }
  bool end_object() override {
    if (where_ == Where::vocab_object) { leave(); return true; }
    return close();
  }
  bool start_array(size_t) override {
    switch (where_) {
      case Where::rest:
        if (pending_ == Where::vocab_object) { where_ = Where::vocab_list; out_.has_vocab = true; return true; }
        if (pending_ == Where::merges) { where_ = Where::merges; out_.has_merges = true; return true; }
        return open(Json::array());
      case Where::vocab_list: where_ = Where::vocab_pair; n_in_pair_ = 0; return true;
      case Where::merges: where_ = Where::merge_pair; n_in_pair_ = 0; return true;
      default: return refuse("a list where none belongs in model.vocab or model.merges");
    }
  }
  bool end_array() override {
    switch (where_) {
      case Where::vocab_pair:
        if (n_in_pair_ != 2) return refuse("model.vocab: a pair must be [token, score]");
        where_ = Where::vocab_list;
        return true;
      case Where::merge_pair:
        if (n_in_pair_ != 2) return refuse("model.merges: a pair needs two strings");
        where_ = Where::merges;
        return add_merge(std::move(left_), std::move(right_));
      case Where::vocab_list: case Where::merges: leave(); return true;
      default: return close();
    }
  }

  bool key(string_t& k) override {
    if (where_ == Where::vocab_object) { left_ = std::move(k); return true; }
    Json& object = *stack_.back();
    if (object.size() >= kMaxKeys) return refuse("an object with too many keys");
    if (stack_.size() == 2 && &object == model_) {
      if (k == "vocab") { pending_ = Where::vocab_object; return true; }
      if (k == "merges") { pending_ = Where::merges; return true; }
    }
    if (object.contains(k)) return refuse(fmt::format("the key \"{}\" occurs twice in one object", k));
    at_model_ = stack_.size() == 1 && k == "model";
    slot_ = &object[k];
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    byte = position;
    problem = e.what();
    return false;
  }

 private:
  enum class Where { rest, vocab_object, vocab_list, vocab_pair, merges, merge_pair };
  TokenizerJson& out_;
  Where where_ = Where::rest, pending_ = Where::rest;
  std::vector<Json*> stack_;                  // open objects and lists; stable, because a container does not grow while a child is open
  Json* slot_ = nullptr;                      // where the value of the key just read goes
  Json* model_ = nullptr;
  bool at_model_ = false;
  std::string left_, right_;
  int n_in_pair_ = 0;

  bool refuse(std::string why) { problem = std::move(why); return false; }
  void leave() { where_ = pending_ = Where::rest; }

  Json* place() {
    if (stack_.empty()) return &out_.rest;
    if (stack_.back()->is_array()) { stack_.back()->push_back(nullptr); return &stack_.back()->back(); }
    return slot_;
  }
  bool value(Json v) {
    if (where_ != Where::rest) return refuse("a value of the wrong type in model.vocab or model.merges");
    if (pending_ != Where::rest) {
      // "merges": null and the like: no list, which the model's own check reports.
      if (!v.is_null()) return refuse("model.vocab and model.merges must be lists or objects");
      pending_ = Where::rest;
      return true;
    }
    *place() = std::move(v);
    return true;
  }
  bool number(double real, int64_t integer, Json v) {
    if (where_ == Where::vocab_object) {
      if (out_.vocab.size() >= kMaxEntries) return refuse("model.vocab has too many entries");
      out_.vocab.emplace_back(std::move(left_), integer);
      return true;
    }
    if (where_ == Where::vocab_pair) {
      if (n_in_pair_++ != 1) return refuse("model.vocab: a pair must be [token, score]");
      if (out_.scored_vocab.size() >= kMaxEntries) return refuse("model.vocab has too many entries");
      out_.scored_vocab.emplace_back(std::move(left_), real);
      return true;
    }
    return value(std::move(v));
  }
  bool open(Json v) {
    if (stack_.size() >= kMaxNesting) return refuse("nested too deeply");
    if (pending_ != Where::rest) return refuse("model.merges must be a list");
    Json* here = place();
    *here = std::move(v);
    if (at_model_ && stack_.size() == 1) { model_ = here; at_model_ = false; }
    stack_.push_back(here);
    return true;
  }
  bool close() { stack_.pop_back(); return true; }

  bool add_merge(std::string left, std::string right) {
    if (out_.merges.size() >= kMaxEntries) return refuse("model.merges has too many entries");
    out_.merges.emplace_back(std::move(left), std::move(right));
    return true;
  }
  bool merge_line(const std::string& line) {
    if (line.starts_with("#version")) return true;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      return refuse(fmt::format("model.merges: \"{}\" is not two tokens with one space between", line));
    return add_merge(line.substr(0, space), line.substr(space + 1));
  }
};

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, std::string_view what) {
  TokenizerJson out;
  Reader reader(out);
  bool ok = false;
  try {
    ok = Json::sax_parse(text, &reader);
  } catch (const Json::exception& e) {
    reader.problem = e.what();
  }
  if (!ok) {
    if (reader.byte > 0) {
      const auto upto = text.substr(0, std::min(reader.byte, text.size()));
      fail("{}: not valid JSON at line {}: {}", what, 1 + std::count(upto.begin(), upto.end(), '\n'), reader.problem);
    }
    fail("{}: {}", what, reader.problem);
  }
  return out;
}

JsonSection::JsonSection(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
  if (!json_.is_object()) fail("{} must be an object, but is {}", where_, json_.type_name());
}

const Json* JsonSection::find(std::string_view key) const {
  const auto it = json_.find(std::string(key));
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

const Json& JsonSection::get(std::string_view key) const {
  const Json* v = find(key);
  if (!v) fail("{} has no \"{}\"", where_, key);
  return *v;
}

bool JsonSection::has(std::string_view key) const { return find(key) != nullptr; }

JsonSection JsonSection::section(std::string_view key) const { return JsonSection(get(key), fmt::format("{}.{}", where_, key)); }

std::vector<JsonSection> JsonSection::sections(std::string_view key) const {
  const Json& list = get(key);
  if (!list.is_array()) fail("{}.{} must be a list, but is {}", where_, key, list.type_name());
  std::vector<JsonSection> out;
  for (size_t i = 0; i < list.size(); ++i) out.emplace_back(list[i], fmt::format("{}.{}[{}]", where_, key, i));
  return out;
}

std::string JsonSection::string(std::string_view key) const {
  const Json& v = get(key);
  if (!v.is_string()) fail("{}.{} must be a string, but is {}", where_, key, v.type_name());
  return v.get<std::string>();
}
std::string JsonSection::string_or(std::string_view key, std::string_view otherwise) const { return has(key) ? string(key) : std::string(otherwise); }

bool JsonSection::boolean_or(std::string_view key, bool otherwise) const {
  const Json* v = find(key);
  if (!v) return otherwise;
  if (!v->is_boolean()) fail("{}.{} must be true or false, but is {}", where_, key, v->type_name());
  return v->get<bool>();
}

int64_t JsonSection::integer(std::string_view key) const {
  const Json& v = get(key);
  if (!v.is_number_integer()) fail("{}.{} must be a whole number, but is {}", where_, key, v.type_name());
  if (v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) refuse(fmt::format("\"{}\" is too large", key));
  return v.get<int64_t>();
}
int64_t JsonSection::integer_or(std::string_view key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }

void JsonSection::refuse(std::string_view why) const { fail("{}: {}", where_, why); }

}  // namespace ridge
