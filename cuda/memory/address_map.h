// A hash table from addresses to pointers, which finds the block of an address. Linear probing, load factor at most
// 1/2; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapegrad::cuda {

template <class T>
class AddressMap {
 public:
  T* find(const void* key) const noexcept {
    for (std::size_t i = slot(key);; i = (i + 1) & mask()) {
      if (entries_[i].key == key) return entries_[i].value;
      if (entries_[i].key == nullptr) return nullptr;
    }
  }
  void insert(const void* key, T* value) {
    if (2 * (size_ + 1) > entries_.size()) grow();
    std::size_t i = slot(key);
    while (entries_[i].key != nullptr) i = (i + 1) & mask();
    entries_[i] = {key, value};
    ++size_;
  }
  void erase(const void* key) noexcept {
    std::size_t i = slot(key);
    while (entries_[i].key != key) {
      if (entries_[i].key == nullptr) return;
      i = (i + 1) & mask();
    }
    // Later entries of the same run are shifted, so that no search ends too early.
    for (std::size_t j = i;;) {
      j = (j + 1) & mask();
      if (entries_[j].key == nullptr) break;
      const std::size_t home = slot(entries_[j].key);
      if (((j - home) & mask()) < ((j - i) & mask())) continue;
      entries_[i] = entries_[j];
      i = j;
    }
    entries_[i] = {};
    --size_;
  }
  std::size_t size() const noexcept { return size_; }
  template <class F>
  void for_each(F f) const {
    for (const Entry& e : entries_)
      if (e.key != nullptr) f(e.value);
  }

 private:
  struct Entry {
    const void* key = nullptr;
    T* value = nullptr;
  };
  std::size_t mask() const noexcept { return entries_.size() - 1; }
  std::size_t slot(const void* key) const noexcept {
    const uint64_t h = (reinterpret_cast<uint64_t>(key) >> 9) * 0x9e3779b97f4a7c15ull;
    return static_cast<std::size_t>(h >> 32) & mask();
  }
  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    size_ = 0;
    for (const Entry& e : old)
      if (e.key != nullptr) insert(e.key, e.value);
  }

  std::vector<Entry> entries_{1024};
  std::size_t size_ = 0;
};

}  // namespace tapegrad::cuda
