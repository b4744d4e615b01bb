#include "tapegrad/aten/conv/depthwise.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/iterate/blocks/float_vector.h"
#include "tapegrad/aten/iterate/network_types.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA::depthwise {
namespace {

using conv::Geometry;

constexpr int64_t kMostKernel = 16;        // positions along a row
constexpr int64_t kBandFloats = 12 << 10;  // of a band of padded input: it stays in the nearest cache, or the second
constexpr int64_t kWork = 1 << 19;         // multiplications for one thread: about 20 us

// Rows are short: a call would take longer.
TG_INLINE void copy_floats(const float* from, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) std::memcpy(to + i, from + i, 4 * sizeof(float));
#if defined(__AVX512F__)
  const auto rest = static_cast<__mmask8>((1 << (n - i)) - 1);
  _mm_mask_storeu_ps(to + i, rest, _mm_maskz_loadu_ps(rest, from + i));
#else
  for (; i < n; ++i) std::memcpy(to + i, from + i, sizeof(float));
#endif
}

// The sizes of the planes: [0] along columns (rows of the plane), [1] along rows.
struct Sizes {
  int64_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];

  explicit Sizes(const Geometry& g) {
    for (int d = 0; d < 2; ++d) {
      in[d] = g.in[d + 1], out[d] = g.out[d + 1], kernel[d] = g.kernel[d + 1];
      stride[d] = g.stride[d + 1], pad[d] = g.pad[d + 1], dilation[d] = g.dilation[d + 1];
    }
  }
  int64_t reach(int d) const { return dilation[d] * (kernel[d] - 1); }
  int64_t taps() const { return kernel[0] * kernel[1]; }
};

// The input of some rows of output with its padding. Along rows it is split into as many phases as the stride is long,
// so that what neighbouring outputs read are neighbours.
class Band {
 public:
  Band(const Sizes& s, int64_t rows)
      : s_(s),
        rows_(rows),
        line_((s.out[1] + kVector - 1) / kVector * kVector + s.reach(1) / s.stride[1] + 1),
        height_((rows - 1) * s.stride[0] + s.reach(0) + 1),
        memory_(empty_tensor({s.stride[1] * height_ * line_}, DType::float32)),
        data_(static_cast<float*>(memory_.data_ptr())) {
    std::fill_n(data_, s.stride[1] * height_ * line_, 0.0f);
    for (int64_t r = 0; r < s.kernel[0]; ++r)
      for (int64_t i = 0; i < s.kernel[1]; ++i) {
        const int64_t at = i * s.dilation[1];
        taps_.push_back((r * s.dilation[0] + at % s.stride[1] * height_) * line_ + at / s.stride[1]);
      }
  }
  // What the rows of output from `first` on read of the plane, which is given from row `given` on.
  void fill(const float* plane, int64_t first, int64_t given = 0) {
    const int64_t stride = s_.stride[1], pad = s_.pad[1];
    const int64_t width = std::clamp<int64_t>((s_.out[1] - 1) * stride + s_.reach(1) + 1 - pad, 0, s_.in[1]);
    for (int64_t r = 0; r < height_; ++r) {
      const int64_t row = first * s_.stride[0] + r - s_.pad[0];
      float* to = data_ + r * line_;
      if (row < 0 || row >= s_.in[0]) {
        if (rows_ == s_.out[0]) continue;  // zero from the beginning
        for (int64_t phase = 0; phase < stride; ++phase) std::fill_n(to + phase * height_ * line_, line_, 0.0f);
        continue;
      }
      const float* from = plane + (row - given) * s_.in[1];
      if (stride == 1) {
        copy_floats(from, width, to + pad);
        continue;
      }
      for (int64_t phase = 0; phase < stride; ++phase) {
        const int64_t first_column = ((phase - pad) % stride + stride) % stride;  // of the plane, with this phase
        float* p = to + phase * height_ * line_ + (first_column + pad) / stride;
        const float* f = from + first_column;
        const int64_t n = (width - first_column + stride - 1) / stride;
        if (stride == 2)  // by vectors
          for (int64_t i = 0; i < n; ++i) p[i] = f[2 * i];
        else
          for (int64_t i = 0; i < n; ++i) p[i] = f[stride * i];
      }
    }
  }
  // The output `row` (of the band) at column 0 reads for a tap, a place of the kernel, what lies at its distance from
  // here.
  const float* row(int64_t row) const { return data_ + row * row_step(); }
  int64_t row_step() const { return s_.stride[0] * line_; }
  std::span<const int64_t> taps() const { return taps_; }

 private:
  const Sizes& s_;
  int64_t rows_, line_, height_;
  Tensor memory_;
  float* data_;
  std::vector<int64_t> taps_;
};

// Rows of output per band.
int64_t band_rows(const Sizes& s) {
  const int64_t line = s.out[1] * s.stride[1] + s.reach(1) + kVector;
  return std::clamp<int64_t>((kBandFloats / line - s.reach(0)) / s.stride[0], std::min<int64_t>(8, s.out[0]), s.out[0]);
}

// One channel's kernel, and where its outputs go.
struct Filter {
  const float* w;
  float bias;
  float* y;
};

// kVectors of outputs, from column `from` on, of kRows rows: enough sums that none waits for the one before.
template <int kVectors, int kRows>
TG_INLINE void outputs(const Sizes& s, const Band& band, int64_t row, int64_t from, const Filter& filter) {
  Vector sum[kRows][kVectors];
  for (auto& line : sum)
    for (Vector& v : line) v = Vector{} + filter.bias;
  const float *base = band.row(row) + from, *w = filter.w;
  const int64_t step = band.row_step();
  for (const int64_t tap : band.taps()) {
    const float *p = base + tap, weight = *w++;
    for (int l = 0; l < kRows; ++l, p += step) {
      for (int v = 0; v < kVectors; ++v) sum[l][v] += weight * vector_at(p + v * kVector);
      if constexpr (kRows > 2) asm("" : "+r"(p));  // else it would keep the sum of each distance, out of registers
    }
  }
  for (int l = 0; l < kRows; ++l)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t rest = s.out[1] - from - v * kVector;
      float* to = filter.y + (row + l) * s.out[1] + from + v * kVector;
      if (rest >= kVector)
        vector_at(to) = sum[l][v];
      else
        copy_floats(reinterpret_cast<const float*>(&sum[l][v]), rest, to);
    }
}

template <int kVectors>
void output_columns(const Sizes& s, const Band& band, int64_t rows, int64_t from, const Filter& filter) {
  int64_t row = 0;
  if constexpr (kVectors == 1)
    for (; row + 7 <= rows; row += 7) outputs<kVectors, 7>(s, band, row, from, filter);
  if constexpr (kVectors <= 2)
    for (; row + 4 <= rows; row += 4) outputs<kVectors, 4>(s, band, row, from, filter);
  for (; row + 2 <= rows; row += 2) outputs<kVectors, 2>(s, band, row, from, filter);
  for (; row < rows; ++row) outputs<kVectors, 1>(s, band, row, from, filter);
}

void output_rows(const Sizes& s, const Band& band, int64_t rows, const Filter& filter) {
  for (int64_t from = 0; from < s.out[1]; from += 4 * kVector) {
    const int64_t n = s.out[1] - from;
    if (n > 3 * kVector)
      output_columns<4>(s, band, rows, from, filter);
    else if (n > 2 * kVector)
      output_columns<3>(s, band, rows, from, filter);
    else if (n > kVector)
      output_columns<2>(s, band, rows, from, filter);
    else
      output_columns<1>(s, band, rows, from, filter);
  }
}

// f(plane, first row, rows) for the bands of `planes` planes, several per call.
template <class F>
void for_bands(const Sizes& s, int64_t planes, int64_t rows, F&& f) {
  const int64_t bands = (s.out[0] + rows - 1) / rows;
  const int64_t grain = std::max<int64_t>(1, kWork / (rows * s.out[1] * s.taps()));
  parallel_for(0, planes * bands, grain, [&](int64_t first, int64_t last) {
    Band band(s, rows);
    for (int64_t t = first; t < last; ++t)
      f(band, t / bands, t % bands * rows, std::min(rows, s.out[0] - t % bands * rows));
  });
}

// Planes of `x`, each read by `each` planes of `y`.
void convolve(const Sizes& s, int64_t planes, int64_t channels, int64_t each, const float* x, const float* w,
              const float* bias, float* y) {
  const int64_t in = s.in[0] * s.in[1], out = s.out[0] * s.out[1], rows = band_rows(s);
  for_bands(s, planes, rows, [&](Band& band, int64_t plane, int64_t first, int64_t count) {
    band.fill(x + plane * in, first);
    for (int64_t e = 0; e < each; ++e) {
      const int64_t channel = plane % channels * each + e;
      output_rows(
          s, band, count,
          {w + channel * s.taps(), bias ? bias[channel] : 0.0f, y + (plane * each + e) * out + first * s.out[1]});
    }
  });
}

// The same in 16 bits: some planes, or a band of one, are converted on the way, while they are in the caches.
template <class T>
void convolve(const Sizes& s, int64_t planes, int64_t channels, int64_t each, const T* x, const float* w,
              const float* bias, T* y) {
  const int64_t in = s.in[0] * s.in[1], out = s.out[0] * s.out[1], rows = band_rows(s);
  const int64_t bands = (s.out[0] + rows - 1) / rows;
  const int64_t group = bands > 1 ? 1 : std::clamp<int64_t>(kBandFloats / std::max(in, each * out), 1, planes);
  const int64_t groups = (planes + group - 1) / group;
  const int64_t grain = std::max<int64_t>(1, kWork / (group * rows * s.out[1] * s.taps() * each));
  parallel_for(0, groups * bands, grain, [&](int64_t begin, int64_t end) {
    Band band(s, rows);
    const int64_t read = std::min(s.in[0], (rows - 1) * s.stride[0] + s.reach(0) + 1);
    const Tensor wide = empty_tensor({group * (bands > 1 ? read : s.in[0]) * s.in[1]}, DType::float32);
    const Tensor sums = empty_tensor({group * each * rows * s.out[1]}, DType::float32);
    float *from = target_of<float>(wide), *to = target_of<float>(sums);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t plane = t / bands * group, many = std::min(group, planes - plane);
      const int64_t first = t % bands * rows, count = std::min(rows, s.out[0] - first);
      const int64_t low = std::clamp<int64_t>(first * s.stride[0] - s.pad[0], 0, s.in[0]);
      const int64_t lines = bands > 1 ? std::min(read, s.in[0] - low) : s.in[0];
      convert_line(from, x + plane * in + low * s.in[1], many * lines * s.in[1]);
      for (int64_t i = 0; i < many; ++i) {
        band.fill(from + i * lines * s.in[1], first, low);
        for (int64_t e = 0; e < each; ++e) {
          const int64_t channel = (plane + i) % channels * each + e;
          output_rows(s, band, count,
                      {w + channel * s.taps(), bias ? bias[channel] : 0.0f, to + (i * each + e) * count * s.out[1]});
        }
      }
      for (int64_t e = 0; bands > 1 && e < each; ++e)
        convert_line(y + (plane * each + e) * out + first * s.out[1], to + e * count * s.out[1], count * s.out[1]);
      if (bands == 1) convert_line(y + plane * each * out, to, many * each * out);
    }
  });
}

typedef int32_t Lanes __attribute__((vector_size(4 * kVector)));

// Rows of gradients, each filled up with zeros.
class Gradients {
 public:
  Gradients(const Sizes& s, int64_t rows)
      : width_(s.out[1]),
        line_((s.out[1] + kVector - 1) / kVector * kVector),
        memory_(empty_tensor({rows * line_}, DType::float32)),
        data_(static_cast<float*>(memory_.data_ptr())) {
    std::fill_n(data_, rows * line_, 0.0f);
    for (int l = 0; l < kVector; ++l) there_[l] = width_ % kVector == 0 || l < width_ % kVector ? -1 : 0;
  }
  void fill(const float* y, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) copy_floats(y + r * width_, width_, data_ + r * line_);
  }
  const float* row(int64_t r) const { return data_ + r * line_; }
  int64_t line() const { return line_; }
  // Of the last vector of a row: which lanes it has. What is read behind the end may be infinite.
  Vector there(const Vector& v) const { return reinterpret_cast<Vector>(reinterpret_cast<Lanes>(v) & there_); }

 private:
  int64_t width_, line_;
  Tensor memory_;
  float* data_;
  Lanes there_;
};

// sums (kDeep kernel rows of kCount positions from `position` on) += the products of `rows` rows of gradients with what
// they were computed from.
template <int kDeep, int kCount>
void add_rows(const Sizes& s, const Band& band, const Gradients& y, int64_t rows, int64_t kernel_row, int64_t position,
              Vector* sums) {
  Vector sum[kDeep][kCount];
  const float* x[kDeep][kCount];
  for (int r = 0; r < kDeep; ++r)
    for (int i = 0; i < kCount; ++i) {
      sum[r][i] = sums[(kernel_row + r) * s.kernel[1] + position + i];
      x[r][i] = band.row(0) + band.taps()[static_cast<size_t>((kernel_row + r) * s.kernel[1] + position + i)];
    }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = row * band.row_step(), last = y.line() - kVector;
    for (int64_t j = 0; j < last; j += kVector) {
      const Vector v = vector_at(y.row(row) + j);
      for (int r = 0; r < kDeep; ++r)
        for (int i = 0; i < kCount; ++i) sum[r][i] += v * vector_at(x[r][i] + from + j);
    }
    const Vector v = vector_at(y.row(row) + last);
    for (int r = 0; r < kDeep; ++r)
      for (int i = 0; i < kCount; ++i) sum[r][i] += v * y.there(vector_at(x[r][i] + from + last));
  }
  for (int r = 0; r < kDeep; ++r)
    for (int i = 0; i < kCount; ++i) sums[(kernel_row + r) * s.kernel[1] + position + i] = sum[r][i];
}

void add_all_rows(const Sizes& s, const Band& band, const Gradients& y, int64_t rows, Vector* sums) {
  const int64_t deep = s.kernel[0], count = s.kernel[1];
  if (deep == 3 && count == 3) return add_rows<3, 3>(s, band, y, rows, 0, 0, sums);
  for (int64_t r = 0; r < deep; ++r) {
    int64_t i = 0;
    for (; i + 7 <= count; i += 7) add_rows<1, 7>(s, band, y, rows, r, i, sums);
    for (; i + 5 <= count; i += 5) add_rows<1, 5>(s, band, y, rows, r, i, sums);
    for (; i + 3 <= count; i += 3) add_rows<1, 3>(s, band, y, rows, r, i, sums);
    for (; i < count; ++i) add_rows<1, 1>(s, band, y, rows, r, i, sums);
  }
}

bool is_meant(const Geometry& g) {
  return g.groups > 1 && g.groups == g.ic && g.in[0] == 1 && g.out[0] == 1 && g.kernel[0] == 1 && g.pad[0] == 0 &&
         g.kernel[2] <= kMostKernel && g.kernel[1] <= 4 * kMostKernel && g.stride[2] <= 8 && g.out[2] >= 4 &&
         g.out[2] <= 1 << 20 && g.in[2] <= 1 << 20 && g.dilation[2] <= 1 << 10 && g.dilation[1] <= 1 << 10 &&
         g.dilation[1] * (g.kernel[1] - 1) <= g.in[1] + 2 * g.pad[1] && g.pad[1] <= 1 << 10 && g.pad[2] <= 1 << 10 &&
         g.stride[1] <= 64;
}

// With AVX-512 oneDNN is faster where rows fill no vector of ours, and for the gradient of small kernels. Measured on a
// Zen 5 with planes of 7 x 7 to 112 x 112 in layers of MobileNet and ConvNeXt: outputs of 7 x 7 1.3 to 2.8 times,
// gradients of 3 x 3 kernels 1.0 to 8 times, those of larger kernels 0.1 times.
#if defined(__AVX512F__)
constexpr bool kWide = true;
#else
constexpr bool kWide = false;
#endif
bool is_narrow(const Geometry& g) { return kWide && g.spatial == 2 && g.oc == g.ic && g.out[2] <= 8 * g.stride[2]; }
bool has_small_kernel(const Geometry& g) {
  return kWide && g.spatial == 2 && g.oc == g.ic && g.kernel[1] <= 3 && g.kernel[2] <= 3;
}

}  // namespace

bool forward(const Geometry& g, DType type, const void* x, const float* w, const float* bias, void* y) {
  if (!is_meant(g) || is_narrow(g)) return false;
  dispatch_network(type, [&]<class T>() {
    convolve(Sizes(g), g.n * g.ic, g.ic, g.oc / g.ic, static_cast<const T*>(x), w, bias, static_cast<T*>(y));
  });
  return true;
}

// With a stride of one this is a convolution of the gradient with the kernel turned around.
bool grad_input(const Geometry& g, DType type, const void* y, const float* w, void* x) {
  if (!is_meant(g) || is_narrow(g)) return false;
  if (g.oc != g.ic || g.stride[1] != 1 || g.stride[2] != 1) return false;
  Sizes s(g);
  for (int d = 0; d < 2; ++d) {
    std::swap(s.in[d], s.out[d]);
    s.pad[d] = s.reach(d) - s.pad[d];
    if (s.pad[d] < 0) return false;
  }
  if (s.out[1] < 4) return false;
  const Tensor turned = empty_tensor({g.ic * s.taps()}, DType::float32);
  float* to = static_cast<float*>(turned.data_ptr());
  for (int64_t c = 0; c < g.ic; ++c) std::reverse_copy(w + c * s.taps(), w + (c + 1) * s.taps(), to + c * s.taps());
  dispatch_network(type, [&]<class T>() {
    convolve(s, g.n * g.ic, g.ic, 1, static_cast<const T*>(y), to, nullptr, static_cast<T*>(x));
  });
  return true;
}

bool grad_weight(const Geometry& g, const float* y, const float* x, float* w) {
  if (!is_meant(g) || has_small_kernel(g)) return false;
  const Sizes s(g);
  const int64_t in = s.in[0] * s.in[1], out = s.out[0] * s.out[1], rows = band_rows(s), each = g.oc / g.ic;
  const int64_t taps = s.taps();
  parallel_for(0, g.ic, std::max<int64_t>(1, kWork / (g.n * out * each * taps)), [&](int64_t first, int64_t last) {
    Band band(s, rows);
    Gradients gradients(s, rows);
    const Tensor memory = empty_tensor({each * taps * kVector}, DType::float32);
    auto* sums = static_cast<Vector*>(memory.data_ptr());
    for (int64_t c = first; c < last; ++c) {
      float* to = w + c * each * taps;
      std::fill_n(to, each * taps, 0.0f);
      for (int64_t i = 0; i < g.n; ++i) {
        std::fill_n(sums, each * taps, Vector{});
        for (int64_t row = 0; row < s.out[0]; row += rows) {
          check_interrupt();
          const int64_t count = std::min(rows, s.out[0] - row);
          band.fill(x + (i * g.ic + c) * in, row);
          for (int64_t e = 0; e < each; ++e) {
            gradients.fill(y + (i * g.oc + c * each + e) * out + row * s.out[1], count);
            add_all_rows(s, band, gradients, count, sums + e * taps);
          }
        }
        for (int64_t t = 0; t < each * taps; ++t) to[t] += total(sums[t]);
      }
    }
  });
  return true;
}

}  // namespace tapegrad::cpu::TG_ISA::depthwise
