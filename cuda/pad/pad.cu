// Padding: an element of the result finds its source; in the gradient an element of the input sums all places that it
// was copied to, in their order.
#include <cstring>

#include "tapegrad/aten/pad/source.h"
#include "tapegrad/aten/pad/value.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/divide.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

using padding::Mode;
using padding::Range;

// Dimensions of both sides, neighbours that are not padded put together.
struct Lines {
  struct Dim {
    int64_t in, before, stride;  // stride: of the unpadded side
    int64_t out;
    Divider by_out;
  };
  int ndim = 0;
  Dim dims[kKernelDims];

  Lines(IntSpan in, IntSpan out, IntSpan pad, bool constant) {
    const size_t n = in.size();
    int64_t numel = 1;
    for (int64_t size : out) numel *= size;
    bool plain = false;  // the last one is not padded
    for (size_t d = 0; d < n; ++d) {
      const size_t i = n - 1 - d;
      const int64_t before = 2 * i < pad.size() ? pad[2 * i] : 0;
      const bool padded = before != 0 || in[d] != out[d];
      // A dimension that is not padded is one with the one before it, which is then padded by so many elements each.
      if (!padded && ndim > 0 && (plain || constant)) {
        Dim& last = dims[ndim - 1];
        last.in *= in[d];
        last.out *= in[d];
        last.before *= in[d];
        continue;
      }
      TG_CHECK(ndim < kKernelDims, NotImplemented, "pad: more than {} padded dimensions on cuda", kKernelDims);
      dims[ndim++] = {in[d], before, 1, out[d], {}};
      plain = !padded;
    }
    for (int d = ndim - 2; d >= 0; --d) dims[d].stride = dims[d + 1].stride * dims[d + 1].in;
    for (int d = 0; d < ndim; ++d) dims[d].by_out = Divider(dims[d].out, numel);
  }
};

template <class T>
struct Pad {
  Lines lines;
  Mode mode;
  T value;
  const T* from;
  T* to;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t place = 0, rest = i;
    bool inside = true;
    for (int d = lines.ndim - 1; d >= 0; --d) {
      const Lines::Dim& dim = lines.dims[d];
      int64_t j;
      dim.by_out.divide(rest, rest, j);
      const int64_t s = padding::source(j - dim.before, dim.in, mode);
      inside &= s >= 0;
      place += s * dim.stride;
    }
    to[i] = inside ? from[place] : value;
  }
};

template <class T>
void pad_as(const Tensor& any_input, IntSpan pad, Mode mode, const T& value, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor input = contiguous_or_copy(any_input);
  const Work work(out.device(), {&input, &out});
  for_elements(work, out.numel(),
               Pad<T>{Lines(input.sizes(), out.sizes(), pad, mode == Mode::Constant), mode, value, data_of<T>(input),
                      target_of<T>(out)});
}

// The last three dimensions, widened by leading ones; the ones before them are planes.
template <class T>
struct PadGrad {
  Space in, out;
  Divider by_in;
  int64_t before[3];
  Mode mode;
  const T* from;
  T* to;
  TG_DEVICE void operator()(int64_t i) const {
    using C = compute_t<T>;
    int64_t plane, at;
    by_in.divide(i, plane, at);
    const Point here = in.point(at);
    Range z[3], y[3], x[3];
    padding::targets(here.at[0], in.size[0], before[0], out.size[0], mode, z);
    padding::targets(here.at[1], in.size[1], before[1], out.size[1], mode, y);
    padding::targets(here.at[2], in.size[2], before[2], out.size[2], mode, x);
    const T* grad = from + plane * out.numel();
    C sum = C(0);
    for (const Range& rz : z)
      for (int64_t oz = rz.first; oz < rz.last; ++oz)
        for (const Range& ry : y)
          for (int64_t oy = ry.first; oy < ry.last; ++oy)
            for (const Range& rx : x)
              for (int64_t ox = rx.first; ox < rx.last; ++ox)
                sum = math::add(sum, steps::widen<T>(grad[out.place(oz, oy, ox)]));
    to[i] = steps::narrow<T>(sum);
  }
};

}  // namespace

void constant_pad_cuda(const Tensor& input, IntSpan pad, const Scalar& value, const Tensor& out) {
  padding::with_bits(value, out.dtype(),
                     [&]<class T>(const T& bits) { pad_as<T>(input, pad, Mode::Constant, bits, out); });
}

void pad_mode_cuda(const Tensor& input, IntSpan pad, std::string_view mode, const Tensor& out) {
  dispatch_bytes(out.dtype(), [&]<class T>() { pad_as<T>(input, pad, padding::parse(mode), T{}, out); });
}

void pad_mode_grad_cuda(const Tensor& output, IntSpan input_size, IntSpan pad, std::string_view mode,
                        const Tensor& out) {
  if (out.numel() == 0) return;
  const size_t n = pad.size() / 2, leading = input_size.size() - n;
  int64_t in[3] = {1, 1, 1}, padded[3] = {1, 1, 1}, before[3] = {0, 0, 0};
  for (size_t d = 0; d < n; ++d) {
    in[3 - n + d] = input_size[leading + d];
    padded[3 - n + d] = output.sizes()[leading + d];
    before[3 - n + d] = pad[2 * (n - 1 - d)];
  }
  const Work work(out.device(), {&output, &out});
  dispatch_floating_complex(out.dtype(), [&]<class T>() {
    for_elements(work, out.numel(),
                 PadGrad<T>{{in[0], in[1], in[2]},
                            {padded[0], padded[1], padded[2]},
                            Divider(in[0] * in[1] * in[2], out.numel()),
                            {before[0], before[1], before[2]},
                            padding::parse(mode),
                            data_of<T>(output),
                            target_of<T>(out)});
  });
}

}  // namespace tapegrad::cuda
