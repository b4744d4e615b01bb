// The kernels of the op table's rows for CUDA, declared from the table: a row whose CPU kernel is called `cumsum_cpu`
// has its CUDA kernel in `void cumsum_cuda(...)`, of the same arguments, in cuda/<family>/. What no file defines is
// null in the table (kernel_table.cpp).
#pragma once

#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/iterate/pointwise_iterator.h"
#include "tapegrad/aten/iterate/reduce_iterator.h"
#include "tapegrad/c10/kernel_table.h"
#include "tapegrad/c10/philox.h"

namespace tapegrad::cuda {
namespace detail {
template <class F>
using Function = F;  // declares a function of a type that is written as one
}

#ifndef TG_KERNEL_REFERENCE
#define TG_KERNEL_REFERENCE  // kernel_table.cpp refers to them weakly
#endif
#define TG_ITERATED(index, name, kind) TG_KERNEL_REFERENCE extern void name(const kind::Iterator&);
#define TG_WRITTEN(index, name, ...) TG_KERNEL_REFERENCE extern detail::Function<__VA_ARGS__> name;
#include "tapegrad/cuda/kernel_list.inc"
#undef TG_ITERATED
#undef TG_WRITTEN

}  // namespace tapegrad::cuda
