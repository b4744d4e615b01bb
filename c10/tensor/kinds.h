// Kinds of tensors: bits of TensorImpl::kinds(). Modes have bits 0 to 4 and from 8 on (c10/dispatch/modes.h), because
// a call of an operator tests both in one word.
#pragma once

#include <cstdint>

namespace tapegrad {

inline constexpr uint32_t kKindGrad = 1u << 5;     // a gradient flows here, or may: see TensorImpl::needs_grad
inline constexpr uint32_t kKindSparse = 1u << 6;   // DeviceType::Sparse
inline constexpr uint32_t kKindBatched = 1u << 7;  // DeviceType::Batched

}  // namespace tapegrad
