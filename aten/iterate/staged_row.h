// A row of contiguous elements in the type that kernels compute in: the row itself where it is of that type, else
// (16-bit formats) a copy that stays in a first-level cache, converted by the processor's own instructions. Kernels
// that go over a row more than once convert it once this way. Compiled per instruction set; one per thread.
#pragma once

#include <vector>

#include "tapegrad/aten/iterate/convert.h"
#include "tapegrad/aten/typed.h"

namespace tapegrad::cpu::TG_ISA {

template <class T>
class StagedRow {
 public:
  using C = compute_t<T>;

  // The n elements at p, until the next call.
  const C* load(const T* p, int64_t n) {
    if constexpr (kSame) {
      return p;
    } else {
      buffer_.resize(static_cast<size_t>(n));
      char* to = reinterpret_cast<char*>(buffer_.data());
      convert_for(dtype_of_v<T>, dtype_of_v<C>)(reinterpret_cast<const char*>(p), sizeof(T), 0, to, sizeof(C), 0, n, 1);
      return buffer_.data();
    }
  }
  // Where to write what the row at p becomes; it may be the memory that load() gave. `store` brings it there.
  C* target(T* p) {
    if constexpr (kSame)
      return p;
    else
      return buffer_.data();
  }
  void store([[maybe_unused]] T* p, [[maybe_unused]] int64_t n) {
    if constexpr (!kSame) {
      const char* from = reinterpret_cast<const char*>(buffer_.data());
      convert_for(dtype_of_v<C>, dtype_of_v<T>)(from, sizeof(C), 0, reinterpret_cast<char*>(p), sizeof(T), 0, n, 1);
    }
  }

 private:
  static constexpr bool kSame = std::is_same_v<T, C>;
  std::vector<C> buffer_;
};

}  // namespace tapegrad::cpu::TG_ISA
