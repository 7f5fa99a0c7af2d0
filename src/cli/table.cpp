#include "cli/table.h"

#include <algorithm>

#include "base/check.h"

namespace ridge {
namespace {

std::string padded(const std::string& cell, size_t width, bool right) {
  const std::string space(width - std::min(width, size_t(display_width(cell))), ' ');
  return right ? space + cell : cell + space;
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (char c : cell) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string markdown_cell(const std::string& cell) {
  std::string escaped;
  for (char c : cell) escaped += c == '|' ? "\\|" : std::string(1, c);
  return escaped;
}

void trim_right(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

int display_width(const std::string& text) {
  return int(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void Table::add(std::vector<std::string> row) {
  CHECK_EQ(row.size(), columns_.size());
  rows_.push_back(std::move(row));
}

std::vector<size_t> Table::widths() const {
  std::vector<size_t> widths;
  for (const Column& c : columns_) widths.push_back(size_t(display_width(c.name)));
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], size_t(display_width(row[i])));
  return widths;
}

std::string Table::aligned(const std::string& indent) const {
  const auto w = widths();
  std::string out;
  const auto line = [&](auto&& cell) {
    std::string text = indent;
    for (size_t i = 0; i < columns_.size(); ++i) text += padded(cell(i), w[i], columns_[i].right) + (i + 1 < columns_.size() ? "  " : "");
    trim_right(text);
    out += text + '\n';
  };
  line([&](size_t i) { return columns_[i].name; });
  for (const auto& row : rows_) line([&](size_t i) { return row[i]; });
  return out;
}

std::string Table::markdown() const {
  const auto w = widths();
  std::string out;
  const auto line = [&](auto&& cell) {
    out += '|';
    for (size_t i = 0; i < columns_.size(); ++i) out += ' ' + padded(markdown_cell(cell(i)), w[i], columns_[i].right) + " |";
    out += '\n';
  };
  line([&](size_t i) { return columns_[i].name; });
  out += '|';
  for (size_t i = 0; i < columns_.size(); ++i) out += columns_[i].right ? std::string(w[i] + 1, '-') + ":|" : ' ' + std::string(std::max(w[i], size_t{1}), '-') + " |";
  out += '\n';
  for (const auto& row : rows_) line([&](size_t i) { return row[i]; });
  return out;
}

std::string Table::csv() const {
  std::string out;
  const auto line = [&](auto&& cell) {
    for (size_t i = 0; i < columns_.size(); ++i) out += csv_cell(cell(i)) + (i + 1 < columns_.size() ? "," : "\r\n");
  };
  line([&](size_t i) { return columns_[i].name; });
  for (const auto& row : rows_) line([&](size_t i) { return row[i]; });
  return out;
}

}  // namespace ridge
