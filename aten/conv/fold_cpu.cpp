// Images to columns of patches and back, a plane at a time.
#include "tapegrad/aten/conv/columns.h"
#include "tapegrad/aten/conv/fold.h"
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

conv::Geometry plane_geometry(IntSpan image, IntSpan kernel_size, IntSpan dilation, IntSpan padding, IntSpan stride) {
  const auto sizes = conv::fold_sizes("fold", image, kernel_size, dilation, padding, stride);
  const int64_t input[] = {1, 1, image[0], image[1]}, weight[] = {1, 1, kernel_size[0], kernel_size[1]};
  const int64_t output[] = {1, 1, sizes.blocks[0], sizes.blocks[1]};
  return conv::make_geometry(input, weight, output, stride, padding, dilation, 1);
}

}  // namespace

void im2col_cpu(const Tensor& input, IntSpan kernel_size, IntSpan dilation, IntSpan padding, IntSpan stride,
                const Tensor& out) {
  if (out.numel() == 0) return;
  const conv::Geometry g = plane_geometry({input.sizes().data() + 2, 2}, kernel_size, dilation, padding, stride);
  const int64_t image = g.in_spatial(), columns = g.kernel_spatial() * g.out_spatial();
  dispatch_bytes(out.dtype(), [&]<class T>() {
    parallel_for(0, input.size(0) * input.size(1), 32768 / columns + 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        image_to_columns<T>(g, 1, data_of<T>(input) + p * image, target_of<T>(out) + p * columns);
    });
  });
}

void col2im_cpu(const Tensor& input, IntSpan output_size, IntSpan kernel_size, IntSpan dilation, IntSpan padding,
                IntSpan stride, const Tensor& out) {
  if (out.numel() == 0) return;
  const conv::Geometry g = plane_geometry(output_size, kernel_size, dilation, padding, stride);
  const int64_t image = g.in_spatial(), columns = g.kernel_spatial() * g.out_spatial();
  const auto planes = [&]<class T, class C>() {
    parallel_for(0, out.size(0) * out.size(1), 32768 / columns + 1, [&](int64_t begin, int64_t end) {
      if constexpr (std::is_same_v<C, T>) {
        std::fill(target_of<T>(out) + begin * image, target_of<T>(out) + end * image, T(0));
        for (int64_t p = begin; p < end; ++p)
          add_columns_to_image<T>(g, 1, data_of<T>(input) + p * columns, target_of<T>(out) + p * image);
      } else {  // summed in another type
        std::vector<C> plane(static_cast<size_t>(image)), wide(static_cast<size_t>(columns));
        for (int64_t p = begin; p < end; ++p) {
          const T* from = data_of<T>(input) + p * columns;
          convert_line(wide.data(), from, columns);
          std::fill(plane.begin(), plane.end(), C(0));
          add_columns_to_image<C>(g, 1, wide.data(), plane.data());
          convert_line(target_of<T>(out) + p * image, plane.data(), image);
        }
      }
    });
  };
  if (out.dtype() == DType::bool_) return planes.template operator()<bool, int32_t>();
  dispatch_floating_complex(out.dtype(), [&]<class T>() { planes.template operator()<T, compute_t<T>>(); });
}

}  // namespace tapegrad::cpu::TG_ISA
