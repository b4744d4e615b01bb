// The fault of an invalid value of an operand: a sentence that names the limit, and the value.
#pragma once

#include <bit>

#include "tapegrad/cuda/launch/faults.h"

namespace tapegrad::cuda {

inline constexpr Fault kValueFault = Fault{16};

// `sentence`: such as "poisson: rates must be finite and not negative".
TG_DEVICE void record_value_fault(FaultRecord* record, FaultText sentence, double value) {
  record_fault(record, kValueFault, sentence, std::bit_cast<int64_t>(value));
}

}  // namespace tapegrad::cuda
