// What a file with CUDA kernels of the op table's rows includes: a row whose CPU kernel is called `cumsum_cpu` has its
// CUDA kernel in `void cumsum_cuda(...)`, of the same arguments, in cuda/<family>/. kernel_table.cpp declares them all,
// so that one which is missing or misspelt is an error of the linker.
#pragma once

#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/iterate/pointwise_iterator.h"
#include "tapegrad/aten/iterate/reduce_iterator.h"
#include "tapegrad/c10/dispatch/kernel_table.h"
#include "tapegrad/c10/random/philox.h"
