// Line charts through gnuplot, which runs as a child process and reads its script from a pipe.
#pragma once

#include <string>
#include <vector>

namespace smelt {

struct Series {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;  // as long as x; points that are not finite leave a gap
  bool points = false;    // markers instead of a line
};

struct Figure {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;
  bool log_y = false;
  std::vector<Series> series;
  int width = 960;  // pixels
  int height = 600;
};

/// Draws figure to path (.svg or .png) and writes its numbers beside it (path with .tsv: series, x,
/// y). Without gnuplot only the numbers are written, and a notice goes to stderr.
/// @return whether the picture was drawn
/// @throws ConfigError for another extension or for series whose x and y differ in length, IoError
///         when the files cannot be written, RunError with gnuplot's own message when it fails
bool draw_figure(const Figure& figure, const std::string& path);

/// The script that draw_figure gives to gnuplot, data included.
std::string gnuplot_script(const Figure& figure, const std::string& path);

}  // namespace smelt
