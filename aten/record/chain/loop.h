// Loops made at run time: machine code that does a run of arithmetic in one pass, values in registers, where kernels
// would each read and write memory. On x86 with AVX2 or AVX-512, by xbyak; elsewhere there are none, nor where the
// system lets no program make code. The formulas are those of aten/functors/ once more, as vector instructions: before
// one is used it is compared with its kernel (fuse.cpp).
//
// Code is written to memory that cannot be executed, then made executable and no longer writable. Equal formulas share
// it while it lives. Any thread may make and run loops.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::record {

struct LoopOperator;  // one that loops know

// What a loop computes for each element. A value is what lies in a place (its number), or the result of a step (the
// number of places, and the step's). Floating-point values are of one dtype.
struct Formula {
  struct Place {
    bool operator==(const Place&) const = default;
    bool is_bool = false;  // elements are bytes
    bool number = false;   // one for all elements; else one behind the other
  };
  struct Step {
    bool operator==(const Step&) const = default;
    const LoopOperator* op = nullptr;
    int form = 0;
    std::vector<int> inputs;  // values
    int stored = -1;          // the place that it is written to
  };
  bool operator==(const Formula&) const = default;
  DType dtype = DType::float32;
  std::vector<Place> places;
  std::vector<Step> steps;
};

// What fuse.cpp must know of an operator, by the name of its row.
struct LoopOperator {
  const char* name;
  int inputs;                       // of the row
  unsigned masks;                   // bit k: input k is a bool; kGivesMask: so is the result
  int params;                       // numbers of the row, which follow the inputs
  int forms;                        // ways of computing it, which differ where the C++ compiler has a choice
  std::array<double, 3> constants;  // follow these
  int num_constants;
};
inline constexpr unsigned kGivesMask = 1u << 7;
const LoopOperator* find_loop_operator(std::string_view name) noexcept;
inline constexpr std::string_view kNumberOfBool = "(float)";  // 1 for true: an operator that no row has

// Elements of a loop are a multiple of this.
inline constexpr int64_t kLoopLanes = 16;

class LoopCode {
 public:
  explicit LoopCode(std::span<const std::byte> code);  // raises std::bad_alloc where it cannot be executed
  ~LoopCode();
  LoopCode(const LoopCode&) = delete;
  LoopCode& operator=(const LoopCode&) = delete;
  // n elements, at least one; where each place begins.
  void run(char* const* places, int64_t n) const {
    reinterpret_cast<void (*)(char* const*, int64_t)>(reinterpret_cast<uintptr_t>(memory_))(places, n);
  }

 private:
  void* memory_;
  size_t bytes_;
};

// Null where there is no such loop: it takes more registers than there are, or code cannot be made.
std::shared_ptr<const LoopCode> make_loop(const Formula& formula);

// Whether plans that are made from now on have loops; returns what was. Off from the start where the environment
// variable TAPEGRAD_LOOPS is 0.
TG_API bool set_loops(bool enabled) noexcept;
TG_API bool loops_enabled() noexcept;
TG_API int64_t num_loops() noexcept;  // that live

}  // namespace tapegrad::record
