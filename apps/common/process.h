// Child processes: the package tools of the system, run without a shell. (Boost.Process would pull
// in Asio and Boost.Filesystem for these two uses.)
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace smelt {

struct CommandResult {
  int exit_code = 0;   ///< 128 + signal if a signal ended it
  std::string output;  ///< standard output and error together
};

/// Runs `arguments` (program first, searched in PATH) in folder `dir` and waits for the end.
/// @throws RunError if it cannot be started.
CommandResult run_command(const std::vector<std::string>& arguments, const std::string& dir);

/// The standard output of a child process, read as a stream; its error output is kept aside.
class CommandStream {
 public:
  /// Starts the command. @throws RunError if it cannot be started.
  explicit CommandStream(const std::vector<std::string>& arguments);
  /// Closes the stream and waits for the process.
  ~CommandStream();
  CommandStream(const CommandStream&) = delete;
  CommandStream& operator=(const CommandStream&) = delete;

  /// Reads up to `size` bytes; 0 at the end.
  size_t read(char* data, size_t size);
  /// Reads what is left, waits. @throws RunError with the command's own message if it failed.
  void finish();

 private:
  std::string name_;
  pid_t pid_ = -1;
  int fd_ = -1;
  int error_fd_ = -1;
};

}  // namespace smelt
