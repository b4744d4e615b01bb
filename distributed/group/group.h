// A process group: a set of ranks, with collectives on tensors among them.
//
// Every collective begins with an exchange of headers: which call it is, its number, dtype, sizes, operator, and the
// line of the program. If these do not match, all ranks raise before data moves, with both calls in the message. Small
// data is sent together with the header. Missing ranks are named. The first failure of any rank (an exception, a death,
// a timeout) is reported to all others, which leave their calls; a group that has failed stays failed.
//
// Calls of one group run in the order in which they were made: on the caller's thread if no call is in progress, the
// call is synchronous and the engine can be interrupted, else on the group's own thread. Sends and receives run
// concurrently, in order for each (peer, direction). Thread rules: any thread; the order of calls must be the same on
// all ranks, so two threads that call collectives need two groups.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tapegrad/distributed/backend.h"
#include "tapegrad/distributed/device_backend.h"
#include "tapegrad/distributed/group/work.h"
#include "tapegrad/distributed/watch.h"

namespace tapegrad::distributed {

enum class Kind : uint8_t {
  Barrier,
  Broadcast,
  AllReduce,
  Reduce,
  AllGather,
  Gather,
  Scatter,
  ReduceScatter,
  AllToAll,
  Send,
  Recv,
};

TG_API const char* name_of(Kind kind) noexcept;  // "all_reduce"

struct Call {
  Kind kind = Kind::Barrier;
  Reduce reduce = Reduce::Sum;
  bool mean = false;    // the sum divided by the number of ranks
  bool scaled = false;  // each rank's input times `factor` first
  double factor = 1;
  int root = 0;  // Broadcast, Reduce, Gather, Scatter; the peer of Send and Recv (-1: any)
  uint64_t tag = 0;
  std::vector<Tensor> inputs;  // per peer, where the call has one for each; else one. In-place calls have outputs only
  std::vector<Tensor> outputs;
  bool sizes_may_differ = false;  // AllGather of one tensor per rank with each its own size
  std::optional<Milliseconds> timeout;
  std::string line;  // "train.py:31" or empty
};

struct GroupOptions {
  std::string name;              // empty: all ranks of the job
  std::vector<int> world_ranks;  // of each rank of the group in the job; empty: the same
  std::shared_ptr<Watch> watch;  // of the job
  Milliseconds timeout{1'800'000};
  Milliseconds patience{10'000};  // after which missing ranks are reported; 0: never
  bool device_engine = false;     // tensors of CUDA devices go through NCCL, else through copies on the host
};

class TG_API Group {
 public:
  Group(BackendPlace place, std::unique_ptr<Backend> backend, GroupOptions options);
  ~Group();  // does not wait
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  const Backend& backend() const noexcept;

  // Starts the call. Error(Value), Error(Type) at once for errors that this rank can detect alone. `wait`: the caller
  // waits for the end anyway, so the call may run on this thread; the Work is then done on return.
  std::shared_ptr<Work> run(Call call, bool wait);

  // Ends the group: calls that wait in it, on this rank and on the others, raise `why`.
  void abort(const std::string& why) noexcept;
  // At the end of the process: waits up to `limit`, and at most the group's own timeout, until all sent data was
  // received.
  void flush(Milliseconds limit);
  // Waits for calls in progress until their deadline, and until all sent data was received. The engine is not used
  // after that. Ctrl-C ends it with Error(Interrupt).
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tapegrad::distributed
