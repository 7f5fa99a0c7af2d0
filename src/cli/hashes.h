// SHA-256 of downloads (what the Hub gives as ETag of large files) and git's SHA-1 of a blob (its ETag of small ones).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ridge {

class Hash {
 public:
  explicit Hash(const char* algorithm);                // "SHA256", "SHA1"
  ~Hash();
  void add(std::string_view bytes);
  std::string hex();                                   // lower case; once
 private:
  void* digest_;                                       // EVP_MD_CTX
};

std::string sha256_of_file(const std::string& path);
std::string git_blob_sha1_of_file(const std::string& path);          // sha1("blob <size>\0" + contents)

}  // namespace ridge
