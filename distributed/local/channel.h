// Messages from one rank to another through a ring buffer in shared memory. The sender allocates it at its first send,
// and puts its pass into the area. A message is a header and its bytes, each a multiple of kLine in the ring; one that
// is longer than the ring streams through it. The receiver checks tag and size before it reads any data, and
// acknowledges each message with a number: a send ends when its message is accepted and in the ring, so that both sides
// detect different sizes. Messages with other tags than the requested one are taken out and stored, up to a limit, so
// that tags do not wait for each other. Thread rules: a Sender is used by one thread at a time, a Receiver by several:
// a receive from any rank runs concurrently with receives of other tags.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "tapegrad/distributed/local/area.h"

namespace tapegrad::distributed::local {

inline constexpr size_t kRingBytes = size_t{256} << 10;

struct Ring {
  alignas(kLine) Number written;   // bytes, since the beginning
  alignas(kLine) Number read;      // by the receiver
  alignas(kLine) Number answered;  // the number of the message, times 2; 1 more where it was refused
  alignas(kLine) char bytes[kRingBytes];
};

struct MessageHeader {
  uint64_t number, tag, nbytes;
  char fill[kLine - 3 * sizeof(uint64_t)];
};
static_assert(sizeof(MessageHeader) == kLine);

class Sender {
 public:
  Sender(Area& area, int peer) : area_(area), peer_(peer) {}
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  void send(ConstBytes data, uint64_t tag, const Wait& wait);

 private:
  void open();
  size_t space(const Wait& wait) const;

  Area& area_;
  const int peer_;
  Piece piece_;
  CommonMemory::Pass pass_{};
  Ring* ring_ = nullptr;
  uint64_t written_ = 0, messages_ = 0;
};

class Receiver {
 public:
  Receiver(Area& area, int peer) : area_(area), peer_(peer) {}
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  // Whether a message has begun to arrive that was not taken out yet, or one of that tag is stored.
  bool arriving(uint64_t tag, const Wait& wait);
  // Takes a message of that tag that has begun to arrive; false where there is none.
  bool try_receive(Bytes data, uint64_t tag, const Wait& wait);
  void receive(Bytes data, uint64_t tag, const Wait& wait);

 private:
  struct Kept {
    uint64_t tag;
    std::vector<char> bytes;
  };
  bool arriving(const Wait& wait);
  std::deque<Kept>::iterator find_kept(uint64_t tag);
  size_t available(const Wait& wait) const;
  void answer(bool refused) noexcept;
  void take(char* to, size_t nbytes, const Wait& wait);
  void keep(const MessageHeader& header, uint64_t wanted, const Wait& wait);

  Area& area_;
  const int peer_;
  Piece piece_;
  Ring* ring_ = nullptr;
  uint64_t read_ = 0, messages_ = 0;
  std::mutex mutex_;  // held while a message is taken out
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
};

}  // namespace tapegrad::distributed::local
