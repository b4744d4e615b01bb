#include "tapegrad/distributed/store/tcp_commands.h"

#include <sys/random.h>

#include <array>
#include <cerrno>

#include "tapegrad/distributed/errors.h"

namespace tapegrad::distributed::wire {

namespace {

// k: key, v: value, i: 64-bit number, n: 32-bit number; after '*' a count and that many times the rest.
constexpr std::array<const char*, kCommands> kFormats = {
    "n",    // Validate
    "kv",   // Set
    "kvv",  // CompareSet
    "k",    // Get
    "ki",   // Add
    "*k",   // Check
    "*k",   // Wait
    "",     // NumKeys
    "k",    // DeleteKey
    "kv",   // Append
    "*k",   // MultiGet
    "*kv",  // MultiSet
    "",     // CancelWait
    "n",    // Ping
    "kv",   // QueuePush
    "k",    // QueuePop
    "k",    // QueueLen
    "",     // ListKeys
    "ki",   // Barrier
};

constexpr size_t kKeptFields = 64;

}  // namespace

CommandReader::Result CommandReader::read(std::string_view bytes) {
  if (format_ == nullptr) {
    if (bytes.empty()) return Result::More;
    const auto code = static_cast<uint8_t>(bytes[0]);
    if (code >= kCommands) return Result::Invalid;
    command_ = static_cast<Command>(code);
    format_ = kFormats[code];
    counted_ = *format_ == '*';
    if (counted_) ++format_;
    rounds_ = counted_ ? 0 : 1;
    at_ = 1;
  }
  if (counted_) {
    if (bytes.size() - at_ < 8) return Result::More;
    rounds_ = take<uint64_t>(bytes.data() + at_);
    if (rounds_ > kMostKeys) return Result::Invalid;
    at_ += 8;
    counted_ = false;
  }
  for (; rounds_ != 0; --rounds_, field_ = 0) {
    for (; format_[field_] != 0; ++field_) {
      const char kind = format_[field_];
      const bool sized = kind == 'k' || kind == 'v';
      const size_t head = sized ? 8 : 0;
      if (bytes.size() - at_ < head) return Result::More;
      const uint64_t size = sized ? take<uint64_t>(bytes.data() + at_) : kind == 'i' ? 8 : 4;
      if (size > (kind == 'k' ? kMostKeyBytes : kMostValueBytes)) return Result::Invalid;
      if (bytes.size() - at_ - head < size) return Result::More;
      fields_.push_back({at_ + head, size});
      at_ += head + size;
    }
  }
  return Result::Complete;
}

void CommandReader::next() noexcept {
  format_ = nullptr;
  field_ = at_ = 0;
  fields_.clear();
  if (fields_.capacity() > kKeptFields) std::vector<Field>().swap(fields_);
}

std::string random_bytes(size_t n) {
  std::string bytes(n, '\0');
  for (size_t at = 0; at < n;) {
    const ssize_t got = getrandom(bytes.data() + at, n - at, 0);
    if (got > 0) at += static_cast<size_t>(got);
    if (got < 0 && errno != EINTR) fail(DistError::Part::Network, "TCPStore: the system gives no random numbers");
  }
  return bytes;
}

}  // namespace tapegrad::distributed::wire
