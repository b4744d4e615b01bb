// The host's part of reductions, compiled once for all functors; reduce_rows.h has the kernels.
#pragma once

#include "tapegrad/aten/iterate/reduce_iterator.h"
#include "tapegrad/cuda/launch/index.h"
#include "tapegrad/cuda/launch/launch.h"
#include "tapegrad/cuda/pointwise/plan.h"

namespace tapegrad::cuda::reduce_rows {

using rows::Stored;

// Byte offsets of the elements of one side of the iteration: in 32 bits where it fits, else with plain divisions.
struct Places {
  bool fast = true;
  int ndim = 0;
  Offsets<1> narrow;
  int64_t shape[kKernelDims], strides[kKernelDims];

  Places() = default;
  Places(int n, const int64_t* sizes, const int64_t* steps);
  TG_HD int64_t at(int64_t i) const {
    if (fast) {
      int32_t offset[1];
      narrow.at(static_cast<uint32_t>(i), offset);
      return offset[0];
    }
    int64_t offset = 0;
    for (int d = ndim - 1; d >= 0; --d) {
      offset += i % shape[d] * strides[d];
      i /= shape[d];
    }
    return offset;
  }
};

struct Args {
  const char* in;
  char* out;      // finished results, contiguous; when parts == 1
  char* partial;  // accumulators [parts][outputs], when parts > 1
  Places outer, reduced;
  int64_t outputs, count;  // count: elements per output
  int64_t part;            // elements per part, of `parts`
  int64_t parts;
  int64_t step;  // bytes between reduced elements where they are one dimension, else 0
  bool packed;   // packs of them are neighbours and aligned
  Stored stored, out_stored;
};

enum class Strategy : uint8_t { Column, Warp, Block };

struct Kernels {
  void (*run)(const void* functor, Strategy strategy, const Args& args, const Stream& stream);
  int accumulator;  // bytes
  int pack;
  DType result;  // of finish
};

TG_API void run_kernels(const reduce::Iterator& it, const Kernels& kernels, const void* functor);

}  // namespace tapegrad::cuda::reduce_rows
