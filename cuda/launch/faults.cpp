#include "tapegrad/cuda/launch/faults.h"

#include "tapegrad/cuda/launch/value_fault.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <string_view>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

namespace {

constexpr int kMostDevices = 128;
// Host addresses, and what kernels of the device call them: asked once, because launches ask for it.
std::array<std::atomic<FaultRecord*>, kMostDevices> records{}, device_records{};

void make_record(int device) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (device_records[static_cast<size_t>(device)].load() != nullptr) return;
  auto* record = static_cast<FaultRecord*>(driver().allocate_pinned(sizeof(FaultRecord)));
  TG_CHECK(record != nullptr, OutOfMemory, "cuda: no pinned memory for the record of a device's errors");
  std::memset(static_cast<void*>(record), 0, sizeof(FaultRecord));
  records[static_cast<size_t>(device)].store(record);
  after_wait.store(&raise_faults);
  device_records[static_cast<size_t>(device)].store(static_cast<FaultRecord*>(driver().device_address(record)));
}

}  // namespace

FaultRecord* fault_record(int device) {
  auto& record = device_records[static_cast<size_t>(device)];
  if (record.load(std::memory_order_acquire) == nullptr) make_record(device);
  return record.load(std::memory_order_acquire);
}

void raise_faults() {
  for (size_t device = 0; device < kMostDevices; ++device) {
    FaultRecord* record = records[device].load(std::memory_order_acquire);
    if (record == nullptr || std::atomic_ref(record->state).load(std::memory_order_acquire) != 2) continue;
    const FaultRecord found = *record;
    std::atomic_ref(record->state).store(0, std::memory_order_release);
    const char* op = found.op.text;
    if (found.fault == kValueFault) TG_THROW(Runtime, "{}: got {}", op, std::bit_cast<double>(found.value));
    switch (found.fault) {
      case Fault::DivisionByZero:
        TG_THROW(Runtime, "division: an integer was divided by zero");
      case Fault::Index:
        // PyTorch's class: RuntimeError where an index names elements, IndexError where it names slices.
        if (const std::string_view name(op); name.starts_with("gather") || name.starts_with("scatter"))
          TG_THROW(Runtime, "{}: index {} is out of bounds for dimension {} with size {}", op, found.value, found.dim,
                   found.size);
        TG_THROW(Index, "{}: index {} is out of bounds for dimension {} with size {}", op, found.value, found.dim,
                 found.size);
      case Fault::Label:
        TG_THROW(Index, "{}: target {} is out of bounds for {} classes", op, found.value, found.size);
      default:
        TG_THROW(Internal, "{}: a kernel recorded an unknown fault", op);
    }
  }
}

}  // namespace tapegrad::cuda
