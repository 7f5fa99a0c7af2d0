// HTTP through TLS, with a certificate made for the test.
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <filesystem>

#include "server/raw_client.h"
#include "server/stub_server.h"

namespace ridge {
namespace {

struct Certificate {
  std::string folder = testing::TempDir() + "ridge_tls_" + std::to_string(::getpid()), certificate = folder + "/cert.pem", key = folder + "/key.pem";
  Certificate() {
    std::filesystem::create_directories(folder);
    EVP_PKEY* pair = EVP_EC_gen("P-256");
    X509* x = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, pair);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509_sign(x, pair, EVP_sha256());
    std::FILE* file = std::fopen(certificate.c_str(), "w");
    PEM_write_X509(file, x);
    std::fclose(file);
    file = std::fopen(key.c_str(), "w");
    PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    X509_free(x);
    EVP_PKEY_free(pair);
  }
  ~Certificate() { std::filesystem::remove_all(folder); }
};

class TlsClient {
 public:
  explicit TlsClient(int port) : raw_(port), context_(SSL_CTX_new(TLS_client_method())), ssl_(SSL_new(context_)) {
    SSL_set_fd(ssl_, raw_.fd());
    connected = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  void send(const std::string& text) { ASSERT_EQ(SSL_write(ssl_, text.data(), int(text.size())), int(text.size())); }
  std::string read_until(const std::string& end) {
    std::string got;
    char buffer[4096];
    while (got.find(end) == std::string::npos) {
      const int n = SSL_read(ssl_, buffer, sizeof buffer);
      if (n <= 0) break;
      got.append(buffer, size_t(n));
    }
    return got;
  }
  void close() { raw_.close(); }
  bool connected = false;

 private:
  RawClient raw_;
  SSL_CTX* context_;
  SSL* ssl_;
};

TEST(HttpTls, RequestsStreamsAndDeparturesWorkAsInTheClear) {
  const Certificate made;
  StubServer s({.tls_certificate = made.certificate, .tls_key = made.key});
  TlsClient c(s.port());
  ASSERT_TRUE(c.connected);
  for (int i = 0; i < 3; ++i) {
    c.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nsecret");
    EXPECT_NE(c.read_until("secret").find("200 OK"), std::string::npos);
  }
  c.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(c.read_until("\r\n0\r\n\r\n").find("data: 9"), std::string::npos);
  c.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(StubServer::soon([&] { return s.n_handled == 5; }));
  c.close();
  EXPECT_TRUE(StubServer::soon([&] { return s.n_gone == 1; }));
}

TEST(HttpTls, WhoSpeaksInTheClearIsCutOffAndOthersAreServed) {
  const Certificate made;
  StubServer s({.tls_certificate = made.certificate, .tls_key = made.key});
  RawClient plain(s.port());
  plain.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(plain.closed_within(3000));
  RawClient silent(s.port());
  TlsClient c(s.port());
  c.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(c.read_until("\r\n\r\n").find("200 OK"), std::string::npos);
}

TEST(HttpTls, AKeyThatDoesNotBelongIsNamed) {
  const Certificate one;
  try {
    HttpServer server({.port = 0, .tls_certificate = one.certificate, .tls_key = one.certificate}, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("key"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace ridge
