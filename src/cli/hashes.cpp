#include "cli/hashes.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace ridge {

Hash::Hash(const char* algorithm) : digest_(EVP_MD_CTX_new()) {
  const EVP_MD* kind = EVP_get_digestbyname(algorithm);
  CHECK(kind && digest_ && EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(digest_), kind, nullptr) == 1);
}

Hash::~Hash() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(digest_)); }

void Hash::add(std::string_view bytes) { CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(digest_), bytes.data(), bytes.size()) == 1); }

std::string Hash::hex() {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned int n = 0;
  CHECK(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(digest_), out, &n) == 1);
  std::string text;
  for (unsigned i = 0; i < n; ++i) text += fmt::format("{:02x}", out[i]);
  return text;
}

namespace {

std::string hash_file(const std::string& path, const char* algorithm, bool git) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("cannot read {}", path);
  Hash hash(algorithm);
  if (git) {
    std::string head = fmt::format("blob {}", std::filesystem::file_size(path));
    head.push_back('\0');
    hash.add(head);
  }
  std::vector<char> chunk(1 << 20);
  while (in.read(chunk.data(), std::streamsize(chunk.size())) || in.gcount() > 0) hash.add({chunk.data(), size_t(in.gcount())});
  return hash.hex();
}

}  // namespace

std::string sha256_of_file(const std::string& path) { return hash_file(path, "SHA256", false); }
std::string git_blob_sha1_of_file(const std::string& path) { return hash_file(path, "SHA1", true); }

}  // namespace ridge
