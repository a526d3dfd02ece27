// Figures: what the script says, what is written, and what happens without gnuplot.
#include "apps/common/figures.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include <boost/test/unit_test.hpp>

#include "apps/common/run_folder.h"
#include "tensor/error.h"

using namespace smelt;
namespace fs = std::filesystem;

namespace {

Figure loss_figure() {
  Figure figure;
  figure.title = "Training loss, \"nano\" [a_b]";
  figure.x_label = "tokens";
  figure.y_label = "loss (nats per token)";
  for (const char* name : {"Baseline", "SMELT"}) {
    Series series;
    series.name = name;
    for (int i = 1; i <= 200; ++i) {
      series.x.push_back(i * 20480.0);
      series.y.push_back((name[0] == 'B' ? 1.9 : 1.85) + 3.5 * std::pow(i, -0.45) +
                         0.03 * std::sin(i * 1.7));
    }
    figure.series.push_back(series);
  }
  figure.series[1].y[50] = std::numeric_limits<double>::quiet_NaN();
  return figure;
}

struct Folder {
  ~Folder() { fs::remove_all(path); }
  std::string path = "figures_test_folder";
};

bool have_gnuplot() { return std::system("command -v gnuplot >/dev/null 2>&1") == 0; }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(figures)

BOOST_AUTO_TEST_CASE(the_script_holds_labels_names_and_every_finite_point) {
  Figure figure = loss_figure();
  const std::string script = gnuplot_script(figure, "a.svg");
  BOOST_TEST(contains(script, "set title \"Training loss, \\\"nano\\\" [a_b]\""));
  BOOST_TEST(contains(script, "set ylabel \"loss (nats per token)\""));
  BOOST_TEST(contains(script, "title \"Baseline\""));
  BOOST_TEST(contains(script, "title \"SMELT\""));
  BOOST_TEST(!contains(script, "set logscale"));
  BOOST_TEST(!contains(script, "nan "));
  figure.log_x = true;
  figure.series[0].x[0] = 0;  // has no place on a logarithmic axis
  const std::string log_script = gnuplot_script(figure, "a.svg");
  BOOST_TEST(contains(log_script, "set logscale x"));
  BOOST_TEST(!contains(log_script, "\n0 "));
}

BOOST_AUTO_TEST_CASE(text_cannot_end_a_command) {
  Figure figure = loss_figure();
  figure.title = "a\nsystem \"touch hacked\"";
  BOOST_TEST(!contains(gnuplot_script(figure, "a.svg"), "\nsystem"));
}

BOOST_AUTO_TEST_CASE(svg_and_png_are_drawn_with_their_numbers_beside_them) {
  const Folder folder;
  for (const std::string extension : {".svg", ".png"}) {
    const std::string path = folder.path + "/loss" + extension;
    const bool drawn = draw_figure(loss_figure(), path);
    BOOST_TEST(drawn == have_gnuplot());
    const std::string table = read_text_file(folder.path + "/loss.tsv");
    BOOST_TEST(table.rfind("series\ttokens\tloss (nats per token)\nBaseline\t20480\t", 0) == 0u);
    BOOST_TEST(std::count(table.begin(), table.end(), '\n') == 401);
    if (!drawn) continue;
    const std::string picture = read_text_file(path);
    BOOST_TEST(picture.size() > 5000u);
    BOOST_TEST(contains(picture.substr(0, 200), extension == ".svg" ? "<svg" : "PNG"));
  }
  for (const auto& entry : fs::directory_iterator(folder.path))
    BOOST_TEST(!contains(entry.path().string(), "partial"));
}

BOOST_AUTO_TEST_CASE(a_figure_without_points_is_drawn_and_says_so) {
  const Folder folder;
  Figure figure;
  figure.log_y = true;
  figure.series.push_back({"empty", {}, {}});
  figure.series.push_back({"negative", {1}, {-1}});
  BOOST_TEST(contains(gnuplot_script(figure, "a.svg"), "no data"));
  BOOST_TEST(draw_figure(figure, folder.path + "/empty.svg") == have_gnuplot());
}

BOOST_AUTO_TEST_CASE(without_gnuplot_the_numbers_are_still_written) {
  const Folder folder;
  const std::string before = std::getenv("PATH");
  setenv("PATH", "/no/such/folder", 1);
  const bool drawn = draw_figure(loss_figure(), folder.path + "/loss.svg");
  setenv("PATH", before.c_str(), 1);
  BOOST_TEST(!drawn);
  BOOST_TEST(fs::exists(folder.path + "/loss.tsv"));
  BOOST_TEST(!fs::exists(folder.path + "/loss.svg"));
}

BOOST_AUTO_TEST_CASE(wrong_names_and_series_are_refused) {
  BOOST_CHECK_THROW(draw_figure(loss_figure(), "loss.jpg"), ConfigError);
  Figure figure = loss_figure();
  figure.series[0].x.pop_back();
  BOOST_CHECK_THROW(draw_figure(figure, "loss.svg"), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
