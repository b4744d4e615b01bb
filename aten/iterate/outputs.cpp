#include "tapegrad/aten/iterate/outputs.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/iterate/writable.h"
#include "tapegrad/c10/warning.h"

#include <cstdint>

namespace tapegrad {

void check_same_device(const char* op, std::initializer_list<const Tensor*> tensors, TensorSpan list) {
  const Tensor* first = nullptr;
  auto check = [&](const Tensor& t) {
    if (!t.defined()) return;
    if (first == nullptr) first = &t;
    if (t.is_cpu() && t.ndim() == 0) return;
    TG_CHECK(t.device() == first->device(), Runtime, "{}: expected all tensors on one device: got {} and {}", op,
             first->device(), t.device());
  };
  for (const Tensor* t : tensors) check(*t);
  for (const Tensor& t : list) check(t);
}

Tensor contiguous_copy(const Tensor& t) {
  Tensor copy = empty_tensor(t.sizes(), t.dtype(), t.device());
  if (!t.is_meta()) raw::copy_(copy, t);
  return copy;
}

Tensor contiguous_or_copy(const Tensor& t) { return !t.defined() || t.is_contiguous() ? t : contiguous_copy(t); }

bool may_overlap(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.numel() == 0 || b.numel() == 0) return false;
  if (a.data_ptr() == nullptr || b.data_ptr() == nullptr) return false;
  auto extent = [](const Tensor& t) {  // from the first byte to behind the last one
    const char* low = static_cast<const char*>(t.data_ptr());
    const char* high = low + t.itemsize();
    for (int d = 0; d < t.ndim(); ++d) {
      const int64_t span = (t.impl()->size(d) - 1) * t.impl()->stride(d) * static_cast<int64_t>(t.itemsize());
      (span < 0 ? low : high) += span;
    }
    return std::pair(low, high);
  };
  const auto [a_low, a_high] = extent(a);
  const auto [b_low, b_high] = extent(b);
  return a_low < b_high && b_low < a_high;
}

bool same_elements(const Tensor& a, const Tensor& b) {
  return a.data_ptr() == b.data_ptr() && a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

void resize_output(const Tensor& out, IntSpan sizes) {
  if (out.sizes() == sizes) return;
  TensorImpl& impl = *out.impl();
  const auto nbytes = static_cast<size_t>(checked_nbytes(sizes, out.dtype(), "out"));
  impl.set_storage(allocate_storage(nbytes, out.device()), out.dtype());
  impl.set_geometry(sizes, contiguous_strides(sizes), 0);
}

namespace {

void check_resizable(const char* op, const Tensor& out, IntSpan sizes) {
  TG_CHECK(out.impl()->storage()->resizable(), Runtime,
           "{}: out= has shape {} and cannot be resized to {}: its memory is not owned by this library", op,
           format_ints(out.sizes()), format_ints(sizes));
  if (out.numel() == 0) return;
  warn(
      fmt::format("An output with one or more elements was resized since it had shape {}, which does not match the "
                  "required output shape {}. An empty out= is resized without a warning",
                  format_ints(out.sizes()), format_ints(sizes)));
}

void check_out(const char* op, const Tensor& out, const TensorSpec& spec) {
  check_writable(op, out);
  if (!can_cast(spec.dtype, out.dtype())) throw_cannot_cast(op, spec.dtype, out.dtype());
  TG_CHECK(out.device() == spec.device, Runtime, "{}: expected out on {}: got {}", op, spec.device, out.device());
  TG_CHECK(
      !has_internal_overlap(out), Runtime,
      "{}: unsupported operation: elements of out share memory: sizes {}, strides {}\nhint: write to a clone() of it",
      op, format_ints(out.sizes()), format_ints(out.strides()));
}

bool strides_match(const Tensor& t, const TensorSpec& spec) {
  if (spec.strides.empty()) return t.is_contiguous();
  for (int d = 0; d < t.ndim(); ++d)
    if (t.impl()->size(d) > 1 && t.impl()->stride(d) != spec.strides[d]) return false;
  return true;
}

}  // namespace

Tensor out_target(const char* op, const Tensor& out, const TensorSpec& spec,
                  std::initializer_list<const Tensor*> inputs, TensorSpan more) {
  check_out(op, out, spec);
  if (!(out.sizes() == IntSpan(spec.sizes))) {
    // An out that is an input, too, must keep its sizes until the kernel has run: finish_out resizes it.
    check_resizable(op, out, spec.sizes);
    return empty_tensor(spec);
  }
  bool direct = out.dtype() == spec.dtype && strides_match(out, spec);
  for (const Tensor* input : inputs) direct = direct && !may_overlap(out, *input);
  for (const Tensor& input : more) direct = direct && !may_overlap(out, input);
  return direct ? out : empty_tensor(spec);
}

void finish_out(const Tensor& out, const Tensor& target) {
  if (out.is_same(target)) return;
  resize_output(out, target.sizes());
  if (!out.is_meta()) raw::copy_(out, target);
}

void write_out(const char* op, const Tensor& out, const Tensor& result) {
  const TensorSpec spec{DimVector(result.sizes()), result.dtype(), result.device(), {}};
  check_out(op, out, spec);
  if (!(out.sizes() == IntSpan(spec.sizes))) check_resizable(op, out, spec.sizes);
  finish_out(out, result);
}

void check_inplace_result(const char* op, const Tensor& self, const TensorSpec& spec) {
  check_writable(op, self);
  TG_CHECK(self.sizes() == IntSpan(spec.sizes), Runtime,
           "{}: the result has sizes {}, which do not fit into a tensor of sizes {}", op, format_ints(spec.sizes),
           format_ints(self.sizes()));
  if (!can_cast(spec.dtype, self.dtype())) throw_cannot_cast(op, spec.dtype, self.dtype());
  TG_CHECK(!has_internal_overlap(self), Runtime,
           "{}: unsupported operation: elements of the written tensor share memory\nhint: write to a clone() of it",
           op);
}

namespace {

// PyTorch's names of dtypes in C++, which its messages have.
std::string_view scalar_type(DType dtype) {
  constexpr std::string_view kNames =
      " bool=Bool uint8=Byte int8=Char int16=Short int32=Int int64=Long float16=Half bfloat16=BFloat16 float32=Float "
      "float64=Double complex64=ComplexFloat complex128=ComplexDouble ";
  const std::string key = fmt::format(" {}=", dtype_name(dtype));
  const size_t at = kNames.find(key), begin = at + key.size();
  return at == kNames.npos ? dtype_name(dtype) : kNames.substr(begin, kNames.find(' ', begin) - begin);
}

}  // namespace

void throw_cannot_cast(const char* op, DType from, DType to) {
  // Linear algebra has words of its own for it.
  for (const std::string_view family : {"linalg", "_linalg", "cholesky"})
    if (std::string_view(op).starts_with(family))
      TG_THROW(Runtime, "{}: Expected result to be safely castable from {} dtype, but got result with dtype {}", op,
               scalar_type(from), scalar_type(to));
  TG_THROW(Runtime, "{}: result type {} can't be cast to the desired output type {}", op, from, to);
}

void check_target(const char* op, const Tensor& out, IntSpan sizes, DType dtype, bool resize_out) {
  if (!can_cast(dtype, out.dtype())) throw_cannot_cast(op, dtype, out.dtype());
  check_writable(op, out);
  if (!(out.sizes() == sizes)) {
    TG_CHECK(resize_out, Runtime, "{}: a result of shape {} does not fit the tensor of shape {} that it is written to",
             op, format_ints(sizes), format_ints(out.sizes()));
    check_resizable(op, out, sizes);
    return;
  }
  TG_CHECK(!has_internal_overlap(out), Runtime,
           "{}: unsupported operation: several elements of the tensor to write to share one place in memory: sizes {}, "
           "strides {}\n"
           "write to a clone() of it",
           op, format_ints(out.sizes()), format_ints(out.strides()));
}

bool must_copy_source(const char* op, const Tensor& out, const Tensor& source) {
  if (out.is_same(source) || !may_overlap(out, source) || same_elements(out, source)) return false;
  TG_CHECK(!(out.impl()->is_non_overlapping_and_dense() && source.impl()->is_non_overlapping_and_dense()), Runtime,
           "{}: unsupported operation: the tensor to write to overlaps an operand partly: shapes {} and {}\n"
           "take a clone() of one of them first",
           op, format_ints(out.sizes()), format_ints(source.sizes()));
  return true;
}

TensorSpec create_spec(IntSpan size, std::optional<DType> dtype, std::optional<Device> device, const char* op) {
  checked_nbytes(size, dtype.value_or(default_dtype()), op);
  return {DimVector(size), dtype.value_or(default_dtype()), device.value_or(default_device()), {}};
}

}  // namespace tapegrad
