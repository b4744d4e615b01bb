// Chains on a device: one kernel for all calls of a chain, which the device's library writes and compiles when the step
// is planned. Before it is taken it is compared with the kernels of the calls, bit by bit, on numbers of all kinds.
#pragma once

#include <atomic>

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
  // What `in_memory` is false for, of the calls' slots, lives in registers alone. Equal texts are compiled once. Raises
  // Runtime where it cannot be.
  virtual std::shared_ptr<const DeviceChain> compile(std::span<const Call> calls,
                                                     const std::function<bool(int slot)>& in_memory) const = 0;
};

// Set by the device's library when it is loaded; null: it makes no chains.
TG_API extern std::atomic<const ChainCompiler*> chain_compiler;

// Whether plans of the recording may have chains on its device.
bool has_device_chains(const Recording& r) noexcept;
// The most calls of one: all that they read and write is in registers at some time.
constexpr size_t kLongestDeviceChain = 32;

// Whether calls [first, last) have a kernel that gives their bits; else `why` is set.
bool check_device_chain(const Recording& r, size_t first, size_t last, std::string& why);
// It, after that.
std::shared_ptr<const DeviceChain> device_chain(const Recording& r, size_t first, size_t last);

}  // namespace tapegrad::record
