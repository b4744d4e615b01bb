// Copies within one device, for any two dtypes and strides.
#pragma once

#include "tapegrad/c10/tensor/dtype.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// Element by element over `shape`; strides are in bytes, of the target different places for different elements. The two
// sides share no memory, or are the same places.
TG_API void convert_strided(const Stream& stream, int ndim, const int64_t* shape, char* to, DType to_dtype,
                            const int64_t* to_strides, const char* from, DType from_dtype, const int64_t* from_strides);
// `value` (element_size(dtype) bytes of the host) to every place.
TG_API void fill_strided(const Stream& stream, int ndim, const int64_t* shape, char* to, DType dtype,
                         const int64_t* strides, const void* value);

}  // namespace tapegrad::cuda
