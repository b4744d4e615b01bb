// Sends and receives of a group. They run concurrently with its collectives, in order for each (peer, direction, tag),
// each direction of a peer on a queue of its own. Owned by the group; any thread.
#pragma once

#include <atomic>
#include <map>

#include "tapegrad/distributed/group/group_core.h"
#include "tapegrad/distributed/group/job_queue.h"

namespace tapegrad::distributed {

// Messages to or from one rank. Small sends are copied and wait here for their receiver, so that the call returns.
struct Lane : JobQueue {
  static constexpr size_t kMostOfOne = size_t{256} << 10, kMostKept = size_t{1} << 20;
  std::atomic<size_t> kept{0};  // bytes
};

// Keeps receives of one tag in the order of their calls if one of them receives from any rank, since that one counts as
// a receive from every peer. Other receives from different peers do not wait for each other.
class ReceiveOrder {
 public:
  uint64_t enter(int peer, uint64_t tag) {
    const std::lock_guard lock(mutex_);
    under_way_.push_back({++newest_, tag, peer});
    return newest_;
  }
  void leave(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [ticket](const Entry& e) { return e.ticket == ticket; });
    changed_.notify_all();
  }
  void await_turn(uint64_t ticket, const Wait& wait) {
    const auto since = Clock::now();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, Milliseconds(20), [&] { return first(ticket) == kNobody; })) {
      const int peer = first(ticket);
      lock.unlock();
      wait.poll(since, [peer] { return peer < 0 ? std::vector<int>{} : std::vector<int>{peer}; });
      lock.lock();
    }
  }

 private:
  struct Entry {
    uint64_t ticket, tag;
    int peer;  // -1: any
  };
  static constexpr int kNobody = -2;
  // The peer of the first earlier receive that must complete before this one.
  int first(uint64_t ticket) const {
    const auto own =
        std::find_if(under_way_.begin(), under_way_.end(), [&](const Entry& e) { return e.ticket == ticket; });
    const auto it = std::find_if(under_way_.begin(), own, [&](const Entry& e) {
      return e.tag == own->tag && (e.peer < 0 || own->peer < 0 || e.peer == own->peer);
    });
    return it == own ? kNobody : it->peer;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> under_way_;
  uint64_t newest_ = 0;
};

class Messages {
 public:
  explicit Messages(GroupCore& core) : core_(core) {}

  // `here`: the caller waits for the end anyway, and the engine can be interrupted.
  std::shared_ptr<Work> start(Call call, bool here);
  // Waits up to `limit` until all sent data was received.
  void flush(Milliseconds limit);
  void await_receives();  // those in progress; Ctrl-C ends it with Error(Interrupt)
  void drain();           // until no thread of a queue is left
  bool idle();
  bool on_own_thread() const;

 private:
  struct LaneKey {
    int peer;
    bool sends;
    uint64_t tag;  // of receives: different tags do not wait for each other, unless there are more than kMostLanes
    auto operator<=>(const LaneKey&) const = default;
  };
  static constexpr uint64_t kMostLanes = 16;  // of a peer: each may have a thread

  // Messages of an ending rank may still be in transit before the awaited one.
  static constexpr Milliseconds kEndGracePeriod{5000};

  void send(const Call& call, const Tensor& t, Work& work, const std::shared_ptr<DeviceMark>& after, const Wait& wait);
  int recv(const Call& call, const Tensor& t, const Tensor& target, Work& work,
           const std::shared_ptr<DeviceMark>& after, Wait& wait);

  GroupCore& core_;
  std::mutex mutex_;  // guards the map; a lane stays where it is
  std::map<LaneKey, Lane> lanes_;
  ReceiveOrder receives_;
};

}  // namespace tapegrad::distributed
