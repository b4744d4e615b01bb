// DimVector: a vector of int64 with room for six values inside, for sizes, strides and dimension lists;
// ArrayRef-like views are spelled `IntSpan`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

inline constexpr int kMaxDims = 64;

// A read-only view of integers; also made from braces, so that calls read `view({2, 3})`.
class IntSpan : public std::span<const int64_t> {
 public:
  using std::span<const int64_t>::span;
  constexpr IntSpan() = default;
  constexpr IntSpan(std::span<const int64_t> s) : std::span<const int64_t>(s) {}
  constexpr IntSpan(std::initializer_list<int64_t> list) : std::span<const int64_t>(list.begin(), list.size()) {}
  IntSpan(const std::vector<int64_t>& v) : std::span<const int64_t>(v.data(), v.size()) {}
  bool operator==(IntSpan o) const { return std::equal(begin(), end(), o.begin(), o.end()); }
};

class DimVector {
 public:
  static constexpr size_t kInline = 6;
  DimVector() = default;
  explicit DimVector(size_t n, int64_t value = 0) { resize(n, value); }
  DimVector(std::initializer_list<int64_t> list) { assign(list.begin(), list.size()); }
  DimVector(IntSpan s) { assign(s.data(), s.size()); }
  DimVector(const DimVector& o) { assign(o.data(), o.size_); }
  DimVector(DimVector&& o) noexcept { take(o); }
  DimVector& operator=(const DimVector& o) {
    if (this != &o) assign(o.data(), o.size_);
    return *this;
  }
  DimVector& operator=(DimVector&& o) noexcept {
    if (this != &o) {
      drop();
      take(o);
    }
    return *this;
  }
  ~DimVector() { drop(); }

  int64_t* data() { return capacity_ <= kInline ? inline_ : heap_; }
  const int64_t* data() const { return capacity_ <= kInline ? inline_ : heap_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t& operator[](size_t i) { return data()[i]; }
  int64_t operator[](size_t i) const { return data()[i]; }
  int64_t* begin() { return data(); }
  int64_t* end() { return data() + size_; }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t back() const { return data()[size_ - 1]; }
  operator IntSpan() const { return IntSpan(data(), size_); }
  bool operator==(const DimVector& o) const { return IntSpan(*this) == IntSpan(o); }

  void reserve(size_t n) {
    if (n <= capacity_) return;
    n = std::max(n, 2 * static_cast<size_t>(capacity_));
    int64_t* bigger = new int64_t[n];
    std::memcpy(bigger, data(), size_ * sizeof(int64_t));
    drop();
    heap_ = bigger;
    capacity_ = static_cast<uint32_t>(n);
  }
  void resize(size_t n, int64_t value = 0) {
    reserve(n);
    if (n > size_) std::fill(data() + size_, data() + n, value);
    size_ = static_cast<uint32_t>(n);
  }
  void push_back(int64_t v) {
    reserve(size_ + 1);
    data()[size_++] = v;
  }
  void insert(size_t at, int64_t v) {
    push_back(v);
    std::rotate(begin() + at, end() - 1, end());
  }
  void erase(size_t at) {
    if (size_ == 0) __builtin_unreachable();  // else the compiler assumes that size_ - 1 may be 2^32 - 1
    std::copy(begin() + at + 1, end(), begin() + at);
    --size_;
  }
  void clear() { size_ = 0; }
  void assign(const int64_t* p, size_t n) {
    reserve(n);
    if (n) std::memcpy(data(), p, n * sizeof(int64_t));
    size_ = static_cast<uint32_t>(n);
  }

 private:
  void drop() {
    if (capacity_ > kInline) delete[] heap_;
    capacity_ = kInline;
  }
  void take(DimVector& o) {
    size_ = o.size_;
    capacity_ = o.capacity_;
    if (capacity_ > kInline)
      heap_ = o.heap_;
    else
      std::memcpy(inline_, o.inline_, sizeof(inline_));
    o.size_ = 0;
    o.capacity_ = kInline;
  }

  uint32_t size_ = 0;
  uint32_t capacity_ = kInline;
  union {
    int64_t inline_[kInline];
    int64_t* heap_;
  };
};

TG_API std::string format_ints(IntSpan values);  // "[2, 3]"

}  // namespace tapegrad
