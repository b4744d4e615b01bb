#include "tapegrad/aten/batch/call.h"

#include <algorithm>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/c10/default_generators.h"
#include "tapegrad/c10/modes.h"

namespace tapegrad::batch {
namespace {

bool is_number(const Tensor& t) { return t.is_wrapped_number() || !t.defined(); }

int kind_of(DType t) { return is_complex(t) ? 2 : is_floating_point(t) ? 1 : 0; }

// A view with dimensions of size 1 behind the first, `ndim` in all.
Tensor padded(const Tensor& t, int64_t ndim) {
  if (t.ndim() >= ndim) return t;
  Tensor view = t;
  for (int64_t i = t.ndim(); i < ndim; ++i) view = tapegrad::unsqueeze(view, 1);
  return view;
}

}  // namespace

Call::Call(const OperatorEntry& op, std::initializer_list<const Tensor*> tensors,
           std::initializer_list<TensorSpan> lists, Generator* generator)
    : op_(op), rule_(op.batch_rule), level_(highest_level(tensors, lists)), generator_(generator) {
  if (rule_ == Rule::Random || rule_ == Rule::RandomLoop) {
    is_batched_ = level_ == depth();
    level_ = depth();
  }
  auto take = [&](const Tensor& t, std::vector<Tensor>& to, std::vector<bool>& have) {
    recorded_ |= is_batched(t) && t.impl()->needs_grad() && grad_enabled();
    auto [below, has_dim] = unwrap(t, level_);
    to.push_back(std::move(below));
    have.push_back(has_dim);
  };
  for (const Tensor* t : tensors) take(*t, tensors_, has_dim_);
  for (TensorSpan list : lists) {
    lists_.emplace_back();
    lists_have_dim_.emplace_back();
    for (const Tensor& t : list) take(t, lists_.back(), lists_have_dim_.back());
  }
  now_ = tensors_;
  lists_now_ = lists_;
  if (!tensors_.empty() && tensors_[0].defined())
    ndim_ = ndim_of(tensors_[0], has_dim_[0]);
  else if (!lists_.empty() && !lists_[0].empty())
    ndim_ = ndim_of(lists_[0][0], lists_have_dim_[0][0]);
}

bool Call::any_has_dim() const {
  auto any_of = [](const std::vector<bool>& v) { return std::find(v.begin(), v.end(), true) != v.end(); };
  return any_of(has_dim_) || std::any_of(lists_have_dim_.begin(), lists_have_dim_.end(), any_of);
}

int64_t Call::dim(int64_t d) const {
  if (!led_ || rule_ == Rule::Merge) return d;
  if (whole_) return 1;
  const int64_t least = std::max<int64_t>(ndim_, 1) + (rule_ == Rule::FirstNew || rule_ == Rule::AllNew ? 1 : 0);
  TG_CHECK(d >= -least, Index, "{}: dimension out of range: expected {} to {}, got {}", op_.name, -least, least - 1, d);
  return d < 0 ? d : d + 1;
}

std::optional<int64_t> Call::dim(std::optional<int64_t> d) const {
  if (d) return dim(*d);
  return led_ && whole_ ? std::optional<int64_t>(1) : d;
}

DimVector Call::dims(IntSpan d) const {
  DimVector result;
  for (int64_t one : d) result.push_back(dim(one));
  return result;
}

Call::Dims Call::all_dims(OptionalInts d) const {
  if (d && !d->empty()) return {dims(*d), true};
  if (!led_) return {DimVector(), d.has_value()};
  DimVector all;
  for (int64_t i = 1; i <= std::max<int64_t>(ndim_, scalar_ ? 1 : 0); ++i) all.push_back(i);
  return {std::move(all), true};
}

DimVector Call::sizes(IntSpan s) const {
  if (!led_) return DimVector(s);
  const int64_t n = level(level_).size;
  DimVector result(s);
  if (rule_ == Rule::Merge) {
    if (!s.empty()) result[0] *= n;
  } else {
    result.insert(0, n);
  }
  return result;
}

std::optional<MemoryFormat> Call::format(std::optional<MemoryFormat> f) const {
  if (!led_ || !f || *f == MemoryFormat::Preserve) return f;
  return MemoryFormat::Contiguous;  // of more dimensions than a format of channels knows
}

Tensor Call::led(const Tensor& t, bool has_dim) const {
  if (has_dim || !t.defined()) return t;
  DimVector sizes{level(level_).size};
  for (int64_t s : t.sizes()) sizes.push_back(s);
  return tapegrad::expand(t, sizes);
}

bool Call::prepare_broadcast() {
  if (!lists_.empty()) return false;
  int64_t widest = 0;
  std::optional<DType> dtype;  // of the tensors with dimensions
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    if (is_number(t)) continue;
    const int64_t n = ndim_of(t, has_dim_[i]);
    widest = std::max(widest, n);
    if (n > 0) dtype = dtype ? promote_types(*dtype, t.dtype()) : t.dtype();
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    if (is_number(t)) continue;
    if (has_dim_[i]) {
      now_[i] = padded(t, widest + 1);
      // Without dimensions in a sample it takes part in promotion only by its category, with samples in front it would
      // do so in full.
      if (i == 0 && writes_) continue;
      if (t.ndim() == 1 && dtype && kind_of(t.dtype()) > 0 && kind_of(t.dtype()) <= kind_of(*dtype)) {
        const DType to = kind_of(t.dtype()) == kind_of(*dtype) ? *dtype : to_real(*dtype);
        if (promote_types(t.dtype(), *dtype) != *dtype) now_[i] = tapegrad::to(now_[i], to);
      } else if (t.ndim() == 1 && dtype && kind_of(t.dtype()) == 0 && kind_of(*dtype) == 0 &&
                 t.dtype() != DType::bool_ && *dtype != DType::bool_ && promote_types(t.dtype(), *dtype) != *dtype) {
        now_[i] = tapegrad::to(now_[i], *dtype);
      }
    } else if (widest == 0 && t.ndim() == 0 && !t.is_wrapped_number()) {
      now_[i] = tapegrad::unsqueeze(t, 0);  // on one footing with those that have samples
    }
  }
  return true;
}

bool Call::prepare_first() {
  for (size_t i = 1; i < tensors_.size(); ++i)
    if (has_dim_[i]) return false;
  for (const auto& have : lists_have_dim_)
    if (std::find(have.begin(), have.end(), true) != have.end()) return false;
  if (whole_) {
    now_[0] = tapegrad::reshape(tensors_[0], {level(level_).size, -1});
  } else if (ndim_ == 0 && rule_ == Rule::Reduce) {
    scalar_ = true;
    now_[0] = tapegrad::unsqueeze(tensors_[0], 1);
  } else if (ndim_ == 0 && rule_ == Rule::First) {
    return false;
  }
  return true;
}

bool Call::prepare_all() {
  auto fits = [&](const Tensor& t, bool has_dim) { return !t.defined() || ndim_of(t, has_dim) == ndim_; };
  if (ndim_ == 0 && lists_.empty() && rule_ != Rule::AllNew) return false;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (!fits(tensors_[i], has_dim_[i])) return false;
  for (size_t k = 0; k < lists_.size(); ++k)
    for (size_t i = 0; i < lists_[k].size(); ++i)
      if (!fits(lists_[k][i], lists_have_dim_[k][i])) return false;
  for (size_t i = 0; i < tensors_.size(); ++i) now_[i] = led(tensors_[i], has_dim_[i]);
  for (size_t k = 0; k < lists_.size(); ++k)
    for (size_t i = 0; i < lists_[k].size(); ++i) lists_now_[k][i] = led(lists_[k][i], lists_have_dim_[k][i]);
  return true;
}

bool Call::prepare_merge() {
  if (!lists_.empty()) return false;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    if (!t.defined()) continue;
    if (ndim_of(t, has_dim_[i]) == 0) return false;
    if (ndim_of(t, has_dim_[i]) > 0 && ndim_of(tensors_[0], has_dim_[0]) > 0 &&
        t.sizes()[has_dim_[i]] != tensors_[0].sizes()[has_dim_[0]])
      return false;
    const Tensor full = led(t, has_dim_[i]);
    DimVector sizes{full.sizes()[0] * full.sizes()[1]};
    for (size_t d = 2; d < full.sizes().size(); ++d) sizes.push_back(full.sizes()[d]);
    now_[i] = tapegrad::reshape(full, sizes);
  }
  return true;
}

bool Call::prepare() {
  switch (rule_) {
    case Rule::Broadcast:
      return prepare_broadcast();
    case Rule::First:
    case Rule::FirstNew:
    case Rule::Reduce:
      return prepare_first();
    case Rule::All:
    case Rule::AllNew:
      return prepare_all();
    case Rule::Merge:
      return prepare_merge();
    case Rule::Rest:
      return !has_dim_[0];
    default:
      return false;
  }
}

std::vector<Tensor> Call::run(const Step& step) {
  if (rule_ == Rule::Random || rule_ == Rule::RandomLoop) return run_random(step);
  if (!any_has_dim()) return run_once(step, false);
  if (writes_ && !has_dim_[0])
    throw NeedsValues(
        ErrorKind::Runtime,
        fmt::format("{}: vmap: a tensor that is the same in all samples cannot be written to with values "
                    "that differ between them\nuse the out-of-place operator, or make the tensor from one "
                    "that vmap maps over (new_zeros, clone)",
                    op_.name));
  bool fits;
  {
    Below below(level_);
    fits = prepare();
  }
  if (fits) return run_once(step, true);
  now_ = tensors_;
  lists_now_ = lists_;
  whole_ = scalar_ = false;
  return loop(step);
}

std::vector<Tensor> Call::run_once(const Step& step, bool has_dim) {
  led_ = has_dim;
  std::vector<Tensor> results;
  {
    Below below(level_);
    results = step();
    const int64_t n = level(level_).size;
    if (has_dim)
      for (Tensor& t : results) {
        if (!t.defined()) continue;
        if (rule_ == Rule::Merge) {
          DimVector sizes{n, n ? t.sizes()[0] / n : 0};
          if (!n) sizes[1] = ndim_ ? tensors_[0].sizes()[has_dim_[0]] : 0;
          for (size_t d = 1; d < t.sizes().size(); ++d) sizes.push_back(t.sizes()[d]);
          t = tapegrad::reshape(t, sizes);
        } else if (whole_ && t.ndim() == 2) {  // keepdim
          DimVector sizes(static_cast<size_t>(ndim_) + 1, 1);
          sizes[0] = n;
          t = tapegrad::reshape(t, sizes);
        } else if (scalar_ && t.ndim() == 2) {
          t = tapegrad::squeeze(t, IntSpan{1});
        }
      }
  }
  if (is_batched_ || has_dim)
    for (Tensor& t : results)
      if (t.defined()) t = wrap(t, level_, has_dim);
  return results;
}

std::vector<Tensor> Call::loop(const Step& step, Generator* rewind) {
  const int64_t n = level(level_).size;
  TG_CHECK(n > 0, Runtime, "{}: vmap: has to run once per sample, and there are none", op_.name);
  led_ = false;
  std::vector<std::vector<Tensor>> rows;  // of each result
  {
    Below below(level_);
    const uint64_t offset = rewind ? rewind->offset() : 0;
    for (int64_t i = 0; i < n; ++i) {
      auto take = [&](const Tensor& t, bool has_dim) { return has_dim ? tapegrad::select(t, 0, i) : t; };
      for (size_t k = 0; k < tensors_.size(); ++k) now_[k] = take(tensors_[k], has_dim_[k]);
      for (size_t l = 0; l < lists_.size(); ++l)
        for (size_t k = 0; k < lists_[l].size(); ++k) lists_now_[l][k] = take(lists_[l][k], lists_have_dim_[l][k]);
      if (rewind) rewind->set_offset(offset);
      std::vector<Tensor> results = step();
      if (i == 0) rows.resize(results.size());
      TG_CHECK(results.size() == rows.size(), Runtime, "{}: vmap: samples give different numbers of tensors: {} and {}",
               op_.name, rows.size(), results.size());
      for (size_t k = 0; k < results.size(); ++k) {
        TG_CHECK(i == 0 || results[k].defined() == rows[k][0].defined(), Runtime,
                 "{}: vmap: only some of the samples have a result", op_.name);
        if (i > 0 && results[k].defined() && results[k].sizes() != rows[k][0].sizes())
          throw NeedsValues(
              ErrorKind::Runtime,
              fmt::format("{}: vmap: the results of samples have different sizes: {} and {}\nwhat depends "
                          "on values in its size cannot be mapped over",
                          op_.name, format_ints(rows[k][0].sizes()), format_ints(results[k].sizes())));
        rows[k].push_back(std::move(results[k]));
      }
    }
    for (auto& row : rows)
      if (row[0].defined()) row = {tapegrad::stack(row, 0)};
  }
  std::vector<Tensor> results;
  for (auto& row : rows) results.push_back(row[0].defined() ? wrap(row[0], level_, true) : Tensor());
  return results;
}

std::vector<Tensor> Call::run_random(const Step& step) {
  const Level& here = level(level_);
  TG_CHECK(here.randomness != Randomness::Error, Runtime,
           "{}: vmap: a random operation in randomness mode 'error'\n"
           "call vmap with randomness='same' or 'different', or draw the numbers outside",
           op_.name);
  if (here.randomness == Randomness::Same) {
    if (!any_has_dim()) return run_once(step, false);
    const Device device = tensors_.empty() ? Device() : tensors_[0].device();
    return loop(step, generator_ ? generator_ : default_generator_of(device).get());
  }
  TG_CHECK(!writes_ || has_dim_[0], Runtime,
           "{}: vmap: different randomness in place of a tensor that is the same in all samples\n"
           "write to a tensor made from one that vmap maps over",
           op_.name);
  if (rule_ == Rule::RandomLoop) return loop(step);
  {
    Below below(level_);
    if (!tensors_.empty() && !has_dim_[0]) {
      tensors_[0] = now_[0] = led(tensors_[0], false);
      has_dim_[0] = true;
    }
    prepare_broadcast();
  }
  return run_once(step, true);
}

std::vector<Tensor> Call::run_parts(const Step& parts, const Step& sample) {
  try {
    return parts();
  } catch (const NeedsValues&) {
    if (recorded_) throw;  // the tape of this level cannot see into samples
  }
  if (!any_has_dim()) return run_once(sample, false);
  return loop(sample);
}

}  // namespace tapegrad::batch
