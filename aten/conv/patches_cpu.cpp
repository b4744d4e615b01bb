#include "tapegrad/aten/conv/patches.h"

#include <algorithm>
#include <cstring>

#include "tapegrad/aten/copy/bytes.h"
#include "tapegrad/aten/iterate/network_types.h"
#include "tapegrad/aten/linalg/product/gemm.h"
#include "tapegrad/aten/onednn/product.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA::patches {
namespace {

using conv::Geometry;

// Rows of a patch that are shorter than a vector take longer to be put in order than oneDNN's convolution takes.
bool is_cut(const Geometry& g, DType type) {
  if (g.groups != 1 || !g.regular() || g.ic == 0 || g.kernel_spatial() == 1) return false;
  for (int d = 0; d < 3; ++d)
    if (g.stride[d] != g.kernel[d] || g.pad[d] != 0 || (g.kernel[d] > 1 && g.dilation[d] != 1)) return false;
  return g.kernel[2] * static_cast<int64_t>(element_size(type)) >= 16 &&
         (type == DType::float32 || onednn::multiplies(type));
}

// The images in the order of their patches, of which each is a row of ic * kernel_spatial numbers; or the way back.
template <bool kBack, class T>
void reorder(const Geometry& g, T* image, T* rows) {
  const int64_t size = g.ic * g.kernel_spatial(), width = g.kernel[2], bytes = width * static_cast<int64_t>(sizeof(T));
  parallel_for(
      0, g.n * g.out[0] * g.out[1], std::max<int64_t>(1, 32768 / (size * g.out[2])), [&](int64_t first, int64_t last) {
        for (int64_t line = first; line < last; ++line) {  // of patches
          const int64_t h = line % g.out[1], d = line / g.out[1] % g.out[0], i = line / g.out[1] / g.out[0];
          T* to = rows + line * g.out[2] * size;
          for (int64_t c = 0; c < g.ic; ++c)
            for (int64_t z = 0; z < g.kernel[0]; ++z)
              for (int64_t y = 0; y < g.kernel[1]; ++y, to += width) {
                T* from = image +
                          (((i * g.ic + c) * g.in[0] + d * g.kernel[0] + z) * g.in[1] + h * g.kernel[1] + y) * g.in[2];
                for (int64_t x = 0; x < g.out[2]; ++x)
                  if constexpr (kBack)
                    copy_bytes(from + x * width, to + x * size, bytes);
                  else
                    copy_bytes(to + x * size, from + x * width, bytes);
              }
        }
      });
}

template <class T>
Tensor rows_of(const Geometry& g, const Tensor& input) {
  Tensor rows = empty_tensor({g.n * g.out_spatial() * g.ic * g.kernel_spatial()}, input.dtype());
  reorder<false>(g, target_of<T>(input), target_of<T>(rows));
  return rows;
}

}  // namespace

bool forward(const Geometry& g, const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& out) {
  const int64_t places = g.out_spatial();
  if (!is_cut(g, out.dtype()) || places < 64) return false;  // the products of fewer places are no faster than oneDNN
  const int64_t size = g.ic * g.kernel_spatial();
  dispatch_network(out.dtype(), [&]<class T>() {
    const Tensor rows = rows_of<T>(g, input);
    T* y = target_of<T>(out);
    if (bias.defined())
      for (int64_t i = 0; i < g.n * g.oc; ++i) std::fill_n(y + i * places, places, target_of<T>(bias)[i % g.oc]);
    gemm_batched<T>(g.n, g.oc, places, size, 1, {target_of<T>(weight), size, 1}, 0, {target_of<T>(rows), 1, size},
                    places * size, bias.defined() ? 1 : 0, y, places, g.oc * places);
  });
  return true;
}

bool grad_input(const Geometry& g, const Tensor& output, const Tensor& weight, const Tensor& out) {
  if (!is_cut(g, out.dtype())) return false;
  const int64_t places = g.out_spatial(), size = g.ic * g.kernel_spatial();
  dispatch_network(out.dtype(), [&]<class T>() {
    const Tensor rows = empty_tensor({g.n * places * size}, out.dtype());
    gemm_batched<T>(g.n, places, size, g.oc, 1, {target_of<T>(output), 1, places}, g.oc * places,
                    {target_of<T>(weight), size, 1}, 0, 0, target_of<T>(rows), size, places * size);
    for (int d = 0; d < 3; ++d)
      if (g.in[d] != g.out[d] * g.kernel[d]) {  // the last places are in no patch
        std::memset(out.data_ptr(), 0, static_cast<size_t>(out.nbytes()));
        break;
      }
    reorder<true>(g, target_of<T>(out), target_of<T>(rows));
  });
  return true;
}

bool grad_weight(const Geometry& g, const Tensor& output, const Tensor& input, const Tensor& out) {
  if (!is_cut(g, input.dtype())) return false;
  const int64_t places = g.out_spatial(), size = g.ic * g.kernel_spatial(), all = g.n * places;
  dispatch_network(input.dtype(), [&]<class T>() {
    const Tensor rows = rows_of<T>(g, input);
    // All images as one: the output's gradient with the images behind the channels.
    const T* y = target_of<T>(output);
    const Tensor turned = g.n > 1 ? empty_tensor({g.oc * all}, input.dtype()) : output;
    if (g.n > 1)
      parallel_for(0, g.oc, std::max<int64_t>(1, 32768 / all), [&](int64_t first, int64_t last) {
        for (int64_t o = first; o < last; ++o)
          for (int64_t i = 0; i < g.n; ++i)
            std::copy_n(y + (i * g.oc + o) * places, places, target_of<T>(turned) + o * all + i * places);
      });
    const MatrixRef<T> a{target_of<T>(turned), all, 1}, b{target_of<T>(rows), size, 1};
    if constexpr (is_half_type<T>)
      shared_sums<T>(g.oc, size, all, a, b, false, target_of<float>(out), size);
    else
      gemm<T>(g.oc, size, all, 1, a, b, 0, target_of<T>(out), size);
  });
  return true;
}

}  // namespace tapegrad::cpu::TG_ISA::patches
