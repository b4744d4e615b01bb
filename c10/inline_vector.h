// InlineVector<T, N>: a vector with room for N elements inside, for lists that are nearly always short (edges
// of a node, gradients in flight). Elements move by their move constructor, which must not throw. A plain
// value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <utility>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

template <class T, uint32_t N>
class InlineVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  InlineVector() noexcept {}
  explicit InlineVector(size_t n) { resize(n); }
  InlineVector(std::initializer_list<T> list) : InlineVector(list.begin(), list.end()) {}
  template <class It>
  requires(!std::is_integral_v<It>) InlineVector(It first, It last) {
    for (; first != last; ++first) emplace_back(*first);
  }
  InlineVector(const InlineVector& o) : InlineVector(o.begin(), o.end()) {}
  InlineVector(InlineVector&& o) noexcept { take(o); }
  InlineVector& operator=(const InlineVector& o) {
    if (this != &o) *this = InlineVector(o);
    return *this;
  }
  InlineVector& operator=(InlineVector&& o) noexcept {
    if (this != &o) {
      drop();
      take(o);
    }
    return *this;
  }
  ~InlineVector() { drop(); }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T& operator[](size_t i) noexcept { return data_[i]; }
  const T& operator[](size_t i) const noexcept { return data_[i]; }
  T& front() noexcept { return data_[0]; }
  const T& front() const noexcept { return data_[0]; }
  T& back() noexcept { return data_[size_ - 1]; }
  const T& back() const noexcept { return data_[size_ - 1]; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }

  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void resize(size_t n) {
    reserve(n);
    while (size_ < n) new (data_ + size_++) T();
    while (size_ > n) data_[--size_].~T();
  }
  void clear() noexcept {
    while (size_ > 0) data_[--size_].~T();
  }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (TG_UNLIKELY(size_ == capacity_)) {
      T value(std::forward<Args>(args)...);  // the arguments may be elements of this vector
      grow(size_ + 1);
      return *new (data_ + size_++) T(std::move(value));
    }
    return *new (data_ + size_++) T(std::forward<Args>(args)...);
  }
  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  void pop_back() noexcept { data_[--size_].~T(); }

 private:
  T* inline_data() noexcept { return reinterpret_cast<T*>(inline_); }
  TG_NOINLINE void grow(size_t n) {
    n = std::max<size_t>(n, 2 * static_cast<size_t>(capacity_));
    T* bigger = std::allocator<T>().allocate(n);
    std::uninitialized_move(data_, data_ + size_, bigger);
    std::destroy(data_, data_ + size_);
    free_heap();
    data_ = bigger;
    capacity_ = static_cast<uint32_t>(n);
  }
  void free_heap() noexcept {
    if (data_ != inline_data()) std::allocator<T>().deallocate(data_, capacity_);
  }
  void drop() noexcept {
    clear();
    free_heap();
    data_ = inline_data();
    capacity_ = N;
  }
  // Leaves `o` empty; this one must be empty and without heap memory.
  void take(InlineVector& o) noexcept {
    if (o.data_ != o.inline_data()) {
      data_ = std::exchange(o.data_, o.inline_data());
      capacity_ = std::exchange(o.capacity_, N);
      size_ = std::exchange(o.size_, 0);
      return;
    }
    for (; size_ < o.size_; ++size_) new (data_ + size_) T(std::move(o.data_[size_]));
    o.clear();
  }

  T* data_ = inline_data();
  uint32_t size_ = 0;
  uint32_t capacity_ = N;
  alignas(T) unsigned char inline_[N * sizeof(T)];
};

}  // namespace tapegrad
