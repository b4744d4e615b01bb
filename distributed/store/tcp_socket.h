// TCP sockets of stores: none of them blocks, every wait has a deadline, can be woken and ends on Ctrl-C. A descriptor
// is closed in forked children at the fork: else a child would keep a server's port and its clients' connections open
// after the server's process was killed, and its death would go unnoticed. Thread rules: one user at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tapegrad/distributed/wait.h"

namespace tapegrad::distributed {

class OwnDescriptor {
 public:
  OwnDescriptor() noexcept = default;
  explicit OwnDescriptor(int fd);  // takes it over, also where this throws
  ~OwnDescriptor() { reset(); }
  OwnDescriptor(OwnDescriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)), generation_(o.generation_) {}
  OwnDescriptor& operator=(OwnDescriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    std::swap(generation_, o.generation_);
    return *this;
  }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_ = -1;
  uint32_t generation_ = 0;
};

// Becomes, and stays, readable when it is woken.
class Wakeup {
 public:
  Wakeup();
  void wake() noexcept;
  int fd() const noexcept { return event_.get(); }

 private:
  OwnDescriptor event_;
};

// The limits of a wait: its deadline and what else ends it.
struct SocketWait {
  Clock::time_point deadline;
  const Wakeup* wakeup = nullptr;
};
enum class Ready : uint8_t { Yes, TimedOut, Woken };
// Waits for poll events of a descriptor (-1: of none). Error(Interrupt) after Ctrl-C. Within a BlockingRegion.
Ready wait_for(int fd, short events, const SocketWait& wait);

// The result of a transfer. Lost: the peer closed the connection or it broke; see errno.
enum class Transfer : uint8_t { Done, TimedOut, Woken, Lost };
Transfer send_all(int fd, const void* data, size_t n, const SocketWait& wait);
Transfer receive_all(int fd, void* data, size_t n, const SocketWait& wait);

// Tries once to connect. On failure `problem` is the reason, such as "connection refused", or empty if woken; `later`:
// a later attempt may succeed.
OwnDescriptor connect_once(const std::string& host, uint16_t port, const SocketWait& wait, std::string& problem,
                           bool& later);
// A socket that listens at one of the host's addresses and nowhere else (an IPv4 one first); port 0: a free one, which
// is written back. DistError(Network).
OwnDescriptor listen_at(const std::string& host, uint16_t& port);
// Takes over a socket that listens; its port must be `port` unless that is 0.
OwnDescriptor take_listener(int fd, uint16_t& port);
void set_up_connection(int fd) noexcept;  // no delay, and a dead peer is noticed

}  // namespace tapegrad::distributed
