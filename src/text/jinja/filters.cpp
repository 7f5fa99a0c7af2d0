// jinja2's filters over sequences, dicts and numbers. What jinja2 gives as a generator is one here too (see Sequence).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"

namespace ridge::jinja {
namespace {

Value generator(std::vector<Value> items) { return make_sequence(Flavor::kGenerator, std::move(items)); }

Value fold_case(const Value& value, bool case_sensitive) { return value.is_text() && !case_sensitive ? Value(lower(value.text())) : value; }

// "a.b.0" or 0: the path that sort, map, groupby and others take into each element.
class AttributePath {
 public:
  explicit AttributePath(const Value& attribute, Value otherwise = {}) : otherwise_(std::move(otherwise)) {
    if (!attribute.is_text()) {
      if (!attribute.is_none()) parts_.push_back(attribute);
      return;
    }
    std::string_view rest = attribute.text();
    while (true) {
      const size_t dot = std::min(rest.find('.'), rest.size());
      const std::string part(rest.substr(0, dot));
      const bool digits = !part.empty() && part.size() < 10 && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
      parts_.push_back(digits ? Value(std::stoi(part)) : Value(part));
      if (dot == rest.size()) return;
      rest.remove_prefix(dot + 1);
    }
  }
  Value operator()(Runtime& runtime, Value item) const {
    for (const Value& part : parts_) {
      item = runtime.item(item, part);
      if (item.is_undefined() && !otherwise_.is_none()) item = otherwise_;
    }
    return item;
  }

 private:
  std::vector<Value> parts_;
  Value otherwise_;
};

Value length(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("length", args, {});
  return runtime.length(v);
}

Value first(Runtime& runtime, const Value& v, Args&) {
  if (v.is_sequence()) {
    const Sequence& s = v.sequence();
    if (s.n_consumed >= s.items.size()) return Value::undefined("No first item, sequence was empty.");
    return s.items[s.flavor == Flavor::kGenerator ? s.n_consumed++ : 0];
  }
  const std::vector<Value> items = runtime.iterate(v);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Runtime& runtime, const Value& v, Args&) {
  if (v.is_sequence() && v.sequence().flavor == Flavor::kGenerator) raise("'generator' object is not reversible");
  if (v.is_sequence()) return v.sequence().items.empty() ? Value::undefined("No last item, sequence was empty.") : v.sequence().items.back();
  const std::vector<Value> items = runtime.iterate(v);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list(Runtime& runtime, const Value& v, Args&) { return make_list(runtime.iterate(v)); }

Value reverse(Runtime& runtime, const Value& v, Args&) {
  std::vector<Value> items = runtime.iterate(v);
  std::reverse(items.begin(), items.end());
  if (!v.is_text()) return generator(std::move(items));
  std::string out;
  for (const Value& c : items) out += c.text();
  return runtime.text(std::move(out), v.is_markup());
}

Value sort_by(Runtime& runtime, std::vector<Value> items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    runtime.spend(1 + std::min(keys[i].weight(), keys[j].weight()));
    return reverse ? less(keys[j], keys[i]) : less(keys[i], keys[j]);
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(items[i]);
  return make_list(std::move(sorted));
}

Value sort(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (b[2].is_text()) {
    std::string_view rest = b[2].text();
    while (true) {
      const size_t comma = std::min(rest.find(','), rest.size());
      paths.emplace_back(Value(rest.substr(0, comma)));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(b[2]);
  }
  std::vector<Value> items = runtime.iterate(v), keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) parts.push_back(fold_case(path(runtime, item), b.truth(1)));
    keys.push_back(parts.size() == 1 ? parts[0] : make_list(std::move(parts)));
  }
  return sort_by(runtime, std::move(items), keys, b.truth(0));
}

Value dictsort(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = b.text(1, "key");
  if (by != "key" && by != "value") raise("You can only sort by either \"key\" or \"value\"");
  if (v.is_undefined()) throw Raised{v.undefined_message()};
  if (!v.is_dict()) raise("'{}' object has no attribute 'items'", v.type_name());
  std::vector<Value> items, keys;
  for (const auto& [key, value] : v.dict().items) {
    items.push_back(make_tuple({key, value}));
    keys.push_back(fold_case(by == "key" ? key : value, b.truth(0)));
  }
  return sort_by(runtime, std::move(items), keys, b.truth(2));
}

Value unique(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("unique", args, {"case_sensitive", "attribute"});
  const AttributePath path(b[1]);
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : runtime.iterate(v)) {
    const Value key = fold_case(path(runtime, item), b.truth(0));
    runtime.spend(key.weight());
    if (seen.find(key)) continue;
    seen.set(key, true);
    out.push_back(item);
  }
  return generator(std::move(out));
}

template <bool largest>
Value extreme(Runtime& runtime, const Value& v, Args& args) {
  const Bound b(largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const AttributePath path(b[1]);
  const std::vector<Value> items = runtime.iterate(v);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = fold_case(path(runtime, items[0]), b.truth(0));
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = fold_case(path(runtime, items[i]), b.truth(0));
    if (largest ? less(best_key, key) : less(key, best_key)) best = i, best_key = std::move(key);
  }
  return items[best];
}

Value sum(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("sum", args, {"attribute", "start"});
  const AttributePath path(b[0]);
  Value total = b.has(1) ? b[1] : Value(0);
  if (total.is_text()) raise("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : runtime.iterate(v)) total = add(runtime, total, path(runtime, item));
  return total;
}

Value map(Runtime& runtime, const Value& v, Args& args) {
  std::vector<Value> out;
  if (!v.truth()) return generator({});
  if (args.positional.empty() && !args.keyword.empty() && std::any_of(args.keyword.begin(), args.keyword.end(), [](auto& k) { return k.first == "attribute"; })) {
    const Bound b("map", args, {"attribute", "default"});
    const AttributePath path(b[0], b[1]);
    for (const Value& item : runtime.iterate(v)) out.push_back(path(runtime, item));
    return generator(std::move(out));
  }
  if (args.positional.empty()) raise("map requires a filter argument");
  const std::string name = to_text(args.positional[0]);
  const Filter filter = find_filter(name);
  if (!filter) raise("No filter named '{}'.", name);
  args.positional.erase(args.positional.begin());
  for (const Value& item : runtime.iterate(v)) {
    Args each = args;
    out.push_back(filter(runtime, item, each));
  }
  return generator(std::move(out));
}

template <bool keep, bool by_attribute>
Value select(Runtime& runtime, const Value& v, Args& args) {
  if (!v.truth()) return generator({});
  if (by_attribute && args.positional.empty()) raise("Missing parameter for attribute name");
  const AttributePath path(by_attribute ? args.positional[0] : Value());
  const size_t at = by_attribute ? 1 : 0;
  Test test = nullptr;
  Args rest;
  if (args.positional.size() > at) {
    const std::string name = to_text(args.positional[at]);
    test = find_test(name);
    if (!test) raise("No test named '{}'.", name);
    rest.positional.assign(args.positional.begin() + at + 1, args.positional.end());
    rest.keyword = args.keyword;
  }
  std::vector<Value> out;
  for (const Value& item : runtime.iterate(v)) {
    const Value subject = path(runtime, item);
    if ((test ? test(runtime, subject, rest) : subject.truth()) == keep) out.push_back(item);
  }
  return generator(std::move(out));
}

Value groupby(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(b[0], b[1]);
  std::vector<Value> items = runtime.iterate(v), keys;
  for (const Value& item : items) keys.push_back(fold_case(path(runtime, item), b.truth(2)));
  const Value sorted = sort_by(runtime, std::move(items), keys, false);
  std::vector<Value> groups, members;
  Value current;
  const auto flush = [&] {
    if (members.empty()) return;
    Value name = path(runtime, members[0]);
    groups.push_back(make_sequence(Flavor::kGroup, {std::move(name), make_list(std::move(members))}));
    members.clear();
  };
  for (const Value& item : sorted.sequence().items) {
    Value key = fold_case(path(runtime, item), b.truth(2));
    if (!members.empty() && !equal(key, current)) flush();
    current = std::move(key);
    members.push_back(item);
  }
  flush();
  return make_list(std::move(groups));
}

Value batch(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("batch", args, {"linecount", "fill_with"}, 1);
  const int64_t n = as_integer(b[0]);
  std::vector<Value> out, row;
  for (const Value& item : runtime.iterate(v)) {
    if (static_cast<int64_t>(row.size()) == n) out.push_back(make_list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (b.given(1) && static_cast<int64_t>(row.size()) < n) {
      runtime.spend(n);
      row.resize(static_cast<size_t>(n), b[1]);
    }
    out.push_back(make_list(std::move(row)));
  }
  return generator(std::move(out));
}

Value slice(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("slice", args, {"slices", "fill_with"}, 1);
  const int64_t n = as_integer(b[0]);
  const std::vector<Value> items = runtime.iterate(v);
  if (n == 0) raise("integer division or modulo by zero");
  if (n < 0) return generator({});
  runtime.spend(n);
  const int64_t per = static_cast<int64_t>(items.size()) / n, extra = static_cast<int64_t>(items.size()) % n;
  std::vector<Value> out;
  auto at = items.begin();
  for (int64_t i = 0; i < n; ++i) {
    const auto end = at + per + (i < extra);
    std::vector<Value> part(at, end);
    if (b.given(1) && i >= extra) part.push_back(b[1]);
    out.push_back(make_list(std::move(part)));
    at = end;
  }
  return generator(std::move(out));
}

Value items(Runtime& runtime, const Value& v, Args&) {
  if (v.is_undefined()) return generator({});
  if (!v.is_dict()) raise("Can only get item pairs from a mapping.");
  runtime.spend(static_cast<int64_t>(v.dict().items.size()));
  std::vector<Value> out;
  for (const auto& [key, value] : v.dict().items) out.push_back(make_tuple({key, value}));
  return generator(std::move(out));
}

Value default_value(Runtime&, const Value& v, Args& args) {
  const Bound b("default", args, {"default_value", "boolean"});
  return v.is_undefined() || (b.truth(1) && !v.truth()) ? (b.has(0) ? b[0] : Value("")) : v;
}

Value attr(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("attr", args, {"name"}, 1);
  const std::string name = b.text(0, "");
  if (v.is_undefined()) throw Raised{v.undefined_message()};
  if (v.is_dict() && !find_container_method(v, name)) return Value::undefined(fmt::format("'dict object' has no attribute {}", repr_of_text(name)));
  return runtime.attribute(v, name);
}

Value abs_value(Runtime&, const Value& v, Args&) {
  if (v.is_float()) return std::fabs(v.number());
  if (v.is_undefined() || !v.is_integral()) raise("bad operand type for abs(): '{}'", v.type_name());
  return v.integer() < 0 ? negate(v) : Value(v.integer());
}

Value round_value(Runtime&, const Value& v, Args& args) {
  const Bound b("round", args, {"precision", "method"});
  const std::string method = b.text(1, "common");
  const int64_t precision = std::clamp<int64_t>(b.integer(0, 0), -400, 400);
  if (method != "common" && method != "ceil" && method != "floor") raise("method must be common, ceil or floor");
  if (!v.is_number()) raise("type {} doesn't define __round__ method", v.type_name());
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision)), x = v.number() * scale;
    return (method == "ceil" ? std::ceil(x) : std::floor(x)) / scale;
  }
  if (v.is_integral()) {
    if (precision >= 0) return v.integer();
    if (precision < -18) return 0;
    int64_t unit = 1;
    for (int64_t i = 0; i < -precision; ++i) unit *= 10;
    const int64_t low = v.integer() - modulo(v.integer(), unit), rest = v.integer() - low;
    const bool up = rest * 2 > unit || (rest * 2 == unit && modulo(low / unit, 2) == 1);
    return up ? low + unit : low;
  }
  if (!std::isfinite(v.number())) return v;
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(v.number() / scale) * scale;
  }
  // The decimal expansion is rounded, as Python does: 2.675 is below the tie and gives 2.67.
  char buffer[800];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), v.number());
  return std::strtod(buffer, nullptr);
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, Side::kBoth);
  std::string digits = lower(text);
  for (size_t i = digits.find('_'); i != std::string::npos; i = digits.find('_', i)) {
    if (i == 0 || i + 1 == digits.size() || !std::isdigit(static_cast<unsigned char>(digits[i - 1])) || !std::isdigit(static_cast<unsigned char>(digits[i + 1]))) return std::nullopt;
    digits.erase(i, 1);
  }
  std::string_view rest = digits;
  if (rest.starts_with("+")) rest.remove_prefix(1);
  if (rest.empty() || rest.starts_with("+") || rest.find('(') != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(std::string(rest).c_str(), nullptr);
  return value;
}

std::optional<int64_t> parse_int(std::string_view text, int base) {
  text = strip(text, Side::kBoth);
  const bool negative = text.starts_with("-");
  if (negative || text.starts_with("+")) text.remove_prefix(1);
  std::string digits = lower(text);
  const auto prefixed = [&](char letter) { return digits.size() > 2 && digits[0] == '0' && digits[1] == letter; };
  for (const auto& [letter, b] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (prefixed(letter) && (base == b || base == 0)) digits.erase(0, 2), base = b;
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36) raise("int() base must be >= 2 and <= 36, or 0");
  for (size_t i = digits.find('_'); i != std::string::npos; i = digits.find('_', i)) {
    if (i == 0 || i + 1 == digits.size() || digits[i + 1] == '_') return std::nullopt;
    digits.erase(i, 1);
  }
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  int64_t value = 0;
  const std::string whole = (negative ? "-" : "") + digits;
  const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), value, base);
  if (end != whole.data() + whole.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) raise("integer {} does not fit 64 bits", digits.size() > 40 ? digits.substr(0, 40) + "..." : digits);
  return value;
}

int64_t truncated(double value) {
  if (std::isnan(value)) raise("cannot convert float NaN to integer");
  if (std::isinf(value)) raise("cannot convert float infinity to integer");
  if (std::fabs(value) >= 9223372036854775808.0) raise("integer result does not fit 64 bits");
  return static_cast<int64_t>(value);
}

Value to_int(Runtime&, const Value& v, Args& args) {
  const Bound b("int", args, {"default", "base"});
  const Value otherwise = b.has(0) ? b[0] : Value(0);
  if (v.is_undefined()) throw Raised{v.undefined_message()};
  if (v.is_integral()) return v.integer();
  if (v.is_float()) return truncated(v.number());
  if (!v.is_text()) return otherwise;
  if (const auto n = parse_int(v.text(), static_cast<int>(std::clamp<int64_t>(b.integer(1, 10), -1, 100)))) return *n;
  const auto f = parse_float(v.text());
  return f && std::isfinite(*f) ? Value(truncated(*f)) : otherwise;
}

Value to_float(Runtime&, const Value& v, Args& args) {
  const Bound b("float", args, {"default"});
  if (v.is_undefined()) throw Raised{v.undefined_message()};
  if (v.is_number()) return v.number();
  const auto f = v.is_text() ? parse_float(v.text()) : std::nullopt;
  return f ? Value(*f) : b.has(0) ? b[0] : Value(0.0);
}

}  // namespace

Filter find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"length", length}, {"count", length}, {"first", first}, {"last", last}, {"list", list}, {"reverse", reverse}, {"sort", sort}, {"dictsort", dictsort},
      {"unique", unique}, {"min", extreme<false>}, {"max", extreme<true>}, {"sum", sum}, {"map", map}, {"select", select<true, false>},
      {"reject", select<false, false>}, {"selectattr", select<true, true>}, {"rejectattr", select<false, true>}, {"groupby", groupby}, {"batch", batch},
      {"slice", slice}, {"items", items}, {"default", default_value}, {"d", default_value}, {"attr", attr}, {"abs", abs_value}, {"round", round_value},
      {"int", to_int}, {"float", to_float}};
  const auto it = kFilters.find(name);
  return it == kFilters.end() ? find_text_filter(name) : it->second;
}

}  // namespace ridge::jinja
