// What the doubles of cuDNN have in common: its words about failures, no captures, and the switches as they are at
// first.
#pragma once

#include <cstring>
#include <utility>

#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/cuda/cudnn/calls.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

namespace cudnn_double {

inline const char* error_string(int status) {
  return status == tapegrad::cuda::cudnn_calls::kExecutionFailed ? "EXECUTION_FAILED" : "OTHER";
}
inline void last_error(char* message, size_t size) { std::strncpy(message, "why it was", size); }

// As cuDNN does in any call that may be the first: it allocates, loads code or makes events.
inline void may_be_first(const char* call) { tapegrad::cuda::simulated::simulated_driver().forbid_in_capture(call); }

inline void reset_switches() {
  using tapegrad::CudnnSwitch;
  for (const auto& [which, value] : {std::pair(CudnnSwitch::Enabled, 1),
                                     {CudnnSwitch::Benchmark, 0},
                                     {CudnnSwitch::BenchmarkLimit, 10},
                                     {CudnnSwitch::Deterministic, 0},
                                     {CudnnSwitch::Reproducible, 0},
                                     {CudnnSwitch::AllowTF32, 0},
                                     {CudnnSwitch::Attention, 1}})
    tapegrad::set_cudnn_switch(which, value);
}

}  // namespace cudnn_double
