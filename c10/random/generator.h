// Generator: a seed and the number of the next random call. Each random operator takes one number with `next` and
// computes all its elements from it (philox.h), so threads and devices need no state of their own. Reference counted,
// as several tensors' operators may share one. Thread rules: all functions from any thread; which of two threads that
// draw at the same time comes first is up to them. After fork, parent and child continue with equal states; seed the
// child if it should draw other numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tapegrad/c10/macros.h"
#include "tapegrad/c10/random/philox.h"
#include "tapegrad/c10/tensor/intrusive_ptr.h"
#include "tapegrad/c10/threads/fork.h"

namespace tapegrad {

class TG_API Generator final : public intrusive_ptr_target {
 public:
  static constexpr uint64_t kDefaultSeed = 67280421310721u;  // the first of PyTorch's default generator
  static constexpr size_t kStateBytes = 24;

  explicit Generator(uint64_t seed = kDefaultSeed) noexcept : seed_(seed) {}

  // Sets the seed and resets the call count, so that generators with the same seed draw the same numbers.
  void manual_seed(uint64_t seed) noexcept;
  // Seeds from the system's entropy and returns that seed.
  uint64_t seed();
  uint64_t initial_seed() const noexcept;

  // The numbers of one call that draws `n_elements` elements; a call that draws none leaves the state alone.
  // An operator that rejects and draws again takes `rounds` calls at once and uses offset, offset + 1, ...
  PhiloxState next(uint64_t n_elements, uint64_t rounds = 1) noexcept;
  // The number of calls since the seed was set.
  uint64_t offset() const noexcept;
  void set_offset(uint64_t offset) noexcept;

  // kStateBytes bytes in little-endian order, equal on all machines: a tag, the seed, the offset.
  std::vector<uint8_t> get_state() const;
  // Throws Error(Value) where the bytes are no state; the generator is unchanged then.
  void set_state(const uint8_t* bytes, size_t n);
  intrusive_ptr<Generator> clone() const;

 private:
  mutable ForkSafeLock lock_;
  uint64_t seed_;
  uint64_t offset_ = 0;
};

// What random operators on the CPU use when they are given no generator. Never destroyed.
TG_API const intrusive_ptr<Generator>& default_cpu_generator();
inline Generator& default_generator() { return *default_cpu_generator(); }

// 64 bits from the system's entropy.
TG_API uint64_t entropy64();

}  // namespace tapegrad
