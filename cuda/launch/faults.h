// Faults, errors detected in kernels: recorded by the device, raised at the next synchronisation of any stream (no
// kernel traps, no launch waits). The first fault of a device since the last check is kept. The record lies in pinned
// memory, so that a check only reads host memory.
#pragma once

#include <cstdint>

#include "tapegrad/cuda/launch/device_code.h"

namespace tapegrad::cuda {

enum class Fault : uint32_t {
  None,
  DivisionByZero,
  Index,  // value, size, dim: an index out of bounds
  Label,  // value, size: a class that is not there
};

// What a fault says: a string of the host that is never freed. Kernels are given it and cannot make it, because a
// literal in a kernel lies in the device's memory, where raise_faults() could not read it.
struct FaultText {
  const char* text = nullptr;
  FaultText() = default;
  FaultText(const char* of_host) : text(of_host) {}  // not constexpr: nvcc refuses it in kernels
};

// State 0: free, 1: being written, 2: written.
struct FaultRecord {
  uint32_t state;
  Fault fault;
  int64_t value, size, dim;
  FaultText op;
};

#if defined(__CUDACC__)
__device__ __noinline__ inline
#else
inline
#endif
    void record_fault(FaultRecord* record, Fault fault, FaultText op, int64_t value = 0, int64_t size = 0,
                      int64_t dim = 0) {
  if (record->state != 0 || atomic_compare_and_set(&record->state, 0, 1) != 0) return;
  record->fault = fault;
  record->op = op;
  record->value = value;
  record->size = size;
  record->dim = dim;
  memory_fence_system();
  record->state = 2;
  memory_fence_system();
}

// `value` where it lies in [0, size), else -1 with the fault recorded.
TG_DEVICE int64_t checked_index(FaultRecord* record, Fault fault, FaultText op, int64_t value, int64_t size,
                                int64_t dim = 0) {
  if (value >= 0 && value < size) return value;
  record_fault(record, fault, op, value, size, dim);
  return -1;
}

// The record of a device for use in kernels.
TG_API FaultRecord* fault_record(int device);
// Raises the first recorded fault, and clears the record.
TG_API void raise_faults();

}  // namespace tapegrad::cuda
