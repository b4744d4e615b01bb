// The rendezvous of a group's ranks: each publishes its machine and process in the group's store and waits for all
// others. The death of a rank before the engine has connected all is detected by its process if it runs on this
// machine, else by its connection to the store (Store::set_at_end), so that the others do not wait until the time
// limit. Thread rules: as the place's store.
#pragma once

#include <memory>

#include "tapegrad/distributed/backend.h"
#include "tapegrad/distributed/watch.h"

namespace tapegrad::distributed {

class TG_API Meeting {
 public:
  // Waits for all ranks: DistError(Store) names those that do not come within the place's timeout. `watch`: of the job,
  // or null; `world_ranks`: of each rank of the group in it, empty where they are the same.
  Meeting(const BackendPlace& place, std::shared_ptr<Watch> watch = {}, std::vector<int> world_ranks = {});
  ~Meeting();

  // Whether all ranks run on this machine, in name spaces and as a user that can share memory: the same on all ranks.
  bool all_share_memory() const noexcept;
  // The place from which an engine connects the ranks: waits on its store, and its check(), end if a rank has died.
  const BackendPlace& place() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tapegrad::distributed
