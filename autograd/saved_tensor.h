// SavedTensor: a tensor kept by a node for its backward. It remembers the version that was saved; `unpack`
// raises when the tensor was overwritten since (naming the line that saved it, and the operator and line that
// wrote), or when the node has already been run and freed (naming the line that built it).
// An output of the node itself is kept without its grad_fn, so that node and tensor do not own each other.
// Saved-tensor hooks (pack, unpack) of the current thread apply.
#pragma once

#include "tapegrad/autograd/node.h"

namespace tapegrad::autograd {

class TG_API SavedTensor {
 public:
  SavedTensor() = default;
  // is_output: the tensor is (or will be) an output of the saving node.
  explicit SavedTensor(const Tensor& t, bool is_output = false);
  ~SavedTensor();
  SavedTensor(SavedTensor&&) noexcept = default;
  SavedTensor& operator=(SavedTensor&&) noexcept = default;

  // The tensor, with its place on the tape. `owner` is the node that saved it (for outputs, and for messages).
  Tensor unpack(Node& owner) const;
  // Whether something was saved and not released (an optional argument that was absent unpacks to undefined).
  bool defined() const noexcept { return state_ == State::Saved; }
  void release() noexcept;
  // For Python's collector: the tensor held, without checks; undefined when packed by hooks or released.
  const Tensor& held() const noexcept { return tensor_; }

 private:
  enum class State : uint8_t { Empty, Saved, Released };
  struct Packed;  // what a pack hook returned
  Tensor tensor_;
  std::shared_ptr<Packed> packed_;
  uint32_t version_ = 0;
  uint32_t output_ = 0;
  State state_ = State::Empty;
  bool is_output_ = false;
  bool needs_grad_ = false;
};

// Lists of saved tensors (Tensor[] arguments).
using SavedList = std::vector<SavedTensor>;
TG_API SavedList save_list(TensorSpan tensors);
TG_API std::vector<Tensor> unpack_list(const SavedList& list, Node& owner);

// Pack and unpack hooks, a stack per thread. The packed object is opaque and owned by the hook's closure.
struct SavedTensorHooks {
  virtual ~SavedTensorHooks() = default;
  virtual std::shared_ptr<void> pack(const Tensor& t) = 0;
  virtual Tensor unpack(const std::shared_ptr<void>& packed) = 0;
};
TG_API void push_saved_tensor_hooks(std::shared_ptr<SavedTensorHooks> hooks);
TG_API void pop_saved_tensor_hooks();

}  // namespace tapegrad::autograd
