#include "server/page.h"

#include <fmt/format.h>

#include "server/page_files.h"

namespace ridge {
namespace {

std::string_view type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  if (name.ends_with(".png")) return "image/png";
  if (name.ends_with(".json")) return "application/json";
  if (name.ends_with(".webmanifest")) return "application/manifest+json";
  return "application/octet-stream";
}

uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

const std::vector<PageFile>& page_files() {
  static const std::vector<PageFile> files = [] {
    std::vector<PageFile> made;
    for (const PageBlob* blob = kPageBlobs; blob->name; ++blob) {
      const std::string_view name = blob->name, content(blob->begin, size_t(blob->end - blob->begin));
      made.push_back({"/" + std::string(name), type_of(name), content, fmt::format("\"{:016x}\"", fnv1a(content))});
      if (name == "index.html") made.push_back(made.back()), made.back().path = "/";
    }
    return made;
  }();
  return files;
}

void send_page_file(const PageFile& file, const HttpRequest& request, HttpReply& reply) {
  HttpReply::Headers headers{
      {"ETag", file.etag},
      {"Cache-Control", "no-cache"},
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"Referrer-Policy", "no-referrer"}};
  if (request.header("if-none-match").find(file.etag) != std::string_view::npos) return reply.send(304, "", "", std::move(headers));
  reply.send(200, std::string(file.content_type), std::string(file.content), std::move(headers));
}

}  // namespace ridge
