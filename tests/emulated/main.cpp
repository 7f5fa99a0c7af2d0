// Kernels on the host take one thread, so all tests together run in a process for each of a few processors, unless a filter or shards are asked for. Which threads go on first depends on the tests before it in a
// process: what fails is found again by the same shards (GTEST_TOTAL_SHARDS), or with other orders (RIDGE_SEED).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int n = std::clamp(int(std::thread::hardware_concurrency()), 1, 8);
  if (n == 1 || std::getenv("GTEST_TOTAL_SHARDS") || GTEST_FLAG_GET(filter) != "*" || GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  struct Part { pid_t process; std::FILE* said; };
  std::vector<Part> parts;
  for (int i = 0; i < n; ++i) {
    std::FILE* const said = std::tmpfile();
    const pid_t process = said ? fork() : -1;
    if (process == 0) {
      dup2(fileno(said), STDOUT_FILENO), dup2(fileno(said), STDERR_FILENO);
      setenv("GTEST_TOTAL_SHARDS", std::to_string(n).c_str(), 1), setenv("GTEST_SHARD_INDEX", std::to_string(i).c_str(), 1);
      const int result = RUN_ALL_TESTS();
      std::fflush(nullptr);
      _exit(result);
    }
    if (process < 0) return std::perror("test_emulated: no process"), 1;
    parts.push_back({process, said});
  }
  bool failed = false;
  for (const Part& part : parts) {
    int status = 0;
    failed |= waitpid(part.process, &status, 0) != part.process || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    std::rewind(part.said);
    char text[4096];
    for (size_t n_read; (n_read = std::fread(text, 1, sizeof text, part.said)) > 0;) std::fwrite(text, 1, n_read, stdout);
    if (!WIFEXITED(status)) std::printf("a part of the tests ended by signal %d\n", WTERMSIG(status));
  }
  return failed ? 1 : 0;
}
