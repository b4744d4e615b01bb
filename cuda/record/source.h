// The text of a chain's kernel, in CUDA C++ (record/device/device_chain.h). The formulas of operators are the functors
// of aten/functors/, which the text includes; device/chain.h is the rest of it that does not depend on the calls.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tapegrad/aten/record/chain/chain.h"
#include "tapegrad/cuda/runtime/kernel_compiler.h"

namespace tapegrad::cuda {

inline constexpr const char* kChainKernel = "chain_kernel";
inline constexpr int kChainPack = 8;  // elements of a thread

// Where operand `operand` of call `call` is; kernels get each once.
struct ChainPlace {
  size_t call;
  int operand;
  record::OperandLayout layout;
  size_t item;
};

// The kernel's parameter are numbers of 64 bits: elements, columns (0: none), whether places may be read in pieces, a
// zero, then of each place its address and the bytes from row to row, then `numbers`.
struct ChainSource {
  std::string text;
  std::vector<ChainPlace> places;
  std::vector<uint64_t> numbers;
};

TG_API bool knows_call(const record::Call& call);
TG_API ChainSource write_chain(std::span<const record::Call> calls, const std::function<bool(int slot)>& in_memory);
// What a text includes.
TG_API std::span<const SourceFile> device_texts();

// Those that have been compiled, with a zero between them.
std::string chain_texts();

}  // namespace tapegrad::cuda
