// SavedTensor: a tensor kept by a node for its backward. It stores the version at the time of saving; `unpack` raises
// when the tensor was overwritten since (naming the line that saved it, and the operator and line that wrote), or when
// the node has already been run and freed (naming the line that built it). An output of the node itself is kept without
// its grad_fn, so that node and tensor do not own each other. Saved-tensor hooks (pack, unpack) of the current thread
// apply. Threads: unpack and Node::release_saved take the node's lock.
#pragma once

#include "tapegrad/autograd/engine/node.h"

namespace tapegrad::autograd {

struct SavedTensorHooks;

class TG_API SavedTensor {
 public:
  SavedTensor() noexcept = default;
  // is_output: the tensor is an output of the saving node (set_history or rebase_history came before).
  explicit SavedTensor(const Tensor& t, bool is_output = false);
  ~SavedTensor() {
    if (TG_UNLIKELY(packed_ != nullptr)) drop_packed();
  }
  SavedTensor(SavedTensor&& o) noexcept
      : tensor_(std::move(o.tensor_)),
        packed_(std::exchange(o.packed_, nullptr)),
        version_(o.version_),
        output_(o.output_),
        state_(std::exchange(o.state_, State::Empty)),
        is_output_(o.is_output_) {}
  SavedTensor& operator=(SavedTensor&& o) noexcept {
    if (this == &o) return *this;
    this->~SavedTensor();
    return *new (this) SavedTensor(std::move(o));
  }

  // The tensor. `owner` is the node that saved it. If grad mode is on (second derivatives may be needed), an output is
  // returned with its grad_fn.
  Tensor unpack(Node& owner) const { return unpack(owner, grad_enabled()); }
  Tensor unpack(Node& owner, bool with_history) const;
  // Whether a tensor was saved and not released (an absent optional argument unpacks to undefined).
  bool defined() const noexcept { return state_ == State::Saved; }
  void release() noexcept;
  // For Python's collector: the tensor held, without checks; undefined when packed by hooks or released.
  const Tensor& held() const noexcept { return tensor_; }
  bool is_output() const noexcept { return is_output_; }
  // The result of a pack hook, and what is needed to put the unpacked tensor back on the tape. Null without hooks.
  struct Packed {
    std::shared_ptr<SavedTensorHooks> hooks;
    std::shared_ptr<void> object;
    Edge edge;  // of an input that needs a gradient; outputs are found through their node
  };
  const Packed* packed() const noexcept { return packed_; }

 private:
  enum class State : uint8_t { Empty, Saved, Released };
  void drop_packed() noexcept;
  TG_COLD void throw_released(const Node& owner) const;
  TG_COLD void throw_overwritten(const Tensor& t, const Node& owner) const;

  Tensor tensor_;
  Packed* packed_ = nullptr;
  uint32_t version_ = 0;
  uint32_t output_ = 0;
  State state_ = State::Empty;
  bool is_output_ = false;
};

// Lists of saved tensors (Tensor[] arguments).
using SavedList = std::vector<SavedTensor>;
TG_API SavedList save_list(TensorSpan tensors);
TG_API std::vector<Tensor> unpack_list(const SavedList& list, Node& owner);

// Pack and unpack hooks, a stack per thread; the innermost pair applies. The packed object is opaque.
struct SavedTensorHooks {
  virtual ~SavedTensorHooks() = default;
  virtual std::shared_ptr<void> pack(const Tensor& t) = 0;
  virtual Tensor unpack(const std::shared_ptr<void>& packed) = 0;
};
TG_API void push_saved_tensor_hooks(std::shared_ptr<SavedTensorHooks> hooks);
TG_API void pop_saved_tensor_hooks();

}  // namespace tapegrad::autograd
