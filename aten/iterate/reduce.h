// Reductions: one call for all of them, as in pointwise.h. The row names a functor with four parts
// (aten/functors/reduce.h): accumulator, step, merge, finish. Splits depend on sizes only, so a result has the
// same bits for any number of threads.
#pragma once

#include "tapegrad/aten/iterate/reduce_iterator.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/kernel_table.h"

namespace tapegrad::reduce {

enum class Result : uint8_t {
  Compute,  // the input's dtype
  SumLike,  // integers and bool become int64
  Float,    // integers raise (mean, var): the error says so
  Bool,     // any, all
  Index,    // argmax, argmin: int64
  Real,     // norms of complex input
};

struct Op {
  const char* name;
  const OperatorEntry* entry;
  Result result;
  uint16_t dtypes;     // bit i: compute dtype i has a kernel
  bool empty_allowed;  // has an identity: sum of nothing is 0, max of nothing raises
};

// `dim` absent or empty: all dimensions. `dtype`: the input is converted first. No tape.
TG_API Tensor run(const Op& op, const Tensor& input, OptionalInts dim, bool keepdim, std::optional<DType> dtype,
                  std::span<const Scalar> params, const Tensor& out = {});

}  // namespace tapegrad::reduce
