// Numbers by address, for what is asked with each operand of each call: one array, nothing is taken out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tapegrad::record {

class PointerMap {
 public:
  const int* find(const void* key) const noexcept {
    const Entry& e = entries_[place(key)];
    return key != nullptr && e.key == key ? &e.value : nullptr;
  }
  bool contains(const void* key) const noexcept { return find(key) != nullptr; }
  // The number, valid until the next one, and whether it is new. The key is not null.
  std::pair<int&, bool> try_emplace(const void* key, int value) {
    if (2 * (used_ + 1) > entries_.size()) grow();
    Entry& e = entries_[place(key)];
    if (e.key == key) return {e.value, false};
    e = {key, value};
    ++used_;
    return {e.value, true};
  }

 private:
  struct Entry {
    const void* key = nullptr;
    int value = 0;
  };
  size_t place(const void* key) const noexcept {
    size_t i = static_cast<size_t>((reinterpret_cast<uintptr_t>(key) >> 4) * 0x9e3779b97f4a7c15ull >> 20);
    for (i &= entries_.size() - 1; entries_[i].key != nullptr && entries_[i].key != key;)
      i = (i + 1) & (entries_.size() - 1);
    return i;
  }
  void grow() {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    for (const Entry& e : old)
      if (e.key != nullptr) entries_[place(e.key)] = e;
  }
  std::vector<Entry> entries_ = std::vector<Entry>(128);  // a power of two
  size_t used_ = 0;
};

}  // namespace tapegrad::record
