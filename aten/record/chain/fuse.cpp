#include "tapegrad/aten/record/chain/fuse.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "tapegrad/aten/record/chain/chain.h"
#include "tapegrad/aten/record/chain/edges.h"

namespace tapegrad::record {

namespace {

using pointwise::Iterator;
using Number = std::array<char, 8>;

bool is_float(DType t) { return t == DType::float32 || t == DType::float64; }

// Rounded once, as a kernel does.
template <class T>
Number number_of(T value, DType dtype) {
  Number made{};
  const auto put = [&](auto converted) { std::memcpy(made.data(), &converted, sizeof converted); };
  dtype == DType::float64 ? put(static_cast<double>(value)) : put(static_cast<float>(value));
  return made;
}
Number parameter_of(const Scalar& value, DType dtype) {
  return dtype == DType::float64 ? number_of(value.to<double>(), dtype) : number_of(value.to<float>(), dtype);
}
// A number that a call has as an operand, as its kernel sees it.
Number operand_of(const char* memory, DType from, DType to) {
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, memory, sizeof value);
    return number_of(value, to);
  };
  if (from == DType::bool_) return number_of(*memory != 0, to);
  if (from == DType::int64) return read(int64_t{});
  return from == DType::float64 ? read(double{}) : read(float{});
}

// A number that is the call's own, not one of the step's memory.
bool is_own_number(const Call& call, int k) {
  return call.uses[static_cast<size_t>(k)].slot < 0 && layout_of(*call.pointwise, k) == OperandLayout::Number;
}

// What loops know of the call, by dtypes and layouts alone.
const LoopOperator* operator_of(const Call& call) {
  const Iterator& it = *call.pointwise;
  const LoopOperator* op = find_loop_operator(call.entry->name);
  if (op == nullptr || op->inputs != it.num_inputs) return nullptr;
  const bool gives_mask = (op->masks & kGivesMask) != 0;
  const unsigned all = (1u << op->inputs) - 1;
  if (!is_float(it.compute) && !(it.compute == DType::bool_ && gives_mask && (op->masks & all) == all)) return nullptr;
  if (it.dtype[0] != (gives_mask ? DType::bool_ : it.compute)) return nullptr;
  for (int k = 1; k <= it.num_inputs; ++k) {
    const bool mask = (op->masks >> (k - 1) & 1) != 0;
    const OperandLayout layout = layout_of(it, k);
    if ((layout == OperandLayout::PerColumn || layout == OperandLayout::PerRow) && it.shape[1] % kLoopLanes != 0)
      return nullptr;
    if (is_own_number(call, k)) {
      const DType t = it.dtype[k];
      if (mask || !(is_float(t) || t == DType::int64 || t == DType::bool_)) return nullptr;
    } else if (it.dtype[k] == DType::bool_) {
      if (layout == OperandLayout::Number || layout == OperandLayout::PerRow) return nullptr;
    } else if (mask || it.dtype[k] != it.compute) {
      return nullptr;
    }
  }
  return op;
}

// A formula, and where its places are; calls are added in their order.
class Builder {
 public:
  Builder(const Chain& chain, size_t first, size_t last) : chain_(chain) {
    made_.first = first;
    made_.last = last;
    for (size_t i = first; i < last; ++i)
      if (chain.calls[i].pointwise->compute != DType::bool_) formula_.dtype = chain.calls[i].pointwise->compute;
  }
  void add(size_t i, const LoopOperator* op, int form, bool store) {
    const Call& call = chain_.calls[i];
    const Iterator& it = *call.pointwise;
    Formula::Step step{op, form, {}, -1};
    for (int k = 1; k <= it.num_inputs; ++k) {
      if (is_own_number(call, k)) {
        step.inputs.push_back(number(operand_of(it.data[k], it.dtype[k], formula_.dtype)));
        continue;
      }
      int value = now_[static_cast<size_t>(place(i, k))];
      if (it.dtype[k] == DType::bool_ && (op->masks >> (k - 1) & 1) == 0) {
        const LoopOperator* convert = find_loop_operator(kNumberOfBool);
        formula_.steps.push_back({convert, 0, {value, number(number_of(1, formula_.dtype))}, -1});
        value = -static_cast<int>(formula_.steps.size());
      }
      step.inputs.push_back(value);
    }
    for (int p = 0; p < op->params; ++p) step.inputs.push_back(number(parameter_of(it.params[p], formula_.dtype)));
    for (int c = 0; c < op->num_constants; ++c)
      step.inputs.push_back(number(number_of(op->constants[static_cast<size_t>(c)], formula_.dtype)));
    const int out = place(i, 0);
    if (store) step.stored = out;
    formula_.steps.push_back(std::move(step));
    now_[static_cast<size_t>(out)] = -static_cast<int>(formula_.steps.size());
  }
  // Steps are counted behind the places, whose number is known now.
  FusedCalls finish() {
    for (Formula::Step& step : formula_.steps)
      for (int& value : step.inputs)
        if (value < 0) value = static_cast<int>(formula_.places.size()) - value - 1;
    made_.code = make_loop(formula_);
    return std::move(made_);
  }

 private:
  using Key = std::tuple<int, int, ptrdiff_t, OperandLayout, int64_t, DType>;
  int new_place(size_t call, int operand, int64_t per_row, Formula::Place p) {
    made_.places.push_back({call, operand, per_row});
    formula_.places.push_back(p);
    now_.push_back(static_cast<int>(now_.size()));
    return static_cast<int>(now_.size()) - 1;
  }
  int number(const Number& value) {
    const auto [at, fresh] = numbers_.try_emplace(value, 0);
    if (fresh) {
      at->second = new_place(made_.numbers.size(), -1, 0, {false, true});
      made_.numbers.push_back(value);
    }
    return at->second;
  }
  int place(size_t i, int k) {
    const Call& call = chain_.calls[i];
    const Iterator& it = *call.pointwise;
    const Use& use = call.uses[static_cast<size_t>(k)];
    const int buffer = chain_.buffers[i][static_cast<size_t>(k)];
    const OperandLayout layout = layout_of(it, k);
    const auto item = static_cast<int64_t>(element_size(it.dtype[k]));
    const int64_t per_row = layout == OperandLayout::Dense    ? chain_.columns * item
                            : layout == OperandLayout::PerRow ? it.strides[k][0]
                                                              : 0;
    const Key key = buffer >= 0 ? Key{buffer, -1, 0, layout, per_row, it.dtype[k]}
                                : Key{-1, use.slot, use.offset, layout, per_row, it.dtype[k]};
    const auto [at, fresh] = places_.try_emplace(key, 0);
    if (fresh)
      at->second =
          new_place(i, k, per_row,
                    {it.dtype[k] == DType::bool_, layout == OperandLayout::Number || layout == OperandLayout::PerRow});
    if (layout == OperandLayout::PerColumn || layout == OperandLayout::PerRow) made_.columns = chain_.columns;
    return at->second;
  }

  const Chain& chain_;
  FusedCalls made_;
  Formula formula_;
  std::vector<int> now_;  // the value that each place has; a step as -1, -2, ...
  std::map<Key, int> places_;
  std::map<Number, int> numbers_;
};

// The form of an operator that gives its kernel's bits for operands that lie as the call's; -1: none does.
int find_form(const Call& call, const LoopOperator* op) {
  const Iterator& whole = *call.pointwise;
  if (op->masks == (kGivesMask | ((1u << op->inputs) - 1))) return 0;  // logic, which has no choice
  const int64_t columns = whole.ndim == 2 ? std::min<int64_t>(whole.shape[1] / kLoopLanes * kLoopLanes, 128) : 0;
  const bool by_rows = whole.ndim == 2 && columns > 0;
  constexpr int64_t kElements = 1024;
  Iterator it = whole;
  it.ndim = by_rows ? 2 : 1;
  it.numel = kElements;
  it.shape[0] = by_rows ? kElements / columns : kElements;
  it.shape[1] = columns;
  if (by_rows) it.numel = it.shape[0] * columns;
  // One call that stands alone, over memory of its own.
  Formula formula;
  formula.dtype = whole.compute;
  const auto item = static_cast<int64_t>(element_size(whole.compute));
  std::vector<char> memory(static_cast<size_t>(kElements * 8 * (2 + op->inputs)));
  const auto part = [&](int k) { return memory.data() + kElements * 8 * k; };
  std::vector<char*> at;
  std::vector<int64_t> per_row;
  std::vector<Number> numbers(static_cast<size_t>(op->params + op->num_constants));
  Formula::Step step{op, 0, {}, 0};
  bool dense = true;
  std::vector<size_t> converted;  // inputs that are bools and seen as numbers
  for (int k = 0; k <= op->inputs; ++k) {
    const OperandLayout layout = layout_of(whole, k);
    const bool is_bool = whole.dtype[k] == DType::bool_;
    const int64_t size = is_bool ? 1 : item;
    it.data[k] = part(k);
    it.dtype[k] = is_bool ? DType::bool_ : whole.compute;
    it.strides[k][by_rows ? 1 : 0] = layout == OperandLayout::Dense || layout == OperandLayout::PerColumn ? size : 0;
    if (by_rows)
      it.strides[k][0] = layout == OperandLayout::Dense ? columns * size : layout == OperandLayout::PerRow ? size : 0;
    per_row.push_back(by_rows ? it.strides[k][0] : 0);
    dense &= layout == OperandLayout::Dense;
    const bool own = k > 0 && is_own_number(call, k);
    formula.places.push_back({is_bool && !own, layout == OperandLayout::Number || layout == OperandLayout::PerRow});
    if (own) it.dtype[k] = whole.compute;
    if (k == 0) continue;
    step.inputs.push_back(k);
    if (is_bool && !own && (op->masks >> (k - 1) & 1) == 0) converted.push_back(static_cast<size_t>(k));
  }
  for (size_t c = 0; c < numbers.size(); ++c) {
    const int p = static_cast<int>(c) - op->params;
    numbers[c] = p < 0 ? parameter_of(whole.params[c], whole.compute)
                       : number_of(op->constants[static_cast<size_t>(p)], whole.compute);
    step.inputs.push_back(static_cast<int>(formula.places.size()));
    formula.places.push_back({false, true});
    per_row.push_back(0);
  }
  if (!converted.empty()) {
    numbers.push_back(number_of(1, whole.compute));
    formula.places.push_back({false, true});
    per_row.push_back(0);
  }
  const auto places = static_cast<int>(formula.places.size());
  for (size_t k : converted) {
    formula.steps.push_back({find_loop_operator(kNumberOfBool), 0, {static_cast<int>(k), places - 1}, -1});
    step.inputs[k - 1] = places + static_cast<int>(formula.steps.size()) - 1;
  }
  formula.steps.push_back(step);
  FusedCalls alone;
  alone.columns = by_rows ? columns : 0;
  for (int64_t stride : per_row) alone.places.push_back({0, 0, stride});
  for (int& form = formula.steps.back().form; form < op->forms; ++form) {
    alone.code = make_loop(formula);
    if (alone.code == nullptr) return -1;
    bool same = true;
    for (uint64_t turn = 0; same && turn < (dense ? 1u : 24u); ++turn) {
      for (int k = 1; k <= op->inputs; ++k) {
        if (it.dtype[k] == DType::bool_)
          for (int64_t i = 0; i < kElements; ++i) part(k)[i] = static_cast<char>("\0\1\1\0\0\7\1"[i % 7]);
        else if (whole.compute == DType::float64)
          fill_with_edges<double, uint64_t>(part(k), kElements, k, turn);
        else
          fill_with_edges<float, uint32_t>(part(k), kElements, k, turn);
      }
      reinterpret_cast<pointwise::Kernel>(call.kernel)(it);
      at.assign(1, part(op->inputs + 1));
      for (int k = 1; k <= op->inputs; ++k) at.push_back(part(k));
      for (Number& number : numbers) at.push_back(number.data());
      alone.run(at.data(), it.numel);
      same = std::memcmp(part(0), part(op->inputs + 1),
                         static_cast<size_t>(it.numel * (it.dtype[0] == DType::bool_ ? 1 : item))) == 0;
    }
    if (same) return form;
  }
  return -1;
}

// What was found, by kernel, operands and parameters. A child process may be made while another thread holds the lock,
// so nobody waits for it.
int form_of(const Call& call, const LoopOperator* op) {
  const Iterator& it = *call.pointwise;
  std::string key(reinterpret_cast<const char*>(&call.kernel), sizeof call.kernel);
  key.push_back(static_cast<char>(it.compute));
  key.push_back(static_cast<char>(it.ndim == 2 ? std::min<int64_t>(it.shape[1] / kLoopLanes, 8) : 0));
  for (int k = 0; k <= op->inputs; ++k) {
    key.push_back(static_cast<char>(layout_of(it, k)));
    key.push_back(static_cast<char>(it.dtype[k]));
    key.push_back(static_cast<char>(k > 0 && is_own_number(call, k)));
  }
  for (int p = 0; p < op->params; ++p) {
    const Number n = parameter_of(it.params[p], it.compute);
    key.append(n.data(), n.size());
  }
  static std::mutex& lock = *new std::mutex;
  static std::map<std::string, int>& found = *new std::map<std::string, int>;
  {
    const std::unique_lock guard(lock, std::try_to_lock);
    if (guard)
      if (const auto at = found.find(key); at != found.end()) return at->second;
  }
  const int form = find_form(call, op);
  if (const std::unique_lock guard(lock, std::try_to_lock); guard) {
    if (found.size() > 4096) found.clear();
    found.emplace(std::move(key), form);
  }
  return form;
}

// Whether call i's result, which is in a buffer, is read by a call from `last` on.
bool is_read_from(const Chain& chain, size_t i, size_t last) {
  const int buffer = chain.buffers[i][0];
  for (size_t c = i + 1; c < chain.calls.size(); ++c) {
    for (int k = 1; k <= chain.calls[c].pointwise->num_inputs; ++k)
      if (c >= last && chain.buffers[c][static_cast<size_t>(k)] == buffer) return true;
    if (chain.buffers[c][0] == buffer) return false;
  }
  return false;
}

}  // namespace

void FusedCalls::run(char** at, int64_t n) const {
  if (columns == 0) return code->run(at, n);
  for (int64_t row = 0; row < n / columns; ++row) {
    code->run(at, columns);
    for (size_t p = 0; p < places.size(); ++p) at[p] += places[p].per_row;
  }
}

std::vector<FusedCalls> fuse_calls(const Chain& chain) {
  std::vector<FusedCalls> made;
  if (!loops_enabled() || chain.columns % kLoopLanes != 0) return made;  // rests would not be whole rows
  const size_t n = chain.calls.size();
  std::vector<const LoopOperator*> ops(n);
  std::vector<int> forms(n);
  for (size_t i = 0; i < n; ++i) {
    ops[i] = operator_of(chain.calls[i]);
    if (ops[i] == nullptr) continue;
    forms[i] = form_of(chain.calls[i], ops[i]);
    if (forms[i] < 0) ops[i] = nullptr;
  }
  for (size_t i = 0; i < n;) {
    DType dtype = DType::bool_;  // of the run's floating-point numbers
    size_t end = i;
    for (; end < n && ops[end] != nullptr; ++end) {
      const DType here = chain.calls[end].pointwise->compute;
      if (here != DType::bool_ && dtype != DType::bool_ && here != dtype) break;
      if (here != DType::bool_) dtype = here;
    }
    size_t next = std::max(end, i + 1);
    for (; end >= i + 2; end = i + (end - i) / 2) {
      Builder builder(chain, i, end);
      for (size_t c = i; c < end; ++c)
        builder.add(c, ops[c], forms[c], chain.buffers[c][0] < 0 || is_read_from(chain, c, end));
      FusedCalls fused = builder.finish();
      if (fused.code == nullptr) continue;  // registers do not suffice for so many
      made.push_back(std::move(fused));
      next = end;
      break;
    }
    i = next;
  }
  return made;
}

}  // namespace tapegrad::record
