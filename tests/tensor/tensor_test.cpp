// Storage, views, copies and conversions.
#include "tensor/tensor.h"

#include <bit>
#include <cstdint>
#include <limits>

#include <boost/test/unit_test.hpp>

#include "tensor/allocator.h"
#include "tensor/cpu/simd.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

constexpr DType kAll[] = {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64};

Tensor counting(Shape shape, DType dtype = DType::f32) {
  std::vector<int64_t> values(size_t(numel_of(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = int64_t(i);
  return Tensor::from(values, std::move(shape)).to(dtype);
}

void check_values(const Tensor& x, const Shape& shape, const std::vector<double>& values) {
  BOOST_TEST(x.shape() == shape, boost::test_tools::per_element());
  BOOST_TEST(doubles(x) == values, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE(tensor)

BOOST_AUTO_TEST_CASE(creation_sets_shape_strides_and_values) {
  const Tensor t = Tensor::full({2, 3}, 1.5);
  check_values(t, {2, 3}, {1.5, 1.5, 1.5, 1.5, 1.5, 1.5});
  BOOST_TEST(t.strides() == Shape({3, 1}), boost::test_tools::per_element());
  BOOST_TEST(t.numel() == 6);
  BOOST_TEST(t.bytes() == 24);
  BOOST_TEST(t.dim(-1) == 3);
  BOOST_TEST(t.is_contiguous());
  BOOST_TEST(!Tensor().defined());
  BOOST_TEST(Tensor::full({}, 4).item() == 4);
  BOOST_CHECK_EXCEPTION(Tensor::from(std::vector<float>{1, 2}, {3}), ShapeError,
                        says("2 values do not fill shape [3]"));
}

BOOST_AUTO_TEST_CASE(empty_and_single_dimensions_work_everywhere) {
  for (const DType dtype : kAll) {
    const Tensor none = Tensor::zeros({3, 0, 2}, {dtype, {}});
    BOOST_TEST(none.numel() == 0);
    BOOST_TEST(none.is_contiguous());
    check_values(none.transpose(0, 1).contiguous(), {0, 3, 2}, {});
    check_values(none.view({-1, 5}), {0, 5}, {});
    check_values(none.slice(0, 3, 3), {0, 0, 2}, {});
    check_values(none.to(DType::f64), {3, 0, 2}, {});
    check_values(counting({1, 1, 1}, dtype).transpose(0, 2).view({1}), {1}, {0});
  }
}

BOOST_AUTO_TEST_CASE(views_share_storage_and_show_the_right_elements) {
  const Tensor t = counting({2, 3});
  check_values(t.view({3, -1}), {3, 2}, {0, 1, 2, 3, 4, 5});
  check_values(t.transpose(0, 1), {3, 2}, {0, 3, 1, 4, 2, 5});
  check_values(t.transpose(-1, -2).slice(0, 1, 3), {2, 2}, {1, 4, 2, 5});
  check_values(t.slice(1, 1, 2), {2, 1}, {1, 4});
  check_values(t.slice(-1, 1, 2).expand({2, 3}), {2, 3}, {1, 1, 1, 4, 4, 4});
  check_values(t.transpose(0, 1).reshape({6}), {6}, {0, 3, 1, 4, 2, 5});
  BOOST_TEST(t.view({6}).shares_storage_with(t));
  BOOST_TEST(!t.clone().shares_storage_with(t));
  t.transpose(0, 1).slice(0, 2, 3).fill_(9);
  check_values(t, {2, 3}, {0, 1, 9, 3, 4, 9});
}

BOOST_AUTO_TEST_CASE(views_that_do_not_fit_are_refused_with_both_shapes) {
  const Tensor t = counting({2, 3});
  BOOST_CHECK_EXCEPTION(t.view({4, 2}), ShapeError,
                        says("shape [4, 2] does not hold the elements of [2, 3]"));
  BOOST_CHECK_EXCEPTION(t.view({4, -1}), ShapeError, says("does not hold the elements of [2, 3]"));
  BOOST_CHECK_THROW(t.view({-1, -1}), ShapeError);
  BOOST_CHECK_THROW(t.view({-2, -3}), ShapeError);
  BOOST_CHECK_EXCEPTION(t.transpose(0, 1).view({6}), ShapeError,
                        says("shape [3, 2] is not contiguous"));
  BOOST_CHECK_EXCEPTION(t.transpose(0, 2), ShapeError, says("dimension 2 is outside shape [2, 3]"));
  BOOST_CHECK_EXCEPTION(t.dim(-3), ShapeError, says("dimension -3 is outside shape [2, 3]"));
  BOOST_CHECK_EXCEPTION(t.slice(1, 1, 4), ShapeError,
                        says("[1, 4) is outside dimension 1 of [2, 3]"));
  BOOST_CHECK_EXCEPTION(t.expand({2, 6}), ShapeError, says("[2, 3] does not expand to [2, 6]"));
  BOOST_CHECK_THROW(t.expand({1, 2, 3}), ShapeError);
  BOOST_CHECK_EXCEPTION(t.copy_(counting({3, 2})), ShapeError,
                        says("copy_: shapes differ: [2, 3] and [3, 2]"));
  BOOST_CHECK_EXCEPTION(t.item(), ShapeError, says("needs one element, shape is [2, 3]"));
  BOOST_CHECK_EXCEPTION(Tensor().clone(), ShapeError, says("undefined tensor"));
  BOOST_CHECK_EXCEPTION(t.data<double>(), DTypeError, says("tensor is f32, asked as f64"));
  BOOST_CHECK_THROW(t.to_vector<int32_t>(), DTypeError);
}

BOOST_AUTO_TEST_CASE(copies_convert_between_all_dtypes_and_strides) {
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      BOOST_TEST_CONTEXT(from << " to " << to) {
        const Tensor x = counting({3, 5}, from);
        check_values(x.to(to), {3, 5}, doubles(x));
        const Tensor target = Tensor::zeros({5, 3}, {to, {}});
        target.transpose(0, 1).copy_(strided(x));
        check_values(target.transpose(0, 1), {3, 5}, doubles(x));
      }
    }
  }
  const Tensor x = counting({2});
  BOOST_TEST(x.to(DType::f32).shares_storage_with(x));
  if (!built_with_cuda()) {
    BOOST_CHECK_EXCEPTION(x.to(Device{DeviceKind::cuda, 0}), DeviceError,
                          says("from cpu to cuda:0"));
  }
}

BOOST_AUTO_TEST_CASE(large_copies_are_the_same_for_any_threads) {
  const Tensor x = random_tensor({3, 70, 300});
  check_same_bits_for_any_threads([&] {
    return std::vector<Tensor>{x.transpose(0, 2).contiguous(), x.to(DType::bf16), x.clone()};
  });
}

// Case 55: rounding to bf16 is to nearest, ties to even, and NaN stays NaN.
BOOST_AUTO_TEST_CASE(bf16_rounds_to_nearest_even_and_keeps_nan) {
  const struct {
    uint32_t f32;
    uint16_t bf16;
  } rows[] = {{0x3F808000, 0x3F80}, {0x3F818000, 0x3F82}, {0x3F808001, 0x3F81},
              {0x7F7FFFFF, 0x7F80}, {0xBF808001, 0xBF81}, {0x00000000, 0x0000},
              {0x80000000, 0x8000}, {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80}};
  for (const auto& row : rows) {
    BOOST_TEST_CONTEXT("f32 bits " << row.f32) {
      const auto value = std::bit_cast<float>(row.f32);
      BOOST_TEST(bf16(value).bits == row.bf16);
      BOOST_TEST(kernels::cpu::round_to<bf16>(value).bits == row.bf16);
      const Tensor t = Tensor::from(std::vector<float>{value}).to(DType::bf16);
      BOOST_TEST(t.to_vector<bf16>()[0].bits == row.bf16);
    }
  }
  for (const uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    const auto value = std::bit_cast<float>(bits);
    BOOST_TEST(std::isnan(float(bf16(value))));
    BOOST_TEST(std::isnan(float(kernels::cpu::round_to<bf16>(value))));
  }
}

BOOST_AUTO_TEST_CASE(both_roundings_to_bf16_agree_on_every_upper_half) {
  int differences = 0;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const auto value = std::bit_cast<float>((high << 16) | low);
      differences += bf16(value).bits != kernels::cpu::round_to<bf16>(value).bits;
    }
  }
  BOOST_TEST(differences == 0);
}

// Case 52: offsets are 64-bit.
BOOST_AUTO_TEST_CASE(offsets_do_not_wrap_at_32_bits) {
  BOOST_TEST(checked_offset(42690, 50304, 0) == 2147477760);
  BOOST_TEST(checked_offset(42691, 50304, 0) == 2147528064);
  BOOST_TEST(checked_offset(42691, 50304, 7) == 2147528071);
  BOOST_CHECK_EXCEPTION(checked_offset(int64_t{1} << 40, int64_t{1} << 40, 0), ShapeError,
                        says("does not fit 64 bits"));
  BOOST_CHECK_THROW(checked_offset(1, std::numeric_limits<int64_t>::max(), 1), ShapeError);
}

// Case 65: sizes that underflow or overflow are refused before anything is allocated.
BOOST_AUTO_TEST_CASE(impossible_sizes_are_refused_before_allocation) {
  const int64_t requests = allocator().stats().requests;
  BOOST_CHECK_EXCEPTION(Tensor::empty({4, -1}), ShapeError,
                        says("shape [4, -1] has a negative dimension"));
  BOOST_CHECK_EXCEPTION(Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}), ShapeError,
                        says("more than 2^63 elements"));
  BOOST_CHECK_EXCEPTION(Tensor::empty({int64_t{1} << 62}), ShapeError,
                        says("more than 2^63 bytes"));
  BOOST_TEST(allocator().stats().requests == requests);
  const Tensor t = counting({1, 1});
  BOOST_CHECK_EXCEPTION(t.slice(0, 1, 0), ShapeError,
                        says("[1, 0) is outside dimension 0 of [1, 1]"));
  BOOST_CHECK_THROW(t.slice(0, -1, 1), ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
