// State shared by the collectives and the messages of a group: its engines, its ranks, and the propagation of failures
// to all that wait. Owned by the group (group.cpp); any thread.
#pragma once

#include <map>

#include "tapegrad/distributed/group/group.h"

namespace tapegrad::distributed {

// An error that is raised on all ranks alike and leaves the group usable.
struct CollectiveMismatch {
  std::exception_ptr error;
};

struct GroupCore {
  GroupCore(BackendPlace p, std::unique_ptr<Backend> b, GroupOptions o)
      : place(std::move(p)), backend(std::move(b)), options(std::move(o)) {}

  BackendPlace place;
  std::unique_ptr<Backend> backend;
  GroupOptions options;
  std::mutex mutex;
  std::unique_ptr<DeviceBackend> device;  // made by the first call that needs it; guarded by the mutex

  int world_rank(int r) const { return options.world_ranks.empty() ? r : options.world_ranks[static_cast<size_t>(r)]; }

  // `interruptible`: on the caller's own thread.
  Wait wait_of(const Call& call, const std::string& what, bool interruptible);
  std::string title(const char* op, uint64_t n, const std::string& line) const;

  // A rank that ends the group waits until its sent data was received (Messages::flush), and starts nothing more: a
  // rank that waits for it for another reason longer than `grace` raises.
  void tell_of_own_end();
  bool is_ending(int r);
  // (`any`: where all of those that it waits for do so).
  void check_ended_ranks(const Wait& wait, const std::vector<int>& missing, Milliseconds grace, bool any = false);

  // Reports the failure to all waiting calls, on this rank and on the others, which then end.
  void give_up(const std::string& why) noexcept;
  DeviceBackend* device_or_null() {
    const std::lock_guard lock(mutex);
    return device.get();
  }
  // Where the engine of a call reads its data: on the device if there is a device engine, else on the host.
  Device place_of(const Call& call);

  template <class F>
  void carry_out(Work& work, F&& f) noexcept {
    std::exception_ptr failed;
    int source = -1;
    try {
      place.failure->raise_if_set();
      source = f();
    } catch (const CollectiveMismatch& d) {
      failed = d.error;
    } catch (const std::exception& e) {
      failed = std::current_exception();
      if (!place.failure->is_set()) give_up(e.what());
    } catch (...) {
      failed = std::current_exception();
      give_up("an unknown exception");
    }
    work.finish(failed, source);
  }

 private:
  std::string end_key(int r) const { return fmt::format("ends/{}", world_rank(r)); }
  Store& asking();
  std::map<int, Clock::time_point> ending_;  // when it became known that a rank is ending; guarded by the mutex
  std::shared_ptr<Store> asking_;  // with a short timeout: its server may be the process that the group waits for
};

}  // namespace tapegrad::distributed
