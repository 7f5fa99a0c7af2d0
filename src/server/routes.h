// Which handler answers which path. The server listens before its model is loaded: until open() everything but /health and what was add()ed is answered with 503.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/http.h"

namespace ridge {

struct Service;

class Routes {
 public:
  Routes();
  ~Routes();
  // What others answer (metrics, the page). Before the server starts.
  void add(const std::string& method, const std::string& path, HttpHandler handler);
  void open(std::shared_ptr<const Service> service);          // the model is loaded; from any thread
  void close();                                               // before what the service refers to goes away
  void handle(const HttpRequest& request, std::shared_ptr<HttpReply> reply) const;
  // An error in the shape of the API that the path belongs to: for HttpOptions::error_body.
  static std::string error_body(int status, const std::string& message, const std::string& path);

 private:
  std::shared_ptr<const Service> service() const;

  std::map<std::string, std::map<std::string, HttpHandler>> others_;      // by path, then method
  mutable std::mutex mutex_;
  std::shared_ptr<const Service> service_;   // under the mutex: libstdc++ 12's atomic shared_ptr is a race to the thread sanitizer
};

}  // namespace ridge
