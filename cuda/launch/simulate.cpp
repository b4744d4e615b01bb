#if defined(TG_CUDA_SIMULATED)

#include "tapegrad/cuda/launch/simulate.h"

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "tapegrad/c10/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#endif

namespace tapegrad::cuda::simulated {
namespace detail {
thread_local Thread current;
}

namespace {

constexpr size_t kStack = 64 << 10;
constexpr uint32_t kWarp = 32;
constexpr unsigned char kGuard = 0xA5;  // before and after dynamic shared memory
constexpr size_t kGuardBytes = 64;

enum class State : uint8_t { Ready, AtWarp, AtBlock, Done };

// The saved state of a fiber. ucontext makes a system call for the signal mask at every switch, which costs more than
// the work between two barriers; on x86 only the callee-saved registers have to be saved.
#if defined(__x86_64__)
struct Context {
  void* stack = nullptr;
};
extern "C" void tg_simulated_switch(void** save, void* resume);
__asm__(R"(
  .text
  .p2align 4
  .hidden tg_simulated_switch
  .globl tg_simulated_switch
  .type tg_simulated_switch, @function
tg_simulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tg_simulated_switch, .-tg_simulated_switch
)");
void switch_to(Context& from, Context& to) { tg_simulated_switch(&from.stack, to.stack); }
void prepare(Context& c, char* stack, size_t nbytes, void (*enter)(), Context&) {
  auto** top = reinterpret_cast<void**>(stack + nbytes);
  *--top = nullptr;  // where enter would return to
  *--top = reinterpret_cast<void*>(enter);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  c.stack = top;
}
#else
struct Context {
  ucontext_t context;
};
void switch_to(Context& from, Context& to) { swapcontext(&from.context, &to.context); }
void prepare(Context& c, char* stack, size_t nbytes, void (*enter)(), Context& after) {
  getcontext(&c.context);
  c.context.uc_stack.ss_sp = stack;
  c.context.uc_stack.ss_size = nbytes;
  c.context.uc_link = &after.context;
  makecontext(&c.context, enter, 0);
}
#endif

struct Fiber {
  Context context;
  State state = State::Ready;
  uint32_t word = 0;  // what it gives to the lanes of its warp
};

struct Block {
  std::vector<Fiber> fibers;
  Context scheduler;
  char* stacks = nullptr;
  size_t stack_bytes = 0;
  uint32_t running = 0;
  Body body = nullptr;
  void* context = nullptr;
  std::exception_ptr failure;

  ~Block() {
    if (stacks != nullptr) munmap(stacks, stack_bytes);
  }
};

thread_local std::unique_ptr<Block> kept;  // stacks of the last run
thread_local Block* active = nullptr;

void enter() {
  Block& block = *active;
  try {
    block.body(block.context);
  } catch (...) {
    block.failure = std::current_exception();
  }
  block.fibers[block.running].state = State::Done;
  switch_to(block.fibers[block.running].context, block.scheduler);
}

void suspend(State state) {
  TG_CHECK(active != nullptr, Internal, "simulated kernel: a barrier in a kernel that was started by launch()");
  Block& block = *active;
  Fiber& fiber = block.fibers[block.running];
  fiber.state = state;
  switch_to(fiber.context, block.scheduler);
}

// Lets every fiber in [begin, end) go on that waits at `barrier`, if all of them that are left wait there.
bool release(Block& block, uint32_t begin, uint32_t end, State barrier) {
  bool any = false;
  for (uint32_t i = begin; i < end; ++i) {
    const State state = block.fibers[i].state;
    if (state == barrier)
      any = true;
    else if (state != State::Done)
      return false;
  }
  if (any)
    for (uint32_t i = begin; i < end; ++i)
      if (block.fibers[i].state == barrier) block.fibers[i].state = State::Ready;
  return any;
}

void run_block(Block& block, uint32_t threads) {
  for (uint32_t i = 0; i < threads; ++i) {
    Fiber& fiber = block.fibers[i];
    // What ran here before has not returned from its last functions, whose variables are still fenced.
    ASAN_UNPOISON_MEMORY_REGION(block.stacks + i * kStack, kStack);
    prepare(fiber.context, block.stacks + i * kStack, kStack, enter, block.scheduler);
    fiber.state = State::Ready;
  }
  for (;;) {
    for (uint32_t i = 0; i < threads; ++i) {
      if (block.fibers[i].state != State::Ready) continue;
      block.running = i;
      detail::current.index = i;
      switch_to(block.scheduler, block.fibers[i].context);
      if (block.failure) return;
    }
    bool progress = false, done = true;
    for (uint32_t w = 0; w < threads; w += kWarp)
      progress |= release(block, w, std::min(w + kWarp, threads), State::AtWarp);
    if (!progress) progress = release(block, 0, threads, State::AtBlock);
    for (uint32_t i = 0; i < threads; ++i) done &= block.fibers[i].state == State::Done;
    if (done) return;
    TG_CHECK(progress, Internal, "simulated kernel: the threads of a block wait at different barriers");
  }
}

// fibers and stacks for so many threads
Block& prepared(uint32_t threads) {
  if (!kept || kept->fibers.size() < threads) {
    kept = std::make_unique<Block>();
    kept->fibers.resize(threads);
    kept->stack_bytes = threads * kStack;
    void* memory =
        mmap(nullptr, kept->stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TG_CHECK(memory != MAP_FAILED, OutOfMemory, "simulated kernel: no memory for the stacks of {} threads", threads);
    kept->stacks = static_cast<char*>(memory);
  }
  return *kept;
}

}  // namespace

void wait(Barrier barrier) { suspend(barrier == Barrier::Warp ? State::AtWarp : State::AtBlock); }

uint32_t exchange(uint32_t value, int lane) {
  TG_CHECK(active != nullptr, Internal, "simulated kernel: a shuffle in a kernel that was started by launch()");
  Block& block = *active;
  const uint32_t me = block.running, source = me / kWarp * kWarp + (static_cast<uint32_t>(lane) & (kWarp - 1));
  block.fibers[me].word = value;
  suspend(State::AtWarp);
  const uint32_t got = block.fibers[source].word;
  suspend(State::AtWarp);
  return got;
}

uint32_t ballot(bool b) {
  TG_CHECK(active != nullptr, Internal, "simulated kernel: a ballot in a kernel that was started by launch()");
  Block& block = *active;
  const uint32_t me = block.running, first = me / kWarp * kWarp;
  block.fibers[me].word = b ? 1 : 0;
  suspend(State::AtWarp);
  uint32_t bits = 0;
  for (uint32_t lane = 0; lane < kWarp && first + lane < detail::current.block_size; ++lane)
    bits |= block.fibers[first + lane].word << lane;
  suspend(State::AtWarp);
  return bits;
}

void run_loops(uint32_t grid, uint32_t rows, uint32_t block, Body body, void* context) {
  Thread& t = detail::current;
  t = {0, block, 0, grid, 0, rows, nullptr};
  for (t.row = 0; t.row < rows; ++t.row)
    for (t.block = 0; t.block < grid; ++t.block)
      for (t.index = 0; t.index < block; ++t.index) body(context);
}

void run_fibers(uint32_t grid, uint32_t rows, uint32_t threads, size_t shared_bytes, Body body, void* context) {
  TG_CHECK(active == nullptr, Internal, "simulated kernel: a kernel started another one");
  TG_CHECK(threads % kWarp == 0, Internal, "simulated kernel: a block of {} threads has no whole warps", threads);
  Block& block = prepared(threads);
  block.body = body;
  block.context = context;
  block.failure = nullptr;
  std::vector<unsigned char> shared(shared_bytes + 2 * kGuardBytes + 16, kGuard);
  auto* memory = shared.data() + kGuardBytes;
  memory += (16 - reinterpret_cast<uintptr_t>(memory) % 16) % 16;
  active = &block;
  Thread& t = detail::current;
  t = {0, threads, 0, grid, 0, rows, memory};
  try {
    for (t.row = 0; t.row < rows && !block.failure; ++t.row)
      for (t.block = 0; t.block < grid && !block.failure; ++t.block) run_block(block, threads);
    for (size_t i = 0; i < kGuardBytes - 16; ++i)
      TG_CHECK(memory[shared_bytes + i] == kGuard && shared[i] == kGuard, Internal,
               "simulated kernel: wrote outside of its {} bytes of shared memory", shared_bytes);
  } catch (...) {
    block.failure = std::current_exception();
  }
  active = nullptr;
  if (block.failure) {
    const std::exception_ptr failure = block.failure;
    kept.reset();  // fibers that did not end must not be gone on with
    std::rethrow_exception(failure);
  }
}

}  // namespace tapegrad::cuda::simulated

#endif
