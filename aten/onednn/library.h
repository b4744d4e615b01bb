// What every use of oneDNN shares: its engine, a stream for each thread, primitives that run on the calling thread
// only, and a cache of prepared primitives. oneDNN's own threads are never used: kernels cut their work into pieces
// whose borders depend on sizes only and run each piece on a thread of tapegrad's pool, so that results have the same
// bits for any number of threads and libgomp never starts one. Thread rules: any thread, several at once.
#pragma once

#include <signal.h>
#include <dnnl.hpp>

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/memory/available_memory.h"

namespace tapegrad::onednn {

dnnl::engine& engine();
// This thread's stream.
dnnl::stream& stream();

// float32, bfloat16, float16, int8 or int32.
dnnl::memory::data_type data_type(DType dtype);

// Memory that a call needs, from the caching allocator.
void* take(Tensor& holder, size_t bytes);

inline dnnl::memory wrap(const dnnl::memory::desc& d, const void* p) {
  return dnnl::memory(d, engine(), const_cast<void*>(p));
}

// Raises what a failed call of the operator `name` means.
[[noreturn]] void raise(const char* name, const dnnl::error& e);

// What every call of oneDNN is made in. OpenMP's number of threads is one: oneDNN queries it when a primitive is
// created and when it runs. The thread's signals wait: some kernels (sgemm, and convolutions by it) let the stack
// pointer point into their working memory, where a signal's handler would write over what lies before that. Raises
// OutOfMemory if the call would find none.
class CallScope {
 public:
  CallScope();
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  int threads_;
  sigset_t signals_;
};

// More than any primitive takes while it is prepared. With less oneDNN would look for another implementation, one that
// finds what it wants.
inline constexpr size_t kPlanMemory = size_t{8} << 20;

// Immutable plans by key; the least recently used goes first. A plan holds generated code of 20 to 100 kB, so 512 of
// them stay below 64 MiB.
template <class Key, class Plan, class Hash>
class PlanCache {
 public:
  // The plan for a key, cached or by make(key); null if oneDNN has no implementation. `name`: of the operator, for
  // messages.
  template <class Make>
  std::shared_ptr<const Plan> get(const Key& key, const char* name, Make make) {
    {
      std::lock_guard lock(mutex_);
      auto it = index_.find(key);
      if (it != index_.end()) {
        order_.splice(order_.begin(), order_, it->second);
        return it->second->second;
      }
    }
    std::shared_ptr<const Plan> plan;
    try {
      CallScope scope;
      require_memory(kPlanMemory);
      plan = make(key);
    } catch (const dnnl::error& e) {
      if (e.status == dnnl_out_of_memory) raise(name, e);
      if (e.status == dnnl_runtime_error) return nullptr;  // it may find what it misses the next time
      // Null is remembered: no implementation.
    }
    std::lock_guard lock(mutex_);
    auto it = index_.find(key);
    if (it != index_.end()) return it->second->second;
    order_.emplace_front(key, plan);
    index_[key] = order_.begin();
    if (order_.size() > kCapacity) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
    return plan;
  }

 private:
  static constexpr size_t kCapacity = 512;
  using Entry = std::pair<Key, std::shared_ptr<const Plan>>;
  std::mutex mutex_;
  std::list<Entry> order_;
  std::unordered_map<Key, typename std::list<Entry>::iterator, Hash> index_;
};

// Of a key that is an array of 8-byte numbers without padding.
template <class Key>
struct KeyHash {
  size_t operator()(const Key& key) const noexcept {
    static_assert(sizeof(Key) % sizeof(int64_t) == 0 && std::has_unique_object_representations_v<Key>);
    const auto* p = reinterpret_cast<const int64_t*>(&key);
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < sizeof(Key) / sizeof(int64_t); ++i)
      h = (h ^ static_cast<uint64_t>(p[i])) * 0xff51afd7ed558ccdu + (h >> 29);
    return static_cast<size_t>(h * 0xff51afd7ed558ccdu >> 7);
  }
};

}  // namespace tapegrad::onednn
