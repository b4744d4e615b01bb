// Small tensors and comparisons for the tests of the tape.
#pragma once

#include <cmath>
#include <vector>

#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/meta.h"

namespace tapegrad::test {

// A float64 tensor of the given values; with sizes, in that shape.
inline Tensor values(std::vector<double> v, IntSpan sizes = {}) {
  DimVector shape = sizes.empty() ? DimVector{static_cast<int64_t>(v.size())} : DimVector(sizes);
  Tensor t = empty_tensor(shape, DType::float64);
  std::copy(v.begin(), v.end(), t.data<double>());
  return t;
}
inline Tensor number(double v) {
  Tensor t = empty_tensor(IntSpan(), DType::float64);
  *t.data<double>() = v;
  return t;
}
inline Tensor leaf(std::vector<double> v, IntSpan sizes = {}) {
  Tensor t = values(std::move(v), sizes);
  t.set_requires_grad();
  return t;
}
inline Tensor leaf(double v) {
  Tensor t = number(v);
  t.set_requires_grad();
  return t;
}

inline std::vector<double> read(const Tensor& t) {
  if (!t.defined()) return {};
  NoGradGuard no_grad;
  Tensor dense = tapegrad::contiguous(t);
  return {dense.data<double>(), dense.data<double>() + dense.numel()};
}

inline bool close(const Tensor& t, const std::vector<double>& expected) {
  std::vector<double> got = read(t);
  if (got.size() != expected.size()) return false;
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - expected[i]) <= 1e-12 * (1 + std::abs(expected[i])))) return false;
  return true;
}

// The message of the Error that f throws; empty when it does not throw.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace tapegrad::test
