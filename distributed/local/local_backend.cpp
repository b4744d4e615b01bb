// Rendezvous, small exchanges and messages; the rest is in collectives.cpp.
#include "tapegrad/distributed/local/local_backend.h"

#include <cstring>

namespace tapegrad::distributed::local {

LocalBackend::LocalBackend(const char* name, CommonMemory& memory, const BackendPlace& place)
    : Backend(place.rank, place.size), name_(name), area_(memory, place) {
  for (int r = 0; r < size(); ++r) {
    senders_.push_back(std::make_unique<Sender>(area_, r));
    receivers_.push_back(std::make_unique<Receiver>(area_, r));
  }
}

void LocalBackend::exchange(const void* mine, size_t n, void* all, const Wait& wait) {
  TG_CHECK(n <= kMostExchanged, Value, "exchange: at most {} bytes: got {}", kMostExchanged, n);
  guarded(wait, [&] { exchange_bytes(mine, n, all, wait); });
}

// Two slots are enough: a rank that writes the slot of exchange k has ended k-1, so all ranks have begun k-1 and
// therefore read k-2.
void LocalBackend::exchange_bytes(const void* mine, size_t n, void* all, const Wait& wait) {
  const uint64_t number = ++exchanges_;
  Area::ExchangeSlot& own = area_.exchange_slot(rank(), number);
  if (n != 0) std::memcpy(own.data, mine, n);
  own.posted.store(number);
  area_.notify_all();
  auto come = [&](int r) { return area_.exchange_slot(r, number).posted.load() >= number; };
  auto missing = [&] {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r)
      if (!come(r)) ranks.push_back(r);
    return ranks;
  };
  for (int r = 0; r < size(); ++r) {
    area_.until(wait, [&] { return come(r); }, missing);
    if (n != 0)
      std::memcpy(static_cast<char*>(all) + static_cast<size_t>(r) * n, area_.exchange_slot(r, number).data, n);
  }
}

void LocalBackend::send(ConstBytes data, int peer, uint64_t tag, const Wait& wait) {
  TG_CHECK(peer >= 0 && peer < size() && peer != rank(), Value, "send: not the rank of a peer: {}", peer);
  guarded(wait, [&] { senders_[static_cast<size_t>(peer)]->send(data, tag, wait); });
}

void LocalBackend::recv(Bytes data, int peer, uint64_t tag, const Wait& wait) {
  TG_CHECK(peer >= 0 && peer < size() && peer != rank(), Value, "recv: not the rank of a peer: {}", peer);
  guarded(wait, [&] { receivers_[static_cast<size_t>(peer)]->receive(data, tag, wait); });
}

int LocalBackend::recv_any(Bytes data, uint64_t tag, const Wait& wait) {
  TG_CHECK(size() > 1, Value, "recv: there is no other rank");
  return guarded(wait, [&] {
    std::vector<int> peers;
    for (int i = 1; i < size(); ++i) peers.push_back((rank() + i) % size());
    for (;;) {
      for (int r : peers)
        if (receivers_[static_cast<size_t>(r)]->try_receive(data, tag, wait)) return r;
      auto arriving = [&] {
        for (int r : peers)
          if (receivers_[static_cast<size_t>(r)]->arriving(tag, wait)) return true;
        return false;
      };
      area_.until(wait, arriving, [&] { return peers; }, true);
    }
  });
}

}  // namespace tapegrad::distributed::local
