#include "apps/common/process.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
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

// Starts the command; its error output goes to `error_fd`, or with its output if that is negative.
Child start(const std::vector<std::string>& arguments, const std::string& dir, int error_fd) {
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
  posix_spawn_file_actions_adddup2(&actions, error_fd < 0 ? ends[1] : error_fd, STDERR_FILENO);
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
  const Child child = start(arguments, dir, -1);
  CommandResult result;
  std::array<char, 4096> buffer;
  while (const size_t count = read_some(child.fd, buffer.data(), buffer.size(), arguments[0])) {
    result.output.append(buffer.data(), count);
  }
  close(child.fd);
  result.exit_code = wait_for(child.pid);
  return result;
}

CommandStream::CommandStream(const std::vector<std::string>& arguments)
    : name_(arguments[0]), error_fd_(memfd_create("stderr", MFD_CLOEXEC)) {
  // A file in memory: a second pipe would have to be drained while the first is read.
  SMELT_CHECK(RunError, error_fd_ >= 0,
              name_ << ": cannot keep its errors: " << std::strerror(errno));
  try {
    const Child child = start(arguments, "", error_fd_);
    pid_ = child.pid;
    fd_ = child.fd;
  } catch (...) {
    close(error_fd_);
    throw;
  }
}

CommandStream::~CommandStream() {
  close(fd_);  // a child still writing ends by SIGPIPE
  if (pid_ >= 0) wait_for(pid_);
  close(error_fd_);
}

size_t CommandStream::read(char* data, size_t size) { return read_some(fd_, data, size, name_); }

void CommandStream::finish() {
  std::array<char, 65536> rest;
  while (read(rest.data(), rest.size()) > 0) {
  }
  const int exit_code = wait_for(pid_);
  pid_ = -1;
  if (exit_code == 0) return;
  const ssize_t length = pread(error_fd_, rest.data(), 1000, 0);
  std::string message(rest.data(), length > 0 ? static_cast<size_t>(length) : 0);
  message = message.substr(0, message.find('\n'));
  throw RunError(name_ + ": failed with exit code " + std::to_string(exit_code) +
                 (message.empty() ? "" : ": " + message));
}

}  // namespace smelt
