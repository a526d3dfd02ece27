// What a stretch of a run spends its time on: every operation that reaches a kernel, with the part
// of the model it ran for. Off unless a Profiler lives; then an operation looks at one pointer.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/flop_counter.h"

namespace smelt {

/// One execution of an operation. Times are nanoseconds since the Profiler began.
struct ProfileEvent {
  const char* name = "";   // of the kernel or collective
  const char* scope = "";  // innermost ProfileScope, e.g. "layer 3 visit 1"; may be empty
  bool backward = false;   // inside backward(), recomputation included
  int64_t begin = 0, end = 0;
  int64_t inside = 0;  // time of operations that it called itself
  double flops = 0;    // as FlopCounter counts
  double bytes = 0;    // of its tensors, each once; 0 where unknown
};

/// Records for as long as it lives what the thread that made it executes. One at a time per thread.
class Profiler {
 public:
  Profiler();
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// In the order of their ends.
  const std::vector<ProfileEvent>& events() const { return events_; }
  /// Nanoseconds since it began.
  int64_t now() const;
  /// The profiler of this thread, or null.
  static Profiler* active() { return active_; }

 private:
  friend class ProfiledOperation;
  static inline thread_local Profiler* active_ = nullptr;
  int64_t start_ = 0;
  FlopCounter counter_;
  double counted_ = 0;  // FLOPs that earlier events have taken
  int64_t inside_ = 0;  // time of finished operations inside the one that is running
  std::vector<ProfileEvent> events_;
};

/// An operation, from here to the end of the block.
class ProfiledOperation {
 public:
  /// @param name  must outlive the profiler, e.g. a literal
  ProfiledOperation(const char* name, double bytes) {
    if (Profiler::active() != nullptr) begin(name, bytes);
  }
  ~ProfiledOperation() {
    if (profiler_ != nullptr) end();
  }
  ProfiledOperation(const ProfiledOperation&) = delete;
  ProfiledOperation& operator=(const ProfiledOperation&) = delete;

 private:
  void begin(const char* name, double bytes);
  void end();

  Profiler* profiler_ = nullptr;
  ProfileEvent event_;
  int64_t inside_before_ = 0;
};

/// Names the part of the model that runs until the end of the block. autograd gives what backward
/// executes for a node the scope in which the node was made.
class ProfileScope {
 public:
  /// @param scope  must outlive the profiler
  explicit ProfileScope(const char* scope, bool backward = in_backward());
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

  static const char* current() { return current_; }
  static bool in_backward() { return backward_; }

 private:
  static inline thread_local const char* current_ = "";
  static inline thread_local bool backward_ = false;
  const char* scope_before_;
  bool backward_before_;
};

}  // namespace smelt
