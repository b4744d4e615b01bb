// Custom operators in C++: derive from Function<T> and give a forward and a backward.
//
//   struct Square : Function<Square> {
//     static Tensor forward(FunctionContext& ctx, const Tensor& x) {
//       ctx.save_for_backward({x});
//       return x * x;
//     }
//     static TensorList backward(FunctionContext& ctx, const TensorList& grads) {
//       return {grads[0] * ctx.saved_tensors()[0] * 2};
//     }
//   };
//   Tensor y = Square::apply(x);
//
// forward takes any arguments and returns a Tensor or a TensorList; it runs unrecorded. backward returns one
// entry per Tensor argument of forward, in order (undefined: no gradient), and is recorded when gradients of
// gradients are wanted. The context lives in the node: everything it holds is freed with it.
#pragma once

#include <any>
#include <iterator>
#include <map>
#include <typeinfo>

#include "tapegrad/autograd/saved_tensor.h"

namespace tapegrad::autograd {

using TensorList = std::vector<Tensor>;

class TG_API FunctionContext {
 public:
  // Inputs or outputs of forward that backward needs. Other tensors are not covered by the version checks; keep them in
  // `saved_data`.
  void save_for_backward(TensorList tensors) { to_save_ = std::move(tensors); }
  // In backward only.
  TensorList saved_tensors() const;
  // Inputs that forward wrote to; they must be returned as well.
  void mark_dirty(TensorList inputs) { dirty_ = std::move(inputs); }
  void mark_non_differentiable(TensorList outputs) { non_differentiable_ = std::move(outputs); }
  // Whether absent gradients arrive in backward as zeros (the default) or undefined.
  void set_materialize_grads(bool value) noexcept { materialize_grads_ = value; }
  // Whether those of outputs that are not differentiable do, too (the default).
  void set_materialize_non_differentiable(bool value) noexcept { materialize_non_differentiable_ = value; }
  // Whether the i-th Tensor argument wants a gradient.
  bool needs_input_grad(size_t i) const { return node_->needs(i); }

  std::map<std::string, std::any> saved_data;

 private:
  friend struct FunctionNode;
  Node* node_ = nullptr;
  TensorList to_save_;
  TensorList dirty_;
  TensorList non_differentiable_;
  SavedList saved_;
  bool materialize_grads_ = true;
  bool materialize_non_differentiable_ = true;
};

// The node of a custom Function; also what the Python side is built on.
struct TG_API FunctionNode : Node {
  FunctionNode() noexcept;
  void release_saved() noexcept override;
  void drop_contents() noexcept override;
  void visit_saved(const SavedVisitor& visit) const override;
  // After forward: puts the outputs on the tape. An output that is an input is returned as a view of it,
  // unless it is marked dirty; then it becomes the result of this node in place.
  void wrap_outputs(TensorList& outputs, TensorSpan inputs, bool recording);
  // Replaces absent gradients by zeros, if requested. Outputs that are not tensors have none.
  void materialize(TensorList& grads) const;

  FunctionContext context;

 private:
  std::vector<bool> absent_;  // per output: undefined
};

namespace detail {
TG_API std::string function_name(const std::type_info& type);  // "SquareBackward"

template <class T>
struct CppFunctionNode final : FunctionNode {
  const char* name() const override { return name_.c_str(); }
  GradList apply(GradList grads) override {
    TensorList list(std::make_move_iterator(grads.begin()), std::make_move_iterator(grads.end()));
    materialize(list);
    TensorList result = T::backward(context, list);
    TG_CHECK(result.size() == edges.size(), Runtime,
             "{}: backward returned an incorrect number of gradients (expected {}, got {})", name_, edges.size(),
             result.size());
    return GradList(std::make_move_iterator(result.begin()), std::make_move_iterator(result.end()));
  }
  std::string name_ = function_name(typeid(T));
};
inline void collect_tensors(TensorList&) {}
template <class First, class... Rest>
void collect_tensors(TensorList& list, const First& first, const Rest&... rest) {
  if constexpr (std::is_same_v<First, Tensor>) list.push_back(first);
  if constexpr (std::is_same_v<First, TensorList>) list.insert(list.end(), first.begin(), first.end());
  collect_tensors(list, rest...);
}
}  // namespace detail

template <class T>
struct Function {
  template <class... Args>
  static auto apply(Args&&... args) {
    auto node = make_intrusive<detail::CppFunctionNode<T>>();
    TensorList inputs;
    detail::collect_tensors(inputs, static_cast<const std::decay_t<Args>&>(args)...);
    const bool recording = grad_enabled() && needs_grad(TensorSpan(inputs));
    if (recording)
      add_edges(*node, inputs);
    else
      node->edges.resize(inputs.size());
    auto result = [&] {
      NoGradGuard no_grad;
      return T::forward(node->context, std::forward<Args>(args)...);
    }();
    if constexpr (std::is_same_v<decltype(result), Tensor>) {
      TensorList outputs{std::move(result)};
      node->wrap_outputs(outputs, inputs, recording);
      return std::move(outputs[0]);
    } else {
      node->wrap_outputs(result, inputs, recording);
      return result;
    }
  }
};

}  // namespace tapegrad::autograd
