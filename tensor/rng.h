// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A number is a pure function of (seed, purpose, index), so initial weights and
// data order do not depend on ranks, threads or restarts, and there is no state to save.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace smelt {

/// 64-bit FNV-1a.
constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// One Philox4x32-10 block: four random words from a 128-bit counter and a 64-bit key.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {uint32_t(p1 >> 32) ^ counter[1] ^ key[0], uint32_t(p1),
               uint32_t(p0 >> 32) ^ counter[3] ^ key[1], uint32_t(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// A stream of random numbers addressed by index. `purpose` names the use, e.g. a parameter's full
/// name or "data/order"; two purposes never share numbers.
class Random {
 public:
  Random(uint64_t seed, std::string_view purpose) : seed_(seed), purpose_(fnv1a(purpose)) {}

  /// 64 uniformly distributed bits.
  uint64_t bits(uint64_t index) const {
    const auto r = block(index);
    return (uint64_t{r[0]} << 32) | r[1];
  }
  /// Uniform in [0, 1), 53 bits.
  double uniform(uint64_t index) const { return double(bits(index) >> 11) * 0x1p-53; }
  /// Uniform integer in [0, n), n > 0; unbiased to 2^-64 * n (multiply-shift).
  uint64_t below(uint64_t index, uint64_t n) const {
    return uint64_t((static_cast<unsigned __int128>(bits(index)) * n) >> 64);
  }
  /// Standard normal (Box-Muller, in double).
  double normal(uint64_t index) const {
    const auto r = block(index);
    const double u = (double((uint64_t{r[0]} << 21) | (r[1] >> 11)) + 0.5) * 0x1p-53;  // in (0, 1)
    const double v = double((uint64_t{r[2]} << 21) | (r[3] >> 11)) * 0x1p-53;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }

 private:
  std::array<uint32_t, 4> block(uint64_t index) const {
    return philox4x32(
        {uint32_t(index), uint32_t(index >> 32), uint32_t(purpose_), uint32_t(purpose_ >> 32)},
        {uint32_t(seed_), uint32_t(seed_ >> 32)});
  }
  uint64_t seed_;
  uint64_t purpose_;
};

}  // namespace smelt
