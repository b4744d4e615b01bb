#include <algorithm>
#include <type_traits>

#include "tapegrad/aten/linalg/blas.h"
#include "tapegrad/aten/linalg/gemm.h"
#include "tapegrad/aten/linalg/skinny.h"
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
  // Equal tiles, in steps of 16 rows or columns.
  int64_t rows = (m + tm - 1) / tm, cols = (n + tn - 1) / tn;
  tm = ((m + rows - 1) / rows + 15) / 16 * 16;
  tn = ((n + cols - 1) / cols + 15) / 16 * 16;
  return {tm, tn, (m + tm - 1) / tm, (n + tn - 1) / tn};
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

template <class T>
void call_blas(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T beta, T* c, int64_t ldc) {
  auto layout = [](MatrixRef<T> x, int64_t rows, int64_t cols, int64_t& ld) {
    bool plain = x.col == 1 && (rows <= 1 || x.row >= std::max<int64_t>(cols, 1));
    if (plain) {
      ld = rows <= 1 ? std::max<int64_t>(cols, 1) : x.row;
    } else {
      ld = cols <= 1 ? std::max<int64_t>(rows, 1) : x.col;
    }
    return !plain;
  };
  int64_t lda, ldb;
  bool ta = layout(a, m, k, lda);
  bool tb = layout(b, k, n, ldb);
  blas::gemm(ta, tb, m, n, k, alpha, a.data, lda, b.data, ldb, beta, c,
             std::max<int64_t>(ldc, std::max<int64_t>(n, 1)));
}

// Room for packed tiles, from the caching allocator.
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

// How many terms of each sum are added in one call of the library, which nothing interrupts: some 50 ms, and no more
// than it can count. Depends on sizes only.
int64_t depth_of_call(int64_t m, int64_t n) {
  constexpr int64_t kWork = int64_t{1} << 31;
  return std::clamp<int64_t>(kWork / std::max<int64_t>(1, m * n), 4096, blas::kMaxInt / 2);
}

// One tile, on this thread.
template <class T>
void gemm_tile(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, MatrixRef<T> b, compute_t<T> beta,
               T* c, int64_t ldc) {
  using C = compute_t<T>;
  if (m == 0 || n == 0) return;
  if constexpr (is_half_type<T>) {
    Tensor ha, hb, hc;
    C* pc = scratch<C>(hc, m * n);
    const int64_t depth = std::min(k, depth_of_call(m, n));
    C *to_a = scratch<C>(ha, m * depth), *to_b = scratch<C>(hb, depth * n);
    for (int64_t p = 0; p < k; p += depth) {
      if (p > 0) check_interrupt();
      const int64_t d = std::min(depth, k - p);
      const MatrixRef<T> part{b.data + p * b.row, b.row, b.col};
      MatrixRef<C> pa = pack<C>(MatrixRef<T>{a.data + p * a.col, a.row, a.col}, m, d, to_a);
      // A transposed factor is packed transposed, so that both sides of the copy run along lines.
      MatrixRef<C> pb;
      if (b.row == 1 && b.col != 1) {
        MatrixRef<C> t = pack<C>(MatrixRef<T>{part.data, b.col, b.row}, n, d, to_b);
        pb = {t.data, t.col, t.row};
      } else {
        pb = pack<C>(part, d, n, to_b);
      }
      if (m * n * k <= 64) {
        gemm_plain<C>(m, n, d, alpha, pa, pb, C(0), pc, n);
      } else {
        call_blas<C>(m, n, d, alpha, pa, pb, C(p > 0 ? 1 : 0), pc, n);
      }
    }
    for (int64_t i = 0; i < m; ++i) {
      T* row = c + i * ldc;
      const C* from = pc + i * n;
      if (beta == C(0)) {
        for (int64_t j = 0; j < n; ++j) row[j] = T(from[j]);
      } else {
        for (int64_t j = 0; j < n; ++j) row[j] = T(from[j] + beta * static_cast<C>(row[j]));
      }
    }
  } else if constexpr (kHasBlas<T>) {
    if (m * n * k <= 64) return gemm_plain<T>(m, n, k, alpha, a, b, beta, c, ldc);
    if (const int64_t depth = depth_of_call(m, n); k > depth) {
      for (int64_t p = 0; p < k; p += depth) {
        if (p > 0) check_interrupt();
        const MatrixRef<T> pa{a.data + p * a.col, a.row, a.col}, pb{b.data + p * b.row, b.row, b.col};
        gemm_tile<T>(m, n, std::min(depth, k - p), alpha, pa, pb, p > 0 ? C(1) : beta, c, ldc);
      }
      return;
    }
    Tensor ha, hb;
    if (!blas_layout(a, m, k)) a = pack<T>(a, m, k, scratch<T>(ha, m * k));
    if (!blas_layout(b, k, n)) b = pack<T>(b, k, n, scratch<T>(hb, k * n));
    call_blas<T>(m, n, k, alpha, a, b, beta, c, ldc);
  } else {
    Tensor hb;
    if (b.col != 1 && m > 4) b = pack<T>(b, k, n, scratch<T>(hb, k * n));
    gemm_plain<T>(m, n, k, alpha, a, b, beta, c, ldc);
  }
}

}  // namespace

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
  Tiles tiles = choose_tiles(m, n, k);
  int64_t per_matrix = tiles.rows * tiles.cols;
  double tile_work = static_cast<double>(std::min(tiles.m, m)) * static_cast<double>(std::min(tiles.n, n)) *
                     static_cast<double>(std::max<int64_t>(k, 1));
  // One thread's worth: about 0.5 M multiplications, 10 us.
  int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(5e5 / tile_work));
  parallel_for(0, batch * per_matrix, grain, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      int64_t at = t / per_matrix, tile = t % per_matrix;
      int64_t i = tile / tiles.cols * tiles.m, j = tile % tiles.cols * tiles.n;
      gemm_tile<T>(std::min(tiles.m, m - i), std::min(tiles.n, n - j), k, alpha,
                   {a.data + at * a_batch + i * a.row, a.row, a.col}, {b.data + at * b_batch + j * b.col, b.row, b.col},
                   beta, c + at * c_batch + i * ldc + j, ldc);
    }
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

}  // namespace tapegrad::cpu::TG_ISA
