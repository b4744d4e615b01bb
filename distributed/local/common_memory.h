// Memory shared by ranks of one machine: arenas of multiprocessing/ if the ranks are processes, ordinary memory if they
// are threads of one process. A pass represents a piece in transit to one other rank and can be received once; its
// contents are validated. Pieces are reference counted: memory is freed with the last holder, even after the rank that
// allocated it has ended. Thread rules: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace tapegrad::distributed::local {

struct Piece {
  char* data = nullptr;
  size_t nbytes = 0;
  std::shared_ptr<void> holds;
};

inline constexpr size_t kLine = 64;  // bytes that processors pass between each other

class CommonMemory {
 public:
  using Pass = std::array<char, 64>;
  virtual ~CommonMemory() = default;
  virtual Piece allocate(size_t nbytes) = 0;  // begins at a cache line; its bytes are unspecified
  virtual Pass give(const Piece& piece) = 0;
  virtual Piece receive(const Pass& pass) = 0;
  virtual void take_back(const Pass& pass) noexcept = 0;  // for a pass that was not received
};

CommonMemory& memory_of_processes();
CommonMemory& memory_of_threads();

}  // namespace tapegrad::distributed::local
