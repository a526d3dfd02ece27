// The raw-pointer product against triple loops in double, with the known faults of such libraries.
#define BOOST_TEST_MODULE tensor_attention
#include "tensor/cpu/blas.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <omp.h>
#include <unistd.h>

#include "tensor/error.h"
#include "tensor/rng.h"
#include "tests/testing.h"

namespace {

using smelt::acc_t;
using smelt::bf16;
using smelt::Random;
using smelt::kernels::cpu::gemm;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// One product: operands in storage whose gaps between rows hold NaN.
template <typename T>
struct Product {
  using A = acc_t<T>;
  bool ta, tb;
  int64_t M, N, K, lda, ldb, ldc;
  std::vector<T> a, b;
  std::vector<A> c;

  Product(bool ta_, bool tb_, int64_t M_, int64_t N_, int64_t K_, int64_t gap, uint64_t seed)
      : ta(ta_), tb(tb_), M(M_), N(N_), K(K_) {
    lda = (ta ? M : K) + gap;
    ldb = (tb ? K : N) + gap;
    ldc = N + gap;
    a = filled<T>(ta ? K : M, ta ? M : K, lda, seed);
    b = filled<T>(tb ? N : K, tb ? K : N, ldb, seed + 1);
    c = filled<A>(M, N, ldc, seed + 2);
  }
  template <typename E>
  static std::vector<E> filled(int64_t rows, int64_t columns, int64_t stride, uint64_t seed) {
    std::vector<E> x(size_t(rows * stride), E(kNaN));
    const Random random(seed, "blas");
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        x[size_t(i * stride + j)] = E(acc_t<E>(random.normal(uint64_t(i * columns + j))));
      }
    }
    return x;
  }
  T a_at(int64_t i, int64_t k) const { return a[size_t(ta ? k * lda + i : i * lda + k)]; }
  T b_at(int64_t k, int64_t j) const { return b[size_t(tb ? j * ldb + k : k * ldb + j)]; }
  std::vector<A> run(A alpha, A beta) const {
    std::vector<A> out = c;
    gemm(ta, tb, M, N, K, alpha, a.data(), lda, b.data(), ldb, beta, out.data(), ldc);
    return out;
  }
  std::vector<A> run_widened(A alpha, A beta) const {
    std::vector<A> out = c;
    smelt::kernels::cpu::gemm_widened(ta, tb, M, N, K, alpha, a.data(), lda, b.data(), ldb, beta,
                                      out.data(), ldc);
    return out;
  }
  /// Largest error over rows without NaN in units of roundoff times the sum of magnitudes, and
  /// whether the gaps between rows of c are untouched.
  double error(const std::vector<A>& out, double alpha, double beta) const {
    double worst = 0;
    for (int64_t i = 0; i < M; ++i) {
      for (int64_t j = 0; j < N; ++j) {
        double sum = 0, size = 1e-30;
        for (int64_t k = 0; k < K; ++k) {
          const double term = double(a_at(i, k)) * double(b_at(k, j));
          sum += term;
          size += std::abs(term);
        }
        const double old = beta == 0 ? 0 : beta * double(c[size_t(i * ldc + j)]);
        const double want = alpha * sum + old;
        size = std::abs(alpha) * size + std::abs(old);
        const double difference = std::abs(double(out[size_t(i * ldc + j)]) - want);
        if (std::isnan(want)) continue;
        worst = std::max(worst, std::isnan(difference) ? HUGE_VAL : difference / size);
      }
      for (int64_t j = N; j < ldc; ++j) {
        if (!std::isnan(out[size_t(i * ldc + j)])) worst = HUGE_VAL;
      }
    }
    return worst / std::numeric_limits<A>::epsilon();
  }
  // Rounding of K products and K sums, plus alpha and beta: at most K + 3 half-epsilons.
  double bound() const { return 0.5 * double(K) + 3; }
};

template <typename T>
void check_all_transposes(int64_t M, int64_t N, int64_t K, int64_t gap) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Product<T> p(ta, tb, M, N, K, gap, uint64_t(M * 1000 + N * 100 + K));
      BOOST_TEST_CONTEXT("ta " << ta << " tb " << tb << " M " << M << " N " << N << " K " << K) {
        BOOST_TEST(p.error(p.run(1, 0), 1, 0) <= p.bound());
        BOOST_TEST(p.error(p.run(acc_t<T>(0.5), -2), 0.5, -2) <= p.bound());
      }
    }
  }
}

int64_t resident_bytes() {
  int64_t pages = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(blas)

BOOST_AUTO_TEST_CASE(odd_sizes_match_triple_loops) {
  for (const auto& [M, N, K] : {std::tuple{5, 7, 3}, {1, 33, 70}, {65, 1, 129}, {130, 259, 131}}) {
    check_all_transposes<float>(M, N, K, 3);
    check_all_transposes<double>(M, N, K, 3);
    check_all_transposes<bf16>(M, N, K, 3);
  }
}

BOOST_AUTO_TEST_CASE(few_rows_match_triple_loops) {
  for (const int64_t M : {1, 2, 3, 4, 5}) {
    for (const auto& [N, K] : {std::pair{1, 1}, {5, 15}, {70, 16}, {33, 17}, {300, 530}}) {
      check_all_transposes<float>(M, N, K, 2);
      check_all_transposes<bf16>(M, N, K, 2);
    }
  }
}

// On processors without a bf16 product both sides are the same function; elsewhere only the order
// of the sums may differ.
BOOST_AUTO_TEST_CASE(bf16_on_the_processor_and_widened_to_float_agree) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const auto& [M, N, K] : {std::tuple{1, 1, 1}, {3, 129, 5}, {70, 31, 333}}) {
        const Product<bf16> p(ta, tb, M, N, K, 5, uint64_t(M + K));
        BOOST_TEST_CONTEXT("ta " << ta << " tb " << tb << " M " << M << " N " << N << " K " << K) {
          BOOST_TEST(p.error(p.run(3, -0.5f), 3, -0.5) <= p.bound());
          BOOST_TEST(p.error(p.run_widened(3, -0.5f), 3, -0.5) <= p.bound());
          BOOST_TEST(p.error(p.run_widened(1, 0), 1, 0) <= p.bound());
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(widening_in_blocks_covers_every_row_and_column) {
  // With 5000 terms a block has 256 rows or columns: two of each here.
  for (const bool t : {false, true}) {
    const Product<bf16> p(t, t, 258, 257, 5000, 3, 5);
    BOOST_TEST(p.error(p.run_widened(1, 0), 1, 0) <= p.bound());
  }
}

BOOST_AUTO_TEST_CASE(case_59_every_inner_size_and_a_row_of_nan_stays_alone) {
  for (int64_t K = 1; K <= 70; ++K) {
    Product<float> p(false, false, 4, 8, K, 5, uint64_t(K));
    for (int64_t k = 0; k < K; ++k) p.a[size_t(2 * p.lda + k)] = kNaN;
    const auto out = p.run(1, 0);
    BOOST_TEST(p.error(out, 1, 0) <= p.bound(), "K " << K);
    for (int64_t j = 0; j < 8; ++j) BOOST_TEST(std::isnan(out[size_t(2 * p.ldc + j)]));
  }
  const Product<float> strided(false, false, 20, 108, 36, 28, 1);  // rows of a are 64 apart
  BOOST_TEST(strided.error(strided.run(1, 0), 1, 0) <= strided.bound());
}

BOOST_AUTO_TEST_CASE(case_60_strides_of_single_rows_mean_nothing) {
  for (int64_t M = 1; M <= 3; ++M) {
    for (int64_t K = 1; K <= 3; ++K) {
      for (int64_t N = 1; N <= 3; ++N) {
        for (const int64_t odd : {int64_t{1}, K, int64_t{999}}) {
          for (const bool ta : {false, true}) {
            for (const bool tb : {false, true}) {
              Product<float> p(ta, tb, M, N, K, 0, 7);
              if ((ta ? K : M) == 1) p.lda = odd;
              if ((tb ? N : K) == 1) p.ldb = odd;
              BOOST_TEST(p.error(p.run(1, 0), 1, 0) <= p.bound());
            }
          }
        }
      }
    }
  }
}

using Operands = boost::mpl::list<float, bf16>;

BOOST_AUTO_TEST_CASE_TEMPLATE(case_61_threads_share_the_product, T, Operands) {
  std::vector<Product<T>> experts;
  for (const int64_t M : {7, 64, 33, 1}) experts.emplace_back(false, true, M, 48, 40, 0, M);
  std::vector<std::vector<float>> serial;
  omp_set_num_threads(1);
  for (const auto& p : experts) serial.push_back(p.run(1, 0));
  int64_t wrong = 0;
  for (int repeat = 0; repeat < 1000; ++repeat) {
    omp_set_num_threads(2 + repeat % 2);
#pragma omp parallel for schedule(dynamic) reduction(+ : wrong)
    for (size_t e = 0; e < experts.size(); ++e) {
      // Compared element by element: the storage has no gaps.
      wrong += experts[e].run(1, 0) != serial[e];
    }
  }
  omp_set_num_threads(omp_get_num_procs());
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(case_62_memory_stays_flat_over_random_shapes, T, Operands) {
  const Random random(3, "shapes");
  const Product<T> p(false, false, 512, 32, 16, 0, 1);
  std::vector<float> out(512 * 32);
  int64_t at_thousand = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    gemm(false, false, int64_t(random.below(i, 513)), 32, 16, 1.0f, p.a.data(), 16, p.b.data(), 32,
         0.0f, out.data(), 32);
    if (i == 1000) at_thousand = resident_bytes();
  }
  if (!smelt::testing::kAddressSanitizer)
    BOOST_TEST(double(resident_bytes()) < 1.05 * double(at_thousand));
  BOOST_TEST(at_thousand > 0);
}

BOOST_AUTO_TEST_CASE(zero_beta_overwrites_nan_and_empty_sizes_are_legal) {
  for (const int64_t K : {0, 1, 5, 300}) {
    std::vector<float> a(size_t(3 * K), 1.0f), b(size_t(4 * K), 1.0f), c(12, kNaN);
    gemm(false, false, 3, 4, K, 1.0f, a.data(), K, b.data(), 4, 0.0f, c.data(), 4);
    for (const float value : c) BOOST_TEST(value == float(K));
    std::vector<double> ad(a.begin(), a.end()), bd(b.begin(), b.end()), cd(12, kNaN);
    gemm(false, false, 3, 4, K, 1.0, ad.data(), K, bd.data(), 4, 0.0, cd.data(), 4);
    for (const double value : cd) BOOST_TEST(value == double(K));
    const std::vector<bf16> ah(a.size(), bf16(1)), bh(b.size(), bf16(1));
    std::fill(c.begin(), c.end(), kNaN);
    gemm(false, false, 3, 4, K, 1.0f, ah.data(), K, bh.data(), 4, 0.0f, c.data(), 4);
    for (const float value : c) BOOST_TEST(value == float(K));
  }
  std::vector<float> c(12, 3.0f);
  gemm<float>(false, false, 3, 4, 0, 1, nullptr, 0, nullptr, 4, 2, c.data(), 4);
  for (const float value : c) BOOST_TEST(value == 6.0f);
  gemm<float>(false, false, 0, 4, 2, 1, nullptr, 2, nullptr, 4, 0, nullptr, 4);
  gemm<float>(false, false, 3, 0, 2, 1, nullptr, 2, nullptr, 0, 0, nullptr, 0);
}

BOOST_AUTO_TEST_CASE(case_65_negative_sizes_and_short_strides_are_refused) {
  float x[16] = {};
  BOOST_CHECK_EXCEPTION(
      gemm(false, false, 2, -1, 2, 1.0f, x, 2, x, 2, 0.0f, x, 2), smelt::ShapeError,
      [](const auto& e) { return std::string(e.what()).find("N -1") != std::string::npos; });
  BOOST_CHECK_EXCEPTION(
      gemm(false, false, 2, 2, 3, 1.0f, x, 2, x, 2, 0.0f, x, 2), smelt::ShapeError,
      [](const auto& e) { return std::string(e.what()).find("of a is 2") != std::string::npos; });
}

BOOST_AUTO_TEST_SUITE_END()
