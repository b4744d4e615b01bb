#include "tapegrad/autograd/function.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "tapegrad/autograd/meta.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::autograd {

namespace {
bool contains(TensorSpan list, const Tensor& t) {
  return std::any_of(list.begin(), list.end(), [&](const Tensor& x) { return x.is_same(t); });
}
}  // namespace

TensorList FunctionContext::saved_tensors() const {
  TensorList tensors;
  for (const SavedTensor& s : saved_) tensors.push_back(s.unpack(*node_, true));
  return tensors;
}

FunctionNode::FunctionNode() noexcept {
  context.node_ = this;
  runs_without_grads = true;
}

void FunctionNode::release_saved() noexcept {
  for (SavedTensor& s : context.saved_) s.release();
}

void FunctionNode::drop_contents() noexcept {
  release_saved();
  context.saved_data.clear();
}

void FunctionNode::visit_saved(const SavedVisitor& visit) const {
  for (const SavedTensor& s : context.saved_) visit("saved", s);
}

void FunctionNode::materialize(TensorList& grads) const {
  if (!context.materialize_grads_) return;
  for (size_t i = 0; i < grads.size(); ++i)
    if (!absent_[i]) grads[i] = grad_or_zeros(grads[i], outputs[i]);
}

void FunctionNode::wrap_outputs(TensorList& results, TensorSpan inputs, bool recording) {
  intrusive_ptr<Node> self(this);
  const auto others =
      std::stable_partition(context.dirty_.begin(), context.dirty_.end(), [&](auto& t) { return contains(inputs, t); });
  if (others != context.dirty_.end())
    warn(fmt::format(
        "{}: Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no "
        "need to pass it to mark_dirty()",
        name()));
  context.dirty_.erase(others, context.dirty_.end());
  for (const Tensor& t : context.dirty_) {
    TG_CHECK(contains(results, t), Runtime,
             "{}: mark_dirty: Some elements marked as dirty during the forward method were not returned as output. The "
             "inputs that are modified inplace must all be outputs of the Function",
             name());
    if (recording) check_inplace(t, name(), true);
    bump_version(t, name());
  }
  const TensorList given = results.size() > 1 ? results : TensorList();
  for (size_t i = 0; i < results.size(); ++i) {
    Tensor& t = results[i];
    absent_.push_back(!t.defined() ||
                      (!context.materialize_non_differentiable_ && contains(context.non_differentiable_, t)));
    const size_t first = static_cast<size_t>(std::find_if(given.begin(), given.begin() + static_cast<ptrdiff_t>(i),
                                                          [&](const Tensor& x) { return x.is_same(t); }) -
                                             given.begin());
    const ViewOrigin origin = results.size() > 1 ? ViewOrigin::MultiOutput : ViewOrigin::CustomFunction;
    if (t.defined() && first < i) {  // a result twice is one tensor, whose gradient arrives at the first place
      t = results[first];
      outputs.emplace_back(t);
      continue;
    }
    const bool dirty = t.defined() && contains(context.dirty_, t);
    const bool differentiable =
        t.defined() && is_differentiable(t.dtype()) && !contains(context.non_differentiable_, t);
    if (!recording || !differentiable) {
      if (t.defined() && !dirty && contains(inputs, t)) t = t.detach();
      if (ViewMeta* view = t.defined() && !dirty && grad_enabled() ? view_meta(t) : nullptr) view->origin = origin;
      outputs.emplace_back(t.defined() ? OutputMeta(t) : OutputMeta());
      continue;
    }
    if (dirty) {
      TG_CHECK(!is_view(t) || (results.size() == 1 && inputs[0].is_same(t)), Runtime,
               "{}: your Function modifies inplace an input that is a view of another Tensor: it must take it first "
               "and return "
               "nothing else",
               name());
      rebase_history(t, self);
    } else if (contains(inputs, t)) {
      // The caller gets a handle of its own, whose history is this node.
      Tensor input = t;
      t = input.detach();
      set_view(t, input, self);
      view_meta(t)->origin = origin;
    } else if (ViewMeta* view = view_meta(t)) {
      view->origin = origin;
      const AutogradMeta* b = meta(view->base);
      view->base_fn = b ? b->grad_fn.get() : nullptr;
      set_history(t, self);
    } else {
      if (meta(t) != nullptr && needs_grad(t)) t = t.detach();
      set_history(t, self);
    }
  }
  if (recording) {
    for (const Tensor& t : context.to_save_) {
      const bool own = t.defined() && (contains(context.dirty_, t) || (meta(t) && meta(t)->grad_fn.get() == this));
      context.saved_.emplace_back(t, own);
    }
  }
  context.to_save_.clear();
  context.dirty_.clear();
  context.non_differentiable_.clear();
}

namespace detail {
std::string function_name(const std::type_info& type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  if (auto colon = name.rfind("::"); colon != std::string::npos) name = name.substr(colon + 2);
  return name + "Backward";
}
}  // namespace detail

}  // namespace tapegrad::autograd
