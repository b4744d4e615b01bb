#include "tapegrad/cuda/copy/convert.h"

#include <algorithm>

#include "tapegrad/aten/functors/arithmetic.h"
#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/pointwise/rows.h"

namespace tapegrad::cuda {
namespace {

// An element of any dtype as the widest of its kind. One kernel for all pairs: which it is, is the same for all
// threads.
struct Wide {
  enum class Kind : uint8_t { Whole, Unsigned, Real, Complex } kind;
  int64_t whole = 0;
  double real = 0, imaginary = 0;
};

template <class T>
TG_DEVICE Wide widen(const char* p) {
  const auto x = value_of<T>(*reinterpret_cast<const stored_t<T>*>(p));
  Wide w;
  if constexpr (std::is_integral_v<T>) {
    w.kind = std::is_same_v<T, uint64_t> ? Wide::Kind::Unsigned : Wide::Kind::Whole;
    w.whole = static_cast<int64_t>(x);
  } else if constexpr (is_complex_type<compute_t<T>>) {
    const auto z = static_cast<compute_t<T>>(x);
    w.kind = Wide::Kind::Complex;
    w.real = static_cast<double>(z.real());
    w.imaginary = static_cast<double>(z.imag());
  } else {
    w.kind = Wide::Kind::Real;
    w.real = static_cast<double>(static_cast<compute_t<T>>(x));
  }
  return w;
}
template <class T>
TG_DEVICE void narrow(char* p, const Wide& w) {
  T& out = *reinterpret_cast<T*>(p);
  if (w.kind == Wide::Kind::Whole)
    out = cast_element<T>(w.whole);
  else if (w.kind == Wide::Kind::Unsigned)
    out = cast_element<T>(static_cast<uint64_t>(w.whole));
  else if (w.kind == Wide::Kind::Real)
    out = cast_element<T>(w.real);
  else
    out = cast_element<T>(complex128_t(w.real, w.imaginary));
}

TG_DEVICE Wide widen_any(const char* p, DType dtype) {
  switch (dtype) {
#define TG_CASE(name, type) \
  case DType::name:         \
    return widen<type>(p);
    TG_FORALL_STORED_DTYPES(TG_CASE)
#undef TG_CASE
  }
  return {};
}

struct ConvertArgs {
  Offsets<2> offsets;
  uint32_t n;
  char* to;
  const char* from;
  DType to_dtype, from_dtype;
};

TG_KERNEL void convert_kernel(ConvertArgs args) {
  for (int64_t i = global_index(); i < args.n; i += global_step()) {
    int32_t at[2];
    args.offsets.at(static_cast<uint32_t>(i), at);
    const Wide w = widen_any(args.from + at[1], args.from_dtype);
    char* to = args.to + at[0];
    switch (args.to_dtype) {
#define TG_CASE(name, type) \
  case DType::name:         \
    narrow<type>(to, w);    \
    break;
      TG_FORALL_STORED_DTYPES(TG_CASE)
#undef TG_CASE
    }
  }
}

using pointwise::Iterator;

Iterator iterator_of(const Stream& stream, int ndim, const int64_t* shape, char* to, DType to_dtype,
                     const int64_t* to_strides) {
  Iterator it;
  it.ndim = ndim;
  it.num_inputs = 1;
  it.numel = 1;
  for (int d = 0; d < ndim; ++d) it.numel *= shape[d];
  std::copy_n(shape, ndim, it.shape);
  it.data[0] = to;
  it.dtype[0] = to_dtype;
  it.device = Device(DeviceType::CUDA, static_cast<int8_t>(stream.device));
  std::copy_n(to_strides, ndim, it.strides[0]);
  return it;
}

// Elements as bytes: the functor is the identity of a type of that size.
void move_bytes(const Iterator& it) {
  dispatch_bytes(it.compute, [&]<class T>() { rows::run<1, T>(it, fn::identity<T>{}); });
}

// Elements that are neighbours on both sides are moved together, up to 16 bytes of them.
void use_wider_elements(Iterator& it) {
  const auto item = static_cast<int64_t>(element_size(it.dtype[0]));
  const int last = it.ndim - 1;
  if (it.ndim == 0 || it.strides[0][last] != item || it.strides[1][last] != item) return;
  for (const DType wide : {DType::complex128, DType::int64, DType::int32}) {
    const auto bytes = static_cast<int64_t>(element_size(wide));
    if (bytes <= item) return;
    bool fits = it.shape[last] * item % bytes == 0;
    for (int k = 0; k < 2; ++k) {
      fits &= reinterpret_cast<uintptr_t>(it.data[k]) % static_cast<uintptr_t>(bytes) == 0;
      for (int d = 0; d < last; ++d) fits &= it.shape[d] == 1 || it.strides[k][d] % bytes == 0;
    }
    if (!fits) continue;
    it.numel = it.numel * item / bytes;
    it.shape[last] = it.shape[last] * item / bytes;
    for (int k = 0; k < 2; ++k) it.strides[k][last] = bytes, it.dtype[k] = wide;
    return;
  }
}

bool float_or_half(DType t) { return t == DType::float32 || is_half(t); }

}  // namespace

void convert_strided(const Stream& stream, int ndim, const int64_t* shape, char* to, DType to_dtype,
                     const int64_t* to_strides, const char* from, DType from_dtype, const int64_t* from_strides) {
  Iterator it = iterator_of(stream, ndim, shape, to, to_dtype, to_strides);
  if (it.numel == 0) return;
  it.data[1] = const_cast<char*>(from);
  it.dtype[1] = from_dtype;
  std::copy_n(from_strides, ndim, it.strides[1]);
  if (to_dtype == from_dtype) {
    use_wider_elements(it);
    it.compute = it.result = it.dtype[0];
    return move_bytes(it);
  }
  if (float_or_half(to_dtype) && float_or_half(from_dtype)) {
    it.compute = it.result = DType::float32;
    return rows::run<1, float>(it, fn::identity<float>{});
  }
  const int64_t* strides[] = {to_strides, from_strides};
  for_32_bit_pieces(ndim, shape, 2, strides, [&](const Piece& piece) {
    ConvertArgs args{};
    args.offsets.ndim = piece.ndim;
    for (int d = 0; d < piece.ndim; ++d) {
      args.offsets.shape[d] = FastDivide(static_cast<uint32_t>(piece.shape[d]));
      for (int k = 0; k < 2; ++k) args.offsets.strides[k][d] = static_cast<int32_t>(piece.strides[k][d]);
    }
    args.n = static_cast<uint32_t>(piece.numel);
    args.to = to + piece.offset[0];
    args.from = from + piece.offset[1];
    args.to_dtype = to_dtype;
    args.from_dtype = from_dtype;
    launch(stream, &convert_kernel, grid_for(piece.numel, kBlock, INT32_MAX), kBlock, args);
  });
}

void fill_strided(const Stream& stream, int ndim, const int64_t* shape, char* to, DType dtype, const int64_t* strides,
                  const void* value) {
  Iterator it = iterator_of(stream, ndim, shape, to, dtype, strides);
  if (it.numel == 0) return;
  it.data[1] = static_cast<char*>(const_cast<void*>(value));
  it.dtype[1] = dtype;
  it.on_host = 2;
  std::fill_n(it.strides[1], ndim, int64_t{0});
  it.compute = it.result = dtype;
  move_bytes(it);
}

}  // namespace tapegrad::cuda
