// The page at `/`: the files of web/, which are part of the program.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace ridge {

struct PageFile {
  std::string path;                          // "/app.js"; index.html is "/" as well
  std::string_view content_type, content;
  std::string etag;
};

const std::vector<PageFile>& page_files();
// Answers a GET or HEAD of one of the files; 304 when the client has it already.
void send_page_file(const PageFile& file, const HttpRequest& request, HttpReply& reply);

}  // namespace ridge
