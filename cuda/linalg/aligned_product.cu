// Products of 16-bit matrices whose rows do not begin at multiples of 16 bytes (a vocabulary of 50257 words): the
// library has slow kernels for them only, so they are copied to rows that do, some rows of the result at a time.
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/launch/divide.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/linalg/product_library.h"

namespace tapegrad::cuda {
namespace {

constexpr int64_t kPack = 8;                        // elements of 16 bytes
constexpr int64_t kMostBytes = int64_t{256} << 20;  // of copies at a time
constexpr int64_t kWorthwhile = 64;                 // products per element that is copied

constexpr int64_t whole(int64_t n) { return (n + kPack - 1) / kPack * kPack; }

// Rows of `width` elements between memory of any pitch and memory whose rows are whole packs.
struct Repitch {
  uint16_t* loose;
  uint16_t* packed;
  int64_t loose_pitch, packed_pitch, width;
  bool pack;  // from loose to packed, with zeros behind the width; else back
  Divider by_row;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t row, at;
    by_row.divide(i, row, at);
    uint16_t* const a = loose + row * loose_pitch + at * kPack;
    uint16_t* const b = packed + row * packed_pitch + at * kPack;
    const int64_t left = width - at * kPack;
    Pack<uint16_t, kPack> values;
    if (pack) {
      TG_UNROLL
      for (int j = 0; j < kPack; ++j) values.v[j] = j < left ? a[j] : uint16_t{0};
      store_pack<uint16_t, kPack>(b, values);
    } else {
      values = load_pack<uint16_t, kPack>(b);
      TG_UNROLL
      for (int j = 0; j < kPack; ++j)
        if (j < left) a[j] = values.v[j];
    }
  }
};
void repitch(const Stream& stream, const void* loose, int64_t loose_pitch, void* packed, int64_t rows, int64_t width,
             bool pack) {
  const int64_t packs = whole(width) / kPack;
  for_elements(stream, rows * packs,
               Repitch{static_cast<uint16_t*>(const_cast<void*>(loose)), static_cast<uint16_t*>(packed), loose_pitch,
                       whole(width), width, pack, Divider(packs, rows * packs)});
}

const void* element(const void* p, int64_t n) { return static_cast<const uint16_t*>(p) + n; }

// Returns false, without any effect on c, where the product is not of this kind or the library refuses it.
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
    repitch(stream, p.b.data, b.step, b_copy.data(), b_lines, b_width, true);
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
      repitch(stream, part.a.data, a.step, a_copy.data(), lines, width, true);
      part.a.data = a_copy.data();
      (a.transposed ? part.a.col : part.a.row) = whole(width);
    }
    void* const c = static_cast<uint16_t*>(p.c) + first * p.n;
    part.c = fix_c ? c_copy.data() : c;
    part.c_row = fix_c ? whole(p.n) : 0;
    if (!library(stream, part)) return false;
    if (fix_c) repitch(stream, c, p.n, c_copy.data(), count, p.n, false);
  }
  return true;
}

}  // namespace

std::atomic<ProductLibrary> product_library{nullptr};

bool library_product(const Stream& stream, const Product& product) {
  const ProductLibrary library = product_library.load(std::memory_order_acquire);
  return library != nullptr && (aligned_product(stream, library, product) || library(stream, product));
}

}  // namespace tapegrad::cuda
