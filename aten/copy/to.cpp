#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/kernels_copy.h"

namespace tapegrad::composite {

Tensor contiguous(const Tensor& input, std::optional<MemoryFormat> memory_format) {
  MemoryFormat format = memory_format.value_or(MemoryFormat::Contiguous);
  TG_CHECK(format != MemoryFormat::Preserve, Runtime, "contiguous: memory format preserve is not a layout");
  return input.is_contiguous(format) ? input : clone(input, format);
}

Tensor to(const Tensor& input, std::optional<DType> dtype, std::optional<Device> device, bool non_blocking, bool copy,
          std::optional<MemoryFormat> memory_format) {
  bool as_it_is = (!dtype || *dtype == input.dtype()) &&
                  (!device || batch::host_device(*device) == batch::host_device(input.device())) &&
                  (!memory_format || *memory_format == MemoryFormat::Preserve || input.is_contiguous(*memory_format));
  if (as_it_is && !copy) return input;
  return _to_copy(input, dtype, device, non_blocking, memory_format);
}

}  // namespace tapegrad::composite
