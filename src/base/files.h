// Files as values: a read-only mapping, a whole file as a string, and an output file that exists only once it is complete.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ridge {

// A read-only memory mapping of a whole file. Empty files map to an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

std::string read_file(const std::string& path);
bool is_folder(const std::string& path);

// Writes to a temporary name beside `path`; commit() renames it into place. Destroyed without commit (an error, a full disk), nothing is left behind.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, size_t n_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void pad_to(uint64_t multiple);        // zeros up to the next multiple
  uint64_t position() const { return position_; }
  void commit();

 private:
  std::string path_, temporary_;
  int fd_ = -1;
  uint64_t position_ = 0;
  std::string buffered_;
  void flush();
};

void write_file(const std::string& path, std::string_view text);

}  // namespace ridge
