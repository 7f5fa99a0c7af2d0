// Binding of arguments, the methods of dict, list and tuple that change nothing, and the global functions.
#include "text/jinja/builtins.h"

#include <algorithm>

#include "text/jinja/characters.h"

namespace ridge::jinja {

Bound::Bound(std::string_view function, const Args& args, std::initializer_list<std::string_view> names, size_t n_required) : values_(names.size()) {
  if (args.positional.size() > names.size()) raise("{}() takes at most {} arguments ({} given)", function, names.size(), args.positional.size());
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.keyword) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) raise("{}() got an unexpected keyword argument '{}'", function, name);
    const Value*& slot = values_[it - names.begin()];
    if (slot) raise("{}() got multiple values for argument '{}'", function, name);
    slot = &value;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (!values_[i]) raise("{}() missing 1 required positional argument: '{}'", function, *(names.begin() + i));
  }
}

const Value& Bound::operator[](size_t i) const {
  static const Value kNone;
  return values_[i] ? *values_[i] : kNone;
}

int64_t Bound::integer(size_t i, int64_t otherwise) const { return has(i) ? as_integer(*values_[i]) : otherwise; }

std::string Bound::text(size_t i, std::string_view otherwise) const {
  if (!has(i)) return std::string(otherwise);
  if (values_[i]->is_undefined()) throw Raised{values_[i]->undefined_message()};
  if (!values_[i]->is_text()) raise("must be str, not {}", values_[i]->type_name());
  return values_[i]->text();
}

int64_t as_integer(const Value& value) {
  if (value.is_undefined()) throw Raised{value.undefined_message()};
  if (!value.is_integral()) raise("'{}' object cannot be interpreted as an integer", value.type_name());
  return value.integer();
}

namespace {

template <Flavor flavor>
Value view(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("items", args, {});
  std::vector<Value> items;
  items.reserve(self.dict().items.size());
  runtime.spend(static_cast<int64_t>(self.dict().items.size()));
  for (const auto& [key, value] : self.dict().items) {
    items.push_back(flavor == Flavor::kKeys ? key : flavor == Flavor::kValues ? value : make_tuple({key, value}));
  }
  return make_sequence(flavor, std::move(items));
}

Value dict_get(Runtime&, const Value& self, Args& args) {
  const Bound b("get", args, {"key", "default"}, 1);
  hash_of(b[0]);
  const Value* found = self.dict().find(b[0]);
  return found ? *found : b[1];
}

Value copy(Runtime&, const Value& self, Args&) { return self; }

Value sequence_index(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("index", args, {"value", "start", "stop"}, 1);
  const auto& items = self.sequence().items;
  const auto n = static_cast<int64_t>(items.size());
  const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? std::max(at, -n) + n : at, 0, n); };
  for (int64_t i = place(b.integer(1, 0)); i < place(b.integer(2, n)); ++i) {
    runtime.spend(1 + std::min(b[0].weight(), items[i].weight()));
    if (equal(items[i], b[0])) return i;
  }
  raise("{} is not in list", to_repr(b[0]));
}

Value sequence_count(Runtime& runtime, const Value& self, Args& args) {
  const Bound b("count", args, {"value"}, 1);
  int64_t n = 0;
  for (const Value& item : self.sequence().items) {
    runtime.spend(1 + std::min(b[0].weight(), item.weight()));
    n += equal(item, b[0]);
  }
  return n;
}

Value is_integer(Runtime&, const Value& self, Args&) { return self.number() == static_cast<double>(static_cast<int64_t>(self.number())); }

Value range(Runtime& runtime, const Value&, Args& args) {
  if (args.positional.empty() || args.positional.size() > 3 || !args.keyword.empty()) raise("range expected 1 to 3 arguments, got {}", args.positional.size());
  const bool one = args.positional.size() == 1;
  const int64_t start = one ? 0 : as_integer(args.positional[0]), stop = as_integer(args.positional[one ? 0 : 1]);
  const int64_t step = args.positional.size() == 3 ? as_integer(args.positional[2]) : 1;
  if (step == 0) raise("range() arg 3 must not be zero");
  const __int128 span = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 by = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 n = span > 0 ? (span - 1) / by + 1 : 0;
  if (n > kMaxRange) raise("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  runtime.spend(static_cast<int64_t>(n));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < static_cast<int64_t>(n); ++i) items.emplace_back(start + i * step);
  return make_sequence(Flavor::kRange, std::move(items));
}

// Pairs of a mapping or of an iterable of pairs.
std::vector<std::pair<Value, Value>> pairs_of(Runtime& runtime, const Value& value) {
  if (value.is_dict()) return value.dict().items;
  std::vector<std::pair<Value, Value>> pairs;
  for (const Value& item : runtime.iterate(value)) {
    const std::vector<Value> two = runtime.iterate(item);
    if (two.size() != 2) raise("dictionary update sequence element #{} has length {}; 2 is required", pairs.size(), two.size());
    pairs.emplace_back(two[0], two[1]);
  }
  return pairs;
}

Value make_dict_function(Runtime& runtime, const Value&, Args& args) {
  if (args.positional.size() > 1) raise("dict expected at most 1 argument, got {}", args.positional.size());
  auto dict = std::make_shared<Dict>();
  if (!args.positional.empty()) {
    for (const auto& [key, value] : pairs_of(runtime, args.positional[0])) dict->set(key, value);
  }
  for (const auto& [key, value] : args.keyword) dict->set(key, value);
  runtime.spend(static_cast<int64_t>(dict->items.size()));
  return make_dict(std::move(dict));
}

Value make_namespace_function(Runtime& runtime, const Value&, Args& args) {
  if (args.positional.size() > 1) raise("dict expected at most 1 argument, got {}", args.positional.size());
  auto ns = runtime.make_namespace();
  if (!args.positional.empty()) {
    for (const auto& [key, value] : pairs_of(runtime, args.positional[0])) {
      runtime.spend(static_cast<int64_t>(ns->members.size()));
      ns->set(to_text(key), value);
    }
  }
  for (const auto& [key, value] : args.keyword) ns->set(key, value);
  return ns;
}

class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Runtime&, std::string_view name) override;
  const Value& current() const { return items_[at_]; }
  void step() { at_ = (at_ + 1) % items_.size(); }
  void reset() { at_ = 0; }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

class CyclerMethod : public Object {
 public:
  CyclerMethod(Cycler& cycler, bool next) : cycler_(cycler), next_(next) {}
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Runtime&, Args&) override {
    Value value = next_ ? cycler_.current() : Value();
    next_ ? cycler_.step() : cycler_.reset();
    return value;
  }

 private:
  Cycler& cycler_;                          // cyclers live as long as the rendering: see make_cycler
  bool next_;
};

std::optional<Value> Cycler::attribute(Runtime&, std::string_view name) {
  if (name == "current") return current();
  if (name == "next" || name == "reset") return Value(std::make_shared<CyclerMethod>(*this, name == "next"));
  return std::nullopt;
}

Value make_cycler(Runtime& runtime, const Value&, Args& args) {
  if (args.positional.empty()) raise("at least one item has to be provided");
  auto cycler = std::make_shared<Cycler>(args.positional);
  runtime.make_namespace()->set("cycler", cycler);
  return cycler;
}

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Value call(Runtime&, Args&) override { return std::exchange(used_, true) ? separator_ : Value(""); }

 private:
  Value separator_;
  bool used_ = false;
};

Value make_joiner(Runtime&, const Value&, Args& args) {
  const Bound b("joiner", args, {"sep"});
  return std::make_shared<Joiner>(b.has(0) ? b[0] : Value(", "));
}

Value raise_exception(Runtime&, const Value&, Args& args) {
  const Bound b("raise_exception", args, {"message"}, 1);
  throw Raised{to_text(b[0])};
}

// datetime.now().strftime(format): a naive time, so %z and %Z are empty; %f are microseconds.
Value strftime_now(Runtime& runtime, const Value&, Args& args) {
  const Bound b("strftime_now", args, {"format"}, 1);
  std::string format;
  const std::string given = b.text(0, "");
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != '%' || i + 1 == given.size()) {
      format += given[i] == '%' ? "%%" : std::string(1, given[i]);
    } else if (const char c = given[++i]; c == 'f') {
      format += "000000";
    } else if (c != 'z' && c != 'Z') {
      format += {'%', c};
    }
  }
  if (format.size() > 4096) raise("strftime_now: the format is longer than 4096 bytes");
  const std::tm now = runtime.now();
  std::string out(format.size() * 32 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &now));
  return runtime.text(std::move(out));
}

}  // namespace

Method find_container_method(const Value& self, std::string_view name) {
  if (self.is_dict()) {
    if (name == "get") return dict_get;
    if (name == "items") return view<Flavor::kItems>;
    if (name == "keys") return view<Flavor::kKeys>;
    if (name == "values") return view<Flavor::kValues>;
    if (name == "copy") return copy;
  } else if (self.is_sequence() && self.sequence().is_indexable()) {
    if (name == "index") return sequence_index;
    if (name == "count") return sequence_count;
    if (name == "copy" && self.sequence().flavor == Flavor::kList) return copy;
  } else if (self.is_float() && name == "is_integer") {
    return is_integer;
  }
  return nullptr;
}

std::vector<std::pair<std::string_view, Value>> global_functions() {
  std::vector<std::pair<std::string_view, Value>> functions;
  const auto define = [&](std::string_view name, Method method) { functions.emplace_back(name, std::make_shared<Function>(name, method)); };
  define("range", range);
  define("dict", make_dict_function);
  define("namespace", make_namespace_function);
  define("cycler", make_cycler);
  define("joiner", make_joiner);
  define("raise_exception", raise_exception);
  define("strftime_now", strftime_now);
  return functions;
}

}  // namespace ridge::jinja
