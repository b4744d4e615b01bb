#include "tapegrad/distributed/local/channel.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

namespace tapegrad::distributed::local {

namespace {

constexpr auto kBackend = DistError::Part::Backend;
// The amount after which progress is published, so that both sides copy at the same time.
constexpr size_t kPart = kRingBytes / 4;
constexpr size_t kMostKept = 1024;
constexpr size_t kMostKeptBytes = size_t{256} << 20;

constexpr size_t lines(size_t nbytes) { return (nbytes + kLine - 1) / kLine * kLine; }

// Copies that go on at the beginning of the ring.
void into(Ring& ring, uint64_t at, const char* from, size_t nbytes) noexcept {
  const size_t offset = at % kRingBytes, first = std::min(nbytes, kRingBytes - offset);
  if (first != 0) std::memcpy(ring.bytes + offset, from, first);
  if (first != nbytes) std::memcpy(ring.bytes, from + first, nbytes - first);
}
void out_of(const Ring& ring, uint64_t at, char* to, size_t nbytes) noexcept {
  const size_t offset = at % kRingBytes, first = std::min(nbytes, kRingBytes - offset);
  if (first != 0) std::memcpy(to, ring.bytes + offset, first);
  if (first != nbytes) std::memcpy(to + first, ring.bytes, nbytes - first);
}

// How far one side is ahead of the other.
size_t ahead(uint64_t writer, uint64_t reader, int peer, const Wait& wait) {
  const uint64_t n = writer - reader;
  if (n > kRingBytes || n % kLine != 0)
    fail(kBackend, "{}: the channel with rank {} is damaged: {} bytes written, {} read", wait.what, peer, writer,
         reader);
  return n;
}

}  // namespace

// ---- Sending

Sender::~Sender() {
  if (ring_ != nullptr) area_.memory().take_back(pass_);
}

void Sender::open() {
  piece_ = area_.memory().allocate(sizeof(Ring));
  auto* ring = reinterpret_cast<Ring*>(piece_.data);
  for (Number* n : {&ring->written, &ring->read, &ring->answered}) new (n) Number(0);
  pass_ = area_.memory().give(piece_);
  ring_ = ring;
  Area::ChannelEntry& entry = area_.channel_entry(area_.rank(), peer_);
  for (size_t i = 0; i < Area::kPassWords; ++i) {
    uint64_t word;
    std::memcpy(&word, pass_.data() + i * sizeof(word), sizeof(word));
    entry.pass[i].store(word, std::memory_order_relaxed);
  }
  entry.ready.store(1);
  area_.notify(peer_);
}

size_t Sender::space(const Wait& wait) const { return kRingBytes - ahead(written_, ring_->read.load(), peer_, wait); }

void Sender::send(ConstBytes data, uint64_t tag, const Wait& wait) {
  if (ring_ == nullptr) open();
  MessageHeader header{};
  header.number = ++messages_;
  header.tag = tag;
  header.nbytes = data.nbytes;
  const auto* from = static_cast<const char*>(data.data);
  auto missing = [this] { return std::vector<int>{peer_}; };
  bool refused = false, accepted = false;
  auto look = [&] {
    const uint64_t answered = ring_->answered.load();
    accepted = answered / 2 >= header.number;
    refused = answered % 2 != 0;
  };
  area_.until(wait, [&] { return space(wait) >= kLine; }, missing);
  into(*ring_, written_, reinterpret_cast<const char*>(&header), sizeof(header));
  written_ += sizeof(header);
  for (size_t done = 0;;) {
    if (const size_t n = std::min({space(wait), kPart, data.nbytes - done}); n != 0) {
      into(*ring_, written_, from + done, n);
      written_ += lines(n);
      done += n;
    }
    ring_->written.store(written_);
    area_.notify(peer_);
    if (done == data.nbytes) break;
    area_.until(
        wait,
        [&] {
          look();
          return refused || space(wait) != 0;
        },
        missing);
    if (refused) break;
  }
  area_.until(
      wait,
      [&] {
        look();
        return refused || accepted;
      },
      missing);
  if (refused)
    fail(kBackend,
         "{}: rank {} refused a message of {} bytes, tag {}: it wants another size\nsend and receive tensors of one "
         "size and dtype",
         wait.what, peer_, data.nbytes, tag);
}

// ---- Receiving

bool Receiver::arriving(const Wait& wait) {
  if (ring_ == nullptr) {
    Area::ChannelEntry& entry = area_.channel_entry(peer_, area_.rank());
    if (entry.ready.load() == 0) return false;
    CommonMemory::Pass pass;
    for (size_t i = 0; i < Area::kPassWords; ++i) {
      const uint64_t word = entry.pass[i].load(std::memory_order_relaxed);
      std::memcpy(pass.data() + i * sizeof(word), &word, sizeof(word));
    }
    try {
      piece_ = area_.memory().receive(pass);
    } catch (const std::exception& e) {
      // Of a process that dies its sockets go first.
      for (int i = 0; i < 50 && area_.ended({peer_}, false).empty(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      area_.raise_ended(wait, {peer_}, false);
      fail(kBackend, "{}: the channel from rank {} cannot be opened: {}", wait.what, peer_, e.what());
    }
    if (piece_.nbytes != sizeof(Ring)) fail(kBackend, "{}: the channel from rank {} is damaged", wait.what, peer_);
    ring_ = reinterpret_cast<Ring*>(piece_.data);
  }
  return available(wait) != 0;
}

size_t Receiver::available(const Wait& wait) const { return ahead(ring_->written.load(), read_, peer_, wait); }

void Receiver::answer(bool refused) noexcept {
  ring_->answered.store(messages_ * 2 + (refused ? 1 : 0));
  area_.notify(peer_);
}

void Receiver::take(char* to, size_t nbytes, const Wait& wait) {
  for (size_t done = 0; done < nbytes;) {
    size_t come = 0;
    area_.until(wait, [&] { return (come = available(wait)) != 0; }, [this] { return std::vector<int>{peer_}; });
    const size_t n = std::min({come, kPart, nbytes - done});
    out_of(*ring_, read_, to + done, n);
    done += n;
    read_ += lines(n);
    ring_->read.store(read_);
    area_.notify(peer_);
  }
}

void Receiver::keep(const MessageHeader& header, uint64_t wanted, const Wait& wait) {
  if (kept_.size() == kMostKept || header.nbytes > kMostKeptBytes - kept_bytes_)
    fail(kBackend, "{}: {} messages of other tags ({} bytes) have come from rank {}, and none of tag {}", wait.what,
         kept_.size() + 1, kept_bytes_ + header.nbytes, peer_, wanted);
  Kept kept{header.tag, std::vector<char>(header.nbytes)};
  answer(false);
  take(kept.bytes.data(), header.nbytes, wait);
  kept_bytes_ += header.nbytes;
  kept_.push_back(std::move(kept));
  area_.notify(area_.rank());  // another thread of this rank may wait for it
}

std::deque<Receiver::Kept>::iterator Receiver::find_kept(uint64_t tag) {
  return std::find_if(kept_.begin(), kept_.end(), [tag](const Kept& k) { return k.tag == tag; });
}

bool Receiver::arriving(uint64_t tag, const Wait& wait) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  // Its holder takes a message out, and notifies others of a message that it stores.
  return lock.owns_lock() && (find_kept(tag) != kept_.end() || arriving(wait));
}

bool Receiver::try_receive(Bytes data, uint64_t tag, const Wait& wait) {
  const std::lock_guard lock(mutex_);
  auto check = [&](uint64_t nbytes) {
    if (nbytes == data.nbytes) return;
    if (ring_ != nullptr) answer(true);
    fail(kBackend, "{}: a message of {} bytes came from rank {}, tag {}: expected {}", wait.what, nbytes, peer_, tag,
         data.nbytes);
  };
  const auto old = find_kept(tag);
  if (old != kept_.end()) {
    check(old->bytes.size());
    if (data.nbytes != 0) std::memcpy(data.data, old->bytes.data(), data.nbytes);
    kept_bytes_ -= data.nbytes;
    kept_.erase(old);
    return true;
  }
  while (arriving(wait)) {
    MessageHeader header;
    out_of(*ring_, read_, reinterpret_cast<char*>(&header), sizeof(header));
    if (header.number != messages_ + 1)
      fail(kBackend, "{}: the channel from rank {} is damaged: message {} where {} was due", wait.what, peer_,
           header.number, messages_ + 1);
    ++messages_;
    if (header.tag == tag) check(header.nbytes);
    read_ += sizeof(header);
    ring_->read.store(read_);
    if (header.tag == tag) {
      answer(false);
      take(static_cast<char*>(data.data), data.nbytes, wait);
      return true;
    }
    keep(header, tag, wait);
  }
  return false;
}

void Receiver::receive(Bytes data, uint64_t tag, const Wait& wait) {
  while (!try_receive(data, tag, wait))
    area_.until(wait, [&] { return arriving(tag, wait); }, [this] { return std::vector<int>{peer_}; });
}

}  // namespace tapegrad::distributed::local
