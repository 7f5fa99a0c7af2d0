#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace ridge {
namespace {

// The descriptor is closed on every way out.
struct Descriptor {
  int fd;
  ~Descriptor() { if (fd >= 0) ::close(fd); }
};

Descriptor open_for_reading(const std::string& path, struct stat& info) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("cannot open {}: {}", path, std::strerror(errno));
  Descriptor file{fd};
  if (::fstat(fd, &info) != 0) fail("cannot read {}: {}", path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) fail("{} is a folder, not a file", path);
  return Descriptor{std::exchange(file.fd, -1)};
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  struct stat info {};
  const Descriptor file = open_for_reading(path, info);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (mapped == MAP_FAILED) fail("cannot map {} ({} bytes): {}", path, size_, std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

std::string read_file(const std::string& path) {
  struct stat info {};
  const Descriptor file = open_for_reading(path, info);
  std::string text;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t n = ::read(file.fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot read {}: {}", path, std::strerror(errno));
    if (n == 0) return text;
    text.append(chunk, static_cast<size_t>(n));
  }
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)), temporary_(fmt::format("{}.part{}", path_, ::getpid())) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("cannot write {}: {}", path_, std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void OutputFile::write(const void* data, size_t n_bytes) {
  constexpr size_t kBuffer = 1 << 20;
  buffered_.append(static_cast<const char*>(data), n_bytes);
  position_ += n_bytes;
  if (buffered_.size() >= kBuffer) flush();
}

void OutputFile::flush() {
  size_t done = 0;
  while (done < buffered_.size()) {
    const ssize_t n = ::write(fd_, buffered_.data() + done, buffered_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot write {}: {} ({} bytes were written; the partial file is removed)", path_, std::strerror(errno), position_ - buffered_.size());
    done += static_cast<size_t>(n);
  }
  buffered_.clear();
}

void OutputFile::pad_to(uint64_t multiple) {
  const std::string zeros((multiple - position_ % multiple) % multiple, '\0');
  write(zeros);
}

void OutputFile::commit() {
  flush();
  if (::close(std::exchange(fd_, -1)) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    fail("cannot write {}: {}", path_, std::strerror(reason));
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    fail("cannot write {}: {}", path_, std::strerror(reason));
  }
}

void write_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace ridge
