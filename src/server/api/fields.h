// Fields of a request's JSON, read strictly: each reader says in its message which field is wrong, what it was, and what it may be. A field that is null counts as absent.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace ridge {

// A request that cannot be served, as HTTP and OpenAI's error object say it. Other Errors become 400 without a param.
class ApiError : public Error {
 public:
  ApiError(int http_status, std::string message, std::string about = {}, std::string error_code = {})
      : Error(std::move(message)), status(http_status), param(std::move(about)), code(std::move(error_code)) {}
  int status;
  std::string param, code;                   // param: the field's path, "messages[2].content"
  int retry_after_seconds = 0;               // with 429 and 503
};

class Fields {
 public:
  // `where`: path of the object, empty at the top. Throws when it is no object.
  Fields(const Json& object, std::string where = {});

  const Json* find(std::string_view name) const;                                 // nullptr when absent or null
  bool has(std::string_view name) const { return find(name) != nullptr; }
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<double> number(std::string_view name, double low, double high) const;        // bounds are inside
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;    // 16.0 counts as 16
  std::optional<std::string> text(std::string_view name) const;
  std::optional<std::string> one_of(std::string_view name, const std::vector<std::string>& allowed) const;
  std::optional<Fields> object(std::string_view name) const;
  const Json* array(std::string_view name) const;                                // nullptr when absent
  std::vector<std::string> texts(std::string_view name) const;                   // one string or a list of them; empty when absent
  std::vector<int32_t> tokens(std::string_view name, int n_vocab) const;         // a list of token ids
  const Json& required(std::string_view name, std::string_view what) const;

  std::string path(std::string_view name) const { return where_.empty() ? std::string(name) : where_ + "." + std::string(name); }
  // "temperature = -1: must be ..." as an error about that field.
  [[noreturn]] void refuse(std::string_view name, std::string_view must) const;
  const Json& json() const { return *object_; }

 private:
  const Json* object_;
  std::string where_;
};

std::string shown(const Json& value);                          // for messages: short, whatever was sent
int32_t token_id(const Json& value, const std::string& path, int n_vocab);
int32_t token_id(const Json& value, const std::string& list, size_t index, int n_vocab);
[[noreturn]] void refuse_field(const std::string& path, std::string_view must);

}  // namespace ridge
