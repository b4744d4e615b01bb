#include "tapegrad/autograd/gradcheck.h"

#include <cmath>

#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/autograd/engine/engine.h"

namespace tapegrad::autograd {

namespace {

// Every tensor as real coordinates: a complex element counts as two. The gradient of a real function of z = x + iy
// is df/dx + i df/dy, so coordinates of gradients correspond to coordinates of tensors.
int64_t coordinates(const Tensor& t) { return t.numel() * (t.is_complex() ? 2 : 1); }

// The address of coordinate i.
double* coordinate(const Tensor& t, int64_t i) {
  const int64_t per_element = t.is_complex() ? 2 : 1;
  int64_t index = i / per_element, offset = 0;
  for (int d = t.ndim() - 1; d >= 0; --d) {
    offset += index % t.impl()->size(d) * t.impl()->stride(d);
    index /= t.impl()->size(d);
  }
  return static_cast<double*>(t.data_ptr()) + offset * per_element + i % per_element;
}

std::vector<Tensor> differentiable(std::vector<Tensor> outputs) {
  std::erase_if(outputs, [](const Tensor& t) { return !t.defined() || !t.requires_grad(); });
  return outputs;
}
std::vector<Tensor> defined(std::vector<Tensor> outputs) {
  std::erase_if(outputs, [](const Tensor& t) { return !t.defined(); });
  return outputs;
}

void check_float64(const Tensor& t, const char* what) {
  TG_CHECK(t.is_cpu() && (t.dtype() == DType::float64 || t.dtype() == DType::complex128), Value,
           "gradcheck: needs {} of float64 or complex128 on the CPU: got {} on {}", what, t.dtype(), t.device());
}

using Pick = std::vector<Tensor> (*)(std::vector<Tensor>);

// d outputs / d (coordinate i of input): every coordinate of every output, by central differences.
std::vector<std::vector<double>> numerical(const GradcheckFunction& f, TensorSpan inputs, const Tensor& input,
                                           int64_t i, double eps, Pick pick) {
  double* x = coordinate(input, i);
  const double original = *x;
  auto evaluate = [&](double value) {
    *x = value;
    std::vector<std::vector<double>> result;
    for (const Tensor& out : pick(f(inputs))) {
      result.emplace_back();
      for (int64_t k = 0; k < coordinates(out); ++k) result.back().push_back(*coordinate(out, k));
    }
    *x = original;
    return result;
  };
  auto high = evaluate(original + eps);
  auto low = evaluate(original - eps);
  for (size_t o = 0; o < high.size(); ++o)
    for (size_t k = 0; k < high[o].size(); ++k) high[o][k] = (high[o][k] - low[o][k]) / (2 * eps);
  return high;
}

Tensor unit(const Tensor& like, int64_t k) {
  Tensor t = empty_tensor(like.sizes(), like.dtype());
  for (int64_t i = 0; i < coordinates(t); ++i) *coordinate(t, i) = i == k ? 1 : 0;
  return t;
}

// Weights that are fixed and of no pattern.
Tensor weights(const Tensor& like, uint64_t seed) {
  Tensor t = empty_tensor(like.sizes(), like.dtype());
  for (int64_t i = 0; i < coordinates(t); ++i) {
    uint64_t h = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 31)) * 0x94d049bb133111ebu;
    *coordinate(t, i) = static_cast<double>(h >> 40) * 0x1p-24 + 0.5;
  }
  return t;
}

// An output that `pick` keeps and that is not on the tape is a constant as far as backward knows: its derivatives are
// zero, and finite differences must say so, too.
void compare(const GradcheckFunction& f, TensorSpan inputs, const GradcheckOptions& options, Pick pick) {
  std::vector<Tensor> wanted;
  std::vector<size_t> positions;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    check_float64(inputs[i], "inputs");
    wanted.push_back(inputs[i]);
    positions.push_back(i);
  }
  TG_CHECK(!wanted.empty(), Value, "gradcheck: at least one input must require a gradient");
  EnableGradGuard enable;
  std::vector<Tensor> outputs = pick(f(inputs));
  TG_CHECK(!outputs.empty(), Runtime, "gradcheck: no output requires a gradient");
  for (const Tensor& out : outputs) check_float64(out, "outputs");

  // By backward: one run per coordinate of an output gives its derivatives with respect to all inputs.
  std::vector<std::vector<std::vector<Tensor>>> analytical(outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o)
    for (int64_t k = 0; k < coordinates(outputs[o]); ++k) {
      const Tensor weight = unit(outputs[o], k);
      analytical[o].push_back(outputs[o].requires_grad()
                                  ? grad({&outputs[o], 1}, wanted, {&weight, 1}, true, false, true)
                                  : std::vector<Tensor>(wanted.size()));
    }

  for (size_t w = 0; w < wanted.size(); ++w)
    for (int64_t i = 0; i < coordinates(wanted[w]); ++i) {
      auto expected = numerical(f, inputs, wanted[w], i, options.eps, pick);
      for (size_t o = 0; o < outputs.size(); ++o)
        for (size_t k = 0; k < expected[o].size(); ++k) {
          const Tensor& g = analytical[o][k][w];
          double got = g.defined() ? *coordinate(g, i) : 0;
          TG_CHECK(std::abs(got - expected[o][k]) <= options.atol + options.rtol * std::abs(expected[o][k]), Runtime,
                   "gradcheck: the gradient of output {} with respect to input {} is wrong: at output element {} and "
                   "input element {} backward gives {}, finite differences give {}",
                   o, positions[w], k / (outputs[o].is_complex() ? 2 : 1), i / (wanted[w].is_complex() ? 2 : 1), got,
                   expected[o][k]);
        }
    }
}

}  // namespace

void gradcheck(const GradcheckFunction& f, TensorSpan inputs, const GradcheckOptions& options) {
  compare(f, inputs, options, differentiable);
}

void gradgradcheck(const GradcheckFunction& f, TensorSpan inputs, const GradcheckOptions& options) {
  // Inputs of the gradient: those of f, then the weights of its outputs.
  std::vector<Tensor> all(inputs.begin(), inputs.end());
  {
    EnableGradGuard enable;
    uint64_t seed = 0;
    for (const Tensor& out : differentiable(f(inputs))) {
      check_float64(out, "outputs");
      all.push_back(weights(out, ++seed));
      all.back().set_requires_grad();
    }
  }
  const size_t n = inputs.size();
  auto gradient = [&f, n](TensorSpan everything) {
    TensorSpan own = everything.first(n);
    std::vector<Tensor> outputs = differentiable(f(own));
    std::vector<Tensor> wanted;
    for (const Tensor& t : own)
      if (t.defined() && t.requires_grad()) wanted.push_back(t);
    std::vector<Tensor> grads = grad(outputs, wanted, everything.subspan(n), true, true, true);
    std::erase_if(grads, [](const Tensor& t) { return !t.defined(); });
    return grads;
  };
  compare(gradient, all, options, defined);
}

}  // namespace tapegrad::autograd
