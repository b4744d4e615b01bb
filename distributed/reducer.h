// Buckets that collect the gradients of a model during backward, so that each bucket is reduced over the ranks as soon
// as its last gradient has arrived. This class handles the tape: when a backward begins and ends, which gradient
// arrived, and in which memory it lies. The caller defines what happens with a full bucket
// (nn/parallel/distributed.py).
//
// Gradients are views of the buckets: a gradient that the tape made elsewhere is copied once, one that is accumulated
// into stays where it is. If memory is still referenced elsewhere (by a gradient kept from an earlier step, or a call
// left over from a failed backward), it is left to that holder, and the bucket gets new memory.
//
// Ownership: owns the parameters' tensors, the buffers and its hooks, which refer to it weakly. Threads: one backward
// at a time; a gradient that arrives on another thread meanwhile is an error. The lock is not held while `calls` run.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tapegrad/autograd/meta.h"

namespace tapegrad::distributed {

class TG_API Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  // On the thread of the backward, without the lock of a language. An exception ends the backward.
  struct Calls {
    std::function<void()> begin;               // before the first gradient of a backward counts
    std::function<void(size_t bucket)> ready;  // bucket 0 first, then 1, ...: the same order on all ranks
    std::function<void()> end;                 // the backward is over and all buckets have been given to `ready`
  };
  static std::shared_ptr<Reducer> make(std::vector<Tensor> params, Calls calls);
  ~Reducer();

  // Parameters of one dtype and device per bucket; each of them in one bucket. `sparse` buckets have one parameter
  // whose gradient stays where the tape puts it.
  struct Plan {
    std::vector<size_t> params;
    bool sparse = false;
  };
  void set_buckets(std::vector<Plan> plans);

  // Sets whether the next gradient of a parameter begins a reduced backward.
  void expect(bool yes);
  // Makes every later backward through these results of the model a reduced one. Returns whether any of them is on the
  // tape.
  bool watch(TensorSpan outputs);
  // The first reduced backward counts how often each gradient arrives; later ones wait for as many. For models that use
  // a parameter in several backward passes within one (activation checkpointing that is reentrant).
  void learn();
  // Stops reducing; buckets already passed to `ready` are not affected. For use after a call of `ready` failed, and
  // when a rank leaves.
  void remove_hooks() noexcept;

  // Of a bucket, in the backward or after it: all gradients in one vector, followed by one number per parameter: 1, or
  // 0 if this rank had no gradient. After a sum over ranks it shows whether any rank had one.
  Tensor buffer(size_t bucket, bool with_flags) const;
  std::vector<Tensor> views(size_t bucket) const;
  // Parameters that have no gradient from this rank, in the backward that ends.
  std::vector<size_t> unused() const;
  // The parameter's place in its bucket becomes its gradient.
  void adopt(size_t param);
  // Parameters in the order in which their gradients came in the last reduced backward.
  std::vector<size_t> order() const;

 private:
  static constexpr uint32_t kMany = UINT32_MAX;
  struct Param {
    Tensor leaf, view;
    autograd::HookHandle hook;
    size_t bucket = 0;
    uint32_t arrived = 0, wanted = 1;
    bool placed = false;  // in the bucket, in this backward
  };
  struct Bucket {
    std::vector<size_t> params;
    Tensor buffer;
    int64_t numel = 0;
    size_t pending = 0;
    bool sparse = false;
  };
  struct Ending;
  using Lock = std::unique_lock<std::mutex>;

  Reducer() = default;
  void begin(Lock& lock);
  void give_memory(Bucket& bucket);
  bool has_memory_of_its_own(const Bucket& bucket) const;
  void arrive(size_t i);
  void place(Param& p);
  void start_full_buckets(Lock& lock);
  void end();
  void reset() noexcept;

  mutable std::mutex mutex_;
  Calls calls_;
  std::vector<Param> params_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> order_;
  size_t next_ = 0;  // the bucket to be given to `ready`
  bool expected_ = false, armed_ = false, learning_ = false;
  std::thread::id thread_;
};

}  // namespace tapegrad::distributed
