// `ridge serve` of a build without the server's libraries.
#include "base/error.h"
#include "cli/command.h"

namespace ridge {

void add_serve(CLI::App& app) {
  auto* sub = app.add_subcommand("serve", "Serve a model to many users (not in this build)");
  sub->allow_extras();
  sub->callback([] { fail("this build of ridge has no server: it needs libboost1.81-dev, libssl-dev and prometheus-cpp-dev; install them and build again"); });
}

}  // namespace ridge
