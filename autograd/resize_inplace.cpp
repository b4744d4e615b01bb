// In-place operators that give a tensor other sizes or other memory. For nodes that have saved the tensor this counts
// as a write.
#include "tapegrad/autograd/resize_inplace.h"

#include "tapegrad/aten/copy/resize.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/autograd/meta.h"

namespace tapegrad::autograd {

void set_over(const Tensor& self, const Storage& storage, IntSpan sizes, IntSpan strides, int64_t offset) {
  TG_CHECK(!self.is_batched(), Runtime, "set_: vmap: a tensor that is mapped over cannot get other memory");
  TG_CHECK(!self.is_sparse(), NotImplemented, "set_: a sparse tensor has no storage of its own");
  TG_CHECK(!grad_enabled() || !self.requires_grad(), Runtime,
           "set_: a tensor that requires grad cannot be exchanged\nhint: use no_grad to change a parameter");
  TG_CHECK(self.device() == storage->device(), Runtime, "set_: the devices differ: {} and {}", self.device(),
           storage->device());
  TG_CHECK(sizes.size() == strides.size() && sizes.size() <= kMaxDims, Runtime,
           "set_: expected as many strides as sizes, and at most {}: got {} and {}", kMaxDims, format_ints(sizes),
           format_ints(strides));
  TG_CHECK(offset >= 0, Runtime, "set_: the offset must not be negative: got {}", offset);
  const int64_t count = checked_numel(sizes, "set_");
  int64_t end = 1;  // the end of the last element
  bool overflow = __builtin_add_overflow(end, offset, &end);
  for (size_t d = 0; d < sizes.size(); ++d) {
    TG_CHECK(strides[d] >= 0, Runtime, "set_: strides must not be negative: got {}", format_ints(strides));
    int64_t reach = 0;
    overflow |= __builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) || __builtin_add_overflow(end, reach, &end);
  }
  overflow |= __builtin_mul_overflow(end, static_cast<int64_t>(self.itemsize()), &end);
  if (count > 0) {
    TG_CHECK(!overflow, Runtime, "set_: the number of bytes does not fit into 63 bits: sizes {}, strides {}, offset {}",
             format_ints(sizes), format_ints(strides), offset);
    const bool beyond = static_cast<size_t>(end) > storage->nbytes();
    TG_CHECK(!beyond || sizes != self.sizes() || strides != self.strides(),
             Runtime,  // as in PyTorch, others make it grow
             "set_: sizes {}, strides {}, offset {} of {} bytes are out of bounds for storage of size {}",
             format_ints(sizes), format_ints(strides), offset, self.itemsize(), storage->nbytes());
    if (beyond) resize_storage(storage, static_cast<size_t>(end));
  }
  TensorImpl* impl = self.impl();
  // Graphs that hold its accumulator are of the tensor as it was.
  if (AutogradMeta* m = meta(self)) m->accumulator.reset();
  const DimVector new_sizes(sizes), new_strides(strides);  // they may be self's own
  const uint32_t before = self.version();
  impl->set_storage(Storage(storage), self.dtype());
  impl->set_geometry(new_sizes, new_strides, offset);
  // Versions belong to the memory. The version of the new memory is raised above the old one's, so that saved tensors
  // are detected as overwritten. If there is no other reference to the tensor, it was not saved, and nodes that have
  // saved the new memory are not affected.
  while (impl->use_count() > 1 && self.version() <= before) bump_version(self, "set_");
}

}  // namespace tapegrad::autograd

namespace tapegrad::composite {

const Tensor& resize_(const Tensor& self, IntSpan size, std::optional<MemoryFormat> memory_format) {
  TG_CHECK(!self.requires_grad(), Runtime,
           "resize_: a tensor that requires grad cannot be resized\nuse detach() first");
  TG_CHECK(!self.is_batched(), Runtime, "resize_: vmap: a tensor that is mapped over cannot get other sizes");
  const DimVector before(self.sizes());
  resize_tensor(self, size, memory_format, "resize_");
  if (self.sizes() != IntSpan(before)) autograd::bump_version(self, "resize_");
  return self;
}

const Tensor& resize_as_(const Tensor& self, const Tensor& the_template, std::optional<MemoryFormat> memory_format) {
  if (memory_format == MemoryFormat::Preserve) {
    const bool cubes = the_template.ndim() == 4 || the_template.ndim() == 5;
    const bool last = cubes && !the_template.is_contiguous() &&
                      the_template.strides() == IntSpan(channels_last_strides(the_template.sizes()));
    memory_format = last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous;
  }
  return tapegrad::resize_(self, the_template.sizes(), memory_format);
}

const Tensor& set_(const Tensor& self, const Tensor& source) {
  TG_CHECK(!source.is_batched(), Runtime, "set_: vmap: a tensor that is mapped over cannot get other memory");
  TG_CHECK(!source.is_sparse(), NotImplemented, "set_: a sparse tensor has no storage of its own");
  TG_CHECK(!grad_enabled() || !source.requires_grad(), Runtime,
           "set_: a tensor that requires grad cannot be exchanged\nhint: use no_grad, or detach() it");
  TG_CHECK(self.dtype() == source.dtype(), Runtime, "set_: the dtypes differ: {} and {}", self.dtype(), source.dtype());
  autograd::set_over(self, source.impl()->storage(), source.sizes(), source.strides(), source.storage_offset());
  return self;
}

}  // namespace tapegrad::composite
