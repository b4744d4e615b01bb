// The public transforms of tapegrad.fft, built on the three kernels: lengths, dimensions, normalisation, conjugates.
#include <cmath>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_fft.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pad.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_fft.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::composite {
namespace {

using OptionalLength = std::optional<int64_t>;
using Norm = std::optional<std::string_view>;

// What a transform of n elements is multiplied by.
double scale_of(const char* op, Norm norm, double n, bool forward) {
  std::string_view mode = norm.value_or("backward");
  if (mode == "ortho") return 1 / std::sqrt(n);
  TG_CHECK(mode == "backward" || mode == "forward", Runtime,
           "{}: norm must be 'backward', 'forward' or 'ortho': got '{}'", op, mode);
  return (mode == "forward") == forward ? 1 / n : 1;
}

// Integers become the default dtype, and real numbers complex ones on request.
Tensor promoted(const char* op, const Tensor& input, bool complex) {
  TG_CHECK(!is_half(input.dtype()), Runtime, "{}: not implemented for {}\nhint: convert it with .float()", op,
           input.dtype());
  DType t = is_differentiable(input.dtype()) ? input.dtype() : default_dtype();
  if (complex) t = to_complex(t);
  return t == input.dtype() ? input : _to_copy(input, t);
}

Tensor real_only(const char* op, const Tensor& input) {
  TG_CHECK(!input.is_complex(), Runtime, "{}: expected a real tensor: got {}", op, input.dtype());
  return promoted(op, input, false);
}

Tensor resized(const char* op, const Tensor& input, int64_t dim, int64_t n) {
  TG_CHECK(n >= 1, Runtime, "{}: the length must be at least 1: got {}", op, n);
  int64_t have = input.size(dim);
  if (have == n) return input;
  if (have > n) return narrow(input, dim, 0, n);
  DimVector padding(static_cast<size_t>(2 * (input.ndim() - dim)), 0);
  padding[padding.size() - 1] = n - have;
  return constant_pad_nd(input, padding, 0);
}

int64_t checked_dim(const char* op, const Tensor& input, int64_t dim) {
  TG_CHECK(input.ndim() > 0, Index, "{}: dimension {} of a tensor without dimensions", op, dim);
  return wrap_dim(dim, input.ndim(), op);
}

struct Line {
  Tensor x;
  int64_t dim;
};

// One dimension, cut or padded to n.
Line line(const char* op, const Tensor& input, OptionalLength n, int64_t dim) {
  int64_t d = checked_dim(op, input, dim);
  return {resized(op, input, d, n.value_or(input.size(d))), d};
}

Tensor complex_line(const char* op, const Tensor& input, OptionalLength n, int64_t dim, Norm norm, bool forward) {
  auto [x, d] = line(op, promoted(op, input, false), n, dim);
  double scale = scale_of(op, norm, static_cast<double>(x.size(d)), forward);
  if (x.is_complex()) return _fft_c2c(x, IntSpan{d}, scale, forward);
  Tensor r = _fft_r2c(x, d, scale, false);
  return forward ? r : conj(r);
}

Tensor real_to_half(const char* op, const Tensor& input, OptionalLength n, int64_t dim, Norm norm, bool forward) {
  auto [x, d] = line(op, real_only(op, input), n, dim);
  Tensor r = _fft_r2c(x, d, scale_of(op, norm, static_cast<double>(x.size(d)), forward), true);
  return forward ? r : conj(r);
}

int64_t real_length(const char* op, const Tensor& x, int64_t d, OptionalLength n) {
  int64_t length = n.value_or(2 * (x.size(d) - 1));
  TG_CHECK(length >= 1, Runtime, "{}: the length must be at least 1: got {}", op, length);
  return length;
}

Tensor half_to_real(const char* op, const Tensor& input, OptionalLength n, int64_t dim, Norm norm, bool forward) {
  Tensor x = promoted(op, input, true);
  int64_t d = checked_dim(op, x, dim), length = real_length(op, x, d, n);
  x = resized(op, x, d, length / 2 + 1);
  return _fft_c2r(forward ? conj(x) : x, d, length, scale_of(op, norm, static_cast<double>(length), forward));
}

struct Box {
  DimVector dims;
  DimVector sizes;  // of the signal
};

// The dimensions and lengths of a transform of several dimensions.
Box box_of(const char* op, const Tensor& input, OptionalInts s, OptionalInts dim) {
  Box box;
  if (dim) {
    for (int64_t d : *dim) box.dims.push_back(checked_dim(op, input, d));
    for (size_t i = 0; i < box.dims.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        TG_CHECK(box.dims[i] != box.dims[j], Runtime, "{}: dimensions must be different: got {}", op,
                 format_ints(*dim));
    TG_CHECK(!s || s->size() == dim->size(), Runtime, "{}: s and dim must have one length: got {} and {}", op,
             format_ints(*s), format_ints(*dim));
  } else {
    int64_t count = s ? static_cast<int64_t>(s->size()) : input.ndim();
    TG_CHECK(count <= input.ndim(), Runtime, "{}: s of {} lengths for a tensor of {} dimensions", op, count,
             input.ndim());
    for (int64_t d = input.ndim() - count; d < input.ndim(); ++d) box.dims.push_back(d);
  }
  for (size_t i = 0; i < box.dims.size(); ++i) {
    bool given = s && (*s)[i] != -1;
    box.sizes.push_back(given ? (*s)[i] : input.size(box.dims[i]));
    TG_CHECK(!given || (*s)[i] >= 1, Runtime, "{}: lengths must be at least 1: got {}", op, format_ints(*s));
  }
  return box;
}

Tensor fitted(const char* op, Tensor x, const Box& box) {
  for (size_t i = 0; i < box.dims.size(); ++i) x = resized(op, x, box.dims[i], box.sizes[i]);
  return x;
}

double count_of(const DimVector& sizes) {
  double n = 1;
  for (int64_t s : sizes) n *= static_cast<double>(s);
  return n;
}

IntSpan without_last(const DimVector& dims) { return IntSpan(dims.data(), dims.size() - 1); }

Tensor complex_box(const char* op, const Tensor& input, OptionalInts s, OptionalInts dim, Norm norm, bool forward) {
  Tensor x = promoted(op, input, true);
  Box box = box_of(op, x, s, dim);
  double scale = scale_of(op, norm, count_of(box.sizes), forward);
  if (box.dims.empty()) return clone(x);
  return _fft_c2c(fitted(op, x, box), box.dims, scale, forward);
}

Tensor real_box_to_half(const char* op, const Tensor& input, OptionalInts s, OptionalInts dim, Norm norm,
                        bool forward) {
  Tensor x = real_only(op, input);
  Box box = box_of(op, x, s, dim);
  TG_CHECK(!box.dims.empty(), Runtime, "{}: at least one dimension is needed", op);
  double scale = scale_of(op, norm, count_of(box.sizes), forward);
  Tensor r = _fft_r2c(fitted(op, x, box), box.dims.back(), scale, true);
  if (!forward) r = conj(r);
  return box.dims.size() == 1 ? r : _fft_c2c(r, without_last(box.dims), 1, forward);
}

Tensor half_box_to_real(const char* op, const Tensor& input, OptionalInts s, OptionalInts dim, Norm norm,
                        bool forward) {
  Tensor x = promoted(op, input, true);
  Box box = box_of(op, x, s, dim);
  TG_CHECK(!box.dims.empty(), Runtime, "{}: at least one dimension is needed", op);
  size_t last = box.dims.size() - 1;
  bool given = s && (*s)[last] != -1;
  int64_t length = real_length(op, x, box.dims[last], given ? OptionalLength((*s)[last]) : std::nullopt);
  box.sizes[last] = length;
  double scale = scale_of(op, norm, count_of(box.sizes), forward);
  box.sizes[last] = length / 2 + 1;
  x = fitted(op, x, box);
  if (last > 0) x = _fft_c2c(x, without_last(box.dims), 1, forward);
  return _fft_c2r(forward ? conj(x) : x, box.dims[last], length, scale);
}

}  // namespace

// Along one dimension and, with an n, along several.
#define TG_FFT(name, line, box, forward)                                                   \
  Tensor fft_##name(const Tensor& input, OptionalLength n, int64_t dim, Norm norm) {       \
    return line("fft." #name, input, n, dim, norm, forward);                               \
  }                                                                                        \
  Tensor fft_##name##n(const Tensor& input, OptionalInts s, OptionalInts dim, Norm norm) { \
    return box("fft." #name "n", input, s, dim, norm, forward);                            \
  }
TG_FFT(fft, complex_line, complex_box, true)
TG_FFT(ifft, complex_line, complex_box, false)
TG_FFT(rfft, real_to_half, real_box_to_half, true)
TG_FFT(ihfft, real_to_half, real_box_to_half, false)
TG_FFT(irfft, half_to_real, half_box_to_real, false)
TG_FFT(hfft, half_to_real, half_box_to_real, true)
#undef TG_FFT

namespace {

Tensor shifted(const char* op, const Tensor& input, OptionalInts dim, bool inverse) {
  DimVector dims, shifts;
  if (dim) {
    for (int64_t d : *dim) dims.push_back(checked_dim(op, input, d));
  } else {
    for (int64_t d = 0; d < input.ndim(); ++d) dims.push_back(d);
  }
  for (int64_t d : dims) shifts.push_back((input.size(d) + (inverse ? 1 : 0)) / 2);
  return dims.empty() ? clone(input) : roll(input, shifts, dims);
}

}  // namespace

Tensor fft_fftshift(const Tensor& input, OptionalInts dim) { return shifted("fft.fftshift", input, dim, false); }
Tensor fft_ifftshift(const Tensor& input, OptionalInts dim) { return shifted("fft.ifftshift", input, dim, true); }

}  // namespace tapegrad::composite
