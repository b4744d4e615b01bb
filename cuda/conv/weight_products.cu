#include "tapegrad/cuda/conv/weight_products.h"

#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/dispatch/float32_precision.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/linalg/product_library.h"
#include "tapegrad/cuda/memory/short_memory.h"

namespace tapegrad::cuda {

void im2col_cuda(const Tensor& input, IntSpan kernel_size, IntSpan dilation, IntSpan padding, IntSpan stride,
                 const Tensor& out);  // fold.cu

namespace {

constexpr int64_t kFewChannels = 4;
constexpr int64_t kMostPartialBytes = int64_t{64} << 20;  // gradients of single images
constexpr int64_t kMostPatchBytes = int64_t{512} << 20;

// The gradients of images are added in their order.
struct AddImages {
  const float* images;
  float* out;
  int64_t count, numel;
  bool add;
  TG_DEVICE void operator()(int64_t i) const {
    float sum = add ? out[i] : 0.0F;
    for (int64_t n = 0; n < count; ++n) sum += images[n * numel + i];
    out[i] = sum;
  }
};

bool is_one_element(const conv::Geometry& g) {
  for (int d = 0; d < 3; ++d)
    if (g.kernel[d] != 1 || g.stride[d] != 1 || g.pad[d] != 0) return false;
  return true;
}

// Planes of some images, which are contiguous; signals, and volumes of one layer, are planes, too.
Tensor images(const Tensor& t, int64_t first, int64_t count, const int64_t (&spatial)[3]) {
  const int64_t channels = t.size(1), h = spatial[1], w = spatial[2];
  const DimVector sizes{count, channels, h, w}, strides{channels * h * w, h * w, w, 1};
  return alias_tensor(t, sizes, strides, t.storage_offset() + first * strides[0]);
}

bool by_products(const conv::Geometry& g, const Tensor& output, const Tensor& input, const Tensor& out) {
  const bool patches = !is_one_element(g);
  const int64_t places = g.out_spatial(), width = g.ic * g.kernel_spatial(), numel = out.numel();
  constexpr auto kItem = static_cast<int64_t>(sizeof(float));
  int64_t each = std::min(g.n, kMostPartialBytes / (numel * kItem));
  if (patches) each = std::min(each, kMostPatchBytes / (width * places * kItem));
  if (each == 0 || (!patches && each < g.n)) return false;

  const Work work(out.device(), {&output, &input, &out});
  const Workspace partial(static_cast<size_t>(each * numel * kItem), work);
  for (int64_t first = 0; first < g.n; first += each) {
    const int64_t count = std::min(each, g.n - first);
    Tensor columns = images(input, first, count, g.in);
    if (patches) {
      const Tensor written = empty_tensor({count, width, places}, DType::float32, out.device());
      im2col_cuda(columns, {g.kernel + 1, 2}, {g.dilation + 1, 2}, {g.pad + 1, 2}, {g.stride + 1, 2}, written);
      columns = written;
    }
    work.use(columns);
    const Tensor gradients = images(output, first, count, g.out);
    const Matrix left{gradients.data_ptr(), places, 1, g.oc * places},
        right{columns.data_ptr(), 1, places, width * places};
    if (!library_product(work, {DType::float32, count, g.oc, width, places, 1, left, right, 0, partial.data()}))
      return false;
    for_elements(work, numel,
                 AddImages{static_cast<const float*>(partial.data()), target_of<float>(out), count, numel, first > 0});
  }
  return true;
}

}  // namespace

bool weight_grad_by_products(const conv::Geometry& g, const Tensor& output, const Tensor& input, const Tensor& out) {
  const bool tf32 = cudnn_switch(CudnnSwitch::AllowTF32) != 0;
  // Products may not round where convolutions may not. In TF32 the library is fast but for first layers.
  if (out.dtype() != DType::float32 || (allow_tf32() && !tf32) || !g.regular() || g.groups != 1 || g.in[0] != 1 ||
      g.kernel[0] != 1 || g.pad[0] != 0 || !(is_one_element(g) ? !tf32 : g.ic <= kFewChannels) ||
      product_library.load(std::memory_order_acquire) == nullptr || !output.is_contiguous() || !input.is_contiguous() ||
      !out.is_contiguous())
    return false;
  return where_memory_suffices([&] { return by_products(g, output, input, out); });
}

}  // namespace tapegrad::cuda
