// Numbers that a recorded step reads of tensors to give them to a function of an operator: `p.add_(x, alpha=t)` with a
// tensor of no dimensions. They are no values that the program goes on by: the function becomes one call of the
// recording, which reads them anew in each replay and calls the function again, with all that it does by their values.
//
// Which number of the function is whose is told by its value. Where that is not clear, or the function is none that can
// be called again so (it records a tape, writes to other operands, draws random numbers), the value counts as read.
// Of one thread, while it records.
#pragma once

#include "tapegrad/aten/dispatch/call.h"
#include "tapegrad/aten/record/recording.h"

namespace tapegrad::record {

// The number of this tensor of one element, for an argument of a function.
struct GivenNumber {
  size_t argument;
  Tensor tensor;
};

namespace detail {
// Of this thread: whether there are numbers that no function has taken. It is asked with each call of Python's.
TG_API extern constinit thread_local bool numbers_wait __attribute__((tls_model("initial-exec")));
TG_API TG_COLD Scalar number_given(const Tensor& t, const char* function);
TG_API TG_COLD void settle_numbers();
// Keeps the call of a function with numbers of tensors, and makes it, but in a dry run: its results. `arguments` have
// the tensors.
std::vector<Tensor> call_with_numbers(const dispatch::Function& f, std::vector<Value>& arguments,
                                      std::span<const GivenNumber> given);
}  // namespace detail

// The number of a tensor of one element, for this function, which is called next. `function`: as programs call it, with
// or without `_` behind it. Where that is code that calls others, and may use the number twice, none of them takes it.
inline Scalar number_given(const Tensor& t, const char* function) {
  return TG_UNLIKELY(active()) ? detail::number_given(t, function) : t.item();
}
// Numbers that no function has taken count as read.
inline void settle_numbers() {
  if (TG_UNLIKELY(detail::numbers_wait) && active()) detail::settle_numbers();
}
// Makes the call, where it takes what it was given and can be kept; else false.
bool take_numbers(dispatch::Call& call, dispatch::Results& results);
// Forgets all of them.
void drop_numbers() noexcept;
// Makes a recorded call of a function once more.
void run_with_numbers(Call& call);

}  // namespace tapegrad::record
