// Rows of the op table without a CUDA kernel: their operands come to the host, the CPU's kernel runs, and the results
// go back. Right, and slow: it waits for the device (which tapegrad.strict("sync") names), and cannot be captured.
#pragma once

#include <deque>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda::staged {

// The operands of one call on the host.
class TG_API Operands {
 public:
  explicit Operands(OpId op) : op_(op) {}
  // The same tensor gives the same copy, so that what is written in place is seen by both.
  const Tensor& host(const Tensor& t);
  // Copies the `n` last tensors given to `host` back; of 0 the first one.
  void write_back(size_t n);
  Tensor to_device(const Tensor& t) const;

  const Tensor& convert(const Tensor& t) { return host(t); }
  const Operand& convert(const Operand& o) {
    return operands_.emplace_back(o.tensor().is_wrapped_number() ? Operand(o) : Operand(host(o.tensor())));
  }
  TensorSpan convert(TensorSpan list) {
    auto& copies = lists_.emplace_back();
    for (const Tensor& t : list) copies.push_back(host(t));
    return copies;
  }
  template <class T>
  const T& convert(const T& other) {
    return other;
  }

 private:
  OpId op_;
  Device device_;
  std::deque<std::pair<Tensor, Tensor>> pairs_;  // on the device and on the host
  std::deque<size_t> given_;                     // the tensors given, as places in pairs_
  std::deque<Operand> operands_;
  std::deque<std::vector<Tensor>> lists_;
};

template <OpId op, int outputs, class F>
struct Kernel;
template <OpId op, int outputs, class R, class... A>
struct Kernel<op, outputs, R(A...)> {
  static R run(A... args) {
    Operands operands(op);
    // In the order of the arguments: braces, not a call.
    std::tuple<A...> converted{operands.convert(args)...};
    const auto kernel = kernel_for<R (*)(A...)>(op, Device());
    if constexpr (std::is_void_v<R>) {
      std::apply(kernel, converted);
      operands.write_back(outputs);
    } else {
      return back(operands, std::apply(kernel, converted));
    }
  }

 private:
  static Tensor back(const Operands& o, const Tensor& t) { return o.to_device(t); }
  static std::vector<Tensor> back(const Operands& o, std::vector<Tensor> all) {
    for (Tensor& t : all) t = o.to_device(t);
    return all;
  }
  template <class... T>
  static std::tuple<T...> back(const Operands& o, const std::tuple<T...>& all) {
    return std::apply([&](const T&... t) { return std::tuple<T...>{o.to_device(t)...}; }, all);
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  static T back(const Operands&, T value) { return value; }
};

TG_API void run_pointwise(OpId op, const pointwise::Iterator& it);
TG_API void run_reduce(OpId op, const reduce::Iterator& it);
template <OpId op>
void pointwise_kernel(const pointwise::Iterator& it) {
  run_pointwise(op, it);
}
template <OpId op>
void reduce_kernel(const reduce::Iterator& it) {
  run_reduce(op, it);
}

}  // namespace tapegrad::cuda::staged
