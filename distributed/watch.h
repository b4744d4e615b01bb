// Propagates the first failure to all ranks of a job, and finds out where the others are. Each rank's watch is a thread
// that waits in the store for notes to this rank:
//   failed    a rank cannot go on (an exception, a death that it saw): the groups of this process fail at once
//   left      a rank has ended in order: calls that still wait for it fail after a second
//   where     another rank waits for this one and requests its line: answered by a separate thread
// Notes are keys of the store, "note/<rank>/<number>"; the number comes from adding to "notes/<rank>". One watch per
// rank, shared by all its groups. Thread rules: any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tapegrad/distributed/store/store.h"
#include "tapegrad/distributed/wait.h"

namespace tapegrad::distributed {

class TG_API Watch {
 public:
  // `store`: of the job; the watch makes connections of its own. Failures are reported to all callbacks that were
  // added.
  Watch(const std::shared_ptr<Store>& store, int rank, int size);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  int rank() const noexcept;
  // Called with what went wrong, and with how long to wait before it counts. On the watch's thread, or at once where a
  // failure is known already; not after forget() has returned.
  using OnFailure = std::function<void(const std::string& why, Milliseconds grace)>;
  uint64_t add(OnFailure f);
  void forget(uint64_t number);

  // Reports to all other ranks. Only the first call of either function counts; neither throws nor waits longer than a
  // second or two.
  void failed(const std::string& why) noexcept;
  void left() noexcept;
  // Ranks whose process or connection to the store has ended, as reported by the store (tapegrad's TCP server). Empty
  // if it does not answer.
  std::vector<int> gone() noexcept;
  // The line at which another rank is; empty when it does not answer in time.
  std::string where(int rank, Milliseconds limit) noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Returns the current line of this process's main thread. Set by the bindings; may wait.
TG_API extern std::string (*where_hook)();

}  // namespace tapegrad::distributed
