// reduce_bytes() against plain loops over single elements.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tapegrad/distributed/backend.h"

using namespace tapegrad;
using namespace tapegrad::distributed;

namespace {

constexpr Reduce kAll[] = {Reduce::Sum,    Reduce::Product, Reduce::Min,   Reduce::Max,
                           Reduce::BitAnd, Reduce::BitOr,   Reduce::BitXor};

bool has_meaning(DType t, Reduce op) {
  if (op >= Reduce::BitAnd) return !is_differentiable(t);
  return !(is_complex(t) && (op == Reduce::Min || op == Reduce::Max));
}

// In the type that sums are made in.
template <class T>
T combined(T a, T b, Reduce op) {
  if constexpr (std::is_same_v<T, bool>) {
    if (op == Reduce::BitXor) return a != b;
    return op == Reduce::Sum || op == Reduce::Max || op == Reduce::BitOr ? a || b : a && b;
  } else if constexpr (is_complex_type<T>) {
    if (op == Reduce::Sum) return a + b;
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  } else {
    if constexpr (std::is_integral_v<T>) {
      using Wide = unsigned __int128;
      switch (op) {
        case Reduce::Sum:
          return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
        case Reduce::Product:
          return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
        case Reduce::BitAnd:
          return static_cast<T>(a & b);
        case Reduce::BitOr:
          return static_cast<T>(a | b);
        case Reduce::BitXor:
          return static_cast<T>(a ^ b);
        default:
          break;
      }
    } else {
      if (op == Reduce::Sum) return a + b;
      if (op == Reduce::Product) return a * b;
      if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
    }
    return op == Reduce::Min ? (b < a ? b : a) : (b > a ? b : a);
  }
}

template <class T>
T random_value(std::mt19937_64& random) {
  if constexpr (std::is_same_v<T, bool>)
    return random() % 2 == 0;
  else if constexpr (is_complex_type<T>)
    return {static_cast<typename T::value_type>(static_cast<double>(random() % 2001) / 1000 - 1),
            static_cast<typename T::value_type>(static_cast<double>(random() % 2001) / 1000 - 1)};
  else if constexpr (is_floating_type<T>)
    return static_cast<T>(random() % 50 == 0 ? NAN : static_cast<float>(random() % 4001) / 1000 - 2);
  else
    return static_cast<T>(random());
}

template <class T>
bool same(T a, T b) {
  if constexpr (is_half_type<T>)
    return a.bits == b.bits || (std::isnan(static_cast<float>(a)) && std::isnan(static_cast<float>(b)));
  else if constexpr (is_complex_type<T>)  // products may be fused
    return std::abs(a - b) <= 1e-5 * (1 + std::abs(b));
  else
    return a == b || (a != a && b != b);
}

template <class T>
void check(Reduce op, size_t rows, int64_t n, int in_place, std::mt19937_64& random) {
  // std::vector<bool> has no memory to point at.
  std::vector<std::vector<char>> bytes(rows + 1, std::vector<char>(static_cast<size_t>(n) * sizeof(T) + 1, 77));
  auto at = [&](size_t r) { return reinterpret_cast<T*>(bytes[r].data()); };
  std::vector<const void*> in;
  for (size_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; ++i) at(r)[i] = random_value<T>(random);
    in.push_back(at(r));
  }
  using C = compute_t<T>;
  std::vector<char> expected(static_cast<size_t>(n) * sizeof(T) + 1, 77);
  for (int64_t i = 0; i < n; ++i) {
    C sum = static_cast<C>(at(0)[i]);
    for (size_t r = 1; r < rows; ++r) sum = combined<C>(sum, static_cast<C>(at(r)[i]), op);
    reinterpret_cast<T*>(expected.data())[i] = static_cast<T>(sum);
  }
  std::vector<char>& out = bytes[in_place >= 0 ? static_cast<size_t>(in_place) : rows];
  reduce_bytes(out.data(), in, n, dtype_of_v<T>, op);
  for (int64_t i = 0; i < n; ++i) {
    INFO("element " << i << " of " << n << ", " << rows << " rows, op " << static_cast<int>(op) << ", "
                    << dtype_name(dtype_of_v<T>) << ", in place " << in_place);
    REQUIRE(same(reinterpret_cast<T*>(out.data())[i], reinterpret_cast<T*>(expected.data())[i]));
  }
  REQUIRE(out.back() == 77);
}

}  // namespace

TEST_CASE("reductions of all dtypes equal loops over elements", "[distributed]") {
  std::mt19937_64 random(7);
#define TG_LIST(name, type) DType::name,
  for (DType t : {TG_FORALL_DTYPES(TG_LIST)}) {
#undef TG_LIST
    for (Reduce op : kAll) {
      if (!has_meaning(t, op)) {
        const char byte = 0;
        char out = 0;
        const void* in[] = {&byte, &byte};
        try {
          reduce_bytes(&out, in, 1, t, op);
          FAIL("nothing was raised");
        } catch (const Error& e) {
          REQUIRE(e.kind() == ErrorKind::Value);
        }
        continue;
      }
      for (size_t rows : {1, 2, 3, 5})
        for (int64_t n : {0, 1, 15, 16, 17, 511, 512, 513, 1500})
          for (int in_place : {-1, 0, static_cast<int>(rows) - 1})
            dispatch_dtype(t, [&]<class T>() { check<T>(op, rows, n, in_place, random); });
    }
  }
}

TEST_CASE("16-bit sums are rounded once", "[distributed]") {
  // 256 + 1 + 1: rounded after each sum it stays 256.
  const BFloat16 big(256.0f), one(1.0f);
  const void* in[] = {&big, &one, &one};
  BFloat16 out;
  reduce_bytes(&out, in, 1, DType::bfloat16, Reduce::Sum);
  REQUIRE(static_cast<float>(out) == 258.0f);
}

TEST_CASE("any byte but 0 is true", "[distributed]") {
  const unsigned char a[] = {0, 2, 4, 255}, b[] = {0, 0, 8, 1};
  const void* in[] = {a, b};
  unsigned char out[4];
  auto is = [&](Reduce op, int w, int x, int y, int z) {
    reduce_bytes(out, in, 4, DType::bool_, op);
    return out[0] == w && out[1] == x && out[2] == y && out[3] == z;
  };
  REQUIRE(is(Reduce::Sum, 0, 1, 1, 1));
  REQUIRE(is(Reduce::Product, 0, 0, 1, 1));
  REQUIRE(is(Reduce::BitXor, 0, 1, 0, 0));
}
