#include "tapegrad/cuda/pointwise/plan.h"

#include <cstring>
#include <vector>

#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/cuda/copy/convert.h"

namespace tapegrad::cuda::rows {
namespace {

using pointwise::Iterator;

// A value of the host in the compute type.
void convert_on_host(void* to, DType to_dtype, const void* from, DType from_dtype) {
  dispatch_stored(from_dtype, [&]<class From>() {
    From value;
    std::memcpy(&value, from, sizeof(From));
    dispatch_stored(to_dtype, [&]<class To>() {
      const To converted = cast_element<To>(value);
      std::memcpy(to, &converted, sizeof(To));
    });
  });
}

bool all_zero(const int64_t* strides, int ndim) {
  for (int d = 0; d < ndim; ++d)
    if (strides[d] != 0) return false;
  return true;
}

void contiguous_strides(int64_t* strides, const int64_t* shape, int ndim, int64_t item) {
  for (int d = ndim - 1; d >= 0; --d) {
    strides[d] = item;
    item *= shape[d];
  }
}

bool is_contiguous(const int64_t* strides, const int64_t* shape, int ndim, int64_t item) {
  for (int d = ndim - 1; d >= 0; --d) {
    if (shape[d] != 1 && strides[d] != item) return false;
    item *= shape[d];
  }
  return true;
}

// An iteration whose operands all have dtypes that kernels load, in workspaces where they had others.
class Prepared {
 public:
  Prepared(const Iterator& it, const Stream& stream) : it_(it), stream_(stream) {
    for (int k = 1; k <= it.num_inputs; ++k) prepare_input(k);
    if (!storable(it.dtype[0], it.result)) {
      result_ = {it_.data[0], it_.dtype[0]};
      std::copy_n(it_.strides[0], it_.ndim, result_strides_);
      redirect(0, it.result, it.numel);
      contiguous_strides(it_.strides[0], it_.shape, it_.ndim, static_cast<int64_t>(element_size(it.result)));
    }
  }
  const Iterator& it() const { return it_; }
  const Source* sources() const { return source_; }
  const unsigned char* value(int k) const { return value_[k]; }

  // Where the kernel wrote to a workspace: into the operand.
  void finish() {
    if (result_.data == nullptr) return;
    convert_strided(stream_, it_.ndim, it_.shape, result_.data, result_.dtype, result_strides_, it_.data[0],
                    it_.dtype[0], it_.strides[0]);
  }

 private:
  void prepare_input(int k) {
    if ((it_.on_host >> k & 1) != 0) {
      convert_on_host(value_[k], it_.compute, it_.data[k], it_.dtype[k]);
      source_[k] = Source::Value;
      it_.dtype[k] = it_.compute;
      return;
    }
    const bool one = all_zero(it_.strides[k], it_.ndim);
    if (one) source_[k] = Source::Element;
    if (loadable(it_.dtype[k], it_.compute)) return;
    const char* from = it_.data[k];
    const DType from_dtype = it_.dtype[k];
    int64_t before[kMaxDims];
    std::copy_n(it_.strides[k], it_.ndim, before);
    redirect(k, it_.compute, one ? 1 : it_.numel);
    if (one) {
      const int64_t size = 1, stride = 0;
      convert_strided(stream_, 1, &size, it_.data[k], it_.compute, &stride, from, from_dtype, &stride);
      return;
    }
    contiguous_strides(it_.strides[k], it_.shape, it_.ndim, static_cast<int64_t>(element_size(it_.compute)));
    convert_strided(stream_, it_.ndim, it_.shape, it_.data[k], it_.compute, it_.strides[k], from, from_dtype, before);
  }
  void redirect(int k, DType dtype, int64_t n) {
    workspaces_.push_back(std::make_unique<Workspace>(static_cast<size_t>(n) * element_size(dtype), stream_));
    it_.data[k] = static_cast<char*>(workspaces_.back()->data());
    it_.dtype[k] = dtype;
  }

  Iterator it_;
  const Stream& stream_;
  Source source_[kMaxOperands] = {};
  alignas(16) unsigned char value_[kMaxOperands][16] = {};
  std::vector<std::unique_ptr<Workspace>> workspaces_;
  struct {
    char* data = nullptr;
    DType dtype = DType::float32;
  } result_;
  int64_t result_strides_[kMaxDims];
};

bool fits_flat(const Prepared& prepared, int pack) {
  const Iterator& it = prepared.it();
  for (int k = 0; k <= it.num_inputs; ++k) {
    if (prepared.sources()[k] != Source::Array) continue;
    const auto item = static_cast<int64_t>(element_size(it.dtype[k]));
    if (!is_contiguous(it.strides[k], it.shape, it.ndim, item)) return false;
    const auto piece = static_cast<uintptr_t>(std::min<int64_t>(item * pack, 16));
    if (reinterpret_cast<uintptr_t>(it.data[k]) % piece != 0) return false;
  }
  return true;
}

}  // namespace

void run_kernels(const Iterator& given, const Kernels& kernels, const void* functor, int pack) {
  const Work work(given.device);
  const Stream& stream = work;
  Prepared prepared(given, stream);
  const Iterator& it = prepared.it();
  FaultRecord* const fault = fault_record(stream.device);
  const int count = 1 + it.num_inputs;
  if (fits_flat(prepared, pack)) {
    Flat args{};
    args.n = it.numel;
    args.fault = fault;
    for (int k = 0; k < count; ++k) {
      args.data[k] = it.data[k];
      args.stored[k] = stored_as(it.dtype[k], k == 0 ? it.result : it.compute);
      args.source[k] = prepared.sources()[k];
      std::copy_n(prepared.value(k), 16, args.value[k]);
    }
    kernels.flat(functor, args, stream);
  } else {
    const int64_t* strides[kMaxOperands];
    for (int k = 0; k < count; ++k) strides[k] = it.strides[k];
    for_32_bit_pieces(it.ndim, it.shape, count, strides, [&](const Piece& piece) {
      Strided<kMaxOperands> args{};
      args.offsets.ndim = piece.ndim;
      args.n = static_cast<uint32_t>(piece.numel);
      args.fault = fault;
      for (int d = 0; d < piece.ndim; ++d) args.offsets.shape[d] = FastDivide(static_cast<uint32_t>(piece.shape[d]));
      for (int k = 0; k < count; ++k) {
        for (int d = 0; d < piece.ndim; ++d) args.offsets.strides[k][d] = static_cast<int32_t>(piece.strides[k][d]);
        args.data[k] = it.data[k] + piece.offset[k];
        args.stored[k] = stored_as(it.dtype[k], k == 0 ? it.result : it.compute);
        args.source[k] = prepared.sources()[k];
        std::copy_n(prepared.value(k), 16, args.value[k]);
      }
      kernels.strided(functor, args, stream);
    });
  }
  prepared.finish();
}

}  // namespace tapegrad::cuda::rows
