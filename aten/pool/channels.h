// Pooling of operands whose channels lie innermost (goes_along_channels): a window is pooled for many channels at once.
// Floating-point numbers; windows as the kernels of planes have them. Compiled per instruction set.
#pragma once

#include "tapegrad/aten/pool/windows.h"

namespace tapegrad::cpu::TG_ISA::pool_channels {

// Each returns false, with nothing written, where the first operand's channels do not.
bool max_windows(const pool::Windows& w, const Tensor& input, size_t spatial, const Tensor& values,
                 const Tensor& indices);
// divisor: 0, or what sums are divided by in place of the windows' own counts.
bool mean_windows(const pool::Windows& w, const Tensor& input, size_t spatial, int64_t divisor, const Tensor& out);
bool mean_grad(const pool::Windows& w, const Tensor& output, size_t spatial, int64_t divisor, const Tensor& out);

// What the places of maxima of plain windows get. All operands have their channels innermost.
void max_grad(const pool::Windows& w, const Tensor& output, const Tensor& indices, const Tensor& out);

}  // namespace tapegrad::cpu::TG_ISA::pool_channels
