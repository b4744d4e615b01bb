// Conversion of strided rows between element types, compiled once per instruction set (convert_cpu.cpp) and
// shared by every kernel that stages operands, and by copies.
#pragma once

#include <cstdint>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::cpu::TG_ISA {

// n1 rows of n0 elements; all strides in bytes. Source and destination do not overlap.
using Convert = void (*)(const char* src, int64_t src_stride0, int64_t src_stride1, char* dst, int64_t dst_stride0,
                         int64_t dst_stride1, int64_t n0, int64_t n1);

struct ConvertTable {
  Convert entry[kNumDTypes * kNumDTypes];
};
extern const ConvertTable convert_table;

inline Convert convert_for(DType from, DType to) {
  return convert_table.entry[static_cast<int>(from) * kNumDTypes + static_cast<int>(to)];
}

}  // namespace tapegrad::cpu::TG_ISA
