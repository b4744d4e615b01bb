// The handler of vmap: a call with batched tensors, or of random numbers while a vmap runs. It knows the row's rule
// (rule.h) and which arguments are tensors, dimensions and sizes, and calls the function again, for tensors below the
// level.
#include <algorithm>

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/batch/rule.h"
#include "tapegrad/aten/dispatch/call.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/random/default_generators.h"
#include "tapegrad/c10/random/generator.h"

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

using dispatch::ArgumentType;

class BatchedCall {
 public:
  explicit BatchedCall(const dispatch::Call& call);
  // By the row's rule. The results belong to the level.
  std::vector<Tensor> run();
  // Once per sample, or as it is where no argument has samples.
  std::vector<Tensor> run_samples() { return any_has_dim() ? loop() : run_once(false); }
  bool is_recorded() const { return recorded_; }  // the tape of the level is on

 private:
  // The function with the arguments as they are now: tensors are now_ and lists_now_, dimensions and sizes follow.
  std::vector<Tensor> step();
  std::vector<Tensor> run_once(bool has_dim);
  std::vector<Tensor> run_random();
  std::vector<Tensor> loop(Generator* rewind = nullptr);
  // The other arguments of the step.
  int64_t dim(int64_t d) const;
  DimVector dims(IntSpan d) const;
  DimVector sizes(IntSpan s) const;
  void set_others(dispatch::ChangedArguments& arguments) const;
  // These fill now_ and lists_now_; false: the rule does not fit these arguments.
  bool prepare();
  bool prepare_broadcast();
  bool prepare_first();
  bool prepare_all();
  bool prepare_merge();
  bool any_has_dim() const;
  int64_t ndim_of(const Tensor& t, bool has_dim) const { return t.ndim() - (has_dim ? 1 : 0); }  // of one sample
  Tensor led(const Tensor& t, bool has_dim) const;  // with samples in front, expanded where it has none

  const dispatch::Call& call_;
  const OperatorEntry& op_;
  Rule rule_;
  int level_ = 0;
  std::vector<Tensor> tensors_;  // below the level
  std::vector<bool> has_dim_;    // of each
  std::vector<std::vector<Tensor>> lists_;
  std::vector<std::vector<bool>> lists_have_dim_;
  std::vector<Tensor> now_;  // what the step gets
  std::vector<std::vector<Tensor>> lists_now_;
  Generator* generator_ = nullptr;
  int64_t ndim_ = 0;        // of one sample of the first tensor
  bool is_batched_ = true;  // an argument belongs to the level
  bool led_ = false;        // the step runs with samples in front
  bool whole_ = false;      // all dimensions are reduced, as one
  bool scalar_ = false;     // one sample has no dimension: it was given one
  bool writes_;
  bool recorded_ = false;
};

BatchedCall::BatchedCall(const dispatch::Call& call)
    : call_(call),
      op_(*call.function.entry),
      rule_(op_.batch_rule),
      writes_(call.function.form == dispatch::Form::InPlace) {
  for (const dispatch::Argument& a : call.arguments) {
    if (a.is_tensor())
      level_ = std::max(level_, highest_level({&a.tensor()}));
    else if (a.is_list())
      level_ = std::max(level_, highest_level({}, {a.list()}));
    else if (a.type() == ArgumentType::Generator)
      generator_ = a.as<GeneratorPtr>().get();
  }
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
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const dispatch::Argument& a = call.arguments[i];
    if (a.is_tensor()) {
      take(a.tensor(), tensors_, has_dim_);
    } else if (a.is_list()) {
      lists_.emplace_back();
      lists_have_dim_.emplace_back();
      for (const Tensor& t : a.list()) take(t, lists_.back(), lists_have_dim_.back());
    } else if (rule_ == Rule::Reduce && a.type() == ArgumentType::OptionalInt && (call.function.dims >> i & 1)) {
      whole_ = !a.as<std::optional<int64_t>>();
    }
  }
  now_ = tensors_;
  lists_now_ = lists_;
  if (!tensors_.empty() && tensors_[0].defined())
    ndim_ = ndim_of(tensors_[0], has_dim_[0]);
  else if (!lists_.empty() && !lists_[0].empty())
    ndim_ = ndim_of(lists_[0][0], lists_have_dim_[0][0]);
}

bool BatchedCall::any_has_dim() const {
  auto any_of = [](const std::vector<bool>& v) { return std::find(v.begin(), v.end(), true) != v.end(); };
  return any_of(has_dim_) || std::any_of(lists_have_dim_.begin(), lists_have_dim_.end(), any_of);
}

int64_t BatchedCall::dim(int64_t d) const {
  if (!led_ || rule_ == Rule::Merge) return d;
  if (whole_) return 1;
  const int64_t least = std::max<int64_t>(ndim_, 1) + (rule_ == Rule::FirstNew || rule_ == Rule::AllNew ? 1 : 0);
  TG_CHECK(d >= -least, Index, "{}: Dimension out of range (expected to be in range of [{}, {}], but got {})", op_.name,
           -least, least - 1, d);
  return d < 0 ? d : d + 1;
}

DimVector BatchedCall::dims(IntSpan d) const {
  DimVector result;
  for (int64_t one : d) result.push_back(dim(one));
  return result;
}

DimVector BatchedCall::sizes(IntSpan s) const {
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

void BatchedCall::set_others(dispatch::ChangedArguments& arguments) const {
  for (size_t i = 0; i < call_.arguments.size(); ++i) {
    const dispatch::Argument& a = call_.arguments[i];
    const bool is_dim = call_.function.dims >> i & 1;
    switch (a.type()) {
      case ArgumentType::Int:
        if (is_dim) arguments.set(i, dim(a.as<int64_t>()));
        break;
      case ArgumentType::OptionalInt:
        if (const auto& d = a.as<std::optional<int64_t>>(); is_dim && (d || whole_))
          arguments.set(i, std::optional<int64_t>(d ? dim(*d) : 1));
        break;
      case ArgumentType::Ints:
        if (is_dim)
          arguments.set_ints(i, dims(a.as<IntSpan>()));
        else if (call_.function.sizes >> i & 1)
          arguments.set_ints(i, sizes(a.as<IntSpan>()));
        break;
      case ArgumentType::OptionalInts:
        // Absent and empty mean all dimensions.
        if (const auto& d = a.as<OptionalInts>(); is_dim && d && !d->empty()) {
          arguments.set_ints(i, dims(*d));
        } else if (is_dim) {
          DimVector all;
          for (int64_t k = 1; k <= std::max<int64_t>(ndim_, scalar_ ? 1 : 0); ++k) all.push_back(k);
          arguments.set_ints(i, std::move(all));
        }
        break;
      case ArgumentType::OptionalMemoryFormat:
        // The tensors have more dimensions than a format of channels knows.
        if (const auto& f = a.as<std::optional<MemoryFormat>>(); f && *f != MemoryFormat::Preserve)
          arguments.set(i, std::optional(MemoryFormat::Contiguous));
        break;
      default:
        break;
    }
  }
}

std::vector<Tensor> BatchedCall::step() {
  dispatch::ChangedArguments changed(call_.arguments);
  size_t tensors = 0, lists = 0;
  for (size_t i = 0; i < call_.arguments.size(); ++i) {
    const dispatch::Argument& a = call_.arguments[i];
    if (a.is_tensor())
      changed.set_tensor(i, now_[tensors++]);
    else if (a.is_list())
      changed.set_list(i, lists_now_[lists++]);
    else if (a.type() == ArgumentType::OptionalDevice)
      changed.set(i, host_device(a.as<std::optional<Device>>()));
  }
  if (led_) set_others(changed);
  dispatch::Results results;
  dispatch::Call(call_.function, call_.stage, changed.arguments()).run(call_.function.whole, results);
  if (writes_) return {};
  return results.take<std::vector<Tensor>>();
}

Tensor BatchedCall::led(const Tensor& t, bool has_dim) const {
  if (has_dim || !t.defined()) return t;
  DimVector sizes{level(level_).size};
  for (int64_t s : t.sizes()) sizes.push_back(s);
  return tapegrad::expand(t, sizes);
}

bool BatchedCall::prepare_broadcast() {
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

bool BatchedCall::prepare_first() {
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

bool BatchedCall::prepare_all() {
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

bool BatchedCall::prepare_merge() {
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

bool BatchedCall::prepare() {
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

std::vector<Tensor> BatchedCall::run() {
  if (rule_ == Rule::Random || rule_ == Rule::RandomLoop) return run_random();
  if (!any_has_dim()) return run_once(false);
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
  if (fits) return run_once(true);
  now_ = tensors_;
  lists_now_ = lists_;
  whole_ = scalar_ = false;
  return loop();
}

std::vector<Tensor> BatchedCall::run_once(bool has_dim) {
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

std::vector<Tensor> BatchedCall::loop(Generator* rewind) {
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

std::vector<Tensor> BatchedCall::run_random() {
  const Level& here = level(level_);
  TG_CHECK(here.randomness != Randomness::Error, Runtime,
           "{}: vmap: We do not yet support calling random operations inside of vmap where randomness='error'\n"
           "call vmap with randomness='same' or 'different', or draw the numbers outside",
           op_.name);
  if (here.randomness == Randomness::Same) {
    if (!any_has_dim()) return run_once(false);
    const Device device = tensors_.empty() ? Device() : tensors_[0].device();
    return loop(generator_ ? generator_ : default_generator_of(device).get());
  }
  TG_CHECK(!writes_ || has_dim_[0], Runtime,
           "{}: vmap: different randomness in place of a tensor that is the same in all samples\n"
           "write to a tensor made from one that vmap maps over",
           op_.name);
  if (rule_ == Rule::RandomLoop) return loop();
  {
    Below below(level_);
    if (!tensors_.empty() && !has_dim_[0]) {
      tensors_[0] = now_[0] = led(tensors_[0], false);
      has_dim_[0] = true;
    }
    prepare_broadcast();
  }
  return run_once(true);
}

// A composite: its parts on the batched tensors themselves; where they ask for values, once per sample.
void run_parts(dispatch::Call& call, dispatch::Results& results) {
  try {
    return call.proceed(results);
  } catch (const NeedsValues&) {
    BatchedCall batched(call);
    if (batched.is_recorded()) throw;  // the tape of this level cannot see into samples
    results = {};
    results.set(batched.run_samples());
  }
}

void handle(dispatch::Call& call, dispatch::Results& results) {
  const dispatch::Function& f = call.function;
  const Rule rule = f.entry->batch_rule;
  const bool is_random = rule == Rule::Random || rule == Rule::RandomLoop;
  if (!(modes() & kModeBatch) || !(is_random || (kinds_of(call.arguments) & kKindBatched)))
    return call.proceed(results);
  if (f.form == dispatch::Form::Out) throw_out(f.name);
  if (rule == Rule::Parts) return run_parts(call, results);
  if (f.batched) return call.run(f.batched, results);
  results.set(BatchedCall(call).run());
}

const dispatch::Registration registration({dispatch::kOrderBatch, dispatch::Stage::BelowTape, kKindBatched | kModeBatch,
                                           &handle});

}  // namespace
}  // namespace tapegrad::batch
