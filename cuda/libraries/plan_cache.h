// A cache of a library's plans: a map of bounded size that evicts the least recently used entry. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace tapegrad::cuda {

template <class Key, class Plan>
class PlanCache {
 public:
  explicit PlanCache(size_t most) : most_(most) {}

  Plan* find(const Key& key) {
    const auto at = plans_.find(key);
    if (at == plans_.end()) return nullptr;
    at->second.used = ++clock_;
    return &at->second.plan;
  }
  // Replaces a plan with the same key.
  Plan& put(const Key& key, Plan plan) {
    plans_.erase(key);
    if (plans_.size() >= most_)
      plans_.erase(std::ranges::min_element(plans_, {}, [](const auto& entry) { return entry.second.used; }));
    return plans_.emplace(key, Entry{std::move(plan), ++clock_}).first->second.plan;
  }
  size_t size() const { return plans_.size(); }

 private:
  struct Entry {
    Plan plan;
    uint64_t used;
  };
  size_t most_;
  std::map<Key, Entry> plans_;
  uint64_t clock_ = 0;
};

}  // namespace tapegrad::cuda
