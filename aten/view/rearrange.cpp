// Operators that rearrange elements, as copies between views; copy_ takes nearly all of the time.
#include "tapegrad/aten/copy/bytes.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_view.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu {

void embed_view_cpu(const Tensor& grad_view, IntSpan, IntSpan view_size, IntSpan view_stride, int64_t offset,
                    const Tensor& out) {
  if (grad_view.numel() != out.numel()) raw::fill_(out, 0);
  raw::copy_(alias_tensor(out, view_size, view_stride, offset), grad_view);
}

void read_view_cpu(const Tensor& input, IntSpan view_size, IntSpan view_stride, int64_t offset, const Tensor& out) {
  raw::copy_(out, alias_tensor(input, view_size, view_stride, input.storage_offset() + offset));
}

// Window by window position: for one position in the window the targets of all windows are different elements.
void unfold_backward_cpu(const Tensor& grad_windows, IntSpan, int64_t dimension, int64_t size, int64_t step,
                         const Tensor& out) {
  raw::fill_(out, 0);
  if (out.numel() == 0 || grad_windows.numel() == 0) return;
  if (out.ndim() == 0) {
    raw::copy_(out, raw::select(grad_windows, -1, 0));
    return;
  }
  const int64_t d = wrap_dim(dimension, out.ndim(), "unfold");
  DimVector sizes(out.sizes()), strides(out.strides());
  const int64_t stride = strides[d];
  sizes[d] = grad_windows.size(d);
  if (sizes[d] > 1) strides[d] *= step;
  for (int64_t w = 0; w < size; ++w) {
    Tensor target = alias_tensor(out, sizes, strides, out.storage_offset() + w * stride);
    raw::add_(target, raw::select(grad_windows, -1, w));
  }
}

namespace {
// Dense tensors: each line of the result is written from its first byte to its last. One or few lines are better shared
// out in pieces.
bool roll_lines(const Tensor& input, int64_t shift, int64_t d, const Tensor& out) {
  int64_t outer = 1, inner = static_cast<int64_t>(out.itemsize());
  for (int64_t k = 0; k < out.ndim(); ++k) (k < d ? outer : inner) *= k == d ? 1 : out.size(k);
  const int64_t line = out.size(d) * inner;
  if ((outer < 16 && outer * line > (64 << 10)) || line < 64 || !input.is_contiguous() || !out.is_contiguous() ||
      !out.is_cpu())
    return false;
  const int64_t front = shift * inner, back = line - front;
  const char* from = static_cast<const char*>(input.data_ptr());
  char* to = static_cast<char*>(out.data_ptr());
  parallel_for(0, outer, std::max<int64_t>(1, (128 << 10) / line), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * line; at < end * line; at += line) {
      TG_ISA::copy_bytes(to + at, from + at + back, front);
      TG_ISA::copy_bytes(to + at + front, from + at, back);
    }
  });
  return true;
}

void roll_dims(const Tensor& input, IntSpan shifts, IntSpan dims, const Tensor& out) {
  if (dims.empty()) {
    raw::copy_(out, input);
    return;
  }
  const int64_t d = wrap_dim(dims[0], input.ndim(), "roll");
  const int64_t size = input.size(d);
  const int64_t shift = (shifts[0] % size + size) % size;
  if (dims.size() == 1 && roll_lines(input, shift, d, out)) return;
  const IntSpan more_shifts(shifts.subspan(1)), more_dims(dims.subspan(1));
  roll_dims(raw::narrow(input, d, 0, size - shift), more_shifts, more_dims, raw::narrow(out, d, shift, size - shift));
  if (shift)
    roll_dims(raw::narrow(input, d, size - shift, shift), more_shifts, more_dims, raw::narrow(out, d, 0, shift));
}
}  // namespace

void roll_cpu(const Tensor& input, IntSpan shifts, IntSpan dims, const Tensor& out) {
  if (out.numel() == 0) return;
  if (dims.empty()) {
    const int64_t zero[] = {0};
    return roll_dims(raw::reshape(input, {-1}), shifts, zero,
                     alias_tensor(out, {out.numel()}, {1}, out.storage_offset()));
  }
  // A dimension that is given several times is rolled by the sum, and pieces are cut once per dimension.
  DimVector sums, wanted;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t d = wrap_dim(dims[i], input.ndim(), "roll");
    const int64_t shift = shifts[i] % input.size(d);
    auto at = std::find(wanted.begin(), wanted.end(), d);
    if (at != wanted.end()) {
      int64_t& total = sums[static_cast<size_t>(at - wanted.begin())];
      total = (total + shift) % input.size(d);
    } else if (shift != 0 || wanted.empty()) {
      wanted.push_back(d);
      sums.push_back(shift);
    }
  }
  roll_dims(input, sums, wanted, out);
}

// The output seen as [r0, s0, r1, s1, ...] takes the input stretched along the r's.
void repeat_cpu(const Tensor& input, IntSpan repeats, const Tensor& out) {
  if (out.numel() == 0) return;
  const size_t lead = repeats.size() - static_cast<size_t>(input.ndim());
  DimVector shape, from_strides, to_strides;
  for (size_t d = 0; d < repeats.size(); ++d) {
    const int64_t size = d < lead ? 1 : input.impl()->size(static_cast<int>(d - lead));
    const int64_t stride = out.impl()->stride(static_cast<int>(d));
    if (repeats[d] != 1) {
      shape.push_back(repeats[d]);
      from_strides.push_back(0);
      to_strides.push_back(size * stride);
    }
    if (size != 1) {
      shape.push_back(size);
      from_strides.push_back(input.impl()->stride(static_cast<int>(d - lead)));
      to_strides.push_back(stride);
    }
  }
  raw::copy_(alias_tensor(out, shape, to_strides, out.storage_offset()),
             alias_tensor(input, shape, from_strides, input.storage_offset()));
}

Tensor repeat_indices_cpu(const Tensor& repeats, std::optional<int64_t> output_size) {
  TG_CHECK(repeats.ndim() == 1, Runtime, "repeat_interleave: expected repeats with 1 dimension: got {}",
           format_ints(repeats.sizes()));
  TG_CHECK(repeats.dtype() == DType::int64 || repeats.dtype() == DType::int32, Runtime,
           "repeat_interleave: expected repeats of dtype int32 or int64: got {}", repeats.dtype());
  Tensor counts = raw::contiguous(raw::to(repeats, DType::int64));
  const int64_t* n = counts.data<int64_t>();
  int64_t total = 0;
  for (int64_t i = 0; i < counts.numel(); ++i) {
    TG_CHECK(n[i] >= 0, Runtime, "repeat_interleave: repeats must not be negative: got {} at index {}", n[i], i);
    TG_CHECK(!__builtin_add_overflow(total, n[i], &total), Runtime,
             "repeat_interleave: the number of elements does not fit into 63 bits");
  }
  TG_CHECK(!output_size || *output_size == total, Runtime, "repeat_interleave: output_size is {}, the repeats give {}",
           *output_size, total);
  Tensor out = empty_tensor({total}, DType::int64, repeats.device());
  int64_t* p = out.data<int64_t>();
  for (int64_t i = 0; i < counts.numel(); ++i) p = std::fill_n(p, n[i], i);
  return out;
}

}  // namespace tapegrad::cpu
