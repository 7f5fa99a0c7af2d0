// A JSON Schema as grammar rules: the documents of its Flat schemas, written as one would write them. Properties come in the schema's order, spaces may follow `:` and `,`
// and nothing else, so that no model can fill its answer with white space; what the schema leaves unbounded has a generous soft end (kFreeText characters of a text, 15
// digits of a number). Values that templates write in other ways than JSON (raw text, Python's words) differ by a ValueStyle alone.
#pragma once
#include <map>
#include <string>

#include "text/gbnf.h"
#include "text/schema.h"

namespace ridge {

struct ValueStyle {
  std::string quote = "\"";                  // around texts
  bool escaped = true;                       // texts have JSON's escapes; otherwise they are written as they are and never contain `stop`
  char32_t stop = '<';
  std::string yes = "true", no = "false", null = "null";
  bool bare_names = false;                   // names of properties have no quotes
};

constexpr int kFreeText = 512;

class SchemaGrammar {
 public:
  // Rules go into `rules`, which may hold others; both outlive it. 
  SchemaGrammar(const Schema& schema, GbnfRules& rules, ValueStyle style = {});
  Gbnf document() { return value(schema_.root()); }
  Gbnf value(const Json& part);
  Gbnf any_object();
  Gbnf object(const FlatSchema& flat);
  Gbnf number(const FlatSchema& flat, bool whole);
  Gbnf text(const FlatSchema& flat, bool quoted = true);
  Gbnf literal(const Json& value) const;     // as this style writes it

 private:
  Gbnf flat_value(const FlatSchema& flat);
  Gbnf array(const FlatSchema& flat);
  Gbnf distinct(const std::vector<Gbnf>& items, int64_t min, int64_t max, bool comma_first);
  std::vector<Gbnf> texts_by_first_letter(const FlatSchema& item);
  Gbnf any(int depth);
  Gbnf in_style(const Gbnf& content) const;  // characters of a text as they are written
  Gbnf quoted(Gbnf content) const;
  Gbnf name(const std::string& text) const;
  Gbnf free_name(const FlatSchema& flat);

  const Schema& schema_;
  GbnfRules& rules_;
  ValueStyle style_;
  std::map<std::string, std::string> known_;         // a part of the schema as text, and its rule
  int depth_ = 0;
  Gbnf colon_, comma_;
};

Gbnf format_of_text(const std::string& format);      // string_formats.cpp: date, time, uuid, ...; never() where it is not known

}  // namespace ridge
