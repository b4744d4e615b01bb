// Chains on a device: one kernel for all calls of a chain, which the device's library writes and compiles. A kernel
// that is not there when the step is planned is compiled by another thread, and the step is replayed without it until
// then. Before it is taken it is compared with the kernels of the calls, bit by bit, on numbers of all kinds.
#pragma once

#include <atomic>
#include <set>

#include "tapegrad/aten/record/device/compile_queue.h"
#include "tapegrad/aten/record/recording.h"

namespace tapegrad::record {

class DeviceChain {
 public:
  virtual ~DeviceChain() = default;
  // Queues it on the current stream. Operands are where the iterators of the calls have them.
  virtual void run(std::span<const Call> calls) const = 0;
  virtual const std::string& text() const noexcept = 0;
};

class ChainCompiler {
 public:
  virtual ~ChainCompiler() = default;
  // Whether the call may be part of a chain, by its operator, dtypes and layouts.
  virtual bool knows(const Call& call) const = 0;
  // What `in_memory` is false for, of the calls' slots, lives in registers alone. Equal texts are compiled once: null
  // where that has not been done; `compile` does it then, on any thread, and raises Runtime where it cannot be.
  virtual std::shared_ptr<const DeviceChain> find(std::span<const Call> calls,
                                                  const std::function<bool(int slot)>& in_memory,
                                                  std::function<void()>& compile) const = 0;
};

// Set by the device's library when it is loaded; null: it makes no chains.
TG_API extern std::atomic<const ChainCompiler*> chain_compiler;

// Whether plans of the recording may have chains on its device.
bool has_device_chains(const Recording& r) noexcept;
// The most calls of one: all that they read and write is in registers at some time.
constexpr size_t kLongestDeviceChain = 32;

// A kernel that a plan waits for.
struct AwaitedChain {
  AwaitedChain(size_t f, size_t l, std::function<void()> compile) : first(f), last(l), job(std::move(compile)) {}
  const size_t first, last;  // the calls
  CompileJob job;
  std::vector<Call> calls;  // as far as a comparison needs them
  std::set<int> registers;  // slots that it has no memory for
  std::string why;          // it is not taken
  bool taken = false;       // it is there, and gives the bits of the calls
};
// Once it is compiled: compares it, on the thread that holds the step. Raises what earlier kernels have found.
void settle(AwaitedChain& awaited, Device device);

// Whether calls [first, last) have a kernel that gives their bits; else `why` is set, or it has yet to be compiled and
// is awaited.
bool check_device_chain(Recording& r, size_t first, size_t last, std::string& why);
// It, after that.
std::shared_ptr<const DeviceChain> device_chain(const Recording& r, size_t first, size_t last);

}  // namespace tapegrad::record
