// What travels between processes in place of a tensor's bytes: which block of which arena of which process. Plain data
// of a fixed size; it is trusted as far as the channel is that it came through, and checked against the ledger.
#pragma once

#include <cstddef>
#include <cstdint>

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
  uint64_t owner = 0;  // id of the owner's ledger
  uint32_t entry = 0;
  uint32_t generation = 0;  // of the entry
  uint32_t ticket = 0;
  uint32_t ticket_generation = 0;
  uint32_t arena = 0;
  uint32_t epoch = 0;  // of the arena
  uint64_t offset = 0;
  uint64_t nbytes = 0;
  uint32_t read_only = 0;
  uint32_t has_event = 0;
  uint8_t ipc[64] = {};    // cudaIpcMemHandle_t; `offset` counts from where it begins
  uint8_t event[64] = {};  // cudaIpcEventHandle_t: the sender's work on the memory

  // What is sent: of CPU memory without the end.
  size_t sent_bytes() const { return kind == HandleKind::Arena ? kArenaBytes : sizeof(Handle); }
  static constexpr size_t kArenaBytes = 64;
};
static_assert(offsetof(Handle, ipc) == Handle::kArenaBytes && sizeof(Handle) == 192);

}  // namespace tapegrad::shared
