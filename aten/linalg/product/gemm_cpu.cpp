#include <algorithm>
#include <type_traits>

#include "tapegrad/aten/linalg/blas/blas.h"
#include "tapegrad/aten/linalg/product/gemm.h"
#include "tapegrad/aten/linalg/product/skinny.h"
#include "tapegrad/aten/linalg/product/small.h"
#include "tapegrad/aten/onednn/product.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

template <class T>
inline constexpr bool kHasBlas = std::is_same_v<T, float> || std::is_same_v<T, double> || is_complex_type<T>;

// How a product is cut. Tiles are as large as still leaves work for several threads: each one packs its rows and
// columns again, which costs 6 % at 128, 4 % at 256 and 1 % at 512 (measured).
struct Tiles {
  int64_t m, n;        // of one tile
  int64_t rows, cols;  // how many
};

// Of `tm` x `tn` and the rest: equal ones, in steps of 16 rows or columns.
Tiles equal_tiles(int64_t m, int64_t n, int64_t tm, int64_t tn) {
  int64_t rows = (m + tm - 1) / tm, cols = (n + tn - 1) / tn;
  tm = ((m + rows - 1) / rows + 15) / 16 * 16;
  tn = ((n + cols - 1) / cols + 15) / 16 * 16;
  return {tm, tn, (m + tm - 1) / tm, (n + tn - 1) / tn};
}

// For 16-bit factors in oneDNN: it is fastest where a tile has all columns, 1.05 to 1.3 times (measured on a Zen 5, 256
// x 256 x 256 to 1024 x 1024 x 1024); for less than two tiles of 128 rows columns are cut, too, unless a batch gives
// enough to do.
Tiles choose_half_tiles(int64_t batch, int64_t m, int64_t n, int64_t k) {
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (work < (batch < 8 ? 2e6 : 1e8)) return {m, n, 1, 1};
  if (m >= 256) return equal_tiles(m, n, std::clamp<int64_t>(m / 4, 128, 256), std::min<int64_t>(n, 8192));
  return equal_tiles(m, n, m, std::clamp<int64_t>(n / 4, std::min<int64_t>(n, 128), 1024));
}

Tiles choose_tiles(int64_t m, int64_t n, int64_t k) {
  double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (work < 1.2e6) return {m, n, 1, 1};
  double area = static_cast<double>(m) * static_cast<double>(n);
  int64_t side = area >= 900.0 * 900.0 ? 512 : area >= 350.0 * 350.0 ? 256 : 128;
  if (work < 8e6) side = 128;
  // A thin product has tiles of the same area.
  int64_t tm = std::min(m, side), tn = std::min(n, side);
  if (tm < side) tn = std::min(n, side * side / std::max<int64_t>(tm, 32));
  if (tn < side) tm = std::min(m, side * side / std::max<int64_t>(tn, 32));
  return equal_tiles(m, n, tm, tn);
}

// How products of this type are cut.
template <class T>
Tiles tiles_of(int64_t batch, int64_t m, int64_t n, int64_t k) {
  if constexpr (is_half_type<T>)
    if (onednn::multiplies(dtype_of_v<T>)) return choose_half_tiles(batch, m, n, k);
  return choose_tiles(m, n, k);
}

// Calls f(product, first row, first column, rows, columns) for every tile of each product, in parallel.
template <class F>
void for_tiles(int64_t batch, int64_t m, int64_t n, int64_t k, const Tiles& tiles, F&& f) {
  const int64_t per_product = tiles.rows * tiles.cols;
  const double work = static_cast<double>(std::min(tiles.m, m)) * static_cast<double>(std::min(tiles.n, n)) *
                      static_cast<double>(std::max<int64_t>(k, 1));
  // One thread's worth: about 0.5 M multiplications, 10 us.
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(5e5 / work));
  parallel_for(0, batch * per_product, grain, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const int64_t tile = t % per_product, i = tile / tiles.cols * tiles.m, j = tile % tiles.cols * tiles.n;
      f(t / per_product, i, j, std::min(tiles.m, m - i), std::min(tiles.n, n - j));
    }
  });
}

// Plain loops: for integers, and for products too small for a call into the library.
template <class T>
void gemm_plain(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T beta, T* c, int64_t ldc) {
  // Unsigned arithmetic, since integers wrap.
  using U = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  constexpr int64_t kBlock = 256;
  U line[kBlock];
  WorkCount done;
  for (int64_t j0 = 0; j0 < n; j0 += kBlock) {
    int64_t nb = std::min(kBlock, n - j0);
    for (int64_t i = 0; i < m; ++i, done(k * nb)) {
      T* row = c + i * ldc + j0;
      for (int64_t j = 0; j < nb; ++j) line[j] = U(0);
      for (int64_t p = 0; p < k; ++p) {
        U x = static_cast<U>(a.data[i * a.row + p * a.col]);
        const T* y = b.data + p * b.row + j0 * b.col;
        if (b.col == 1) {
          for (int64_t j = 0; j < nb; ++j) line[j] = static_cast<U>(line[j] + x * static_cast<U>(y[j]));
        } else {
          for (int64_t j = 0; j < nb; ++j) line[j] = static_cast<U>(line[j] + x * static_cast<U>(y[j * b.col]));
        }
      }
      U al = static_cast<U>(alpha), be = static_cast<U>(beta);
      if (beta == T(0)) {
        for (int64_t j = 0; j < nb; ++j) row[j] = static_cast<T>(static_cast<U>(al * line[j]));
      } else {
        for (int64_t j = 0; j < nb; ++j)
          row[j] = static_cast<T>(static_cast<U>(al * line[j] + be * static_cast<U>(row[j])));
      }
    }
  }
}

// A matrix copied to rows of unit stride, converted to the type that is computed in.
template <class C, class T>
MatrixRef<C> pack(MatrixRef<T> a, int64_t rows, int64_t cols, C* to) {
  constexpr int64_t kBlock = 32;
  WorkCount done;
  if (a.col == 1) {
    for (int64_t i = 0; i < rows; ++i, done(cols))
      for (int64_t j = 0; j < cols; ++j) to[i * cols + j] = static_cast<C>(a.data[i * a.row + j]);
  } else {
    for (int64_t j0 = 0; j0 < cols; j0 += kBlock)
      for (int64_t i = 0; i < rows; ++i, done(kBlock))
        for (int64_t j = j0; j < std::min(cols, j0 + kBlock); ++j)
          to[i * cols + j] = static_cast<C>(a.data[i * a.row + j * a.col]);
  }
  return {to, cols, 1};
}

// Whether BLAS takes the matrix as it is: one unit stride, the other at least a row long.
template <class T>
bool blas_layout(MatrixRef<T> a, int64_t rows, int64_t cols) {
  auto fits = [](int64_t ld, int64_t least) { return ld >= std::max<int64_t>(least, 1) && ld <= blas::kMaxInt; };
  return (a.col == 1 && (rows <= 1 || fits(a.row, cols))) || (a.row == 1 && (cols <= 1 || fits(a.col, rows)));
}

// How the libraries see a product whose factors have such a layout.
template <class T>
onednn::Product product_of(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, int64_t ldc) {
  auto layout = [](MatrixRef<T> x, int64_t rows, int64_t cols, int64_t& ld) {
    bool plain = x.col == 1 && (rows <= 1 || x.row >= std::max<int64_t>(cols, 1));
    if (plain) {
      ld = rows <= 1 ? std::max<int64_t>(cols, 1) : x.row;
    } else {
      ld = cols <= 1 ? std::max<int64_t>(rows, 1) : x.col;
    }
    return !plain;
  };
  onednn::Product p{m, n, k, 0, 0, std::max<int64_t>(ldc, std::max<int64_t>(n, 1)), false, false};
  p.trans_a = layout(a, m, k, p.lda);
  p.trans_b = layout(b, k, n, p.ldb);
  return p;
}

template <class T>
void call_library(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T beta, T* c, int64_t ldc) {
  const onednn::Product p = product_of(m, n, k, a, b, ldc);
  if constexpr (std::is_same_v<T, float>)
    if (onednn::is_faster(p) && onednn::sgemm(p, alpha, a.data, b.data, beta, c)) return;
  blas::gemm(p.trans_a, p.trans_b, m, n, k, alpha, a.data, p.lda, b.data, p.ldb, beta, c, p.ldc);
}

// Memory of packed tiles, from the caching allocator.
template <class C>
C* scratch(Tensor& holder, int64_t n) {
  holder = empty_tensor({std::max<int64_t>(n, 1)}, dtype_of_v<C>);
  return static_cast<C*>(holder.data_ptr());
}

// Products that add nothing: c becomes beta * c.
template <class T>
void scale_batched(int64_t batch, int64_t m, int64_t n, compute_t<T> beta, T* c, int64_t ldc, int64_t c_batch) {
  using C = compute_t<T>;
  parallel_for(0, batch * m * n, int64_t{1} << 15, [&](int64_t first, int64_t last) {
    while (first < last) {
      const int64_t row = first / n, column = first % n, length = std::min(n - column, last - first);
      T* x = c + row / m * c_batch + row % m * ldc + column;
      for (int64_t j = 0; j < length; ++j)
        x[j] = beta == C(0) ? T(C(0)) : T(static_cast<C>(beta * static_cast<C>(x[j])));
      first += length;
    }
  });
}

constexpr int64_t kLeastDepth = 4096;

// How many terms of each sum are added in one call of the library, which nothing interrupts: some 50 ms, and no more
// than it can count. Depends on sizes only.
int64_t depth_of_call(int64_t m, int64_t n) {
  constexpr int64_t kWork = int64_t{1} << 31;
  return std::clamp<int64_t>(kWork / std::max<int64_t>(1, m * n), kLeastDepth, blas::kMaxInt / 2);
}

// c (m x n) = alpha * sums + beta * c.
template <class T>
void round_tile(int64_t m, int64_t n, float alpha, MatrixRef<float> sums, float beta, T* c, int64_t ldc) {
  constexpr int64_t kBlock = 16;  // lines of sums at a time where they are columns
  const int64_t block = sums.col == 1 ? n : kBlock;
  for (int64_t j0 = 0; j0 < n; j0 += block)
    for (int64_t i = 0; i < m; ++i) {
      const float* from = sums.data + i * sums.row;
      T* row = c + i * ldc;
      const int64_t end = std::min(n, j0 + block);
      if (beta == 0) {
        for (int64_t j = j0; j < end; ++j) row[j] = T(alpha * from[j * sums.col]);
      } else {
        for (int64_t j = j0; j < end; ++j) row[j] = T(alpha * from[j * sums.col] + beta * static_cast<float>(row[j]));
      }
    }
}

// A factor with one unit stride: itself, or a copy.
template <class T>
MatrixRef<T> in_layout(MatrixRef<T> a, int64_t rows, int64_t cols, Tensor& holder) {
  return blas_layout(a, rows, cols) ? a : pack<T>(a, rows, cols, scratch<T>(holder, rows * cols));
}

// A factor in float. A transposed one is packed transposed, so that both sides of the copy run along lines.
template <class T>
MatrixRef<float> widened(MatrixRef<T> a, int64_t rows, int64_t cols, Tensor& holder) {
  float* to = scratch<float>(holder, rows * cols);
  if (a.row != 1 || a.col == 1) return pack<float>(a, rows, cols, to);
  const MatrixRef<float> t = pack<float>(MatrixRef<T>{a.data, a.col, a.row}, cols, rows, to);
  return {t.data, t.col, t.row};
}

// One tile, on this thread.
template <class T>
void gemm_tile(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, MatrixRef<T> b, compute_t<T> beta,
               T* c, int64_t ldc) {
  using C = compute_t<T>;
  if (m == 0 || n == 0) return;
  if constexpr (is_half_type<T>) {
    Tensor ha, hb, hc;
    // What only has to be rounded is written by the library as it is.
    if (onednn::multiplies(dtype_of_v<T>) && k <= depth_of_call(m, n) && alpha == 1 && (beta == 0 || beta == 1)) {
      a = in_layout(a, m, k, ha);
      b = in_layout(b, k, n, hb);
      constexpr DType type = dtype_of_v<T>;
      if (onednn::multiply(product_of(m, n, k, a, b, ldc), type, a.data, b.data, type, beta == 1, c)) return;
    }
    float* sums = scratch<float>(hc, m * n);
    gemm_sums<T>(m, n, k, 1, a, b, false, sums, n);
    round_tile(m, n, alpha, {sums, n, 1}, beta, c, ldc);
  } else if constexpr (kHasBlas<T>) {
    if (m * n * k <= 64) return gemm_plain<T>(m, n, k, alpha, a, b, beta, c, ldc);
    if constexpr (std::is_same_v<T, float>)
      if (small_product(m, n, k, alpha, a, b, beta, c, ldc)) return;
    if (const int64_t depth = k <= kLeastDepth ? k : depth_of_call(m, n); k > depth) {
      for (int64_t p = 0; p < k; p += depth) {
        if (p > 0) check_interrupt();
        const MatrixRef<T> pa{a.data + p * a.col, a.row, a.col}, pb{b.data + p * b.row, b.row, b.col};
        gemm_tile<T>(m, n, std::min(depth, k - p), alpha, pa, pb, p > 0 ? C(1) : beta, c, ldc);
      }
      return;
    }
    Tensor ha, hb;
    call_library<T>(m, n, k, alpha, in_layout(a, m, k, ha), in_layout(b, k, n, hb), beta, c, ldc);
  } else {
    Tensor hb;
    if (b.col != 1 && m > 4) b = pack<T>(b, k, n, scratch<T>(hb, k * n));
    gemm_plain<T>(m, n, k, alpha, a, b, beta, c, ldc);
  }
}

}  // namespace

template <class T>
void gemm_sums(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, MatrixRef<T> b, bool add,
               compute_t<T>* c, int64_t ldc) {
  if constexpr (!is_half_type<T>) {
    gemm<T>(m, n, k, alpha, a, b, add ? T(1) : T(0), c, ldc);
  } else {
    Tensor ha, hb;
    const int64_t most = depth_of_call(m, n);
    for (int64_t p = 0; p < k; p += most, add = true) {
      if (p > 0) check_interrupt();
      const int64_t depth = std::min(most, k - p);
      const MatrixRef<T> at{a.data + p * a.col, a.row, a.col}, bt{b.data + p * b.row, b.row, b.col};
      if (alpha == 1 && onednn::multiplies(dtype_of_v<T>)) {
        const MatrixRef<T> x = in_layout(at, m, depth, ha), y = in_layout(bt, depth, n, hb);
        if (onednn::multiply(product_of(m, n, depth, x, y, ldc), dtype_of_v<T>, x.data, y.data, DType::float32, add, c))
          continue;
      }
      const MatrixRef<float> x = widened(at, m, depth, ha), y = widened(bt, depth, n, hb);
      if (m * n * depth <= 64)
        gemm_plain<float>(m, n, depth, alpha, x, y, add ? 1 : 0, c, ldc);
      else
        call_library<float>(m, n, depth, alpha, x, y, add ? 1 : 0, c, ldc);
    }
  }
}

namespace {

// A product of 16-bit factors can be computed as the transposed one, b' a'. The processor's instructions take their
// second factor in another order, and to bring the few rows of a into it costs less than the rows of b, which are a
// weight's. They are filled up to whole vectors.
constexpr int64_t kRowsTurned = 16;

// Measured on a Zen 5 for 6 to 128 rows and 256 to 4,096 terms and columns.
template <class T>
bool is_faster_turned(int64_t m, int64_t n, int64_t k, MatrixRef<T> b) {
  const bool whole = m % kRowsTurned == 0;
  if (!onednn::multiplies(dtype_of_v<T>) || b.row != 1 || n < 256 || m > (whole ? 128 : 64)) return false;
  return k >= (m <= kRowsTurned || (whole && m <= 64) ? 512 : 1024);
}

template <class T, class Out>
void turned_product(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<T> a, MatrixRef<T> b, float beta, Out* c,
                    int64_t ldc) {
  const int64_t rows = (m + kRowsTurned - 1) / kRowsTurned * kRowsTurned;
  Tensor holder;
  if (m != rows || a.col != 1) {
    T* to = scratch<T>(holder, rows * k);
    a = pack<T>(a, m, k, to);
    std::fill_n(to + m * k, (rows - m) * k, T(0.0f));
  }
  for_tiles(1, m, n, k, equal_tiles(m, n, m, 256), [&](int64_t, int64_t, int64_t j, int64_t, int64_t columns) {
    Tensor of_sums;
    float* sums = scratch<float>(of_sums, columns * rows);
    gemm_sums<T>(columns, rows, k, 1, {b.data + j * b.col, b.col, 1}, {a.data, 1, a.row}, false, sums, rows);
    round_tile(m, columns, alpha, {sums, 1, rows}, beta, c + j, ldc);
  });
}

}  // namespace

template <class T>
void shared_sums(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, bool add, float* c, int64_t ldc) {
  if (m == 0 || n == 0 || (k == 0 && add)) return;
  if (k == 0) return scale_batched<float>(1, m, n, 0, c, ldc, 0);
  if (is_skinny(m, n, k, b)) return skinny_sums(m, n, k, a, b, add, c, ldc);
  if (is_faster_turned(m, n, k, b)) return turned_product<T>(m, n, k, 1, a, b, add ? 1 : 0, c, ldc);
  for_tiles(1, m, n, k, tiles_of<T>(1, m, n, k), [&](int64_t, int64_t i, int64_t j, int64_t rows, int64_t columns) {
    gemm_sums<T>(rows, columns, k, 1, {a.data + i * a.row, a.row, a.col}, {b.data + j * b.col, b.row, b.col}, add,
                 c + i * ldc + j, ldc);
  });
}

template <class T>
void gemm_batched(int64_t batch, int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, int64_t a_batch,
                  MatrixRef<T> b, int64_t b_batch, compute_t<T> beta, T* c, int64_t ldc, int64_t c_batch) {
  if (batch == 0 || m == 0 || n == 0) return;
  if (k == 0 || alpha == compute_t<T>(0)) return scale_batched<T>(batch, m, n, beta, c, ldc, c_batch);
  if constexpr (std::is_same_v<T, float> || is_half_type<T>) {
    if (is_skinny(m, n, k, b)) {
      for (int64_t i = 0; i < batch; ++i)
        skinny_product<T>(m, n, k, alpha, {a.data + i * a_batch, a.row, a.col}, {b.data + i * b_batch, b.row, b.col},
                          beta, c + i * c_batch, ldc);
      return;
    }
  }
  if constexpr (is_half_type<T>) {
    if (batch == 1 && is_faster_turned(m, n, k, b)) return turned_product<T>(m, n, k, alpha, a, b, beta, c, ldc);
  }
  const Tiles tiles = tiles_of<T>(batch, m, n, k);
  if (batch * tiles.rows * tiles.cols == 1) return gemm_tile<T>(m, n, k, alpha, a, b, beta, c, ldc);
  for_tiles(batch, m, n, k, tiles, [&](int64_t at, int64_t i, int64_t j, int64_t rows, int64_t columns) {
    gemm_tile<T>(rows, columns, k, alpha, {a.data + at * a_batch + i * a.row, a.row, a.col},
                 {b.data + at * b_batch + j * b.col, b.row, b.col}, beta, c + at * c_batch + i * ldc + j, ldc);
  });
}

template <class T>
void gemm(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, MatrixRef<T> b, compute_t<T> beta, T* c,
          int64_t ldc) {
  gemm_batched<T>(1, m, n, k, alpha, a, 0, b, 0, beta, c, ldc, 0);
}

#define TG_GEMM(T)                                                                                                     \
  template void gemm<T>(int64_t, int64_t, int64_t, compute_t<T>, MatrixRef<T>, MatrixRef<T>, compute_t<T>, T*,         \
                        int64_t);                                                                                      \
  template void gemm_batched<T>(int64_t, int64_t, int64_t, int64_t, compute_t<T>, MatrixRef<T>, int64_t, MatrixRef<T>, \
                                int64_t, compute_t<T>, T*, int64_t, int64_t);
TG_GEMM(uint8_t)
TG_GEMM(int8_t)
TG_GEMM(int16_t)
TG_GEMM(int32_t)
TG_GEMM(int64_t)
TG_GEMM(Half)
TG_GEMM(BFloat16)
TG_GEMM(float)
TG_GEMM(double)
TG_GEMM(complex64_t)
TG_GEMM(complex128_t)
#undef TG_GEMM
#define TG_GEMM_SUMS(T)                                                                                                \
  template void gemm_sums<T>(int64_t, int64_t, int64_t, compute_t<T>, MatrixRef<T>, MatrixRef<T>, bool, compute_t<T>*, \
                             int64_t);
TG_GEMM_SUMS(Half)
TG_GEMM_SUMS(BFloat16)
TG_GEMM_SUMS(float)
TG_GEMM_SUMS(double)
#undef TG_GEMM_SUMS
template void shared_sums<Half>(int64_t, int64_t, int64_t, MatrixRef<Half>, MatrixRef<Half>, bool, float*, int64_t);
template void shared_sums<BFloat16>(int64_t, int64_t, int64_t, MatrixRef<BFloat16>, MatrixRef<BFloat16>, bool, float*,
                                    int64_t);

}  // namespace tapegrad::cpu::TG_ISA
