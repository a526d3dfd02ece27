#include "apps/pretrain/step_profile.h"

#include <cstdio>
#include <filesystem>

#include "tensor/error.h"

namespace smelt {
namespace {
constexpr int64_t kWarmUpSteps = 2;
}

StepProfile::StepProfile(std::string file, int64_t steps) : file_(std::move(file)), steps_(steps) {
  const auto folder = std::filesystem::path(file_).parent_path();
  SMELT_CHECK(ConfigError, folder.empty() || std::filesystem::is_directory(folder),
              "--profile=" << file_ << ": the folder " << folder.string() << " does not exist");
}

void StepProfile::begin_step() {
  if (file_.empty()) return;
  if (seen_++ == kWarmUpSteps) profiler_ = std::make_unique<Profiler>();
  if (profiler_) begin_ = profiler_->now();
}

void StepProfile::end_step(int64_t step) {
  if (!profiler_) return;
  spans_.push_back({"step " + std::to_string(step), begin_, profiler_->now()});
  if (int64_t(spans_.size()) == steps_) write();
}

void StepProfile::write() {
  if (file_.empty()) return;
  if (!profiler_) {
    std::fprintf(stderr, "no profile: it begins after %lld steps\n",
                 static_cast<long long>(kWarmUpSteps));
    file_.clear();
    return;
  }
  double elapsed = 0;
  for (const ProfileSpan& span : spans_) elapsed += 1e-9 * double(span.end - span.begin);
  write_chrome_trace(file_, profiler_->events(), spans_);
  std::fprintf(stderr, "profile of %zu steps, also in %s for chrome://tracing or Perfetto:\n%s",
               spans_.size(), file_.c_str(), profile_table(profiler_->events(), elapsed).c_str());
  profiler_.reset();
  file_.clear();
}

}  // namespace smelt
