// Which calls of a chain become loops (loop.h): maximal runs of arithmetic over float32 or float64, with operands that
// lie densely, or are one number, or one per row or column.
//
// Bits: each operator's instructions are compared with its kernel on numbers of all kinds before they are used, once
// per process, kernel and layout of its operands. So the C++ compiler's choices (which of two NaN comes out, whether a
// product is rounded before it is added) are asked, not known, and where nothing fits, the kernel runs.
#pragma once

#include "tapegrad/aten/record/chain/loop.h"
#include "tapegrad/aten/record/recording.h"

namespace tapegrad::record {

// Calls [first, last) of a chain.
struct FusedCalls {
  struct Place {
    size_t call;      // whose operand it is
    int operand;      // -1: one of `numbers`, which `call` counts
    int64_t per_row;  // bytes from row to row
  };
  size_t first = 0, last = 0;
  std::shared_ptr<const LoopCode> code;
  std::vector<Place> places;
  std::vector<std::array<char, 8>> numbers;
  int64_t columns = 0;  // 0: no operand has a number per row or column

  // n elements; `places` are where each begins, and are moved.
  void run(char** at, int64_t n) const;
};

std::vector<FusedCalls> fuse_calls(const Chain& chain);

}  // namespace tapegrad::record
