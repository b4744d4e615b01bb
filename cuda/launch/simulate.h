// Kernels on the host: loops over blocks and threads. Threads that wait for each other are fibers of one host thread,
// so a block runs deterministically and one block at a time. A barrier that not all threads of a block or warp reach is
// an error of the kernel and ends the run with a message instead of hanging.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda::simulated {

struct Thread {
  uint32_t index = 0, block_size = 1, block = 0, grid = 1, row = 0, rows = 1;
  unsigned char* shared = nullptr;  // dynamic shared memory of the block
};

namespace detail {
extern thread_local Thread current;
}
inline const Thread& thread() { return detail::current; }

enum class Barrier : uint8_t { Warp, Block };
void wait(Barrier barrier);
uint32_t exchange(uint32_t value, int lane);
uint32_t ballot(bool b);

// Runs body(context) once per thread of the grid, as if by one launch.
using Body = void (*)(void* context);
void run_loops(uint32_t grid, uint32_t rows, uint32_t block, Body body, void* context);
void run_fibers(uint32_t grid, uint32_t rows, uint32_t block, size_t shared_bytes, Body body, void* context);

}  // namespace tapegrad::cuda::simulated
