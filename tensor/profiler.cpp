#include "tensor/profiler.h"

#include <chrono>

#include "tensor/error.h"

namespace smelt {
namespace {

int64_t clock_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Profiler::Profiler() {
  SMELT_CHECK(Error, active_ == nullptr, "Profiler: this thread is profiled already");
  active_ = this;
  start_ = clock_now();
}

Profiler::~Profiler() { active_ = nullptr; }

int64_t Profiler::now() const { return clock_now() - start_; }

void ProfiledOperation::begin(const char* name, double bytes) {
  profiler_ = Profiler::active();
  event_.name = name;
  event_.scope = ProfileScope::current();
  event_.backward = ProfileScope::in_backward();
  event_.bytes = bytes;
  // Operations count their FLOPs just before they reach their kernel.
  event_.flops = profiler_->counter_.total() - profiler_->counted_;
  profiler_->counted_ = profiler_->counter_.total();
  inside_before_ = profiler_->inside_;
  profiler_->inside_ = 0;
  event_.begin = profiler_->now();
}

void ProfiledOperation::end() {
  event_.end = profiler_->now();
  event_.inside = profiler_->inside_;
  profiler_->inside_ = inside_before_ + (event_.end - event_.begin);
  profiler_->events_.push_back(event_);
}

ProfileScope::ProfileScope(const char* scope, bool backward)
    : scope_before_(current_), backward_before_(backward_) {
  current_ = scope;
  backward_ = backward;
}

ProfileScope::~ProfileScope() {
  current_ = scope_before_;
  backward_ = backward_before_;
}

}  // namespace smelt
