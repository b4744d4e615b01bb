// Patches of images as columns, and columns added back: one element of the result per thread, which gathers its terms.
#include "tapegrad/aten/conv/fold.h"

#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/conv/plan.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

using conv_plan::Plan;

// Planes are images of one channel.
Plan plane_plan(int64_t planes, IntSpan image, IntSpan kernel_size, IntSpan dilation, IntSpan padding, IntSpan stride) {
  const auto sizes = conv::fold_sizes("fold", image, kernel_size, dilation, padding, stride);
  const int64_t input[] = {planes, 1, image[0], image[1]}, weight[] = {1, 1, kernel_size[0], kernel_size[1]};
  const int64_t output[] = {planes, 1, sizes.blocks[0], sizes.blocks[1]};
  return Plan(conv::make_geometry(input, weight, output, stride, padding, dilation, 1));
}

template <class T>
struct ToColumns {
  Plan p;
  Divider by_column, by_row;  // elements of a row, rows of a plane
  const T* image;
  T* columns;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t row, place, plane, number;
    by_column.divide(i, row, place);
    by_row.divide(row, plane, number);
    const int64_t from = p.input_place(p.out.point(place), p.kernel.point(number));
    columns[i] = from < 0 ? T{} : image[plane * p.in_numel + from];
  }
};

template <class T, class C>
struct FromColumns {
  Plan p;
  const T* columns;
  T* image;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t plane, place;
    p.by_in.divide(i, plane, place);
    const Point here = p.in.point(place);
    C sum = C(0);
    for (int64_t number = 0; number < p.kernel_numel; ++number) {
      const int64_t from = p.output_place(here, p.kernel.point(number));
      if (from < 0) continue;
      const T& x = columns[(plane * p.kernel_numel + number) * p.out_numel + from];
      if constexpr (std::is_same_v<T, bool>)
        sum += x ? 1 : 0;
      else
        sum = math::add(sum, steps::widen<T>(x));
    }
    if constexpr (std::is_same_v<T, bool>)
      image[i] = sum != 0;
    else
      image[i] = steps::narrow<T>(sum);
  }
};

}  // namespace

void im2col_cuda(const Tensor& input, IntSpan kernel_size, IntSpan dilation, IntSpan padding, IntSpan stride,
                 const Tensor& out) {
  if (out.numel() == 0) return;
  const Plan p =
      plane_plan(input.size(0) * input.size(1), {input.sizes().data() + 2, 2}, kernel_size, dilation, padding, stride);
  const Work work(out.device(), {&input, &out});
  const int64_t n = out.numel();
  dispatch_bytes(out.dtype(), [&]<class T>() {
    for_elements(
        work, n,
        ToColumns<T>{p, Divider(p.out_numel, n), Divider(p.kernel_numel, n), data_of<T>(input), target_of<T>(out)});
  });
}

void col2im_cuda(const Tensor& input, IntSpan output_size, IntSpan kernel_size, IntSpan dilation, IntSpan padding,
                 IntSpan stride, const Tensor& out) {
  if (out.numel() == 0) return;
  const Plan p = plane_plan(out.size(0) * out.size(1), output_size, kernel_size, dilation, padding, stride);
  const Work work(out.device(), {&input, &out});
  const auto add = [&]<class T, class C>() {
    for_elements(work, out.numel(), FromColumns<T, C>{p, data_of<T>(input), target_of<T>(out)});
  };
  if (out.dtype() == DType::bool_) return add.template operator()<bool, int32_t>();
  dispatch_floating_complex(out.dtype(), [&]<class T>() { add.template operator()<T, compute_t<T>>(); });
}

}  // namespace tapegrad::cuda
