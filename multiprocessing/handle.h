// A handle is sent between processes in place of a tensor's bytes: it names a block of an arena of a process. Plain
// data of a fixed size. It is not trusted: the checksum detects damage in transit, and its description of the block is
// compared with the owner's entry in the ledger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tapegrad::shared {

enum class HandleKind : uint16_t {
  Arena = 0,    // CPU memory in an arena
  CudaIpc = 1,  // device memory: `ipc` opens it; owned through an entry of the ledger like any other block
};

struct Handle {
  static constexpr uint32_t kMagic = 0x48736774;  // "tgsH"
  uint32_t magic = kMagic;
  HandleKind kind = HandleKind::Arena;
  uint16_t device = 0;
  uint64_t owner = 0;                  // id of the owner's ledger
  uint32_t entry = 0, generation = 0;  // of the entry
  uint32_t ticket = 0, ticket_generation = 0;
  uint32_t arena = 0, epoch = 0;  // of the arena
  uint64_t offset = 0, nbytes = 0;
  uint16_t read_only = 0, has_event = 0;
  uint32_t checksum = 0;   // of what is sent
  uint8_t ipc[64] = {};    // cudaIpcMemHandle_t; `offset` counts from where it begins
  uint8_t event[64] = {};  // cudaIpcEventHandle_t: the sender's work on the memory

  // What is sent: of CPU memory without the end.
  size_t sent_bytes() const { return kind == HandleKind::Arena ? kArenaBytes : sizeof(Handle); }
  static constexpr size_t kArenaBytes = 64;

  // `seal` is the sender's last step, `intact` the receiver's first.
  void seal() { checksum = sum(); }
  bool intact() const { return checksum == sum(); }
  bool operator==(const Handle&) const = default;

 private:
  // Every step is a bijection of words, so that damage to a single word is always detected up to the last line.
  uint32_t sum() const {
    Handle plain = *this;
    plain.checksum = 0;
    uint64_t words[24], h = 0x9E3779B97F4A7C15u;
    static_assert(sizeof(words) == 192);
    std::memcpy(words, &plain, sizeof(words));
    for (size_t i = 0; i < sent_bytes() / 8; ++i) {
      h = (h ^ words[i]) * 0xFF51AFD7ED558CCDu;
      h ^= h >> 32;
    }
    return static_cast<uint32_t>(h ^ h >> 32);
  }
};
static_assert(offsetof(Handle, ipc) == Handle::kArenaBytes && sizeof(Handle) == 192);

}  // namespace tapegrad::shared
