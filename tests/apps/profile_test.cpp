// Traces and tables made of a profile.
#include "apps/common/profile.h"

#include <sstream>

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/apps/data_files.h"

namespace smelt::testing {
namespace {

namespace json = boost::json;

/// Two operations of one step's layer, the second with one inside; then one of its backward pass.
std::vector<ProfileEvent> events() {
  return {{"a", "layer 0 visit 0", false, 1000, 3000, 0, 5e9, 100},
          {"inner", "layer 0 visit 0", false, 4000, 5000, 0, 0, 0},
          {"a", "layer 0 visit 0", false, 3000, 7000, 1000, 5e9, 100},
          {"b", "layer 0 visit 0", true, 7000, 9000, 0, 0, 4e9},
          {"c", "", false, 9000, 9500, 0, 0, 0}};
}

BOOST_AUTO_TEST_SUITE(profile)

BOOST_AUTO_TEST_CASE(totals_leave_out_what_ran_inside) {
  const std::vector<OperationTotal> totals = operation_totals(events(), 10e-6);
  BOOST_REQUIRE(totals.size() == 5u);
  BOOST_TEST(totals[0].name == "a");
  BOOST_TEST(totals[0].calls == 2);
  BOOST_CHECK_CLOSE(totals[0].seconds, 5e-6, 1e-9);
  BOOST_TEST(totals[0].flops == 1e10);
  BOOST_TEST(totals[0].bytes == 200);
  BOOST_TEST(totals[1].name == "b");
  double sum = 0;
  for (const OperationTotal& total : totals) sum += total.seconds;
  BOOST_CHECK_CLOSE(sum, 10e-6, 1e-9);  // "(between operations)" holds the rest
}

BOOST_AUTO_TEST_CASE(the_trace_has_spans_scopes_and_operations) {
  const ScratchFolder scratch;
  write_chrome_trace(scratch.path("trace.json"), events(), {{"step 3", 500, 9800}});
  const json::value document = json::parse(read_file(scratch.path("trace.json")));
  std::vector<std::string> slices;
  for (const json::value& event : document.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    std::ostringstream text;
    text << event.at("tid").as_int64() << " " << event.at("name").as_string().c_str() << " "
         << event.at("ts").to_number<double>() << " " << event.at("dur").to_number<double>();
    slices.push_back(text.str());
  }
  const std::vector<std::string> expected = {"0 step 3 0.5 9.3",
                                             "1 layer 0 visit 0 forward 1 6",
                                             "1 layer 0 visit 0 backward 7 2",
                                             "2 a 1 2",
                                             "2 a 3 4",
                                             "2 inner 4 1",
                                             "2 b 7 2",
                                             "2 c 9 0.5"};
  BOOST_TEST(slices == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_table_fits_a_page) {
  std::vector<ProfileEvent> all = events();
  all.push_back(
      {"a_rather_long_operation_name", "optimizer", false, 0, int64_t(9e12), 0, 9.99e20, 9.99e20});
  const std::string table = profile_table(all, 1e4);
  std::istringstream lines(table);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  BOOST_TEST(widest <= 100u, table);
  BOOST_TEST(table.find("optimizer 90.0%") != std::string::npos, table);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
