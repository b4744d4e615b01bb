// The types of layers' options that are more than a number or a text: IntArray (one integer per dimension, or one
// for all), Padding (an IntArray, or "same" or "valid") and Shape (any number of integers). Plain values.
// TG_OPTION is an option of a layer that is written by hand; the generated ones have the same two functions.
#pragma once

#include <array>
#include <concepts>
#include <string>
#include <utility>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/tensor/small_vector.h"

namespace tapegrad::nn {

template <size_t N>
class IntArray {
 public:
  template <std::integral T>
  IntArray(T value) {
    values_.fill(static_cast<int64_t>(value));
  }
  IntArray(std::initializer_list<int64_t> list) : IntArray(IntSpan(list)) {}
  IntArray(const std::array<int64_t, N>& values) : values_(values) {}
  explicit IntArray(IntSpan list) {
    TG_CHECK(list.size() == N || list.size() == 1, Value, "layer: expected {} integers: got {}", N, list.size());
    for (size_t i = 0; i < N; ++i) values_[i] = list[list.size() == 1 ? 0 : i];
  }
  int64_t operator[](size_t i) const { return values_[i]; }
  static constexpr size_t size() { return N; }
  operator IntSpan() const { return IntSpan(values_.data(), N); }
  bool operator==(const IntArray&) const = default;

 private:
  std::array<int64_t, N> values_{};
};

template <size_t N>
class Padding {
 public:
  template <std::integral T>
  Padding(T value) : sizes_(value) {}
  Padding(std::initializer_list<int64_t> list) : sizes_(list) {}
  Padding(const IntArray<N>& sizes) : sizes_(sizes) {}
  Padding(std::string mode) : sizes_(0), mode_(std::move(mode)) {
    TG_CHECK(mode_ == "same" || mode_ == "valid", Value,
             "layer: invalid padding string \"{}\": should be one of \"valid\", \"same\"", mode_);
  }
  Padding(const char* mode) : Padding(std::string(mode)) {}
  bool named() const { return !mode_.empty(); }
  const std::string& mode() const { return mode_; }  // empty unless named
  const IntArray<N>& sizes() const { return sizes_; }

 private:
  IntArray<N> sizes_;
  std::string mode_;
};

class Shape {
 public:
  template <std::integral T>
  Shape(T value) : sizes_{static_cast<int64_t>(value)} {}
  Shape(std::initializer_list<int64_t> list) : sizes_(list) {}
  Shape(IntSpan list) : sizes_(list) {}
  operator IntSpan() const { return sizes_; }
  size_t size() const { return sizes_.size(); }

 private:
  DimVector sizes_;
};

}  // namespace tapegrad::nn

// The option `name` of the class Self: `name()` reads it, `name(value)` sets it and returns the options.
#define TG_OPTION(Self, Type, name)            \
 public:                                       \
  const Type& name() const { return name##_; } \
  Self& name(Type value) {                     \
    name##_ = std::move(value);                \
    return static_cast<Self&>(*this);          \
  }                                            \
                                               \
 protected:                                    \
  Type name##_
