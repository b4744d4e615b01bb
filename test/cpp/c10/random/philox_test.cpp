#include "tapegrad/c10/random/philox.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/c10/random/philox_fill.h"

using namespace tapegrad;

namespace {

constexpr PhiloxState kState{0x123456789ABCDEFu, 77};

// Fills [first, first + n) in pieces of odd lengths.
template <class T, class Fill>
std::vector<T> in_pieces(int64_t first, int64_t n, Fill fill) {
  std::vector<T> out(static_cast<size_t>(n));
  int64_t at = 0;
  for (int64_t length = 1; at < n; length = length * 2 + 1) {
    const int64_t m = std::min(length, n - at);
    fill(out.data() + at, first + at, m);
    at += m;
  }
  return out;
}

struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0;
};

template <class T>
Moments moments(const std::vector<T>& x) {
  Moments m;
  const double n = static_cast<double>(x.size());
  for (T v : x) m.mean += static_cast<double>(v) / n;
  for (T v : x) {
    const double d = static_cast<double>(v) - m.mean;
    m.variance += d * d / n;
    m.skew += d * d * d / n;
    m.kurtosis += d * d * d * d / n;
  }
  m.skew /= std::pow(m.variance, 1.5);
  m.kurtosis /= m.variance * m.variance;
  return m;
}

}  // namespace

TEST_CASE("philox4x32-10 gives the published answers", "[c10][random]") {
  // The known-answer vectors that accompany the paper's reference implementation.
  struct {
    PhiloxBlock counter;
    uint32_t key[2];
    PhiloxBlock answer;
  } const known[] = {
      {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {0xa4093822, 0x299f31d0},
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };
  for (const auto& k : known) {
    const PhiloxBlock b = philox4x32_10(k.counter, k.key[0], k.key[1]);
    for (int i = 0; i < 4; ++i) REQUIRE(b.word[i] == k.answer.word[i]);
  }
}

TEST_CASE("filling a range equals asking for each element", "[c10][random]") {
  for (int64_t first : {int64_t{0}, int64_t{1}, int64_t{255}, (int64_t{1} << 34) - 100}) {
    const int64_t n = 1500;
    const auto u = static_cast<uint64_t>(first);
    auto bits =
        in_pieces<uint32_t>(first, n, [](auto* p, auto a, auto m) { philox_fill_uniform_bits(p, a, m, kState); });
    auto long_bits =
        in_pieces<uint64_t>(first, n, [](auto* p, auto a, auto m) { philox_fill_uniform_bits(p, a, m, kState); });
    auto uniform = in_pieces<float>(first, n, [](auto* p, auto a, auto m) { philox_fill_uniform(p, a, m, kState); });
    auto doubles = in_pieces<double>(first, n, [](auto* p, auto a, auto m) { philox_fill_uniform(p, a, m, kState); });
    auto normal = in_pieces<float>(first, n, [](auto* p, auto a, auto m) { philox_fill_normal(p, a, m, kState); });
    auto wide = in_pieces<double>(first, n, [](auto* p, auto a, auto m) { philox_fill_normal(p, a, m, kState); });
    auto die =
        in_pieces<int16_t>(first, n, [](auto* p, auto a, auto m) { philox_fill_bounded(p, a, m, kState, -3, 6); });
    int wrong = 0;
    for (uint64_t k = 0; k < static_cast<uint64_t>(n); ++k) {
      const uint64_t i = u + k;
      wrong += bits[k] != philox_word(kState, i);
      wrong += long_bits[k] != philox_word64(kState, i);
      wrong += uniform[k] != philox_uniform(philox_word(kState, i));
      wrong += doubles[k] != philox_uniform(philox_word64(kState, i));
      const auto z = philox_normal_pair(philox_word(kState, i & ~uint64_t{1}), philox_word(kState, i | 1));
      wrong += normal[k] != (i % 2 == 0 ? z.first : z.second);
      const auto w = philox_normal_pair(philox_word64(kState, i & ~uint64_t{1}), philox_word64(kState, i | 1));
      wrong += wide[k] != (i % 2 == 0 ? w.first : w.second);
      wrong += die[k] != -3 + static_cast<int>(philox_bounded(philox_word64(kState, i), 6));
    }
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("seeds, calls and elements give different numbers", "[c10][random]") {
  REQUIRE(philox_word({1, 2}, 3) != philox_word({2, 2}, 3));
  REQUIRE(philox_word({1, 2}, 3) != philox_word({1, 3}, 3));
  REQUIRE(philox_word({1, 2}, 3) != philox_word({1, 2}, 4));
  REQUIRE(philox_word({uint64_t{1} << 40, 2}, 3) != philox_word({0, 2}, 3));
  REQUIRE(philox_word({1, uint64_t{1} << 40}, 3) != philox_word({1, 0}, 3));
  REQUIRE(philox_word({1, 2}, uint64_t{1} << 50) != philox_word({1, 2}, 0));
  REQUIRE(philox_derive_seed(1, 2, 3) != philox_derive_seed(1, 3, 2));
}

TEST_CASE("uniform numbers lie in the interval and fill it evenly", "[c10][random]") {
  REQUIRE(philox_uniform(uint32_t{0}) == 0.0f);
  REQUIRE(philox_uniform(~uint32_t{0}) == 1.0f - 0x1p-24f);
  REQUIRE(philox_uniform(uint64_t{0}) == 0.0);
  REQUIRE(philox_uniform(~uint64_t{0}) == 1.0 - 0x1p-53);
  REQUIRE(philox_uniform(uint64_t{0x800}) == 0x1p-53);

  std::vector<float> x(1 << 20);
  philox_fill_uniform(x.data(), 0, static_cast<int64_t>(x.size()), kState, -2.0f, 3.0f);
  std::vector<int> count(100);
  for (float v : x) {
    if (v < -2.0f || v >= 3.0f) FAIL("outside");
    ++count[static_cast<size_t>((v + 2) * 20)];
  }
  double chi2 = 0;
  for (int c : count) chi2 += std::pow(c - (1 << 20) / 100.0, 2) / ((1 << 20) / 100.0);
  REQUIRE(chi2 < 160);  // 99 degrees of freedom: one in 10,000
  // The upper end is not reached even where rounding would lead to it.
  philox_fill_uniform(x.data(), 0, static_cast<int64_t>(x.size()), kState, 1e8f, 1e8f + 8);
  for (float v : x)
    if (v >= 1e8f + 8) FAIL("end of the interval");
}

TEST_CASE("normal numbers have the moments of a normal distribution", "[c10][random]") {
  const int64_t n = 1 << 20;
  std::vector<float> x(n);
  philox_fill_normal(x.data(), 0, n, kState);
  std::vector<double> y(n);
  philox_fill_normal(y.data(), 0, n, kState);
  for (const Moments& m : {moments(x), moments(y)}) {
    REQUIRE(std::abs(m.mean) < 0.004);
    REQUIRE(std::abs(m.variance - 1) < 0.006);
    REQUIRE(std::abs(m.skew) < 0.01);
    REQUIRE(std::abs(m.kurtosis - 3) < 0.02);
  }
  // The two halves of a pair are independent.
  double product = 0;
  for (size_t i = 0; i < x.size(); i += 2) product += static_cast<double>(x[i]) * x[i + 1];
  REQUIRE(std::abs(product) < 4 * std::sqrt(n / 2.0));
  philox_fill_normal(y.data(), 0, n, kState, 10, 0.5);
  REQUIRE(std::abs(moments(y).mean - 10) < 0.002);
  REQUIRE(std::abs(moments(y).variance - 0.25) < 0.002);
}

TEST_CASE("the normal transform agrees with its formula", "[c10][random]") {
  const double pi = 3.14159265358979323846;
  for (uint64_t i = 0; i < 20000; ++i) {
    const uint32_t x = philox_word({1, 1}, i), y = philox_word({1, 2}, i);
    const double u = (static_cast<double>(x >> 1) + 0.5) * 0x1p-31;
    // The quadrant's angle counts from its middle, see philox_normal_pair.
    const double angle = (y >> 30) * pi / 2 + (static_cast<double>(y & 0x3FFFFFFF) - 0x1p29) * 0x1p-29 * pi / 4;
    const double r = std::sqrt(-2 * std::log(u));
    const auto z = philox_normal_pair(x, y);
    if (std::abs(z.first - r * std::cos(angle)) > 1e-5 || std::abs(z.second - r * std::sin(angle)) > 1e-5)
      FAIL("float pair " << i);
    const uint64_t a = philox_word64({1, 3}, i), b = philox_word64({1, 4}, i);
    const double v = (static_cast<double>(a >> 12) + 0.5) * 0x1p-52;
    const double wide_angle =
        static_cast<double>(b >> 62) * pi / 2 + (static_cast<double>((b << 2) >> 12) * 0x1p-52 - 0.5) * pi / 2;
    const double s = std::sqrt(-2 * std::log(v));
    const auto w = philox_normal_pair(a, b);
    if (std::abs(w.first - s * std::cos(wide_angle)) > 1e-14 || std::abs(w.second - s * std::sin(wide_angle)) > 1e-14)
      FAIL("double pair " << i);
  }
  // Extremes stay finite.
  for (uint32_t x : {0u, 1u, ~0u}) REQUIRE(std::isfinite(philox_normal_pair(x, ~x).first));
  REQUIRE(philox_normal_pair(0u, 1u << 29).first == Approx(6.66).epsilon(0.001));
  for (uint64_t x : {uint64_t{0}, ~uint64_t{0}}) REQUIRE(std::isfinite(philox_normal_pair(x, x).first));
}

TEST_CASE("the normal transform's bits are pinned", "[c10][random]") {
  // Equal on every device and for every compiler: a change here changes every user's seeds.
  std::vector<float> x(4096);
  philox_fill_normal(x.data(), 0, 4096, {42, 0});
  uint64_t hash = 0;
  for (float v : x) hash = (hash ^ std::bit_cast<uint32_t>(v)) * 0x9E3779B97F4A7C15u;
  CHECK(hash == 0x8b551d7024e4e4b5u);
  std::vector<double> y(4096);
  philox_fill_normal(y.data(), 0, 4096, {42, 0});
  hash = 0;
  for (double v : y) hash = (hash ^ std::bit_cast<uint64_t>(v)) * 0x9E3779B97F4A7C15u;
  CHECK(hash == 0x1db221aba29a58d3u);
}

TEST_CASE("bounded integers", "[c10][random]") {
  for (uint64_t range : {uint64_t{1}, uint64_t{6}, uint64_t{1000}, uint64_t{0xFFFFFFFF}, uint64_t{1} << 32,
                         (uint64_t{1} << 63) + 12345, ~uint64_t{0}})
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t x = philox_word64(kState, i), r = philox_bounded(x, range);
      if (r != static_cast<uint64_t>(static_cast<unsigned __int128>(x) * range >> 64)) FAIL("range " << range);
      if (range <= 0xFFFFFFFF && philox_bounded32(x, static_cast<uint32_t>(range)) != r) FAIL("short " << range);
    }
  REQUIRE(philox_bounded(~uint64_t{0}, 0) == ~uint64_t{0});
  std::vector<int64_t> die(600000);
  philox_fill_bounded(die.data(), 0, static_cast<int64_t>(die.size()), kState, 1, 6);
  std::vector<int> count(8);
  for (int64_t d : die) ++count[static_cast<size_t>(d)];
  REQUIRE(count[0] + count[7] == 0);
  for (size_t face = 1; face <= 6; ++face) REQUIRE(std::abs(count[face] - 100000) < 1500);
  std::vector<int64_t> all(1000);
  const int64_t least = std::numeric_limits<int64_t>::min();
  philox_fill_bounded(all.data(), 0, 1000, kState, least, 0);
  int negative = 0;
  for (int64_t v : all) negative += v < 0;
  REQUIRE(std::abs(negative - 500) < 80);
}
