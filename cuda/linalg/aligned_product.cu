// Products of 16-bit matrices whose rows do not begin at multiples of 16 bytes (a vocabulary of 50257 words): the
// library has slow kernels for them only, so they are copied to rows that do, some rows of the result at a time.
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/launch/divide.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/linalg/product_library.h"
#include "tapegrad/cuda/memory/short_memory.h"

namespace tapegrad::cuda {
namespace {

constexpr int64_t kPack = 8;                        // elements of 16 bytes
constexpr int64_t kMostBytes = int64_t{256} << 20;  // of copies at a time
constexpr int64_t kWorthwhile = 64;                 // products per element that is copied

constexpr int64_t whole(int64_t n) { return (n + kPack - 1) / kPack * kPack; }

// Rows of `width` elements from one pitch to another.
struct Repitch {
  const uint16_t* from;
  uint16_t* to;
  int64_t from_pitch, to_pitch;
  Divider by_row;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t row, at;
    by_row.divide(i, row, at);
    to[row * to_pitch + at] = from[row * from_pitch + at];
  }
};
void repitch(const Stream& stream, const void* from, int64_t from_pitch, void* to, int64_t to_pitch, int64_t rows,
             int64_t width) {
  for_elements(stream, rows * width,
               Repitch{static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to), from_pitch, to_pitch,
                       Divider(width, rows * width)});
}

const void* element(const void* p, int64_t n) { return static_cast<const uint16_t*>(p) + n; }

// Returns false where the product is not of this kind or the library refuses a part of it; c may be written in part
// then.
bool aligned_product(const Stream& stream, ProductLibrary library, const Product& p) {
  BlasMatrix a, b;
  if (p.batch != 1 || !is_half(p.dtype) || !(p.beta == Scalar(0)) || !blas_matrix(p.a, p.m, p.k, a) ||
      !blas_matrix(p.b, p.k, p.n, b))
    return false;
  const bool fix_a = a.step % kPack != 0, fix_b = b.step % kPack != 0, fix_c = p.n % kPack != 0;
  const int64_t copied = (fix_a ? p.m * p.k : 0) + (fix_b ? p.k * p.n : 0) + (fix_c ? p.m * p.n : 0);
  if (copied == 0 || p.m < 256 || p.n < 256 || p.k < 256 || p.m * p.n / kWorthwhile * p.k < copied) return false;

  const int64_t b_lines = b.transposed ? p.n : p.k, b_width = b.transposed ? p.k : p.n;
  const Workspace b_copy(fix_b ? static_cast<size_t>(b_lines * whole(b_width)) * 2 : 0, stream);
  Matrix right = p.b;
  if (fix_b) {
    repitch(stream, p.b.data, b.step, b_copy.data(), whole(b_width), b_lines, b_width);
    right.data = b_copy.data();
    (b.transposed ? right.col : right.row) = whole(b_width);
  }
  const int64_t per_row = 2 * ((fix_a ? whole(p.k) : 0) + (fix_c ? whole(p.n) : 0));
  const int64_t rows = per_row == 0 ? p.m : std::min(p.m, std::max<int64_t>(512, kMostBytes / per_row / 128 * 128));
  // A transposed block of `rows` columns has k lines.
  const int64_t a_elements = a.transposed ? p.k * whole(rows) : rows * whole(p.k);
  const Workspace a_copy(fix_a ? static_cast<size_t>(a_elements) * 2 : 0, stream);
  const Workspace c_copy(fix_c ? static_cast<size_t>(rows * whole(p.n)) * 2 : 0, stream);
  for (int64_t first = 0; first < p.m; first += rows) {
    const int64_t count = std::min(rows, p.m - first);
    Product part = p;
    part.m = count;
    part.b = right;
    part.a.data = element(p.a.data, first * (a.transposed ? 1 : a.step));
    if (fix_a) {
      const int64_t lines = a.transposed ? p.k : count, width = a.transposed ? count : p.k;
      repitch(stream, part.a.data, a.step, a_copy.data(), whole(width), lines, width);
      part.a.data = a_copy.data();
      (a.transposed ? part.a.col : part.a.row) = whole(width);
    }
    void* const c = static_cast<uint16_t*>(p.c) + first * p.n;
    part.c = fix_c ? c_copy.data() : c;
    part.c_row = fix_c ? whole(p.n) : 0;
    if (!library(stream, part)) return false;
    if (fix_c) repitch(stream, c_copy.data(), whole(p.n), c, p.n, count, p.n);
  }
  return true;
}

}  // namespace

std::atomic<ProductLibrary> product_library{nullptr};

bool library_product(const Stream& stream, const Product& product) {
  const ProductLibrary library = product_library.load(std::memory_order_acquire);
  if (library == nullptr) return false;
  return where_memory_suffices([&] { return aligned_product(stream, library, product); }) || library(stream, product);
}

}  // namespace tapegrad::cuda
