#include "tapegrad/aten/copy/across.h"
#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/iterate/writable.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad {

std::atomic<CopyAcross> copy_across{nullptr};

void copy_from_other_device(const Tensor& self, const Tensor& src, bool non_blocking) {
  const CopyAcross copy = src.device().type == DeviceType::CUDA ? copy_across.load() : nullptr;
  TG_CHECK(copy != nullptr, NotImplemented, "copy_: there is nothing to copy from a tensor on {}", src.device());
  copy(self, src, non_blocking);
}

namespace {
void warn_of_lost_imaginary_part(DType from, DType to) {
  if (TG_UNLIKELY(is_complex(from)) && !is_complex(to) && to != DType::bool_)
    warn("Casting complex values to real discards the imaginary part: take .real or .abs() where that is meant");
}
}  // namespace

void copy_check(const Tensor& self, const Operand& src, bool) {
  const Tensor& from = src.tensor();
  DimVector common = broadcast_sizes(self.sizes(), from.sizes(), "copy_");
  TG_CHECK(IntSpan(common) == self.sizes(), Runtime, "copy_: shape {} does not broadcast to the target's {}",
           format_ints(from.sizes()), format_ints(self.sizes()));
  TG_CHECK(!from.is_meta() || self.is_meta(), NotImplemented, "copy_: Cannot copy out of meta tensor; no data!");
  TG_CHECK(!from.is_sparse() && !self.is_sparse(), NotImplemented, "copy_: not there for sparse tensors");
  check_writable("copy_", self);
  must_copy_source("copy_", self, from);  // raises where they overlap partly
  warn_of_lost_imaginary_part(from.dtype(), self.dtype());
}

void fill_check(const Tensor& self, const Operand& value) {
  TG_CHECK(value.tensor().ndim() == 0, Runtime, "fill_: expected a number or a tensor without dimensions: got sizes {}",
           format_ints(value.tensor().sizes()));
  TG_CHECK(!value.tensor().is_meta() || self.is_meta(), NotImplemented, "fill_: a tensor on meta has no value");
  TG_CHECK(!value.tensor().is_sparse(), NotImplemented, "fill_: expected a number or a dense tensor");
  TG_CHECK(!value.tensor().is_complex() || self.is_complex() || self.dtype() == DType::bool_, Runtime,
           "fill_: a complex number does not fit into a tensor of dtype {}\nuse .real or .abs()", self.dtype());
  if (value.tensor().is_wrapped_number()) check_number("fill_", value.tensor().item(), self.dtype());
  check_writable("fill_", self);
}

TensorSpec clone_shape(const Tensor& input, std::optional<MemoryFormat> memory_format) {
  MemoryFormat format = memory_format.value_or(MemoryFormat::Preserve);
  if (input.is_contiguous() && format != MemoryFormat::ChannelsLast)
    return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
  return {DimVector(input.sizes()), input.dtype(), input.device(),
          geometry::format_strides(input.sizes(), format, input, "clone")};
}

TensorSpec to_copy_shape(const Tensor& input, std::optional<DType> dtype, std::optional<Device> device, bool,
                         std::optional<MemoryFormat> memory_format) {
  TensorSpec spec = clone_shape(input, memory_format);
  spec.dtype = dtype.value_or(input.dtype());
  spec.device = device.value_or(input.device());
  TG_CHECK(!input.is_sparse(), NotImplemented, "to: not there for sparse tensors\nconvert their values()");
  TG_CHECK(!input.is_meta() || spec.device.is_meta(), NotImplemented,
           "to: Cannot copy out of meta tensor; no data! It should go to {}", spec.device);
  warn_of_lost_imaginary_part(input.dtype(), spec.dtype);
  return spec;
}

TensorSpec masked_scatter_shape(const Tensor& input, const Tensor& mask, const Tensor& source) {
  TG_CHECK(mask.dtype() == DType::bool_, Runtime, "masked_scatter: expected a mask of dtype bool: got {}",
           mask.dtype());
  TG_CHECK(source.dtype() == input.dtype(), Runtime, "masked_scatter: input and source differ in dtype: {} and {}",
           input.dtype(), source.dtype());
  return {broadcast_sizes(input.sizes(), mask.sizes(), "masked_scatter"), input.dtype(), input.device(), {}};
}

}  // namespace tapegrad
