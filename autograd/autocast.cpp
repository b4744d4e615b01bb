#include "tapegrad/autograd/autocast.h"

#include <unordered_map>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/c10/available_memory.h"

namespace tapegrad::autocast {
namespace {

struct State {
  bool on[2] = {false, false};  // CPU, CUDA
  DType lower[2] = {DType::bfloat16, DType::float16};
  bool cache = true;
  int nesting = 0;
};
constinit thread_local State state;

// Casts of leaves, by the leaf, which is kept so that its address stays its own.
using Cache = std::unordered_map<const TensorImpl*, std::pair<Tensor, Tensor>>;
constinit thread_local bool have_casts = false;
Cache& cache_of_thread() {
  static thread_local Cache cache;
  return cache;
}

int slot(DeviceType device) noexcept { return device == DeviceType::CUDA ? 1 : 0; }

// The device that decides: that below, for a batched tensor.
int slot_of(const Tensor& t) noexcept { return t.is_cuda() ? 1 : 0; }

bool eligible(const Tensor& t) {
  return t.defined() && !t.is_meta() && !t.is_sparse() && is_floating_point(t.dtype()) && t.dtype() != DType::float64 &&
         state.on[slot_of(t)];
}

Tensor cast(const Tensor& t, DType to) {
  if (!eligible(t) || t.dtype() == to) return t;
  const bool kept = state.cache && to == state.lower[slot_of(t)] && t.dtype() == DType::float32 && t.requires_grad() &&
                    t.is_leaf() && !autograd::is_view(t) && !t.is_batched();
  if (!kept) return tapegrad::to(t, to);
  require_thread_memory<Cache>();
  have_casts = true;
  Cache& cache = cache_of_thread();
  if (auto found = cache.find(t.impl()); found != cache.end()) return found->second.second;
  Tensor result = tapegrad::to(t, to);
  cache.emplace(t.impl(), std::pair(t, result));
  return result;
}

}  // namespace

bool enabled(DeviceType device) noexcept { return state.on[slot(device)]; }
void set_enabled(DeviceType device, bool value) noexcept {
  state.on[slot(device)] = value;
  const uint32_t bit = kModeAutocast;
  detail::modes = state.on[0] || state.on[1] ? detail::modes | bit : detail::modes & ~bit;
}
DType dtype(DeviceType device) noexcept { return state.lower[slot(device)]; }
void set_dtype(DeviceType device, DType t) { state.lower[slot(device)] = t; }
bool cache_enabled() noexcept { return state.cache; }
void set_cache_enabled(bool value) noexcept { state.cache = value; }
void clear_cache() noexcept {
  if (have_casts) cache_of_thread().clear();
}
int change_nesting(int by) noexcept { return state.nesting += by; }

Call::Call(Policy policy, std::initializer_list<const Tensor*> tensors, std::initializer_list<TensorSpan> lists)
    : mode_(0, kModeAutocast) {
  DType widest = DType::float32;
  if (policy == Policy::Promote) {
    bool full = false;
    std::optional<DType> lower;
    auto look = [&](const Tensor& t) {
      if (!eligible(t)) return;
      if (!lower) lower = state.lower[slot_of(t)];
      full |= t.dtype() != *lower;
    };
    for (const Tensor* t : tensors) look(*t);
    for (TensorSpan list : lists)
      for (const Tensor& t : list) look(t);
    if (lower && !full) widest = *lower;
  }
  auto to = [&](const Tensor& t) {
    switch (policy) {
      case Policy::Lower:
        return t.defined() ? cast(t, state.lower[slot_of(t)]) : t;
      case Policy::Float32:
        return cast(t, DType::float32);
      default:
        return cast(t, widest);
    }
  };
  for (const Tensor* t : tensors) tensors_.push_back(to(*t));
  for (TensorSpan list : lists) {
    lists_.emplace_back();
    for (const Tensor& t : list) lists_.back().push_back(to(t));
  }
}

}  // namespace tapegrad::autocast
