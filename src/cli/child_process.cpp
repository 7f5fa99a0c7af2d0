#include "cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>

#include "base/error.h"

extern char** environ;

namespace ridge {

ChildResult run_child(const std::vector<std::string>& command, const std::vector<std::string>& extra_env, const std::function<bool()>& watch) {
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) fail("cannot start {}: {}", command[0], std::strerror(errno));
  std::vector<char*> argv, envp;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const auto overridden = [&](const char* entry) {
    for (const auto& e : extra_env)
      if (std::strncmp(entry, e.c_str(), e.find('=') + 1) == 0) return true;
    return false;
  };
  for (char** e = environ; *e; ++e)
    if (!overridden(*e)) envp.push_back(*e);
  for (const auto& e : extra_env) envp.push_back(const_cast<char*>(e.c_str()));
  envp.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, command[0].c_str(), &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  ChildResult result;
  if (failed) {
    ::close(pipe_ends[0]);
    if (failed != ENOENT) fail("cannot start {}: {}", command[0], std::strerror(failed));
    result.exit_code = 127;
    return result;
  }
  constexpr size_t kKept = 1 << 16;
  int n_asked_to_end = 0;
  for (char chunk[4096];;) {
    pollfd waiting{pipe_ends[0], POLLIN, 0};
    const int ready = ::poll(&waiting, 1, 100);
    if (watch && !watch()) ::kill(pid, ++n_asked_to_end < 20 ? SIGTERM : SIGKILL);
    if (ready <= 0) continue;
    const ssize_t n = ::read(pipe_ends[0], chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    result.output.append(chunk, size_t(n));
    if (result.output.size() > 2 * kKept) result.output.erase(0, result.output.size() - kKept);
  }
  ::close(pipe_ends[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace ridge
