// Batched tensors: what vmap hands to the function it maps. A BatchedImpl has the sizes and strides of one sample over
// the storage of all samples; its device is DeviceType::Batched, for which there are neither kernels nor an allocator,
// so that code that is not aware of batching refuses it. Operators of the op table are aware: while a vmap runs, the
// bit kModeBatch of the mode word makes their raw:: functions go through `Call` (call.h), which runs them once for all
// samples if the row has a batching rule, else once per sample.
//
// Nested vmaps are levels, counted from 1. A tensor of level n stands for a tensor of levels below n, `physical`, whose
// dimension 0 is that of the samples. The tape of a level is kept by its batched tensors; below, the physical tensors
// have theirs. A tensor may also be lifted to a level without having samples there: then it belongs to its tape only.
// Threads: levels belong to the thread that made them.
#pragma once

#include <array>
#include <initializer_list>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::batch {

enum class Randomness : uint8_t { Error, Same, Different };

struct Level {
  int64_t size;  // number of samples
  Randomness randomness;
  uint64_t id;    // never reused by another level
  Device device;  // of its tensors: a CUDA device if one of them is there, else the CPU
};

class TG_API BatchedImpl final : public TensorImpl {
 public:
  BatchedImpl(Tensor physical, int level, uint64_t id, bool has_dim);
  const Tensor& physical() const noexcept { return physical_; }
  int level() const noexcept { return level_; }
  uint64_t id() const noexcept { return id_; }
  bool has_dim() const noexcept { return has_dim_; }
  // To be called after the geometry was changed in place.
  void set_physical(Tensor physical);

 protected:
  void release_resources() noexcept override;

 private:
  Tensor physical_;
  uint64_t id_;
  int level_;
  bool has_dim_;
};

// The number of levels that operators see now; while code below a level runs, only the levels below it count.
TG_API int depth() noexcept;
TG_API const Level& level(int n);  // n counts from 1
// Enters and leaves a level. `leave` also ends inner levels that were entered since and not left.
TG_API int enter(int64_t size, Randomness randomness);
TG_API void leave(int level) noexcept;

inline bool is_batched(const Tensor& t) noexcept { return t.defined() && t.device().is_batched(); }
TG_API const BatchedImpl& impl_of(const Tensor& t);
// A tensor of the level whose samples lie along dimension 0 of `physical`; without `has_dim`, one that is the same in
// all samples.
TG_API Tensor wrap(const Tensor& physical, int level, bool has_dim);
// The tensor below the level with its samples along dimension 0, or as it is where it has none there.
TG_API std::pair<Tensor, bool> unwrap(const Tensor& t, int level);
// The highest level among tensors, 0 for none. Raises Runtime for a tensor whose vmap is over.
TG_API int highest_level(std::initializer_list<const Tensor*> tensors, std::initializer_list<TensorSpan> lists = {});

// alias_tensor and detach for batched tensors.
TG_API Tensor alias(const Tensor& base, const ViewSpec& view);
TG_API Tensor detach(const Tensor& t);
// Changes the geometry of a batched tensor in place.
TG_API void set_view_(const Tensor& self, const ViewSpec& view);

// For its lifetime, only the levels below `level` are visible.
class TG_API Below {
 public:
  explicit Below(int level) noexcept;
  ~Below();
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;

 private:
  int saved_;
};

// For its lifetime `level` and those above it have not been entered: code of the program that runs below it may enter
// others.
class TG_API Suspended {
 public:
  explicit Suspended(int level);
  ~Suspended();
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  std::vector<Level> levels_;
  uint64_t recorded_;
  int visible_;
  int first_;
};

// The device on which new memory is made for something on `d`.
TG_API Device level_device(Device d) noexcept;
inline Device host_device(Device d) noexcept { return d.is_batched() ? level_device(d) : d; }
inline std::optional<Device> host_device(std::optional<Device> d) noexcept {
  return d ? std::optional(host_device(*d)) : d;
}

// Raised when an operator reads values of a batched tensor: a composite operator is then run once per sample.
class TG_API NeedsValues : public Error {
 public:
  using Error::Error;
};
[[noreturn]] TG_API TG_COLD void throw_needs_values(const char* op);
[[noreturn]] TG_API TG_COLD void throw_out(const char* op);

}  // namespace tapegrad::batch
