// A small HTTP/1.1 client over TLS or plain TCP: one request per connection, the body handed on in pieces, nothing waits longer than a minute.
// Redirects are the caller's to follow, who knows which of them may see its token.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace ridge {

struct Url {
  std::string scheme, host, port, target;              // "https", "huggingface.co", "443", "/api/..."
  std::string origin() const;                          // "https://huggingface.co:443"
};
Url parse_url(const std::string& url);                 // http and https alone; throws Error naming the url
Url resolve_url(const Url& base, const std::string& location);       // a Location header: absolute, or a path on the same host

struct FetchResponse {
  int status = 0;
  std::map<std::string, std::string> headers;          // names in lower case
  std::string body;                                    // at most 64 MiB; empty when a sink took it
  std::string header(const std::string& name) const;   // "" when absent
};

struct FetchRequest {
  std::string method = "GET";
  Url url;
  std::map<std::string, std::string> headers;
  // Takes the body of a 200 or 206 in pieces; called first with the headers known. Returning false ends the transfer.
  std::function<bool(const FetchResponse& head, std::string_view piece)> sink;
};

// Throws Error naming the host when it cannot be reached, the certificate is wrong, or the transfer breaks off.
FetchResponse http_exchange(const FetchRequest& request);

}  // namespace ridge
