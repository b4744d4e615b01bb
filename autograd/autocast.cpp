#include "tapegrad/autograd/autocast.h"

#include <unordered_map>

#include "tapegrad/aten/dispatch/call.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/c10/memory/available_memory.h"

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

namespace {

using dispatch::Cast;

// The widest dtype among the arguments, of those that autocast casts.
DType widest_of(dispatch::Arguments arguments) {
  bool full = false;
  std::optional<DType> lower;
  auto look = [&](const Tensor& t) {
    if (!eligible(t)) return;
    if (!lower) lower = state.lower[slot_of(t)];
    full |= t.dtype() != *lower;
  };
  for (const dispatch::Argument& a : arguments) {
    if (a.is_tensor()) look(a.tensor());
    if (a.is_list())
      for (const Tensor& t : a.list()) look(t);
  }
  return lower && !full ? *lower : DType::float32;
}

void handle(dispatch::Call& call, dispatch::Results& results) {
  const ModeGuard without(0, kModeAutocast);
  const Cast policy = call.function.cast;
  if (policy == Cast::Keep) return call.proceed(results);
  const DType same = policy == Cast::Promote ? widest_of(call.arguments) : DType::float32;
  auto to = [&](const Tensor& t) {
    if (!t.defined()) return t;
    return cast(t, policy == Cast::Lower ? state.lower[slot_of(t)] : same);
  };
  dispatch::ChangedArguments changed(call.arguments);
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const dispatch::Argument& a = call.arguments[i];
    if (a.is_tensor()) {
      changed.set_tensor(i, to(a.tensor()));
    } else if (a.is_list()) {
      std::vector<Tensor> list;
      for (const Tensor& t : a.list()) list.push_back(to(t));
      changed.set_list(i, std::move(list));
    }
  }
  call.arguments = changed.arguments();
  call.proceed(results);
}

const dispatch::Registration registration({dispatch::kOrderAutocast, dispatch::Stage::Public, kModeAutocast, &handle});

}  // namespace
}  // namespace tapegrad::autocast
