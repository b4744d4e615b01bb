// Interruptible long loops on one thread, the counterpart of parallel_for. They can be used within a chunk of a
// parallel_for, on whichever thread it runs.
//
// Thread rules: a WorkCount belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad {

// Counts work, in elements or steps, and checks for interrupts about once per millisecond of it. For loops that are not
// a plain range, and for callbacks from the standard library.
class WorkCount {
 public:
  void operator()(int64_t work = 1) {
    if ((work_ += work) < kWorkPerCheck) return;
    work_ = 0;
    check_interrupt();
  }

 private:
  static constexpr int64_t kWorkPerCheck = 1 << 18;
  int64_t work_ = 0;
};

// f(first, last) for parts of [begin, end), in order.
template <class F>
void serial_for(int64_t begin, int64_t end, F&& f) {
  constexpr int64_t kPart = 1 << 16;
  for (int64_t first = begin; first < end; first += kPart) {
    if (first != begin) check_interrupt();
    f(first, std::min(end, first + kPart));
  }
}

}  // namespace tapegrad
