// Stopping cleanly: signals set a flag that the training loop reads between steps.
#pragma once

#include <chrono>

namespace smelt {

/// SIGINT, SIGTERM and SIGUSR1 set the flag from now on; a second SIGINT ends the process at once
/// with exit code 130.
void install_stop_signals();
/// Whether one of them arrived.
bool stop_requested();
/// "SIGINT", "SIGTERM", "SIGUSR1", or empty.
const char* stop_signal_name();
/// Forgets what arrived (tests, and programs that run several jobs).
void clear_stop_request();

/// A limit on wall-clock time, counted from construction. 0 seconds: no limit.
class TimeLimit {
 public:
  explicit TimeLimit(double seconds) : seconds_(seconds) {}
  bool expired() const { return seconds_ > 0 && elapsed() >= seconds_; }
  /// Whether less than margin seconds are left, e.g. what saving a checkpoint takes.
  bool expires_within(double margin) const {
    return seconds_ > 0 && elapsed() + margin >= seconds_;
  }
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace smelt
