// bench_serve_client.h for a build without OpenSSL and Boost.
#include "base/error.h"
#include "cli/bench_serve_client.h"

namespace ridge::load {
namespace { constexpr const char* kWhy = "this build of ridge has no HTTP client (it was built without OpenSSL and Boost)"; }

std::vector<Outcome> run_load(const ClientOptions&, const RequestFlags&, const std::vector<Conversation>&, bool, int, double&, const std::function<void(size_t)>&) { fail("{}", kWhy); }
Json get_json(const ClientOptions&, const std::string&) { fail("{}", kWhy); }

}  // namespace ridge::load
