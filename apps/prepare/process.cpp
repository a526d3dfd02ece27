#include "apps/prepare/process.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/error.h"

extern char** environ;

namespace smelt {
namespace {

struct Child {
  pid_t pid;
  int fd;  // reading end of its output
};

Child start(const std::vector<std::string>& arguments, const std::string& dir, bool with_errors) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  int ends[2];
  // Close-on-exec, so that a child started by another thread does not hold this pipe open.
  SMELT_CHECK(RunError, pipe2(ends, O_CLOEXEC) == 0,
              arguments[0] << ": cannot make a pipe: " << std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  if (with_errors) posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  if (!dir.empty()) posix_spawn_file_actions_addchdir_np(&actions, dir.c_str());
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) close(ends[0]);
  SMELT_CHECK(RunError, error == 0,
              arguments[0] << ": cannot start this program: " << std::strerror(error));
  return {pid, ends[0]};
}

size_t read_some(int fd, char* data, size_t size, const std::string& name) {
  for (;;) {
    const ssize_t count = ::read(fd, data, size);
    if (count >= 0) return static_cast<size_t>(count);
    SMELT_CHECK(RunError, errno == EINTR,
                name << ": cannot read its output: " << std::strerror(errno));
  }
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& arguments, const std::string& dir) {
  const Child child = start(arguments, dir, true);
  CommandResult result;
  std::array<char, 4096> buffer;
  while (const size_t count = read_some(child.fd, buffer.data(), buffer.size(), arguments[0])) {
    result.output.append(buffer.data(), count);
  }
  close(child.fd);
  result.exit_code = wait_for(child.pid);
  return result;
}

CommandStream::CommandStream(const std::vector<std::string>& arguments) : name_(arguments[0]) {
  const Child child = start(arguments, "", false);
  pid_ = child.pid;
  fd_ = child.fd;
}

CommandStream::~CommandStream() {
  if (fd_ >= 0) close(fd_);  // a child still writing ends by SIGPIPE
  if (pid_ >= 0) wait_for(pid_);
}

size_t CommandStream::read(char* data, size_t size) { return read_some(fd_, data, size, name_); }

void CommandStream::finish() {
  std::array<char, 65536> rest;
  while (read(rest.data(), rest.size()) > 0) {
  }
  const int exit_code = wait_for(pid_);
  pid_ = -1;
  SMELT_CHECK(RunError, exit_code == 0, name_ << ": failed with exit code " << exit_code);
}

}  // namespace smelt
