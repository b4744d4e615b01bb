// Memory that several ranks of one machine see: arenas of multiprocessing/ where the ranks are processes, ordinary
// memory where they are threads of one. A pass stands for a piece of it on the way to one other rank and is good for
// one receipt; nothing in it is trusted. Pieces are owned by those who hold them: memory goes with the last of them,
// also when the rank that allocated it has ended. Thread rules: any thread.
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
  virtual void take_back(const Pass& pass) noexcept = 0;  // where nobody has received it
};

CommonMemory& memory_of_processes();
CommonMemory& memory_of_threads();

}  // namespace tapegrad::distributed::local
