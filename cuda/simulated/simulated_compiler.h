// Kernels that the host's compiler has made for a simulated device, for tests: some of their blocks.
#pragma once

#include "tapegrad/cuda/runtime/kernel_compiler.h"

namespace tapegrad::cuda::simulated {

using RunBlocks = void (*)(const void* argument, uint32_t begin, uint32_t end, uint32_t blocks, uint32_t threads);
TG_API RunBlocks blocks_of(const SourceKernel& kernel);

}  // namespace tapegrad::cuda::simulated
