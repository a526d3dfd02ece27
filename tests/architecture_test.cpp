// Reads every #include of the source tree and holds it against the order of the folders
// (docs/design.md): tensor < dist, autograd < nn < moe < apps < tests.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace fs = std::filesystem;

namespace {

const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"tensor", {"tensor"}},
    {"dist", {"dist", "tensor"}},
    {"autograd", {"autograd", "tensor"}},
    {"nn", {"nn", "autograd", "tensor"}},
    {"moe", {"moe", "nn", "autograd", "dist", "tensor"}},
    {"apps", {"apps", "moe", "nn", "autograd", "dist", "tensor"}},
    {"tests", {"tests", "apps", "moe", "nn", "autograd", "dist", "tensor"}},
};

// Third-party headers by their beginning, and the places that may include them.
struct ThirdParty {
  std::string header;
  std::vector<std::string> places;  // a path must begin with one of these
  bool sources_only;                // not in headers
};
const std::vector<ThirdParty> kThirdParty = {
    {"dnnl", {"tensor/cpu/"}, false},
    {"oneapi/", {"tensor/cpu/"}, false},
    {"mpi.h", {"dist/"}, true},
    {"mpi-ext.h", {"dist/"}, true},
    {"boost/", {"apps/", "tests/"}, false},
    {"pcre2", {"apps/common/tokenizer/"}, true},
    {"utf8proc", {"apps/common/tokenizer/"}, true},
    {"cuda", {"tensor/cuda/"}, false},
    {"cublas", {"tensor/cuda/"}, false},
};

// Files that may be longer than kLongestFile: tables, mostly. Each needs its reason here.
constexpr int kLongestFile = 600;
const std::set<std::string> kMayBeLong = {};

bool begins_with(const std::string& text, const std::string& beginning) {
  return text.rfind(beginning, 0) == 0;
}

std::string top_folder(const std::string& path) { return path.substr(0, path.find('/')); }

struct Include {
  std::string file;  // relative to the root
  int line = 0;
  std::string header;
  bool quoted = false;
};

/// What is wrong with an include, or nothing.
std::optional<std::string> fault_of(const Include& include) {
  const std::string folder = top_folder(include.file);
  if (include.quoted) {
    const std::string target = top_folder(include.header);
    if (include.header.find('/') == std::string::npos || kMayInclude.count(target) == 0)
      return "quoted includes are rooted at the project, e.g. \"tensor/tensor.h\"";
    if (kMayInclude.at(folder).count(target) == 0) return folder + " may not include " + target;
    return std::nullopt;
  }
  for (const ThirdParty& party : kThirdParty) {
    if (!begins_with(include.header, party.header)) continue;
    const bool place_ok =
        std::any_of(party.places.begin(), party.places.end(),
                    [&](const std::string& place) { return begins_with(include.file, place); });
    if (!place_ok) return "<" + include.header + "> belongs to " + party.places.front();
    if (party.sources_only && include.file.size() > 2 && include.file.ends_with(".h"))
      return "<" + include.header + "> belongs to source files, not to headers";
  }
  return std::nullopt;
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> extensions = {".h", ".cpp", ".cu", ".cuh",
                                                   ".c", ".cc",  ".hpp"};
  return extensions.count(path.extension().string()) > 0;
}

const fs::path kRoot = SMELT_SOURCE_DIR;

std::vector<std::string> source_files() {
  std::vector<std::string> files;
  for (const auto& [folder, allowed] : kMayInclude) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (entry.is_regular_file() && is_source(entry.path()))
        files.push_back(entry.path().lexically_relative(kRoot).generic_string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Include> includes_of(const std::string& file) {
  static const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::ifstream in(kRoot / file);
  std::vector<Include> includes;
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    std::smatch match;
    if (std::regex_search(text, match, pattern))
      includes.push_back({file, line, match[2].str(), match[1].str() == "\""});
  }
  return includes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(architecture)

BOOST_AUTO_TEST_CASE(the_rules_themselves_refuse_wrong_edges_and_let_right_ones_pass) {
  const std::vector<Include> wrong = {{"tensor/a.h", 1, "dist/b.h", true},
                                      {"dist/a.cpp", 1, "autograd/b.h", true},
                                      {"autograd/a.cpp", 1, "dist/b.h", true},
                                      {"nn/a.cpp", 1, "dist/b.h", true},
                                      {"nn/a.h", 1, "moe/b.h", true},
                                      {"moe/a.h", 1, "apps/common/config.h", true},
                                      {"apps/a.cpp", 1, "tests/tolerance.h", true},
                                      {"tensor/a.cpp", 1, "tensor.h", true},
                                      {"tensor/a.cpp", 1, "../nn/b.h", true},
                                      {"tensor/a.cpp", 1, "dnnl.hpp", false},
                                      {"nn/a.cpp", 1, "oneapi/dnnl/dnnl.hpp", false},
                                      {"apps/a.cpp", 1, "mpi.h", false},
                                      {"dist/a.h", 1, "mpi.h", false},
                                      {"moe/a.cpp", 1, "boost/json.hpp", false}};
  for (const Include& include : wrong)
    BOOST_TEST(fault_of(include).has_value(), include.file << " includes " << include.header);
  const std::vector<Include> right = {
      {"moe/a.cpp", 1, "dist/b.h", true},      {"apps/common/a.h", 1, "boost/json.hpp", false},
      {"dist/a.cpp", 1, "mpi.h", false},       {"tensor/cpu/a.cpp", 1, "dnnl.hpp", false},
      {"tests/nn/a.cpp", 1, "apps/x.h", true}, {"nn/a.h", 1, "autograd/variable.h", true}};
  for (const Include& include : right)
    BOOST_TEST(!fault_of(include).has_value(), include.file << " includes " << include.header);
}

BOOST_AUTO_TEST_CASE(every_include_follows_the_order_of_the_folders) {
  const std::vector<std::string> files = source_files();
  BOOST_TEST(files.size() > 5u);
  size_t seen = 0;
  for (const std::string& file : files) {
    for (const Include& include : includes_of(file)) {
      ++seen;
      const auto fault = fault_of(include);
      BOOST_TEST(!fault.has_value(), file << ":" << include.line << ": " << fault.value_or(""));
      // NAME.in is the template of a header that the build makes.
      if (include.quoted)
        BOOST_TEST(
            (fs::exists(kRoot / include.header) || fs::exists(kRoot / (include.header + ".in"))),
            file << ":" << include.line << ": no file " << include.header);
    }
  }
  BOOST_TEST(seen > files.size());
}

// CASE 85: streams that are equal on all ranks cannot arise where nothing is drawn at random. Only
// initial values and the choice of the next token use random numbers, both by index.
BOOST_AUTO_TEST_CASE(nothing_is_drawn_at_random_in_forward_and_backward) {
  const std::set<std::string> may_draw = {"nn/parameter.cpp", "nn/sampling.cpp"};
  size_t drawing = 0;
  for (const std::string& file : source_files()) {
    const bool engine = begins_with(file, "tensor/cpu/") || begins_with(file, "autograd/") ||
                        begins_with(file, "nn/") || begins_with(file, "moe/");
    if (!engine) continue;
    for (const Include& include : includes_of(file)) {
      if (include.header != "tensor/rng.h" && include.header != "random") continue;
      ++drawing;
      BOOST_TEST(may_draw.count(file) == 1u, file << " includes " << include.header);
    }
  }
  BOOST_TEST(drawing == may_draw.size());
}

BOOST_AUTO_TEST_CASE(no_file_is_longer_than_600_lines) {
  for (const std::string& file : source_files()) {
    std::ifstream in(kRoot / file);
    int lines = 0;
    for (std::string text; std::getline(in, text);) ++lines;
    BOOST_TEST((lines <= kLongestFile || kMayBeLong.count(file) > 0),
               file << " has " << lines << " lines; split it by subject");
  }
}

BOOST_AUTO_TEST_CASE(no_other_top_level_folder_holds_sources) {
  for (const auto& entry : fs::directory_iterator(kRoot)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || name.front() == '.' || begins_with(name, "build") ||
        kMayInclude.count(name) > 0)
      continue;
    for (const auto& inner : fs::recursive_directory_iterator(entry.path()))
      BOOST_TEST((!is_source(inner.path()) || inner.path().parent_path() == kRoot / "docs/example"),
                 inner.path().lexically_relative(kRoot)
                     << " stands outside the seven source folders");
  }
}

BOOST_AUTO_TEST_SUITE_END()
