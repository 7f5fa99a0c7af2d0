#include "server/api/fields.h"

#include <cmath>

#include "base/utf8.h"

namespace ridge {
namespace {

constexpr size_t kLongestShown = 80;

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

// An integer, also when it was written as 16.0; nothing when it is no whole number that fits.
std::optional<int64_t> whole(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX)) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double x = value.get<double>();
  if (!(std::abs(x) < 0x1p62) || std::floor(x) != x) return std::nullopt;
  return int64_t(x);
}

}  // namespace

std::string shown(const Json& value) {
  if (value.is_array() && value.size() > 8) return "[...]";
  if (value.is_structured() && value.size() > 8) return "{...}";
  std::string text = value.is_string() && value.get_ref<const std::string&>().size() > 4 * kLongestShown
                         ? Json(value.get_ref<const std::string&>().substr(0, kLongestShown)).dump(-1, ' ', false, Json::error_handler_t::replace)
                         : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kLongestShown) {
    text.resize(kLongestShown);
    text.resize(text.size() - size_t(utf8::n_incomplete_at_end(text)));
    text += "...";
  }
  return text;
}

void refuse_field(const std::string& path, std::string_view must) { throw ApiError(400, fmt::format("{}: {}", path, must), path); }

Fields::Fields(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) throw ApiError(400, fmt::format("{} must be a JSON object, not {}", where_.empty() ? "the body" : where_, shown(object)), where_);
}

const Json* Fields::find(std::string_view name) const {
  const auto it = object_->find(name);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

void Fields::refuse(std::string_view name, std::string_view must) const {
  const Json* value = find(name);
  const std::string at = path(name);
  throw ApiError(400, value ? fmt::format("{} = {}: {}", at, shown(*value), must) : fmt::format("{}: {}", at, must), at);
}

const Json& Fields::required(std::string_view name, std::string_view what) const {
  const Json* value = find(name);
  if (!value) throw ApiError(400, fmt::format("{} is missing: {}", path(name), what), path(name), "missing_required_parameter");
  return *value;
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse(name, "must be true or false");
  return value->get<bool>();
}

std::optional<double> Fields::number(std::string_view name, double low, double high) const {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) refuse(name, fmt::format("must be a number from {} to {}", low, high));
  const double x = value->get<double>();
  if (!(x >= low && x <= high)) refuse(name, fmt::format("must lie between {} and {}", low, high));
  return x;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) const {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  const auto x = whole(*value);
  if (!x || *x < low || *x > high) refuse(name, fmt::format("must be a whole number from {} to {}", low, high));
  return x;
}

std::optional<std::string> Fields::text(std::string_view name) const {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(name, "must be a string");
  return value->get<std::string>();
}

std::optional<std::string> Fields::one_of(std::string_view name, const std::vector<std::string>& allowed) const {
  auto value = text(name);
  if (!value) return value;
  for (const std::string& word : allowed)
    if (*value == word) return value;
  refuse(name, "must be one of " + joined(allowed));
}

std::optional<Fields> Fields::object(std::string_view name) const {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  return Fields(*value, path(name));
}

const Json* Fields::array(std::string_view name) const {
  const Json* value = find(name);
  if (value && !value->is_array()) refuse(name, "must be a list");
  return value;
}

std::vector<std::string> Fields::texts(std::string_view name) const {
  const Json* value = find(name);
  if (!value) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) refuse(name, "must be a string or a list of strings");
  std::vector<std::string> out;
  for (const Json& item : *value) {
    if (!item.is_string()) refuse_field(fmt::format("{}[{}] = {}", path(name), out.size(), shown(item)), "must be a string");
    out.push_back(item.get<std::string>());
  }
  return out;
}

int32_t token_id(const Json& value, const std::string& path, int n_vocab) {
  const auto id = whole(value);
  if (!id || *id < 0 || *id >= n_vocab) throw ApiError(400, fmt::format("{} = {}: must be a token id from 0 to {}", path, shown(value), n_vocab - 1), path);
  return int32_t(*id);
}

int32_t token_id(const Json& value, const std::string& list, size_t index, int n_vocab) {
  if (const auto id = whole(value); id && *id >= 0 && *id < n_vocab) return int32_t(*id);      // without the words for an error: there may be many
  return token_id(value, fmt::format("{}[{}]", list, index), n_vocab);
}

std::vector<int32_t> Fields::tokens(std::string_view name, int n_vocab) const {
  std::vector<int32_t> out;
  if (const Json* list = array(name))
    for (const Json& item : *list) out.push_back(token_id(item, path(name), out.size(), n_vocab));
  return out;
}

}  // namespace ridge
