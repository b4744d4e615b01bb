#include "tapegrad/aten/create/from_blob.h"

#include "tapegrad/c10/tensor/checked_int.h"

namespace tapegrad {

Tensor from_blob(void* data, IntSpan sizes, DType dtype, std::function<void(void*)> deleter) {
  checked_numel(sizes, "from_blob");
  return from_blob(data, sizes, contiguous_strides(sizes), dtype, std::move(deleter));
}

Tensor from_blob(void* data, IntSpan sizes, IntSpan strides, DType dtype, std::function<void(void*)> deleter) {
  TG_CHECK(sizes.size() == strides.size(), Runtime, "from_blob: sizes and strides differ in length: {} and {}",
           format_ints(sizes), format_ints(strides));
  const int64_t numel = checked_numel(sizes, "from_blob");
  TG_CHECK(data != nullptr || numel == 0, Runtime, "from_blob: the address is null: sizes {}", format_ints(sizes));
  CheckedInt elements(numel == 0 ? 0 : 1);
  for (size_t d = 0; numel > 0 && d < sizes.size(); ++d) {
    TG_CHECK(strides[d] >= 0, Runtime, "from_blob: strides must not be negative: got {}", format_ints(strides));
    elements += CheckedInt(sizes[d] - 1) * strides[d];
  }
  const CheckedInt nbytes = elements * static_cast<int64_t>(element_size(dtype));
  TG_CHECK(nbytes.fits(), Runtime, "from_blob: the number of bytes does not fit into 63 bits: sizes {}, strides {}",
           format_ints(sizes), format_ints(strides));
  void* context = deleter ? new std::function<void(void*)>(std::move(deleter)) : nullptr;
  auto release = [](void* c, void* memory, size_t) noexcept {
    if (!c) return;
    auto* f = static_cast<std::function<void(void*)>*>(c);
    (*f)(memory);
    delete f;
  };
  auto storage = make_intrusive<StorageImpl>(data, static_cast<size_t>(nbytes.value()), Device(), release, context);
  storage->set_resizable(false);
  return Tensor(make_intrusive<TensorImpl>(std::move(storage), dtype, sizes, strides, 0));
}

}  // namespace tapegrad
