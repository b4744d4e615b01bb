// The fault of a value that an operator does not take: a sentence that names the limit, and the value.
#pragma once

#include <bit>

#include "tapegrad/cuda/launch/faults.h"

namespace tapegrad::cuda {

inline constexpr Fault kValueFault = Fault{16};

// `sentence`: a string that lives for ever, such as "poisson: rates must be finite and not negative".
TG_DEVICE void record_value_fault(FaultRecord* record, const char* sentence, double value) {
  record_fault(record, kValueFault, sentence, std::bit_cast<int64_t>(value));
}

}  // namespace tapegrad::cuda
