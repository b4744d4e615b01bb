// What a graph of several steps computes, by plain formulas on host memory: products, pointwise steps, reductions and
// views. Numbers between steps are rounded to the type that is described for them.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tapegrad/aten/functions.h"
#include "tapegrad/c10/tensor/half.h"
#include "tapegrad/cuda/cudnn/api.h"

namespace cudnn_double {

using namespace tapegrad::cuda::cudnn_graph;

struct Object {
  int type;
  bool finalized = false;
  std::map<int, std::vector<int64_t>> numbers;  // integers of any size, and pointers
  std::map<int, double> factors;
  int engine = -1;  // of configurations and engines
};

inline Object& object(int64_t pointer) { return *reinterpret_cast<Object*>(pointer); }
inline Object& of(Object& o, int attribute) { return object(o.numbers.at(attribute)[0]); }

// The numbers of a tensor with four dimensions, row by row.
struct Values {
  std::vector<int64_t> sizes;
  std::vector<double> data;
  int64_t offset(const int64_t* at) const {
    int64_t n = 0;
    for (size_t d = 0; d < sizes.size(); ++d) n = n * sizes[d] + (sizes[d] == 1 ? 0 : at[d]);
    return n;
  }
  double at(int64_t a, int64_t b, int64_t c, int64_t d) const {
    const int64_t place[4] = {a, b, c, d};
    return data[static_cast<size_t>(offset(place))];
  }
};

class Steps {
 public:
  explicit Steps(const std::map<int64_t, void*>& memory) : memory_(memory) {}

  // Operations come in any order.
  void run(std::vector<int64_t> operations) {
    while (!operations.empty()) {
      const size_t before = operations.size();
      std::erase_if(operations, [&](int64_t p) { return ready(object(p)) && (compute(object(p)), true); });
      if (operations.size() == before) throw std::logic_error("a graph whose operations wait for each other");
    }
  }

  const Values& value(Object& tensor) {
    const int64_t id = tensor.numbers.at(kTensorId)[0];
    if (const auto known = values_.find(id); known != values_.end()) return known->second;
    if (is(tensor, kTensorVirtual)) throw std::logic_error("a tensor that nothing computes");
    Values out{tensor.numbers.at(kTensorSizes), {}};
    const auto& strides = tensor.numbers.at(kTensorStrides);
    each(out.sizes, [&](const int64_t* at) {
      int64_t place = 0;
      for (size_t d = 0; d < out.sizes.size(); ++d) place += at[d] * strides[d];
      out.data.push_back(read(tensor, memory_.at(id), place));
    });
    return values_[id] = std::move(out);
  }
  void give(Object& tensor, std::vector<double> data) {
    const int64_t id = tensor.numbers.at(kTensorId)[0];
    const auto& sizes = tensor.numbers.at(kTensorSizes);
    const auto& strides = tensor.numbers.at(kTensorStrides);
    size_t i = 0;
    each(sizes, [&](const int64_t* at) {
      double& x = data.at(i++);
      x = rounded(tensor, x);
      if (is(tensor, kTensorVirtual)) return;
      int64_t place = 0;
      for (size_t d = 0; d < sizes.size(); ++d) place += at[d] * strides[d];
      write(tensor, memory_.at(id), place, x);
    });
    if (i != data.size()) throw std::logic_error("a tensor of another size");
    if (!values_.emplace(id, Values{sizes, std::move(data)}).second) throw std::logic_error("computed twice");
  }

 private:
  static bool is(Object& tensor, int property) {
    const auto at = tensor.numbers.find(property);
    return at != tensor.numbers.end() && at->second[0] != 0;
  }
  static void each(const std::vector<int64_t>& sizes, const std::function<void(const int64_t*)>& f) {
    int64_t at[4], total = 1;
    for (const int64_t n : sizes) total *= n;
    for (int64_t i = 0; i < total; ++i) {
      int64_t rest = i;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) at[d] = rest % sizes[d];
      f(at);
    }
  }
  static int64_t type(Object& tensor) { return tensor.numbers.at(kTensorDataType)[0]; }
  static double read(Object& tensor, const void* p, int64_t i) {
    switch (type(tensor)) {
      case kHalf:
        return static_cast<float>(static_cast<const tapegrad::Half*>(p)[i]);
      case kBfloat16:
        return static_cast<float>(static_cast<const tapegrad::BFloat16*>(p)[i]);
      case kFloat:
        return static_cast<const float*>(p)[i];
      default:
        throw std::logic_error("a type that is not read");
    }
  }
  static void write(Object& tensor, void* p, int64_t i, double x) {
    switch (type(tensor)) {
      case kHalf:
        static_cast<tapegrad::Half*>(p)[i] = tapegrad::Half(static_cast<float>(x));
        return;
      case kBfloat16:
        static_cast<tapegrad::BFloat16*>(p)[i] = tapegrad::BFloat16(static_cast<float>(x));
        return;
      case kFloat:
        static_cast<float*>(p)[i] = static_cast<float>(x);
        return;
      default:
        throw std::logic_error("a type that is not written");
    }
  }
  static double rounded(Object& tensor, double x) {
    switch (type(tensor)) {
      case kHalf:
        return static_cast<float>(tapegrad::Half(static_cast<float>(x)));
      case kBfloat16:
        return static_cast<float>(tapegrad::BFloat16(static_cast<float>(x)));
      case kFloat:
        return static_cast<float>(x);
      default:
        return x;
    }
  }

  static const std::vector<int>& inputs(int type) {
    static const std::map<int, std::vector<int>> all{{kOperationMatmul, {kMatmulA, kMatmulB}},
                                                     {kOperationPointwise, {kPointwiseX, kPointwiseB, kPointwiseT}},
                                                     {kOperationReduction, {kReductionX}},
                                                     {kOperationReshape, {kReshapeX}}};
    return all.at(type);
  }
  // Those in memory are read at once, but for what the graph itself writes, which has to come first: it is told by the
  // tensor's being an output of an operation that is still to come.
  bool ready(Object& operation) {
    for (const int attribute : inputs(operation.type)) {
      if (!operation.numbers.contains(attribute)) continue;
      Object& tensor = of(operation, attribute);
      if ((is(tensor, kTensorVirtual) || written_.contains(&tensor)) &&
          !values_.contains(tensor.numbers.at(kTensorId)[0]))
        return false;
    }
    return true;
  }

  void compute(Object& operation) {
    switch (operation.type) {
      case kOperationMatmul:
        return matmul(of(operation, kMatmulA), of(operation, kMatmulB), of(operation, kMatmulC));
      case kOperationPointwise:
        return pointwise(operation);
      case kOperationReduction:
        return reduce(operation);
      case kOperationReshape:
        return reshape(of(operation, kReshapeX), of(operation, kReshapeY));
      default:
        throw std::logic_error("an operation that is not known");
    }
  }

  // Heads of b are shared by as many heads of a.
  void matmul(Object& a_tensor, Object& b_tensor, Object& c_tensor) {
    const Values a = value(a_tensor), b = value(b_tensor);
    const auto& c = c_tensor.numbers.at(kTensorSizes);
    if (a.sizes[3] != b.sizes[2] || c[2] != a.sizes[2] || c[3] != b.sizes[3] || c[1] != a.sizes[1] ||
        a.sizes[1] % b.sizes[1] != 0 || a.sizes[0] != b.sizes[0])
      throw std::logic_error("matrices that do not fit");
    const int64_t group = a.sizes[1] / b.sizes[1];
    std::vector<double> out;
    each(c, [&](const int64_t* at) {
      double sum = 0;
      for (int64_t k = 0; k < a.sizes[3]; ++k)
        sum += a.at(at[0], at[1], at[2], k) * b.at(at[0], at[1] / group, k, at[3]);
      out.push_back(sum);
    });
    give(c_tensor, std::move(out));
  }

  void pointwise(Object& operation) {
    Object& how = of(operation, kPointwiseOf);
    const int64_t mode = how.numbers.at(kPointwiseMode)[0];
    Object& y = of(operation, kPointwiseY);
    const Values x = value(of(operation, kPointwiseX));
    const Values b =
        operation.numbers.contains(kPointwiseB) ? value(of(operation, kPointwiseB)) : Values{{1, 1, 1, 1}, {0}};
    const Values t =
        operation.numbers.contains(kPointwiseT) ? value(of(operation, kPointwiseT)) : Values{{1, 1, 1, 1}, {0}};
    const int64_t axis = how.numbers.contains(kPointwiseAxis) ? how.numbers.at(kPointwiseAxis)[0] : -1;
    std::vector<double> out;
    each(y.numbers.at(kTensorSizes), [&](const int64_t* at) {
      const double left = x.data[static_cast<size_t>(x.offset(at))], right = b.data[static_cast<size_t>(b.offset(at))];
      switch (mode) {
        case kAdd:
          if (right == -std::numeric_limits<double>::infinity())
            throw std::logic_error("-infinity is added, of which a running maximum makes NaN");
          return out.push_back(left + right);
        case kSubtract:
          return out.push_back(left - right);
        case kMultiply:
          return out.push_back(left * right);
        case kDivide:
          return out.push_back(left / right);
        case kExp:
          return out.push_back(std::exp(left));
        case kLog:
          return out.push_back(std::log(left));
        case kGreaterEqual:
          return out.push_back(left >= right);
        case kIndex:
          return out.push_back(static_cast<double>(at[axis]));
        case kSelect:
          return out.push_back(t.data[static_cast<size_t>(t.offset(at))] != 0 ? left : right);
        default:
          throw std::logic_error("a pointwise step that is not known");
      }
    });
    give(y, std::move(out));
  }

  // Over dimensions that have size 1 in the result, or, of heads, over those that share one.
  void reduce(Object& operation) {
    const int64_t mode = of(operation, kReductionOf).numbers.at(kReductionMode)[0];
    const Values x = value(of(operation, kReductionX));
    Object& y = of(operation, kReductionY);
    Values out{y.numbers.at(kTensorSizes), {}};
    int64_t total = 1;
    for (const int64_t n : out.sizes) total *= n;
    out.data.assign(static_cast<size_t>(total), mode == kReduceMax ? -std::numeric_limits<double>::infinity() : 0.0);
    each(x.sizes, [&](const int64_t* at) {
      int64_t to[4];
      for (int d = 0; d < 4; ++d) to[d] = at[d] / (x.sizes[static_cast<size_t>(d)] / out.sizes[static_cast<size_t>(d)]);
      double& sum = out.data[static_cast<size_t>(out.offset(to))];
      const double v = x.data[static_cast<size_t>(x.offset(at))];
      sum = mode == kReduceMax ? std::max(sum, v) : sum + v;
    });
    give(y, std::move(out.data));
  }

  // The same memory with other sizes and strides.
  void reshape(Object& x_tensor, Object& y_tensor) {
    const Values x = value(x_tensor);
    const auto& from = x_tensor.numbers.at(kTensorStrides);
    const auto& to = y_tensor.numbers.at(kTensorStrides);
    std::map<int64_t, double> memory;
    each(x.sizes, [&](const int64_t* at) {
      int64_t place = 0;
      for (size_t d = 0; d < 4; ++d) place += at[d] * from[d];
      memory[place] = x.data[static_cast<size_t>(x.offset(at))];
    });
    std::vector<double> out;
    each(y_tensor.numbers.at(kTensorSizes), [&](const int64_t* at) {
      int64_t place = 0;
      for (size_t d = 0; d < 4; ++d) place += at[d] * to[d];
      out.push_back(memory.at(place));
    });
    give(y_tensor, std::move(out));
  }

 public:
  std::set<Object*> written_;

 private:
  std::map<int64_t, void*> memory_;
  std::map<int64_t, Values> values_;
};

inline void compute_steps(const std::vector<int64_t>& operations, const std::map<int64_t, void*>& memory) {
  Steps steps(memory);
  for (const int64_t p : operations)
    for (const auto& [type, attribute] : {std::pair<int, int>(kOperationPointwise, kPointwiseY),
                                          {kOperationMatmul, kMatmulC},
                                          {kOperationReduction, kReductionY}})
      if (object(p).type == type) steps.written_.insert(&of(object(p), attribute));
  steps.run(operations);
}

}  // namespace cudnn_double
