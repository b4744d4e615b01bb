#include "tapegrad/cuda/copy/copy.h"

#include <cstring>

#include "tapegrad/aten/copy/across.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/aten/iterate/layout.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/cuda/copy/convert.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/launch.h"
#include "tapegrad/cuda/memory/copy.h"

namespace tapegrad::cuda {
namespace {

// Both hold the same elements at the same distances from their first byte, without gaps.
bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         ((a.is_contiguous() && b.is_contiguous()) ||
          (a.strides() == b.strides() && a.impl()->is_non_overlapping_and_dense()));
}

void copy_within(const Tensor& self, const Tensor& given) {
  Tensor src = given;
  if (may_overlap(self, src)) {
    if (same_elements(self, src)) return;
    src = empty_tensor({DimVector(given.sizes()), given.dtype(), given.device(), geometry::preserved_strides(given)});
    copy_within(src, given);
  }
  const Work work(self.device(), {&self, &src});
  if (same_bytes(self, src)) {
    driver().copy(self.data_ptr(), src.data_ptr(), self.nbytes(), CopyKind::DeviceToDevice, work.stream().handle);
    return;
  }
  const Tensor* operands[] = {&self, &src};
  int64_t shape[kMaxDims], to_strides[kMaxDims], from_strides[kMaxDims];
  int64_t* strides[] = {to_strides, from_strides};
  const int ndim = iteration_space(operands, self.sizes(), shape, strides);
  convert_strided(work, ndim, shape, static_cast<char*>(self.data_ptr()), self.dtype(), to_strides,
                  static_cast<const char*>(src.data_ptr()), src.dtype(), from_strides);
}

Tensor like_on(const Tensor& t, DType dtype, Device device) {
  return empty_tensor({DimVector(t.sizes()), dtype, device, geometry::preserved_strides(t)});
}

void from_host(const Tensor& self, const Tensor& src, bool non_blocking) {
  if (!same_bytes(self, src)) {
    // The bytes go over as they are, and become what self wants over there.
    Tensor dense = src;
    if (!src.impl()->is_non_overlapping_and_dense()) {
      dense = like_on(src, src.dtype(), src.device());
      raw::copy_(dense, src);
      non_blocking = false;
    }
    const Tensor there = like_on(dense, src.dtype(), self.device());
    from_host(there, dense, non_blocking);
    return copy_within(self, there);
  }
  const Work work(self.device(), {&self});
  copy_to_device(self.data_ptr(), src.data_ptr(), self.nbytes(), work.stream(), non_blocking, "copy_");
}

void to_host(const Tensor& self, const Tensor& src, bool non_blocking) {
  if (self.sizes() != src.sizes() || self.dtype() != src.dtype() || !src.impl()->is_non_overlapping_and_dense()) {
    const Tensor there = like_on(src, self.dtype(), src.device());
    copy_within(there, src);
    if (same_bytes(self, there)) return to_host(self, there, non_blocking);
    const Tensor here = like_on(there, self.dtype(), self.device());
    to_host(here, there, false);
    raw::copy_(self, here);
    return;
  }
  if (!same_bytes(self, src)) {
    const Tensor here = like_on(src, src.dtype(), self.device());
    to_host(here, src, false);
    raw::copy_(self, here);
    return;
  }
  const Work work(src.device(), {&src});
  copy_to_host(self.data_ptr(), src.data_ptr(), self.nbytes(), work.stream(), non_blocking, "copy_");
}

void between_devices(const Tensor& self, const Tensor& src) {
  const Tensor dense = src.impl()->is_non_overlapping_and_dense() ? src : like_on(src, src.dtype(), src.device());
  if (dense.impl() != src.impl()) copy_within(dense, src);
  const Tensor there = same_bytes(self, dense) ? self : like_on(dense, dense.dtype(), self.device());
  // The copy belongs to the source's stream; the target's memory may be in use over there, and goes on being used.
  const Stream from = current_stream(dense.device().index), to = current_stream(self.device().index);
  {
    const Work work(dense.device(), {&dense});
    wait_stream(from, to);
    driver().copy_peer(there.data_ptr(), there.device().index, dense.data_ptr(), dense.device().index, dense.nbytes(),
                       from.handle);
    wait_stream(to, from);
  }
  if (there.impl() != self.impl()) copy_within(self, there);
}

}  // namespace

void copy_any(const Tensor& self, const Tensor& given, bool non_blocking) {
  if (self.numel() == 0) return;
  if (self.device() == given.device()) return copy_within(self, given);
  if (given.is_cpu() && given.numel() == 1 && self.is_cuda() && (self.numel() > 1 || given.is_wrapped_number()))
    return fill_cuda(self, Operand(given.ndim() == 0 ? given : alias_tensor(given, {}, {}, given.storage_offset())));
  // What is repeated goes over once.
  if (self.is_cpu()) {
    if (given.sizes() == self.sizes()) return to_host(self, given, non_blocking);
    const Tensor here = like_on(given, self.dtype(), self.device());
    to_host(here, given, false);
    raw::copy_(self, here);
    return;
  }
  if (given.is_cpu()) return from_host(self, given, non_blocking);
  between_devices(self, given);
}

void fill_value(const Tensor& self, const Scalar& value) { fill_cuda(self, Operand(value)); }

void zero_dense(const Tensor& self) {
  if (self.numel() == 0) return;
  const Work work(self.device(), {&self});
  driver().fill(self.data_ptr(), 0, self.nbytes(), work.stream().handle);
}

void copy_cuda(const Tensor& self, const Operand& source, bool non_blocking) {
  copy_any(self, source.tensor(), non_blocking);
}
void clone_cuda(const Tensor& input, std::optional<MemoryFormat>, const Tensor& out) { copy_any(out, input, false); }
void to_copy_cuda(const Tensor& input, std::optional<DType>, std::optional<Device>, bool non_blocking,
                  std::optional<MemoryFormat>, const Tensor& out) {
  copy_any(out, input, non_blocking);
}

void fill_cuda(const Tensor& self, const Operand& operand) {
  if (self.numel() == 0) return;
  const Tensor& value = operand.tensor();
  if (!value.is_cpu()) return copy_any(self, value, true);
  alignas(16) unsigned char bytes[16] = {};
  dispatch_stored(value.dtype(), [&]<class From>() {
    dispatch_stored(self.dtype(), [&]<class To>() {
      const To converted = cast_element<To>(*static_cast<const From*>(value.data_ptr()));
      std::memcpy(bytes, &converted, sizeof(To));
    });
  });
  bool zero = true;
  for (unsigned char b : bytes) zero &= b == 0;
  if (zero && self.impl()->is_non_overlapping_and_dense()) return zero_dense(self);
  const Work work(self.device(), {&self});
  const Tensor* operands[] = {&self};
  int64_t shape[kMaxDims], own[kMaxDims];
  int64_t* strides[] = {own};
  const int ndim = iteration_space(operands, self.sizes(), shape, strides);
  fill_strided(work, ndim, shape, static_cast<char*>(self.data_ptr()), self.dtype(), own, bytes);
}

}  // namespace tapegrad::cuda
