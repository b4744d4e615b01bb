#include "tapegrad/aten/index/subscript.h"

#include <algorithm>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/aten/sparse/operators.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad {

namespace {

using Kind = Subscript::Kind;

// The basic part of a subscript as one view, with the tensors that index it. `place_*` is the same view on a
// contiguous tensor of the input's sizes, which the gradient writes to.
struct Basic {
  DimVector sizes, strides, place_strides;
  int64_t offset, place_offset = 0;
  std::vector<Tensor> tensors;  // one per dimension of the view as far as there are any; undefined: the whole one
  bool changed = false;         // false: the view is the input itself
  bool indexed = false;
};

// Dimensions that a subscript stands for.
int64_t dims_of(const Subscript& s) {
  switch (s.kind) {
    case Kind::Int:
    case Kind::Slice:
      return 1;
    case Kind::Tensor:
      if (s.tensor.dtype() == DType::bool_ || s.tensor.dtype() == DType::uint8) return s.tensor.ndim();
      return 1;
    default:
      return 0;
  }
}

class Walk {
 public:
  Walk(const Tensor& input, Basic& out) : input_(*input.impl()), places_(contiguous_strides(input.sizes())), out_(out) {
    out_.offset = input_.offset();
  }

  void keep() {
    push(size(), stride(), place());
    ++dim_;
  }

  void integer(int64_t i) {
    TG_CHECK(input_.ndim() > 0, Index, "index: a tensor without dimensions takes no index\nuse item() for its value");
    i = geometry::wrap_index(i, size(), dim_, "index");
    out_.offset += i * stride();
    out_.place_offset += i * place();
    out_.changed = true;
    ++dim_;
  }

  void slice(const Subscript& s) {
    const int64_t step = s.step.value_or(1);
    auto range = geometry::slice_range(size(), s.start, s.stop, step, "index");
    out_.changed |= range.length != size();
    if (range.length > 0) {
      out_.offset += range.start * stride();
      out_.place_offset += range.start * place();
    }
    // Where the stride is never used, a step too large to be part of it is left out.
    int64_t product = 0;
    const bool fits = range.length > 1 || !__builtin_mul_overflow(std::max(stride(), place()), step, &product);
    const int64_t by = fits ? step : 1;
    out_.changed |= by != 1;
    push(range.length, stride() * by, place() * by);
    ++dim_;
  }

  void fresh() {
    out_.changed = true;
    const int64_t s = dim_ < input_.ndim() ? size() * stride() : 1;
    push(1, s, dim_ < input_.ndim() ? size() * place() : 1);
  }

  // An index for the next `dims` dimensions, or for a new one of size 1.
  void tensor(const Tensor& t, int64_t dims) {
    out_.tensors.resize(entries_);
    out_.tensors.push_back(t);
    out_.indexed = true;
    const size_t next = entries_ + 1;
    if (dims == 0) fresh();
    for (; dims > 0; --dims) keep();
    entries_ = next;
  }

  int64_t dim() const { return dim_; }

 private:
  int64_t size() const { return input_.size(static_cast<int>(dim_)); }
  int64_t stride() const { return input_.stride(static_cast<int>(dim_)); }
  int64_t place() const { return places_[static_cast<size_t>(dim_)]; }
  void push(int64_t size, int64_t stride, int64_t place) {
    out_.sizes.push_back(size);
    out_.strides.push_back(stride);
    out_.place_strides.push_back(place);
    ++entries_;
  }

  const TensorImpl& input_;
  DimVector places_;
  Basic& out_;
  int64_t dim_ = 0;
  size_t entries_ = 0;  // of the list of indices: a mask is one, whatever its dimensions
};

// True and False are indices of a new dimension of size 1: into it, or nowhere.
Tensor bool_index(bool flag, Device device) { return raw::zeros({flag ? 1 : 0}, DType::int64, device); }

// Whether all indices are masks; then one value is a number to fill with, of any dtype.
bool is_masked(std::span<const Subscript> subscripts) {
  return std::all_of(subscripts.begin(), subscripts.end(), [](const Subscript& s) {
    return s.kind != Kind::Tensor || s.tensor.dtype() == DType::bool_ || s.tensor.dtype() == DType::uint8;
  });
}

// Whether a step that is recorded may write at numbers in tensors as at any indices, which a replay reads, in the place
// of a view for what they are now: nothing but that tells the two apart.
bool keeps_numbers(const Tensor& self, std::span<const Subscript> subscripts, const Tensor& value) {
  const bool grads = grad_enabled() && (self.impl()->needs_grad() || value.impl()->needs_grad());
  if (!self.is_cpu() || self.is_batched() || !value.is_cpu() || value.is_batched() || grads ||
      value.impl()->storage() == self.impl()->storage() ||
      !(value.is_wrapped_number() || value.dtype() == self.dtype()))
    return false;
  for (int d = 0; d < self.ndim(); ++d)
    if (self.impl()->stride(d) == 0 && self.impl()->size(d) > 1) return false;
  return std::all_of(subscripts.begin(), subscripts.end(), [](const Subscript& s) {
    return s.kind != Kind::Bool &&
           (s.kind != Kind::Tensor || (s.tensor.ndim() == 0 && s.tensor.is_cpu() && !s.tensor.is_batched() &&
                                       s.tensor.dtype() != DType::bool_ && s.tensor.dtype() != DType::uint8));
  });
}

// `numbers`: those in tensors count as they are now; else these are indices as others are.
Basic split_basic(const Tensor& input, std::span<const Subscript> subscripts, bool numbers = true) {
  int64_t consumed = 0;
  int ellipses = 0;
  for (const Subscript& s : subscripts) {
    consumed += dims_of(s);
    ellipses += s.kind == Kind::Ellipsis;
  }
  TG_CHECK(ellipses <= 1, Index, "index: at most one Ellipsis (...) can stand in a subscript");
  TG_CHECK(consumed == 0 || input.ndim() > 0, Index,
           "index: invalid index of a tensor without dimensions: take .item() for its number");
  TG_CHECK(consumed <= input.ndim(), Index, "index: too many indices for a tensor with {} dimensions: got {}",
           input.ndim(), consumed);
  Basic basic;
  Walk walk(input, basic);
  for (const Subscript& s : subscripts) {
    switch (s.kind) {
      case Kind::None:
        walk.fresh();
        break;
      case Kind::Ellipsis:
        for (int64_t n = input.ndim() - consumed; n > 0; --n) walk.keep();
        break;
      case Kind::Int:
        walk.integer(s.index);
        break;
      case Kind::Slice:
        walk.slice(s);
        break;
      case Kind::Bool:
        walk.tensor(bool_index(s.flag, input.device()), 0);
        break;
      case Kind::Tensor: {
        const DType t = s.tensor.dtype();
        TG_CHECK((is_integral(t) && !is_stored_only(t)) || t == DType::bool_, Index,
                 "index: tensors used as indices must be integer or bool tensors: got {}", t);
        const bool mask = t == DType::bool_ || t == DType::uint8;
        if (t == DType::uint8) warn("index: indexing with dtype uint8 is deprecated: use a mask of dtype bool");
        if (numbers && s.tensor.ndim() == 0 && !s.tensor.is_meta() && (mask || !s.tensor.device().is_batched())) {
          // A number in a tensor is that number; under vmap it is one for each sample.
          if (mask) {
            walk.tensor(bool_index(s.tensor.item<bool>(), input.device()), 0);
          } else {
            walk.integer(s.tensor.item<int64_t>());
          }
          break;
        }
        walk.tensor(t == DType::int8 || t == DType::int16 ? raw::to(s.tensor, DType::int64) : s.tensor, dims_of(s));
        break;
      }
    }
  }
  while (walk.dim() < input.ndim()) walk.keep();
  return basic;
}

Tensor basic_view(const Tensor& input, const Basic& b) {
  return _strided_view(input, b.sizes, b.strides, b.offset, b.place_strides, b.place_offset);
}

}  // namespace

Tensor get_subscript(const Tensor& input, std::span<const Subscript> subscripts) {
  if (TG_UNLIKELY(input.is_sparse())) return sparse::subscript(input, subscripts);
  if (subscripts.size() == 1 && subscripts[0].kind == Kind::Int && input.ndim() > 0)
    return select(input, 0, geometry::wrap_index(subscripts[0].index, input.impl()->size(0), 0, "index"));
  const Basic basic = split_basic(input, subscripts);
  if (!basic.indexed) return basic.changed ? basic_view(input, basic) : _alias(input);
  return _index(basic.changed ? basic_view(input, basic) : input, basic.tensors);
}

void set_subscript(const Tensor& self, std::span<const Subscript> subscripts, const Operand& value) {
  TG_CHECK(!self.is_sparse(), NotImplemented, "index: the entries of a sparse tensor cannot be assigned to");
  Tensor v = value.tensor();
  const Basic basic = split_basic(self, subscripts, !(record::active() && keeps_numbers(self, subscripts, v)));
  const Tensor target = basic.changed ? basic_view(self, basic) : self;
  bool infinite = false;  // as a 16-bit number, which a subscript takes and fill_ does not
  if (v.is_wrapped_number()) {
    const Scalar number = v.item();
    check_number("index", number, is_half(self.dtype()) ? DType::float64 : self.dtype());
    infinite = is_half(self.dtype()) && !number_fits(number, self.dtype());
  }
  if (!basic.indexed && v.ndim() == 0 && v.is_cpu() && !infinite) {
    fill_(target, value);
    return;
  }
  // NumPy lets a value have more leading dimensions than the target when their sizes are 1.
  const int needed = basic.indexed ? 0 : target.ndim();
  int extra = 0;
  while (v.ndim() - extra > needed && v.impl()->size(extra) == 1) ++extra;
  if (extra > 0) v = reshape(v, v.sizes().subspan(static_cast<size_t>(extra)));
  if (!basic.indexed) {
    copy_(target, v);
    return;
  }
  TG_CHECK(v.dtype() == target.dtype() || v.is_wrapped_number() || (v.numel() == 1 && is_masked(subscripts)), Runtime,
           "index: values written through an index must have the dtype of the tensor, {}: got {}", target.dtype(),
           v.dtype());
  if (v.dtype() != target.dtype() || v.device() != target.device()) v = to(v, target.dtype(), target.device());
  index_put_(target, basic.tensors, v, false);
}

}  // namespace tapegrad
