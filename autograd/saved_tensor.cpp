#include "tapegrad/autograd/saved_tensor.h"

#include "tapegrad/autograd/engine/release_sink.h"
#include "tapegrad/autograd/view.h"
#include "tapegrad/c10/memory/available_memory.h"

namespace tapegrad::autograd {

namespace {
std::vector<std::shared_ptr<SavedTensorHooks>>& hooks_of_thread() {
  static thread_local std::vector<std::shared_ptr<SavedTensorHooks>> hooks;
  return hooks;
}
// The number of hook pairs, which every save tests.
constinit thread_local uint32_t hooks_depth __attribute__((tls_model("initial-exec"))) = 0;

// A tensor of the same bytes without a place on the tape.
Tensor bare(const Tensor& t) { return alias_tensor(t, t.sizes(), t.strides(), t.storage_offset()); }
}  // namespace

void push_saved_tensor_hooks(std::shared_ptr<SavedTensorHooks> hooks) {
  require_thread_memory<SavedTensorHooks>();
  hooks_of_thread().push_back(std::move(hooks));
  ++hooks_depth;
}

void pop_saved_tensor_hooks() {
  TG_CHECK(hooks_depth > 0, Runtime, "saved_tensors_hooks: nothing to pop");
  hooks_of_thread().pop_back();
  --hooks_depth;
}

void SavedTensor::drop_packed() noexcept { delete std::exchange(packed_, nullptr); }

SavedTensor::SavedTensor(const Tensor& t, bool is_output) {
  if (!t.defined()) return;
  const TensorImpl* impl = t.impl();
  TG_CHECK(!impl->is_inference(), Runtime,
           "Inference tensors cannot be saved for backward\n"
           "hint: clone the tensor outside inference_mode, or use no_grad in place of inference_mode");
  state_ = State::Saved;
  version_ = impl->version();
  const AutogradMeta* m = meta(t);
  if (is_output && m && m->grad_fn) {
    is_output_ = true;
    output_ = m->output;
  }
  if (TG_UNLIKELY(hooks_depth > 0 && !impl->is_wrapped_number())) {
    auto hooks = hooks_of_thread().back();
    auto packed = std::make_unique<Packed>();
    packed->hooks = hooks;
    if (!is_output_) packed->edge = edge_of(t);
    NoGradGuard no_grad;
    packed->object = hooks->pack(is_output_ || needs_grad(t) ? bare(t) : t);  // what is not on the tape goes itself
    TG_CHECK(
        impl->version() == version_, Runtime,
        "saved_tensors_hooks: A saved tensor pack hook is modifying its input in place. Tensors provided as input to "
        "pack hook can not be modified by in-place operations as this can lead to unexpected side-effects");
    packed_ = packed.release();
  } else {
    tensor_ = is_output_ ? bare(t) : t;
  }
}

void SavedTensor::release() noexcept {
  if (state_ != State::Saved) return;
  state_ = State::Released;
  if (auto* sink = detail::release_sink) {
    try {
      sink->tensors.push_back(std::move(tensor_));
      if (packed_) sink->objects.push_back(std::shared_ptr<Packed>(std::exchange(packed_, nullptr)));
    } catch (const std::bad_alloc&) {  // what is left here goes with the node
    }
    return;
  }
  tensor_.reset();
  if (packed_) drop_packed();
}

Tensor SavedTensor::unpack(Node& owner, bool with_history) const {
  Tensor t;
  std::shared_ptr<SavedTensorHooks> hooks;
  std::shared_ptr<void> object;
  Edge edge;
  {
    SpinGuard guard(owner.locked);
    if (TG_UNLIKELY(state_ != State::Saved)) {
      if (state_ == State::Empty) return {};
      throw_released(owner);
    }
    t = tensor_;
    if (TG_UNLIKELY(packed_ != nullptr)) {
      hooks = packed_->hooks;
      object = packed_->object;
      edge = packed_->edge;
    }
  }
  if (TG_UNLIKELY(hooks != nullptr)) {
    NoGradGuard no_grad;
    t = hooks->unpack(object);
    TG_CHECK(t.defined(), Type, "saved_tensors_hooks: the unpack hook must return a tensor");
    if (is_output_ || edge.defined() || needs_grad(t)) t = bare(t);
  } else if (TG_UNLIKELY(t.version() != version_)) {
    throw_overwritten(t, owner);
  }
  if (TG_LIKELY(!with_history)) return t;
  if (is_output_) {
    t = bare(t);
    if (owner.copy_slices)
      edge = static_cast<CopySlices*>(owner.copy_slices)->view_edge();
    else
      edge = {intrusive_ptr<Node>(&owner), output_};
  }
  if (!edge.defined()) return t;
  AutogradMeta& m = ensure_meta(t);
  if (edge.node->is_accumulator)
    m.accumulator = weak_intrusive_ptr<Node>(edge.node);
  else
    m.grad_fn = edge.node;
  m.output = edge.input;
  t.impl()->set_needs_grad(true);
  return t;
}

void SavedTensor::throw_released(const Node& owner) const {
  TG_THROW(Runtime,
           "{}: Trying to backward through the graph a second time (or directly access saved tensors after they have "
           "already been freed): what {} saved for the gradient{} has been freed\n"
           "saved values are freed when backward() or autograd.grad() has used them. Specify retain_graph=True if you "
           "need to go through the graph again",
           operator_of(owner), owner.name(), at_site(owner.site));
}

void SavedTensor::throw_overwritten(const Tensor& t, const Node& owner) const {
  const Writer& writer = t.impl()->counter().writer;
  TG_THROW(Runtime,
           "{}: the {} saved{} for the gradient was overwritten by {}{}\n"
           "one of the variables needed for gradient computation has been modified by an inplace operation: "
           "a tensor "
           "of {} {}, {} {}, is at version {}; expected version {} instead\n"
           "hint: use the out-of-place form of the writing operator, or clone the tensor before it",
           operator_of(owner), is_output_ ? "result" : "input", at_site(owner.site),
           writer.op ? writer.op : "an in-place operator", at_site(writer.site), t.dtype(), format_ints(t.sizes()),
           is_output_ ? "which is the result of" : "which was given to", owner.name(), t.version(), version_);
}

SavedList save_list(TensorSpan tensors) {
  SavedList list;
  list.reserve(tensors.size());
  for (const Tensor& t : tensors) list.emplace_back(t);
  return list;
}

std::vector<Tensor> unpack_list(const SavedList& list, Node& owner) {
  std::vector<Tensor> tensors;
  tensors.reserve(list.size());
  for (const SavedTensor& s : list) tensors.push_back(s.unpack(owner));
  return tensors;
}

}  // namespace tapegrad::autograd
