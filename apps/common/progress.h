// What a run shows while it works: one rewritten line on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

namespace smelt {

/// One number as printf writes it, at most 63 characters.
std::string formatted(const char* format, double value);
/// 12.35M: four significant digits, with `between` before the suffix.
std::string four_digits(double value, const char* between = "");
/// 950, 1.2k, 3.4M, 5.6G, 7.8T: three significant digits at most.
std::string human_count(double value);
/// 512 B, 1.5 KiB, 11.3 GiB.
std::string human_bytes(double bytes);
/// 4.2s, 2m05s, 2h05m, 3d04h.
std::string human_duration(double seconds);

/// One logged step. Values that are NaN are not shown.
struct StepReport {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;
  int64_t total_steps = 0;
  int64_t tokens = 0;  // seen so far
  int64_t total_tokens = 0;
  double loss = kNone;
  double grad_norm = kNone;
  double lr = kNone;
  double tokens_per_second = kNone;
  double flops_per_second = kNone;
  double memory_bytes = kNone;
  double aux_loss = kNone;
  double load_max_over_mean = kNone;
};

/// "step 1200/20000 | loss 3.412 | gnorm 0.83 | lr 2.9e-04 | 41.2k tok/s | 1.9 TFLOP/s | ..."
std::string step_line(const StepReport& report);
/// "step 1200/20000 6% | 19.7M tokens | loss 3.412 | 41.2k tok/s | ETA 2h04m"
std::string progress_line(const StepReport& report);

class Progress {
 public:
  /// Writes to stream; a rewritten line if it is a terminal.
  explicit Progress(std::FILE* stream = stderr);
  /// The same with the choice made by the caller (tests).
  Progress(std::FILE* stream, bool terminal, int columns = 80);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows every step on a terminal; elsewhere only steps that are logged.
  void step(const StepReport& report, bool logged);
  /// Shows `line` on a terminal, in place of the last one; elsewhere only when it is logged.
  void update(const std::string& line, bool logged);
  /// A line of its own (a checkpoint was saved, an evaluation's result).
  void note(const std::string& text);
  /// Leaves the rewritten line as it is and goes to the next one.
  void finish();

 private:
  std::FILE* stream_;
  bool terminal_;
  int columns_;
  bool line_open_ = false;

  void rewrite(const std::string& line);
};

}  // namespace smelt
