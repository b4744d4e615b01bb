// How a process gets at another one's arenas: it asks the owner over a unix socket, and the owner sends descriptors.
// The address lies in the abstract name space, so no file is left behind, and only processes of the same user are
// answered. One connection per peer, one message per ledger or arena; tensors themselves cost none. The owner's side
// runs on a thread of its own that never waits for anybody; it also clears what dead peers held as soon as their pidfd
// says so.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "tapegrad/multiprocessing/ledger.h"
#include "tapegrad/multiprocessing/shared_file.h"

namespace tapegrad::shared {

struct Ticket {
  uint32_t number = kNone;
  uint32_t generation = 0;
};

// What the owner can be asked for. Called on the service's thread.
struct ServiceOffers {
  std::function<Descriptor(uint32_t arena, uint32_t epoch, uint64_t& nbytes)> arena;
  std::function<Ticket(uint32_t entry, uint32_t slot)> ticket;
};

class TG_API Service {
 public:
  Service(Ledger& ledger, ServiceOffers offers);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  // Around a fork, so that nothing is half done when the copy is made.
  void pause() noexcept { busy_.lock(); }
  void go_on() noexcept { busy_.unlock(); }
  // In a forked child, paused: the thread is the parent's, the descriptors are closed; the object may only be leaked
  // after this.
  void abandon() noexcept;

 private:
  struct Peer {
    Descriptor socket, pidfd;
    uint32_t slot = kNone;
  };
  void run();
  void accept_one() noexcept;
  bool answer(Peer& peer);

  Ledger& ledger_;
  ServiceOffers offers_;
  Descriptor listener_, wake_, spare_;
  std::vector<Peer> peers_;  // of the thread
  std::mutex busy_;          // held by the thread while it does not wait
  std::thread thread_;
};

// The asking side. Errors name what happened: the owner has ended, does not answer, or has no descriptor left.
class TG_API Connection {
 public:
  Connection() = default;
  // Connects to the owner and gets its ledger (none when `slot` was taken before) and a slot in it.
  static Connection open(uint64_t owner, uint32_t& slot, Ledger** ledger);
  Descriptor arena(uint32_t arena, uint32_t epoch, uint64_t& nbytes);
  Ticket ticket(uint32_t entry);
  bool connected() const noexcept { return static_cast<bool>(socket_); }
  // Whether the other side has gone, as far as can be told without asking.
  bool ended() const noexcept;
  void close() noexcept { socket_.reset(); }

 private:
  Descriptor socket_;
};

}  // namespace tapegrad::shared
