// A folder for one test, removed with all it holds; and what the tests of this folder share.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace ridge {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ridge_files_XXXXXX").string();
    if (!::mkdtemp(pattern.data())) fail("cannot make a temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories(std::filesystem::path(file(name)).parent_path());
    write_file(file(name), text);
    return file(name);
  }
  size_t n_files() const {
    size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++n;
    return n;
  }

 private:
  std::string path_;
};

// The message of the Error that `action` throws; fails the test when it throws none.
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

inline ::testing::AssertionResult mentions(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts)
    if (message.find(part) == std::string::npos) return ::testing::AssertionFailure() << "'" << part << "' is not in: " << message;
  return ::testing::AssertionSuccess();
}

inline std::string data_file(const std::string& name) { return std::string(RIDGE_SOURCE_DIR "/tests/data/files/") + name; }
inline std::string shared_folder(const std::string& name) { return std::string(RIDGE_SOURCE_DIR "/../shared/") + name; }

// A little-endian number as bytes.
template <class T>
std::string raw(T v) {
  std::string s(sizeof v, '\0');
  std::memcpy(s.data(), &v, sizeof v);
  return s;
}

}  // namespace ridge
