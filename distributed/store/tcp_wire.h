// The wire format of PyTorch 2's TCPStore, which tapegrad's clients and servers use, too. Numbers are little-endian.
//
// A client sends commands: one byte, then its fields; keys and values are 64-bit lengths and bytes, lists a 64-bit
// count and their items. The first command is VALIDATE with a magic number. SET, APPEND, MULTI_SET, QUEUE_PUSH and
// VALIDATE have no answer: tapegrad's client sends a PING after them, so that a call returns only when its value is
// stored. Keys are sent as "/key". WAIT is answered when all its keys are there; CANCEL_WAIT ends it, and is answered
// itself.
//
// If the job has a token, a connection begins with an exchange that is not part of PyTorch's protocol:
//   client: kHello, a nonce                                              (9 + 16 bytes)
//   server: a nonce, HMAC(token, "server" + both nonces)                 (16 + 32 bytes)
//   client: HMAC(token, "client" + both nonces)                          (32 bytes)
// The server closes the connection of a client that does not know the token, and tapegrad's client does so with such a
// server. The data that follows is neither encrypted nor signed: the token protects against unauthorised clients, not
// against parties that can read or alter the traffic.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tapegrad/distributed/store/sha256.h"

namespace tapegrad::distributed::wire {

enum class Command : uint8_t {
  Validate,
  Set,
  CompareSet,
  Get,
  Add,
  Check,
  Wait,
  NumKeys,
  DeleteKey,
  Append,
  MultiGet,
  MultiSet,
  CancelWait,
  Ping,
  QueuePush,
  QueuePop,
  QueueLen,
  ListKeys,
  Barrier,
};
inline constexpr size_t kCommands = 19;

inline constexpr uint32_t kMagic = 0x3C85F7CE;
inline constexpr uint8_t kReady = 0, kNotReady = 1;         // answers to CHECK
inline constexpr uint8_t kArrived = 0, kWaitCancelled = 1;  // answers to WAIT, BARRIER and CANCEL_WAIT

// Neither tapegrad's nor PyTorch's server accepts more.
inline constexpr uint64_t kMostKeyBytes = 8 * 1024;
inline constexpr uint64_t kMostKeys = 128 * 1024;
inline constexpr uint64_t kMostValueBytes = 8 * 1024 * 1024;

// A SET of "key" + kAtEnd makes tapegrad's server append the value to "key" when the connection ends. For PyTorch's
// server it is an ordinary key.
inline constexpr std::string_view kAtEnd(
    "\x01"
    "at_end");
inline constexpr size_t kMostAtEnd = 16;  // of a connection

inline constexpr std::string_view kHello("\xF0tgtoken1", 9);
inline constexpr size_t kNonce = 16;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
inline void put_bytes(std::string& out, std::string_view bytes) {
  put<uint64_t>(out, bytes.size());
  out.append(bytes);
}
inline void put_key(std::string& out, std::string_view key) {
  put<uint64_t>(out, key.size() + 1);
  out.append("/").append(key);
}
template <class T>
T take(const char* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// The proof of knowledge of the token that one side sends to the other.
inline Digest proof(const std::string& token, std::string_view side, std::string_view of_client,
                    std::string_view of_server) {
  return hmac_sha256(token, std::string(side).append(of_client).append(of_server));
}
std::string random_bytes(size_t n);

}  // namespace tapegrad::distributed::wire
