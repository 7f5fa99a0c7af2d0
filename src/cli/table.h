// A table of strings, printed aligned for a terminal, as Markdown, or as CSV (RFC 4180).
#pragma once
#include <string>
#include <vector>

namespace ridge {

struct Column {
  std::string name;
  bool right = false;                                  // numbers
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row);              // as many cells as columns
  bool empty() const { return rows_.empty(); }

  std::string aligned(const std::string& indent = "") const;
  std::string markdown() const;
  std::string csv() const;

 private:
  std::vector<size_t> widths() const;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

int display_width(const std::string& text);            // characters of UTF-8, as far as tables need it

}  // namespace ridge
