#include "apps/common/figures.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/common/config_schema.h"
#include "apps/common/output_file.h"
#include "apps/common/run_folder.h"

extern char** environ;

namespace smelt {
namespace fs = std::filesystem;
namespace {

// Okabe and Ito's colours, which stay apart for colour-blind readers.
constexpr std::array<const char*, 7> kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                 "#E69F00", "#56B4E9", "#000000"};

// Text inside gnuplot's double quotes; newlines cannot end the command.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n' || c == '\r')
      out += ' ';
    else
      out += c;
  }
  return out + "\"";
}

bool can_be_drawn(const Figure& figure, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!figure.log_x || x > 0) &&
         (!figure.log_y || y > 0);
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// What the drawn points cover along one axis.
Range drawn_range(const Figure& figure, bool along_x) {
  Range range;
  for (const Series& series : figure.series)
    for (size_t i = 0; i < series.x.size(); ++i)
      if (can_be_drawn(figure, series.x[i], series.y[i]))
        range.take(along_x ? series.x[i] : series.y[i]);
  return range;
}

// gnuplot's own choice serves most axes. Large plain numbers read better as 1.5M than as 1.5e+06,
// and a logarithmic axis over less than two decades would have hardly any label.
std::string axis(const std::string& name, bool logarithmic, const Range& range) {
  std::ostringstream out;
  if (!(range.low <= range.high)) return "";
  if (!logarithmic) {
    if (std::max(std::abs(range.low), std::abs(range.high)) >= 1e4)
      out << "set format " << name << " \"%.1s%c\"\n";
    return out.str();
  }
  out << "set logscale " << name << "\n";
  const double ratio = range.high / range.low;
  if (ratio >= 100) return out.str();
  const std::vector<double> steps =
      ratio < 10 ? std::vector<double>{1, 1.5, 2, 3, 4, 5, 6, 8} : std::vector<double>{1, 2, 5};
  out << "set " << name << "range [" << number_text(range.low / 1.1) << ":"
      << number_text(range.high * 1.1) << "]\nset " << name << "tics (";
  const int first = static_cast<int>(std::floor(std::log10(range.low))) - 1;
  const char* separator = "";
  for (int decade = first; decade <= first + 4; ++decade) {
    for (const double step : steps) {
      const double value = step * std::pow(10.0, decade);
      char label[32];
      std::snprintf(label, sizeof label, "%.3g", value);
      out << separator << "\"" << label << "\" " << number_text(value);
      separator = ", ";
    }
  }
  out << ")\n";
  return out.str();
}

void check(const Figure& figure, const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  SMELT_CHECK(ConfigError, extension == ".svg" || extension == ".png",
              path << ": a figure's name must end in .svg or .png");
  for (const Series& series : figure.series)
    SMELT_CHECK(ConfigError, series.x.size() == series.y.size(),
                "figure '" << figure.title << "': series '" << series.name << "' has "
                           << series.x.size() << " x values and " << series.y.size()
                           << " y values");
}

std::string number_or_nan(double value) {
  return std::isfinite(value) ? number_text(value) : "nan";
}

std::string table(const Figure& figure) {
  std::ostringstream out;
  out << "series\t" << figure.x_label << "\t" << figure.y_label << "\n";
  for (const Series& series : figure.series)
    for (size_t i = 0; i < series.x.size(); ++i)
      out << series.name << "\t" << number_or_nan(series.x[i]) << "\t" << number_or_nan(series.y[i])
          << "\n";
  return out.str();
}

struct Finished {
  bool started = false;
  int status = 0;
  std::string output;  // stdout and stderr together
};

// Runs gnuplot with script on its standard input. Output goes to an unlinked temporary file, so
// that neither side can block on a full pipe.
Finished run_gnuplot(const std::string& script) {
  Finished finished;
  std::FILE* input = std::tmpfile();
  std::FILE* output = std::tmpfile();
  SMELT_CHECK(RunError, input != nullptr && output != nullptr,
              "no temporary file for gnuplot: " << std::strerror(errno));
  std::fwrite(script.data(), 1, script.size(), input);
  std::rewind(input);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(input), 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(output), 1);
  posix_spawn_file_actions_adddup2(&actions, fileno(output), 2);
  std::string name = "gnuplot";
  std::array<char*, 2> arguments = {name.data(), nullptr};
  pid_t child = 0;
  finished.started =
      posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  if (finished.started) {
    while (waitpid(child, &finished.status, 0) < 0 && errno == EINTR) {
    }
    std::rewind(output);
    std::array<char, 4096> buffer{};
    for (size_t count; (count = std::fread(buffer.data(), 1, buffer.size(), output)) > 0;)
      finished.output.append(buffer.data(), count);
  }
  std::fclose(input);
  std::fclose(output);
  return finished;
}

}  // namespace

std::string gnuplot_script(const Figure& figure, const std::string& path) {
  std::ostringstream out;
  const bool svg = fs::path(path).extension() == ".svg";
  out << "set encoding utf8\n"
      << "set terminal " << (svg ? "svg" : "pngcairo") << " noenhanced size " << figure.width << ","
      << figure.height << (svg ? " dynamic" : "")
      << " font \"DejaVu Sans,13\" linewidth 1.5 background rgb \"white\"\n"
      << "set output " << quoted(path) << "\n"
      << "set title " << quoted(figure.title) << " font \",15\"\n"
      << "set xlabel " << quoted(figure.x_label) << "\nset ylabel " << quoted(figure.y_label)
      << "\n"
      << "set grid linetype 1 linecolor rgb \"#dcdcdc\" linewidth 0.5\nset border 3 linecolor rgb "
         "\"#404040\"\n"
      << "set tics nomirror out\nset key top right box linecolor rgb \"#c0c0c0\" opaque spacing "
         "1.2\n"
      << "set datafile missing \"nan\"\n";
  out << axis("x", figure.log_x, drawn_range(figure, true))
      << axis("y", figure.log_y, drawn_range(figure, false)) << "set rmargin 5\n";
  std::string plots;
  for (size_t i = 0; i < figure.series.size(); ++i) {
    const Series& series = figure.series[i];
    bool any = false;
    std::string block;
    for (size_t k = 0; k < series.x.size(); ++k) {
      const bool drawn = can_be_drawn(figure, series.x[k], series.y[k]);
      any = any || drawn;
      block += drawn ? number_text(series.x[k]) + " " + number_text(series.y[k]) + "\n" : "\n";
    }
    if (!any) continue;
    out << "$series" << i << " << END_OF_SERIES\n" << block << "END_OF_SERIES\n";
    plots += (plots.empty() ? "plot $series" : ", \\\n  $series") + std::to_string(i) +
             " using 1:2 with " + (series.points ? "points pointtype 7 pointsize 0.8" : "lines") +
             " linecolor rgb \"" + kColours[i % kColours.size()] + "\"" +
             (series.points ? "" : " linewidth 1.6") +
             (i >= kColours.size() && !series.points ? " dashtype 2" : "") + " title " +
             quoted(series.name);
  }
  if (plots.empty()) {
    out << "set label \"no data\" at graph 0.5,0.5 center\nunset logscale\n"
        << "plot [0:1] [0:1] NaN notitle";
  }
  out << plots << "\nunset output\n";
  return out.str();
}

bool draw_figure(const Figure& figure, const std::string& path) {
  check(figure, path);
  const fs::path target(path);
  if (target.has_parent_path()) {
    std::error_code error;
    fs::create_directories(target.parent_path(), error);
    SMELT_CHECK(IoError, !error,
                target.parent_path().string() << ": cannot be created: " << error.message());
  }
  const std::string table_path = fs::path(path).replace_extension(".tsv").string();
  write_file(table_path, table(figure));
  // Drawn beside and renamed: an old picture stays whole if gnuplot fails.
  const std::string drawing =
      (target.parent_path() / (".partial-" + target.filename().string())).string();
  const Finished finished = run_gnuplot(gnuplot_script(figure, drawing));
  const bool missing =
      !finished.started || (WIFEXITED(finished.status) && WEXITSTATUS(finished.status) == 127);
  if (missing) {
    std::fprintf(stderr, "%s was not drawn: gnuplot is not installed; its numbers are in %s\n",
                 path.c_str(), table_path.c_str());
    return false;
  }
  std::error_code error;
  const bool drawn = WIFEXITED(finished.status) && WEXITSTATUS(finished.status) == 0 &&
                     fs::file_size(drawing, error) > 0 && !error;
  if (!drawn) fs::remove(drawing, error);
  SMELT_CHECK(RunError, drawn,
              path << ": gnuplot could not draw it: "
                   << (finished.output.empty() ? "no message" : finished.output));
  fs::rename(drawing, path, error);
  SMELT_CHECK(IoError, !error, path << ": cannot be written: " << error.message());
  return true;
}

}  // namespace smelt
