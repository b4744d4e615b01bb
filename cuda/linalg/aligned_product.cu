// Products of 16-bit matrices, and of float32 ones in TF32, whose rows or columns are no multiples of 16 bytes (a
// vocabulary of 50257 words): the library has slow kernels for them only, so they are copied to such that are, filled
// up with zeros, some rows of the result at a time.
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/dispatch/float32_precision.h"
#include "tapegrad/cuda/launch/divide.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/linalg/product_library.h"
#include "tapegrad/cuda/memory/short_memory.h"

namespace tapegrad::cuda {
namespace {

constexpr int64_t kMostBytes = int64_t{256} << 20;  // of copies at a time
constexpr int64_t kWorthwhile = 64;                 // products per element that is copied

// Rows of `from_width` elements to dense ones of another width; what the source does not have is zero. A thread has the
// `V` elements of 16 bytes, or one.
template <class T, int V>
struct Repitch {
  const T* from;
  T* to;
  int64_t from_pitch, from_rows, from_width, width, total;
  Divider by_row;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t row, at;
    by_row.divide(i * V, row, at);
    T out[V];
    TG_UNROLL
    for (int j = 0; j < V; ++j) {
      out[j] = row < from_rows && at < from_width ? from[row * from_pitch + at] : T(0);
      if (++at == width) at = 0, ++row;
    }
    if (i * V + V <= total) return store_pieces<T, V>(to + i * V, out);
    for (int j = 0; i * V + j < total; ++j) to[i * V + j] = out[j];
  }
};
struct Rows {
  const void* data;
  int64_t pitch, count, width;
};
template <class T>
void repitch(const Stream& stream, const Rows& from, void* to, int64_t rows, int64_t width) {
  constexpr int V = 16 / sizeof(T);
  const int64_t total = rows * width;
  const auto launch = [&]<int N>() {
    for_elements(stream, (total + N - 1) / N,
                 Repitch<T, N>{static_cast<const T*>(from.data), static_cast<T*>(to), from.pitch, from.count,
                               from.width, width, total, Divider(width, total + V)});
  };
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0)
    launch.template operator()<V>();
  else
    launch.template operator()<1>();
}

// T: an unsigned integer of the size of the elements. Returns false where the product is not of this kind or the
// library refuses a part of it; c may be written in part then.
template <class T>
bool aligned_product(const Stream& stream, ProductLibrary library, const Product& p) {
  constexpr int64_t kPack = 16 / sizeof(T);
  const auto whole = [](int64_t n) { return (n + kPack - 1) / kPack * kPack; };
  BlasMatrix a, b;
  if (p.batch != 1 || !(p.beta == Scalar(0)) || !blas_matrix(p.a, p.m, p.k, a) || !blas_matrix(p.b, p.k, p.n, b))
    return false;
  // Columns and depth are filled up with zeros: the library chooses its kernels by them, too.
  const int64_t n = whole(p.n), k = whole(p.k);
  const bool fix_c = n != p.n, fix_a = k != p.k || a.step % kPack != 0,
             fix_b = fix_c || k != p.k || b.step % kPack != 0;
  const int64_t copied = (fix_a ? p.m * k : 0) + (fix_b ? k * n : 0) + (fix_c ? p.m * n : 0);
  if (copied == 0 || p.m < 256 || p.n < 256 || p.k < 256 || p.m * p.n / kWorthwhile * p.k < copied) return false;

  const auto bytes = [](bool wanted, int64_t elements) {
    return wanted ? static_cast<size_t>(elements) * sizeof(T) : size_t{0};
  };
  const Workspace b_copy(bytes(fix_b, k * n), stream), bias_copy(bytes(fix_c && p.bias != nullptr, n), stream);
  Product part = p;
  part.n = n, part.k = k;
  if (fix_b) {
    repitch<T>(stream, {p.b.data, b.step, b.transposed ? p.n : p.k, b.transposed ? p.k : p.n}, b_copy.data(),
               b.transposed ? n : k, b.transposed ? k : n);
    part.b = b.transposed ? Matrix{b_copy.data(), 1, k} : Matrix{b_copy.data(), n, 1};
  }
  if (fix_c && p.bias != nullptr) {
    repitch<T>(stream, {p.bias, p.n, 1, p.n}, bias_copy.data(), 1, n);
    part.bias = bias_copy.data();
  }
  const int64_t per_row = static_cast<int64_t>(bytes(fix_a, k) + bytes(fix_c, n));
  const int64_t rows = per_row == 0 ? p.m : std::min(p.m, std::max<int64_t>(512, kMostBytes / per_row / 128 * 128));
  const Workspace a_copy(bytes(fix_a, k * (a.transposed ? whole(rows) : rows)), stream),
      c_copy(bytes(fix_c, rows * n), stream);
  for (int64_t first = 0; first < p.m; first += rows) {
    part.m = std::min(rows, p.m - first);
    const T* const lines = static_cast<const T*>(p.a.data) + first * (a.transposed ? 1 : a.step);
    part.a.data = lines;
    if (fix_a && a.transposed) {
      repitch<T>(stream, {lines, a.step, p.k, part.m}, a_copy.data(), k, whole(part.m));
      part.a = {a_copy.data(), 1, whole(part.m)};
    } else if (fix_a) {
      repitch<T>(stream, {lines, a.step, part.m, p.k}, a_copy.data(), part.m, k);
      part.a = {a_copy.data(), k, 1};
    }
    T* const c = static_cast<T*>(p.c) + first * p.n;
    part.c = fix_c ? c_copy.data() : c;
    if (!library(stream, part)) return false;
    if (fix_c) repitch<T>(stream, {c_copy.data(), n, part.m, n}, c, part.m, p.n);
  }
  return true;
}
bool aligned_product(const Stream& stream, ProductLibrary library, const Product& p) {
  if (p.mixed != nullptr || p.row_sums != nullptr) return false;
  if (is_half(p.dtype)) return aligned_product<uint16_t>(stream, library, p);
  return p.dtype == DType::float32 && allow_tf32() && aligned_product<uint32_t>(stream, library, p);
}

}  // namespace

std::atomic<ProductLibrary> product_library{nullptr};

bool library_product(const Stream& stream, const Product& product) {
  const ProductLibrary library = product_library.load(std::memory_order_acquire);
  if (library == nullptr) return false;
  return where_memory_suffices([&] { return aligned_product(stream, library, product); }) || library(stream, product);
}

}  // namespace tapegrad::cuda
