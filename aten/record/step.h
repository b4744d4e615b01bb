// A step: a recording that is replayed. Temporaries lie in one buffer, by a plan made once; results are allocated anew
// in each replay, for their receivers keep them; weights stay where they are; arguments are where the caller has them.
//
// Not for two threads at once: claim() says whether another one is in it.
#pragma once

#include <atomic>

#include "tapegrad/aten/record/memory.h"

namespace tapegrad::record {

// Some of the memory as a storage of its own, which keeps all of it for as long as it lives.
Storage part_of(const Storage& memory, void* at, size_t nbytes);

class TG_API Step {
 public:
  // With a budget, weights are updated early and calls made again until the step fits into it; memory() says how well.
  // `graphs`: on a device, runs of calls are replayed by one launch each where that is possible.
  explicit Step(std::unique_ptr<Recording> recording, Budget budget = {}, bool graphs = true);
  ~Step();

  // Whether the arguments are like those that were recorded: sizes, strides, dtypes, and which of them share memory.
  bool fits(TensorSpan feeds) const noexcept;
  // What of all that it counts on is not the same any more, so that it cannot be replayed ever again, or null: a tensor
  // that it uses has other memory or needs no gradient, or what clears gradients would clear others.
  const char* changed() const noexcept;
  // Why it cannot be replayed now, or null: the gradients of leaves are not as the calls expect them.
  const char* refuses() const noexcept;
  // A guard found something else than was recorded. All is as it was before the replay.
  struct Diverged {
    size_t guard;       // which one
    std::string found;  // as in its condition
  };
  // Runs the calls, of a step in two parts those of the first. Sets `diverged`, which a recording with guards needs,
  // where it gives nothing. Raises what a call raises; what came before it has happened then, as in an eager run.
  std::vector<Tensor> replay(TensorSpan feeds, std::optional<Diverged>* diverged = nullptr);
  // The second part. Raises Runtime where a tensor that it reads was written to since the first one. `again`: it may be
  // called once more.
  std::vector<Tensor> replay_second(TensorSpan gradients, bool again);
  // Forgets what the second part would have needed.
  void end() noexcept;

  const Recording& recording() const noexcept { return *recording_; }
  size_t planned_bytes() const noexcept { return planned_; }
  // Whether its calls took so little time when they were recorded that other threads can wait for a replay.
  bool is_short() const noexcept { return short_; }
  const MemoryUse& memory() const noexcept { return memory_use_; }
  // How a step on a device is replayed; nothing on the CPU.
  struct GraphUse {
    size_t graphs = 0;
    size_t calls = 0;                  // of kernels in them,
    size_t others = 0;                 // and not
    std::string reason;                // why there is no graph of some of them; empty: there is, or none is wanted
    size_t chains = 0, in_chains = 0;  // kernels made at run time, and the calls that they are made of
    size_t awaited = 0;                // kernels that are being compiled
    std::string no_chains;             // why there is one less than there might be
  };
  GraphUse graphs() const;
  // To be called before a replay, by the thread that holds the step and, in Python, the GIL: makes graphs anew where
  // the last replay has found that they lack something. While one is made no thread may wait for the device as a whole.
  // Kernels that were compiled meanwhile are taken in. Whether graphs() has another `no_chains` since.
  bool prepare();
  // Gives the memory of temporaries back until the next replay; on a device graphs keep it.
  void rest() noexcept;
  // Overwrites all temporaries: for tests that nothing is read which a replay has not written.
  void scribble(int byte);

  // Holds the step for one thread, if it is free.
  bool claim() noexcept { return !busy_.exchange(true, std::memory_order_acquire); }
  void leave() noexcept { busy_.store(false, std::memory_order_release); }

 private:
  void plan(Budget budget);
  Layout fit(Budget budget);
  void arrange(const Layout& layout);
  void take_memory();
  void take_kernels();
  void run(Call& call);
  void run_nested(Call& call);
  void tell_of_writes(TensorSpan feeds);
  void keep_what_guards_undo();
  std::optional<Diverged> run_up_to_guards(TensorSpan feeds, size_t begin, size_t end);
  std::optional<Diverged> run_part(TensorSpan feeds, size_t first_feed, size_t begin, size_t end);
  void run_calls(size_t begin, size_t end);
  void keep_gradients() noexcept;
  std::vector<Tensor> results(TensorSpan feeds, size_t first_feed, size_t begin, size_t end);
  // On a device, in device/step_on_device.cpp.
  struct OnDevice;
  void set_up_device(bool graphs, std::unique_ptr<OnDevice> former = nullptr);
  void make_graphs();
  void enter_device(TensorSpan feeds, size_t first_feed);
  void leave_device(TensorSpan feeds, size_t first_feed);
  static Tensor view_for(const Tensor& place, bool bytes, const Tensor& feed);
  void hand_out(size_t begin, size_t end);
  size_t run_on_device(size_t call);  // the one behind those that were run
  Storage memory_for_result(int slot);
  void allocate_result(int slot);
  Tensor gradient(const Call& call);
  Tensor memory_of_temporaries() const;
  PhiloxState drawn(const Draw& draw);
  // What must be the same in both parts of a slot that is not the plan's.
  struct Seen {
    uint32_t version;
    const void* data;
    size_t nbytes;
    bool operator==(const Seen&) const = default;
  };
  Seen seen(int slot) const noexcept;
  Tensor over_feed(const Tensor& view, const Tensor& feed, int index) const;
  Tensor over_real(const Tensor& view, const Slot& slot) const;

  std::unique_ptr<Recording> recording_;
  Storage arena_;  // none: it rests
  size_t planned_ = 0;
  size_t spare_bytes_ = 0;  // of gradients that are kept for the next replay
  bool short_ = false;
  std::vector<std::pair<int, size_t>> offsets_;  // of slots in it
  size_t committed_ = 0;                         // calls up to the last guard
  struct Saved {
    int slot;
    ptrdiff_t begin, end;
  };
  std::vector<Saved> saved_;  // bytes that these calls write and that were there before
  std::vector<char> before_;  // what was in them
  MemoryUse memory_use_;
  std::vector<std::function<bool()>> hold_, same_clears_;
  size_t last_update_ = 0;  // the host call after which all that was updated early is done
  std::vector<int> memory_, fed_, results_, written_, read_second_;  // slots; those that both parts use
  struct Known {
    const StorageImpl* storage;
    const void* data;
    size_t nbytes;
  };
  std::vector<Known> places_;  // of memory_, where it must still be: apart from the slots, which are large
  std::vector<Tensor> held_;   // the arguments, between the parts
  TensorSpan feeds_;           // those of the part that runs, from first_feed_ on
  size_t first_feed_ = 0;
  std::vector<Seen> seen_;                         // of read_second_, between the parts
  std::vector<std::array<PhiloxState, 2>> bases_;  // of each generator: where it stood when a part began
  int part_ = 0;
  Tensor copy_;                       // of the temporaries, where the second part runs again
  std::unique_ptr<OnDevice> device_;  // none: on the CPU
  std::unordered_set<const StorageImpl*> weights_;
  bool broken_ = false;   // an error came while it was arranged anew
  bool limited_ = false;  // it has a budget
  std::atomic<bool> busy_{false};
};

}  // namespace tapegrad::record
