// Call: one call of an operator with batched tensors. Generated code (aten/gen/emit_batch.py) makes one where a raw::
// function, or a composite, meets a batched tensor, and gives it the call itself as a function of what Call says the
// arguments are. By the rule of the row this function is run once, on tensors that have the samples along dimension 0
// and on dimensions counted accordingly, or once per sample, whose results are stacked.
//
//   Call call(17, {&input});
//   return call.one([&] { return tapegrad::_softmax(call.tensor(0), call.dim(dim)); });
#pragma once

#include <functional>
#include <tuple>
#include <vector>

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/c10/generator.h"
#include "tapegrad/c10/kernel_table.h"
#include "tapegrad/c10/memory_format.h"

namespace tapegrad::batch {

// What a row says of its call with samples (key `batch` in aten/ops/README.md).
enum class Rule : uint8_t {
  Loop,        // once per sample
  Broadcast,   // tensors broadcast against each other: samples lead, then as many dimensions as the widest has
  First,       // only the first tensor may have samples; dimensions are counted from the front
  FirstNew,    // likewise, and the result has a dimension more
  All,         // all tensors have as many dimensions; each gets the samples in front
  AllNew,      // likewise, and the result has a dimension more
  Merge,       // all tensors have samples of the operator's own along dimension 0: they become more
  Rest,        // the first tensor has no samples; the others are of any shape
  Reduce,      // as First, with all dimensions when none is named
  Random,      // by the randomness of the level
  RandomLoop,  // likewise, once per sample
  Parts,       // a composite: its parts are calls of their own; once per sample when it asks for values
};

// Whether a tensor among these is batched; called only under kModeBatch.
inline bool any(std::initializer_list<const Tensor*> tensors, std::initializer_list<TensorSpan> lists = {}) noexcept {
  for (const Tensor* t : tensors)
    if (is_batched(*t)) return true;
  for (TensorSpan list : lists)
    for (const Tensor& t : list)
      if (is_batched(t)) return true;
  return false;
}
class TG_API Call {
 public:
  Call(const OperatorEntry& op, std::initializer_list<const Tensor*> tensors,
       std::initializer_list<TensorSpan> lists = {}, Generator* generator = nullptr);

  struct Dims {
    DimVector values;
    bool present;
    operator OptionalInts() const { return present ? OptionalInts(IntSpan(values)) : OptionalInts(); }
  };

  // For reductions of one or all dimensions: whether it is all of them.
  void reduce_all(bool all) { whole_ = all; }

  // The arguments of the step.
  const Tensor& tensor(size_t i) const { return now_[i]; }
  TensorSpan list(size_t i) const { return lists_now_[i]; }
  int64_t dim(int64_t d) const;
  std::optional<int64_t> dim(std::optional<int64_t> d) const;
  DimVector dims(IntSpan d) const;
  Dims all_dims(OptionalInts d) const;  // absent and empty mean all
  DimVector sizes(IntSpan s) const;
  std::optional<MemoryFormat> format(std::optional<MemoryFormat> f) const;

  template <class F>
  Tensor one(F&& f) {
    return std::move(run([&] { return std::vector<Tensor>{f()}; })[0]);
  }
  template <class F>
  auto several(F&& f) {
    using Tuple = decltype(f());
    return as_tuple<Tuple>(run([&] { return as_list(f()); }), std::make_index_sequence<std::tuple_size_v<Tuple>>());
  }
  template <class F>
  std::vector<Tensor> many(F&& f) {
    return run([&] { return f(); });
  }
  // The first tensor is written to.
  template <class F>
  void write(F&& f) {
    writes_ = true;
    run([&] {
      f();
      return std::vector<Tensor>();
    });
  }
  // Composites: `parts` on the batched tensors themselves; where they ask for values, `sample` as above.
  template <class Parts, class Sample>
  Tensor one_of(Parts&& parts, Sample&& sample) {
    return std::move(
        run_parts([&] { return std::vector<Tensor>{parts()}; }, [&] { return std::vector<Tensor>{sample()}; })[0]);
  }
  template <class Parts, class Sample>
  auto several_of(Parts&& parts, Sample&& sample) {
    using Tuple = decltype(sample());
    return as_tuple<Tuple>(run_parts([&] { return as_list(parts()); }, [&] { return as_list(sample()); }),
                           std::make_index_sequence<std::tuple_size_v<Tuple>>());
  }
  template <class Parts, class Sample>
  std::vector<Tensor> many_of(Parts&& parts, Sample&& sample) {
    return run_parts([&] { return parts(); }, [&] { return sample(); });
  }

 private:
  using Step = std::function<std::vector<Tensor>()>;

  template <class Tuple>
  static std::vector<Tensor> as_list(Tuple&& tuple) {
    return std::apply([](auto&&... t) { return std::vector<Tensor>{std::forward<decltype(t)>(t)...}; },
                      std::forward<Tuple>(tuple));
  }
  template <class Tuple, size_t... I>
  static Tuple as_tuple(std::vector<Tensor>&& list, std::index_sequence<I...>) {
    return Tuple(std::move(list[I])...);
  }

  std::vector<Tensor> run(const Step& step);
  std::vector<Tensor> run_parts(const Step& parts, const Step& sample);
  std::vector<Tensor> run_once(const Step& step, bool has_dim);
  std::vector<Tensor> run_random(const Step& step);
  std::vector<Tensor> loop(const Step& step, Generator* rewind = nullptr);
  // These fill now_ and lists_now_; false: the rule does not fit these arguments.
  bool prepare();
  bool prepare_broadcast();
  bool prepare_first();
  bool prepare_all();
  bool prepare_merge();
  bool any_has_dim() const;
  int64_t ndim_of(const Tensor& t, bool has_dim) const { return t.ndim() - (has_dim ? 1 : 0); }  // of one sample
  Tensor led(const Tensor& t, bool has_dim) const;  // with samples in front, expanded where it has none

  const OperatorEntry& op_;
  Rule rule_;
  int level_;
  std::vector<Tensor> tensors_;  // below the level
  std::vector<bool> has_dim_;    // of each
  std::vector<std::vector<Tensor>> lists_;
  std::vector<std::vector<bool>> lists_have_dim_;
  std::vector<Tensor> now_;  // what the step gets
  std::vector<std::vector<Tensor>> lists_now_;
  Generator* generator_;
  int64_t ndim_ = 0;        // of one sample of the first tensor
  bool is_batched_ = true;  // an argument belongs to the level
  bool led_ = false;        // the step runs with samples in front
  bool whole_ = false;      // all dimensions are reduced, as one
  bool scalar_ = false;     // one sample has no dimension: it was given one
  bool writes_ = false;
  bool recorded_ = false;  // the tape of this level is on
};

}  // namespace tapegrad::batch
