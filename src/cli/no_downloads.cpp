// downloads.h for a build without OpenSSL and Boost.
#include "base/error.h"
#include "cli/downloads.h"

namespace ridge {

std::string pull_from_hub(const HubRequest& request) {
  fail("this build of ridge cannot download (it was built without OpenSSL and Boost); fetch {} by other means and give its folder or .gguf file", request.id);
}

std::string pull_smollm2(bool) { fail("this build of ridge cannot download (it was built without OpenSSL and Boost)"); }

}  // namespace ridge
