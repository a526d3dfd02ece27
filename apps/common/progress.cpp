#include "apps/common/progress.h"

#include <array>
#include <cmath>

#include <sys/ioctl.h>
#include <unistd.h>

namespace smelt {
namespace {

// Three significant digits at most: 1.23, 12.3, 123; a trailing ".0" goes.
std::string three_digits(double value) {
  std::string text = formatted(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
  if (text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

void add(std::string* line, const std::string& part) { line->append(" | ").append(part); }

int terminal_columns(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

std::string formatted(const char* format, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

std::string four_digits(double value, const char* between) {
  constexpr std::array<const char*, 6> kSuffixes = {"", "k", "M", "G", "T", "P"};
  size_t index = 0;
  for (; value >= 9999.5 && index + 1 < kSuffixes.size(); ++index) value /= 1000;
  return formatted("%.4g", value) + (index > 0 ? between : "") + kSuffixes[index];
}

std::string human_count(double value) {
  if (!std::isfinite(value)) return "-";
  if (value < 0) return std::string("-").append(human_count(-value));
  constexpr std::array<const char*, 7> kSuffixes = {"", "k", "M", "G", "T", "P", "E"};
  size_t index = 0;
  while (value >= 999.5 && index + 1 < kSuffixes.size()) {
    value /= 1000;
    ++index;
  }
  return three_digits(value) + kSuffixes[index];
}

std::string human_bytes(double bytes) {
  if (!std::isfinite(bytes)) return "-";
  constexpr std::array<const char*, 6> kUnits = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  size_t index = 0;
  while (bytes >= 1023.5 && index + 1 < kUnits.size()) {
    bytes /= 1024;
    ++index;
  }
  return (bytes >= 999.5 ? formatted("%.0f", bytes) : three_digits(bytes)) + kUnits[index];
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 59.95) return formatted("%.1fs", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  std::array<char, 64> buffer{};
  const auto pair = [&](int64_t large, const char* large_unit, int64_t small,
                        const char* small_unit) {
    std::snprintf(buffer.data(), buffer.size(), "%lld%s%02lld%s", static_cast<long long>(large),
                  large_unit, static_cast<long long>(small), small_unit);
    return std::string(buffer.data());
  };
  if (whole < 3600) return pair(whole / 60, "m", whole % 60, "s");
  if (whole < 86400) return pair(whole / 3600, "h", whole / 60 % 60, "m");
  return pair(whole / 86400, "d", whole / 3600 % 24, "h");
}

std::string step_line(const StepReport& report) {
  std::string line =
      "step " + std::to_string(report.step) + "/" + std::to_string(report.total_steps);
  if (!std::isnan(report.loss)) add(&line, "loss " + formatted("%.4f", report.loss));
  if (!std::isnan(report.grad_norm)) add(&line, "gnorm " + formatted("%.2f", report.grad_norm));
  if (!std::isnan(report.lr)) add(&line, "lr " + formatted("%.1e", report.lr));
  if (!std::isnan(report.tokens_per_second))
    add(&line, human_count(report.tokens_per_second) + " tok/s");
  if (!std::isnan(report.flops_per_second))
    add(&line, human_count(report.flops_per_second) + "FLOP/s");
  if (!std::isnan(report.memory_bytes)) add(&line, "mem " + human_bytes(report.memory_bytes));
  if (!std::isnan(report.aux_loss)) add(&line, "aux " + formatted("%.3f", report.aux_loss));
  if (!std::isnan(report.load_max_over_mean))
    add(&line, "load " + formatted("%.2f", report.load_max_over_mean));
  return line;
}

std::string progress_line(const StepReport& report) {
  std::string line =
      "step " + std::to_string(report.step) + "/" + std::to_string(report.total_steps);
  if (report.total_steps > 0)
    line += " " + std::to_string(100 * report.step / report.total_steps) + "%";
  add(&line, human_count(static_cast<double>(report.tokens)) + " tokens");
  if (!std::isnan(report.loss)) add(&line, "loss " + formatted("%.4f", report.loss));
  if (report.tokens_per_second > 0) {
    add(&line, human_count(report.tokens_per_second) + " tok/s");
    const double left = static_cast<double>(report.total_tokens - report.tokens);
    add(&line, "ETA " + human_duration(left > 0 ? left / report.tokens_per_second : 0));
  }
  return line;
}

Progress::Progress(std::FILE* stream)
    : Progress(stream, isatty(fileno(stream)) != 0, terminal_columns(stream)) {}

Progress::Progress(std::FILE* stream, bool terminal, int columns)
    : stream_(stream), terminal_(terminal), columns_(columns) {}

Progress::~Progress() { finish(); }

void Progress::step(const StepReport& report, bool logged) {
  if (terminal_ || logged) update(terminal_ ? progress_line(report) : step_line(report), logged);
}

void Progress::update(const std::string& line, bool logged) {
  if (terminal_) return rewrite(line);
  if (logged) std::fprintf(stream_, "%s\n", line.c_str());
  std::fflush(stream_);
}

void Progress::rewrite(const std::string& line) {
  // A line as wide as the terminal would wrap and could not be rewritten.
  std::fprintf(stream_, "\r%s\x1b[K", line.substr(0, static_cast<size_t>(columns_ - 1)).c_str());
  std::fflush(stream_);
  line_open_ = true;
}

void Progress::note(const std::string& text) {
  std::fprintf(stream_, "%s%s\n", line_open_ ? "\r\x1b[K" : "", text.c_str());
  std::fflush(stream_);
  line_open_ = false;
}

void Progress::finish() {
  if (line_open_) std::fputc('\n', stream_);
  std::fflush(stream_);
  line_open_ = false;
}

}  // namespace smelt
