// What a Profiler sees of operations, and that nothing is seen without one.
#include "tensor/profiler.h"

#include <string>

#include <boost/test/unit_test.hpp>

#include "tensor/elementwise.h"
#include "tensor/gemm.h"

using namespace smelt;

namespace {

std::vector<ProfileEvent> named(const Profiler& profiler, const std::string& name) {
  std::vector<ProfileEvent> found;
  for (const ProfileEvent& e : profiler.events())
    if (e.name == name) found.push_back(e);
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(profiler)

BOOST_AUTO_TEST_CASE(an_operation_comes_with_its_flops_and_bytes) {
  const Tensor a = Tensor::full({6, 5}, 1), b = Tensor::full({5, 4}, 1);
  const Profiler profiler;
  const Tensor c = matmul(a, b);
  const Tensor d = scale(c, 2);
  const std::vector<ProfileEvent> products = named(profiler, "matmul"),
                                  scales = named(profiler, "scale");
  BOOST_REQUIRE(products.size() == 1u);
  BOOST_TEST(products[0].flops == 2.0 * 6 * 5 * 4);
  BOOST_TEST(products[0].bytes == 4.0 * (30 + 20 + 24));
  BOOST_TEST(products[0].begin <= products[0].end);
  BOOST_TEST(products[0].end <= profiler.now());
  BOOST_REQUIRE(scales.size() == 1u);
  BOOST_TEST(scales[0].flops == 0);
  BOOST_TEST(scales[0].bytes == 4.0 * 48);
  BOOST_TEST(scales[0].begin >= products[0].end);
}

BOOST_AUTO_TEST_CASE(arguments_are_made_once_and_their_copies_count_no_flops) {
  // Grouped products read contiguous rows: transposed ones are copied first.
  const Tensor x = Tensor::full({4, 3}, 1).transpose(0, 1), w = Tensor::full({1, 4, 5}, 1);
  const Profiler profiler;
  grouped_matmul(x, w, {0, 3});
  const std::vector<ProfileEvent> copies = named(profiler, "strided_copy"),
                                  products = named(profiler, "grouped_matmul");
  BOOST_REQUIRE(copies.size() == 1u);
  BOOST_TEST(copies[0].flops == 0);
  BOOST_REQUIRE(products.size() == 1u);
  BOOST_TEST(products[0].flops == 2.0 * 3 * 4 * 5);
}

BOOST_AUTO_TEST_CASE(scopes_name_the_part_and_end_with_their_block) {
  const Tensor x = Tensor::full({3}, 1);
  const Profiler profiler;
  scale(x, 1);
  {
    const ProfileScope outer("outer");
    scale(x, 1);
    {
      const ProfileScope inner("inner", true);
      scale(x, 1);
      const ProfileScope innermost("innermost");
      scale(x, 1);
    }
    scale(x, 1);
  }
  const std::vector<ProfileEvent> events = named(profiler, "scale");
  BOOST_REQUIRE(events.size() == 5u);
  const char* scopes[] = {"", "outer", "inner", "innermost", "outer"};
  for (size_t i = 0; i < 5; ++i) {
    BOOST_TEST(std::string(events[i].scope) == scopes[i]);
    BOOST_TEST(events[i].backward == (i == 2 || i == 3));
  }
}

BOOST_AUTO_TEST_CASE(an_operation_inside_another_is_told_from_it) {
  const Profiler profiler;
  {
    const ProfiledOperation outer("outer", 0);
    { const ProfiledOperation inner("inner", 0); }
    { const ProfiledOperation inner("inner", 0); }
  }
  { const ProfiledOperation after("after", 0); }
  BOOST_REQUIRE(profiler.events().size() == 4u);
  const ProfileEvent &first = profiler.events()[0], &second = profiler.events()[1],
                     &outer = profiler.events()[2], &after = profiler.events()[3];
  BOOST_TEST(std::string(outer.name) == "outer");
  BOOST_TEST(outer.inside == (first.end - first.begin) + (second.end - second.begin));
  BOOST_TEST(outer.begin <= first.begin);
  BOOST_TEST(second.end <= outer.end);
  BOOST_TEST(first.inside == 0);
  BOOST_TEST(after.inside == 0);
}

BOOST_AUTO_TEST_CASE(each_profiler_sees_its_own_life_only) {
  const Tensor x = Tensor::full({3}, 1);
  scale(x, 1);
  {
    const Profiler first;
    scale(x, 1);
    BOOST_TEST(named(first, "scale").size() == 1u);
    BOOST_CHECK_THROW(Profiler second, Error);
    BOOST_TEST(Profiler::active() == &first);
  }
  BOOST_TEST(Profiler::active() == nullptr);
  const Profiler again;
  BOOST_TEST(again.events().empty());
}

BOOST_AUTO_TEST_SUITE_END()
