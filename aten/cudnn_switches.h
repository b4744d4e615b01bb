// The program's settings for cuDNN (backends.cudnn and others), kept whether or not cuDNN is available. Any thread.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad {

enum class CudnnSwitch : int {
  Enabled,         // use cuDNN at all
  Benchmark,       // measure its algorithms instead of using its heuristics
  BenchmarkLimit,  // how many algorithms are measured; 0: all
  Deterministic,   // only algorithms that sum in the same order each time, when measuring, too
  Reproducible,    // the same, set by use_deterministic_algorithms
  AllowTF32,       // float32 operands may be rounded to TF32
  Attention,       // use it for attention (backends.cuda.enable_cudnn_sdp, nn.attention.sdpa_kernel)
  Count
};

TG_API int cudnn_switch(CudnnSwitch which) noexcept;
TG_API void set_cudnn_switch(CudnnSwitch which, int value) noexcept;

}  // namespace tapegrad
