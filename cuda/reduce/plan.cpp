#include "tapegrad/cuda/reduce/plan.h"

#include <algorithm>
#include <memory>

#include "tapegrad/cuda/copy/convert.h"

namespace tapegrad::cuda::reduce_rows {

Places::Places(int n, const int64_t* sizes, const int64_t* steps) : ndim(n) {
  TG_CHECK(n <= kKernelDims, NotImplemented, "reduction: too many dimensions that cannot be merged: {}", n);
  int64_t numel = 1, low = 0, high = 0;
  for (int d = 0; d < n; ++d) {
    shape[d] = sizes[d];
    strides[d] = steps[d];
    numel *= sizes[d];
    (steps[d] < 0 ? low : high) += (sizes[d] - 1) * steps[d];
  }
  constexpr int64_t kLimit = int64_t{1} << 31;
  fast = numel < kLimit && high < kLimit && low > -kLimit;
  if (!fast || numel == 0) return;
  narrow.ndim = n;
  for (int d = 0; d < n; ++d) {
    narrow.shape[d] = FastDivide(static_cast<uint32_t>(sizes[d]));
    narrow.strides[0][d] = static_cast<int32_t>(steps[d]);
  }
}

namespace {

using rows::loadable;
using rows::storable;
using rows::stored_as;

void contiguous_strides(int64_t* strides, const int64_t* shape, int ndim, int64_t item) {
  for (int d = ndim - 1; d >= 0; --d) {
    strides[d] = item;
    item *= shape[d];
  }
}

// The input as the kernels can read it: in another dtype, or with too many dimensions, it is copied to [outer,
// reduced].
std::unique_ptr<Workspace> prepare_input(reduce::Iterator& it, const Stream& stream) {
  if (it.outer_numel == 0 || it.reduced_numel == 0) return nullptr;
  if (loadable(it.input_dtype, it.compute) && it.outer_ndim <= kKernelDims && it.reduced_ndim <= kKernelDims)
    return nullptr;
  const auto item = static_cast<int64_t>(element_size(it.compute));
  auto copy = std::make_unique<Workspace>(static_cast<size_t>(it.outer_numel * it.reduced_numel * item), stream);
  int64_t shape[2 * kMaxDims], from[2 * kMaxDims], to[2 * kMaxDims];
  const int ndim = it.outer_ndim + it.reduced_ndim;
  std::copy_n(it.outer_shape, it.outer_ndim, shape);
  std::copy_n(it.reduced_shape, it.reduced_ndim, shape + it.outer_ndim);
  std::copy_n(it.outer_strides, it.outer_ndim, from);
  std::copy_n(it.reduced_strides, it.reduced_ndim, from + it.outer_ndim);
  contiguous_strides(to, shape, ndim, item);
  convert_strided(stream, ndim, shape, static_cast<char*>(copy->data()), it.compute, to, it.input, it.input_dtype,
                  from);
  it.input = static_cast<const char*>(copy->data());
  it.input_dtype = it.compute;
  it.outer_ndim = it.reduced_ndim = 1;
  it.outer_shape[0] = it.outer_numel;
  it.reduced_shape[0] = it.reduced_numel;
  it.outer_strides[0] = item * it.reduced_numel;
  it.reduced_strides[0] = item;
  return copy;
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How many parts an output's elements are cut into: enough work for the device where there are few outputs, and not so
// many that merging them costs more than it saves. Sizes alone decide.
int64_t parts_for(int64_t count, int64_t least, int64_t units, int64_t wanted_units) {
  const int64_t most = std::max<int64_t>(1, count / least);
  return std::clamp<int64_t>(divide_up(wanted_units, std::max<int64_t>(1, units)), 1, std::min<int64_t>(most, 1024));
}

}  // namespace

void run_kernels(const reduce::Iterator& given, const Kernels& kernels, const void* functor) {
  if (given.outer_numel == 0) return;
  const Work work(given.device);
  const Stream& stream = work;
  reduce::Iterator it = given;
  const auto converted = prepare_input(it, stream);
  const auto item = static_cast<int64_t>(element_size(it.input_dtype));

  const bool direct = storable(it.output_dtype, kernels.result);
  const auto result_item = static_cast<int64_t>(element_size(kernels.result));
  const Workspace results(direct ? 0 : static_cast<size_t>(it.outer_numel * result_item), stream);

  Args args{};
  args.in = it.input;
  args.out = direct ? it.output : static_cast<char*>(results.data());
  args.outer = Places(it.outer_ndim, it.outer_shape, it.outer_strides);
  args.reduced = Places(it.reduced_ndim, it.reduced_shape, it.reduced_strides);
  args.outputs = it.outer_numel;
  args.count = it.reduced_numel;
  args.stored = stored_as(it.input_dtype, it.compute);
  args.out_stored = direct ? stored_as(it.output_dtype, kernels.result) : Stored::Native;

  const int64_t reduced_step = it.reduced_strides[it.reduced_ndim - 1];
  const int64_t outer_step = it.outer_strides[it.outer_ndim - 1];
  if (it.reduced_ndim == 1) args.step = reduced_step;
  const int64_t piece = std::min<int64_t>(item * kernels.pack, 16);
  bool aligned = reinterpret_cast<uintptr_t>(it.input) % static_cast<uintptr_t>(piece) == 0;
  for (int d = 0; d < it.outer_ndim; ++d) aligned &= it.outer_shape[d] == 1 || it.outer_strides[d] % piece == 0;
  for (int d = 0; d + 1 < it.reduced_ndim; ++d) aligned &= it.reduced_strides[d] % piece == 0;
  const bool whole = it.reduced_ndim == 1 || it.reduced_shape[it.reduced_ndim - 1] % kernels.pack == 0;
  args.packed = it.reduced_ndim > 0 && reduced_step == item && aligned && whole;

  // Neighbouring threads should read neighbouring elements.
  Strategy strategy;
  if (it.outer_numel >= 32 && (std::abs(outer_step) < std::abs(reduced_step) || it.reduced_numel < 8))
    strategy = Strategy::Column;
  else
    strategy = it.reduced_numel >= 2048 || it.outer_numel < 64 ? Strategy::Block : Strategy::Warp;

  args.parts = strategy == Strategy::Column  ? parts_for(args.count, 64, args.outputs, 131072)
               : strategy == Strategy::Block ? parts_for(args.count, 8192, args.outputs, 512)
                                             : 1;
  args.part = divide_up(divide_up(std::max<int64_t>(args.count, 1), args.parts), kernels.pack) * kernels.pack;
  args.parts = divide_up(std::max<int64_t>(args.count, 1), args.part);
  const Workspace partial(args.parts > 1 ? static_cast<size_t>(args.parts * args.outputs * kernels.accumulator) : 0,
                          stream);
  args.partial = args.parts > 1 ? static_cast<char*>(partial.data()) : nullptr;
  kernels.run(functor, strategy, args, stream);
  if (!direct) {
    const auto out_item = static_cast<int64_t>(element_size(it.output_dtype));
    convert_strided(stream, 1, &it.outer_numel, it.output, it.output_dtype, &out_item, args.out, kernels.result,
                    &result_item);
  }
}

}  // namespace tapegrad::cuda::reduce_rows
