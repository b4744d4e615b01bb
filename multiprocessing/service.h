// Gives other processes access to a process's arenas: a peer requests them over a unix socket, and the owner sends
// descriptors. The address is in the abstract name space, so no file is left behind, and only processes of the same
// user are answered. One connection per peer, one message per ledger or arena, none per tensor. The owner's side runs
// on a thread of its own that never blocks on a peer; it also clears the holds of dead peers as soon as their pidfd
// reports the death.
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

// The requests that the owner answers. Called on the service's thread.
struct ServiceHandlers {
  std::function<Descriptor(uint32_t arena, uint32_t epoch, uint64_t& nbytes)> arena;
  std::function<Ticket(uint32_t entry, uint32_t slot)> ticket;
};

class TG_API Service {
 public:
  Service(Ledger& ledger, ServiceHandlers handlers);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  // Called around a fork, so that no operation is in progress when the process is copied.
  void pause() noexcept { busy_.lock(); }
  void go_on() noexcept { busy_.unlock(); }
  // In a forked child, after pause(): the thread exists only in the parent, and the descriptors are closed here; the
  // object may only be leaked after this.
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
  ServiceHandlers handlers_;
  Descriptor listener_, wake_, spare_;
  std::vector<Peer> peers_;  // of the thread
  std::mutex busy_;          // held by the thread while it does not wait
  std::thread thread_;
};

// The client side. Errors name the cause: the owner has ended, does not answer, or has no descriptor left.
class TG_API Connection {
 public:
  Connection() = default;
  // Connects to the owner and gets its ledger (none when `slot` was taken before) and a slot in it.
  static Connection open(uint64_t owner, uint32_t& slot, Ledger** ledger);
  Descriptor arena(uint32_t arena, uint32_t epoch, uint64_t& nbytes);
  Ticket ticket(uint32_t entry);
  bool connected() const noexcept { return static_cast<bool>(socket_); }
  // Whether the other side has closed the connection, as far as is known without sending a request.
  bool ended() const noexcept;
  void close() noexcept { socket_.reset(); }

 private:
  Descriptor socket_;
};

}  // namespace tapegrad::shared
