#include "tapegrad/cuda/staged.h"

#include <vector>

#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda::staged {

const Tensor& Operands::host(const Tensor& t) {
  if (!t.defined() || !t.is_cuda()) return t;
  for (size_t i = 0; i < pairs_.size(); ++i)
    if (pairs_[i].first.impl() == t.impl()) {
      given_.push_back(i);
      return pairs_[i].second;
    }
  if (pairs_.empty()) note_wait(op_names[op_]);
  device_ = t.device();
  const Tensor copy = empty_tensor({DimVector(t.sizes()), t.dtype(), Device(), geometry::preserved_strides(t)});
  copy_any(copy, t, false);
  given_.push_back(pairs_.size());
  return pairs_.emplace_back(t, copy).second;
}

void Operands::write_back(size_t n) {
  if (given_.empty()) return;
  const size_t first = n == 0 ? 0 : given_.size() - n, end = n == 0 ? 1 : given_.size();
  for (size_t i = first; i < end; ++i) copy_any(pairs_[given_[i]].first, pairs_[given_[i]].second, false);
}

Tensor Operands::to_device(const Tensor& t) const {
  if (!t.defined()) return t;
  const Tensor there = empty_tensor({DimVector(t.sizes()), t.dtype(), device_, geometry::preserved_strides(t)});
  copy_any(there, t, false);
  return there;
}

namespace {

// The bytes that an operand of an iteration covers, on the host.
struct Extent {
  std::vector<char> bytes;
  char* device;
  int64_t low = 0, high = 0;

  Extent(const char* first, int ndim, const int64_t* shape, const int64_t* strides, DType dtype)
      : device(const_cast<char*>(first)) {
    add(ndim, shape, strides);
    high += static_cast<int64_t>(element_size(dtype));
  }
  void add(int ndim, const int64_t* shape, const int64_t* strides) {
    for (int d = 0; d < ndim; ++d) (strides[d] < 0 ? low : high) += (shape[d] - 1) * strides[d];
  }
  char* fetch(const Stream& stream) {
    bytes.resize(static_cast<size_t>(high - low));
    driver().copy(bytes.data(), device + low, bytes.size(), CopyKind::DeviceToHost, stream.handle);
    driver().synchronize_stream(stream.handle);
    return bytes.data() - low;
  }
  void put_back(const Stream& stream) {
    driver().copy(device + low, bytes.data(), bytes.size(), CopyKind::HostToDevice, stream.handle);
    driver().synchronize_stream(stream.handle);
  }
};

}  // namespace

void run_pointwise(OpId op, const pointwise::Iterator& given) {
  const Work work(given.device);
  note_wait(op_names[op]);
  pointwise::Iterator it = given;
  std::vector<Extent> extents;
  for (int k = 0; k <= it.num_inputs; ++k) {
    extents.emplace_back(it.data[k], it.ndim, it.shape, it.strides[k], it.dtype[k]);
    if ((it.on_host >> k & 1) == 0) it.data[k] = extents.back().fetch(work);
  }
  it.device = Device();
  it.on_host = 0;
  kernel_for<pointwise::Kernel>(op, Device())(it);
  extents[0].put_back(work);
}

void run_reduce(OpId op, const reduce::Iterator& given) {
  const Work work(given.device);
  note_wait(op_names[op]);
  reduce::Iterator it = given;
  Extent input(it.input, it.outer_ndim, it.outer_shape, it.outer_strides, it.input_dtype);
  input.add(it.reduced_ndim, it.reduced_shape, it.reduced_strides);
  const auto item = static_cast<int64_t>(element_size(it.output_dtype));
  Extent output(it.output, 1, &it.outer_numel, &item, it.output_dtype);
  it.input = input.fetch(work);
  it.output = output.fetch(work);
  kernel_for<reduce::Kernel>(op, Device())(it);
  output.put_back(work);
}

}  // namespace tapegrad::cuda::staged
