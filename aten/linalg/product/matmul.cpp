// matmul and other products composed of mm, bmm, mv and dot.
#include <algorithm>
#include <limits>

#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_linalg.h"
#include "tapegrad/aten/linalg/factor/factor.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/tensor/checked_int.h"
#include "tapegrad/c10/tensor/product.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::composite {
namespace {

DimVector leading(const Tensor& t, int64_t dropped) {
  return DimVector(IntSpan(t.sizes().data(), static_cast<size_t>(t.ndim() - dropped)));
}

DimVector joined(IntSpan a, std::initializer_list<int64_t> rest) {
  DimVector r(a);
  for (int64_t v : rest) r.push_back(v);
  return r;
}

Tensor expand_to(const Tensor& t, IntSpan sizes) { return t.sizes() == sizes ? t : expand(t, sizes); }

}  // namespace

Tensor matmul(const Tensor& input, const Tensor& other) {
  int64_t da = input.ndim(), db = other.ndim();
  TG_CHECK(da > 0 && db > 0, Runtime, "matmul: both factors need at least 1 dimension: shapes {} and {}",
           format_ints(input.sizes()), format_ints(other.sizes()));
  if (da == 2 && db == 2) return mm(input, other);
  if (da == 1 && db == 1) return dot(input, other);
  if (da == 2 && db == 1) return mv(input, other);
  if (da == 1 && db == 2) return mv(transpose(other, 0, 1), input);
  int64_t ka = input.size(-1), kb = db == 1 ? other.size(0) : other.size(-2);
  TG_CHECK(ka == kb, Runtime, "matmul: shapes {} and {} cannot be multiplied: inner sizes are {} and {}",
           format_ints(input.sizes()), format_ints(other.sizes()), ka, kb);
  if (db <= 2) {  // the rows of all the matrices are one tall matrix
    DimVector batch = leading(input, 1);
    Tensor tall = reshape(input, {product(batch), ka});
    if (db == 1) return reshape(mv(tall, other), batch);
    return reshape(mm(tall, other), joined(batch, {other.size(1)}));
  }
  if (da == 1) {
    Tensor r = tapegrad::matmul(unsqueeze(input, 0), other);
    return squeeze(r, IntSpan{-2});
  }
  DimVector batch = broadcast_sizes(leading(input, 2), leading(other, 2), "matmul");
  int64_t n = product(batch), rows = input.size(-2), cols = other.size(-1);
  Tensor a = reshape(expand_to(input, joined(batch, {rows, ka})), {n, rows, ka});
  Tensor b = reshape(expand_to(other, joined(batch, {ka, cols})), {n, ka, cols});
  return reshape(bmm(a, b), joined(batch, {rows, cols}));
}

Tensor addbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
              const Scalar& alpha) {
  TG_CHECK(batch1.ndim() == 3 && batch2.ndim() == 3, Runtime,
           "addbmm: batches must have 3 dimensions: shapes {} and {}", format_ints(batch1.sizes()),
           format_ints(batch2.sizes()));
  TG_CHECK(batch1.size(0) == batch2.size(0) && batch1.size(2) == batch2.size(1), Runtime,
           "addbmm: shapes {} and {} cannot be multiplied", format_ints(batch1.sizes()), format_ints(batch2.sizes()));
  int64_t inner = batch1.size(0) * batch1.size(2);
  return addmm(input, reshape(permute(batch1, {1, 0, 2}), {batch1.size(1), inner}),
               reshape(batch2, {inner, batch2.size(2)}), beta, alpha);
}

Tensor vdot(const Tensor& input, const Tensor& other) { return dot(input.is_complex() ? conj(input) : input, other); }

Tensor outer(const Tensor& input, const Tensor& vec2) {
  TG_CHECK(input.ndim() == 1 && vec2.ndim() == 1, Runtime, "outer: both must have 1 dimension: shapes {} and {}",
           format_ints(input.sizes()), format_ints(vec2.sizes()));
  return mul(unsqueeze(input, 1), vec2);
}

Tensor addmv(const Tensor& input, const Tensor& mat, const Tensor& vec, const Scalar& given_beta,
             const Scalar& given_alpha) {
  const Scalar beta = product_factor("addmv", "beta", given_beta, mat.dtype());
  const Scalar alpha = product_factor("addmv", "alpha", given_alpha, mat.dtype());
  Tensor product_ = mv(mat, vec);
  TG_CHECK(input.dtype() == mat.dtype(), Runtime, "addmv: input tensors must have the same dtype: got {}, {} and {}",
           input.dtype(), mat.dtype(), vec.dtype());
  TG_CHECK(input.ndim() <= 1 && (input.numel() == 1 || (input.ndim() == 1 && input.size(0) == mat.size(0))), Runtime,
           "addmv: input of shape {} does not broadcast to the product's shape {}", format_ints(input.sizes()),
           format_ints(product_.sizes()));
  if (!(alpha == Scalar(1))) product_ = mul(product_, alpha);
  if (beta == Scalar(0)) return product_;
  return add(beta == Scalar(1) ? input : mul(input, beta), product_);
}

Tensor addr(const Tensor& input, const Tensor& vec1, const Tensor& vec2, const Scalar& beta, const Scalar& alpha) {
  for (const auto& [name, factor] : {std::pair("beta", beta), std::pair("alpha", alpha)}) {
    TG_CHECK(is_differentiable(vec1.dtype()) || factor.is_integral(), Runtime,
             "addr: For integral input tensors, argument {} must not be a floating point number: got {}", name,
             to_string(factor));
    TG_CHECK(vec1.dtype() == DType::bool_ || !factor.is_bool(), Runtime,
             "addr: Boolean {} only supported for Boolean results.", name);
    product_factor("addr", name, factor, vec1.dtype());
  }
  TG_CHECK(vec1.ndim() == 1 && vec2.ndim() == 1, Runtime, "addr: vec1 and vec2 must have 1 dimension: shapes {} and {}",
           format_ints(vec1.sizes()), format_ints(vec2.sizes()));
  TG_CHECK(
      broadcast_sizes(input.sizes(), {vec1.size(0), vec2.size(0)}, "addr") == DimVector({vec1.size(0), vec2.size(0)}),
      Runtime, "addr: input of shape {} does not broadcast to [{}, {}]", format_ints(input.sizes()), vec1.size(0),
      vec2.size(0));
  if (vec1.dtype() == DType::bool_ && vec2.dtype() == DType::bool_ && input.dtype() == DType::bool_) {
    Tensor r = logical_and(unsqueeze(vec1, 1), alpha == Scalar(0) ? zeros_like(vec2) : vec2);
    return beta == Scalar(0) ? r : logical_or(r, input);
  }
  Tensor r = mul(unsqueeze(alpha == Scalar(1) ? vec1 : mul(vec1, alpha), 1), vec2);
  if (beta == Scalar(0)) return r;
  return add(beta == Scalar(1) ? input : mul(input, beta), r);
}

Tensor inner(const Tensor& input, const Tensor& other) {
  if (input.ndim() == 0 || other.ndim() == 0) return mul(input, other);
  TG_CHECK(input.size(-1) == other.size(-1), Runtime,
           "inner() the last dimension must match on both input tensors but got shapes {} and {}",
           format_ints(input.sizes()), format_ints(other.sizes()));
  return tapegrad::_tensordot(input, other, {-1}, {-1});
}

Tensor _tensordot(const Tensor& a_given, const Tensor& b_given, IntSpan dims_self, IntSpan dims_other) {
  Tensor a = a_given, b = b_given;
  TG_CHECK(dims_self.size() == dims_other.size(), Runtime, "tensordot: lists of {} and {} dimensions: {} and {}",
           dims_self.size(), dims_other.size(), format_ints(dims_self), format_ints(dims_other));
  std::vector<bool> gone_a(static_cast<size_t>(a.ndim())), gone_b(static_cast<size_t>(b.ndim()));
  DimVector inner_a, inner_b, order_a, order_b, sizes;
  int64_t k = 1;
  for (size_t i = 0; i < dims_self.size(); ++i) {
    int64_t x = wrap_dim(dims_self[i], a.ndim(), "tensordot"), y = wrap_dim(dims_other[i], b.ndim(), "tensordot");
    TG_CHECK(a.ndim() > 0 && b.ndim() > 0 && !gone_a[static_cast<size_t>(x)] && !gone_b[static_cast<size_t>(y)],
             Runtime, "tensordot: a dimension appears twice: {} and {}", format_ints(dims_self),
             format_ints(dims_other));
    // A size of 1 broadcasts: the other side is summed.
    if (a.size(x) == 1 && b.size(y) != 1) b = sum(b, IntSpan(&y, 1), true, b.dtype());
    if (b.size(y) == 1 && a.size(x) != 1) a = sum(a, IntSpan(&x, 1), true, a.dtype());
    TG_CHECK(a.size(x) == b.size(y), Runtime, "tensordot: contracted sizes differ: {} of shape {} and {} of shape {}",
             a.size(x), format_ints(a.sizes()), b.size(y), format_ints(b.sizes()));
    gone_a[static_cast<size_t>(x)] = gone_b[static_cast<size_t>(y)] = true;
    inner_a.push_back(x);
    inner_b.push_back(y);
    k *= a.size(x);
  }
  int64_t m = 1, n = 1;
  for (int64_t d = 0; d < a.ndim(); ++d)
    if (!gone_a[static_cast<size_t>(d)]) {
      order_a.push_back(d);
      sizes.push_back(a.size(d));
      m *= a.size(d);
    }
  order_b = inner_b;
  for (int64_t d = 0; d < b.ndim(); ++d)
    if (!gone_b[static_cast<size_t>(d)]) {
      order_b.push_back(d);
      sizes.push_back(b.size(d));
      n *= b.size(d);
    }
  for (int64_t d : inner_a) order_a.push_back(d);
  return reshape(mm(reshape(permute(a, order_a), {m, k}), reshape(permute(b, order_b), {k, n})), sizes);
}

Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims) {
  TG_CHECK(dims >= 0 && dims <= a.ndim() && dims <= b.ndim(), Runtime, "tensordot: {} dimensions of shapes {} and {}",
           dims, format_ints(a.sizes()), format_ints(b.sizes()));
  DimVector last, first;
  for (int64_t i = 0; i < dims; ++i) {
    last.push_back(a.ndim() - dims + i);
    first.push_back(i);
  }
  return tapegrad::_tensordot(a, b, last, first);
}

Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight, const Tensor& bias) {
  TG_CHECK(weight.ndim() == 3, Runtime, "bilinear: weight must have 3 dimensions: got shape {}",
           format_ints(weight.sizes()));
  TG_CHECK(input1.ndim() == input2.ndim() && input1.ndim() >= 1, Runtime,
           "bilinear: inputs must have equally many dimensions: shapes {} and {}", format_ints(input1.sizes()),
           format_ints(input2.sizes()));
  DimVector batch = leading(input1, 1);
  TG_CHECK(batch == leading(input2, 1) && input1.size(-1) == weight.size(1) && input2.size(-1) == weight.size(2),
           Runtime, "bilinear: inputs of shapes {} and {} do not fit weight of shape {}", format_ints(input1.sizes()),
           format_ints(input2.sizes()), format_ints(weight.sizes()));
  TG_CHECK(!bias.defined() || (bias.ndim() == 1 && bias.size(0) == weight.size(0)), Runtime,
           "bilinear: bias of shape {} does not fit weight of shape {}",
           bias.defined() ? format_ints(bias.sizes()) : std::string(), format_ints(weight.sizes()));
  int64_t n = product(batch), o = weight.size(0), i = weight.size(1), j = weight.size(2);
  Tensor left = mm(reshape(input1, {n, i}), reshape(permute(weight, {1, 0, 2}), {i, o * j}));
  Tensor r = reshape(bmm(reshape(left, {n, o, j}), reshape(input2, {n, j, 1})), joined(batch, {o}));
  return bias.defined() ? add(r, bias) : r;
}

namespace {

// Order of least work by dynamic programming over chains (Cormen et al., Introduction to Algorithms, 15.2): n^3 steps.
Tensor multiply_optimally(const std::vector<Tensor>& chain, const std::vector<double>& size) {
  const size_t n = chain.size();
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> cut(n, std::vector<size_t>(n, 0));
  for (size_t length = 2; length <= n; ++length)
    for (size_t i = 0; i + length <= n; ++i) {
      size_t j = i + length - 1;
      cost[i][j] = std::numeric_limits<double>::infinity();
      for (size_t k = i; k < j; ++k) {
        double c = cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1];
        if (c < cost[i][j]) {
          cost[i][j] = c;
          cut[i][j] = k;
        }
      }
    }
  auto multiply = [&](auto& self, size_t i, size_t j) -> Tensor {
    if (i == j) return chain[i];
    return mm(self(self, i, cut[i][j]), self(self, cut[i][j] + 1, j));
  };
  return multiply(multiply, 0, n - 1);
}

// Of long chains: an order at most 15.5 % dearer, in n steps (Hu and Shing, An O(n) algorithm to find a near-optimum
// partition of a convex polygon, Journal of Algorithms 2 (1981)). A product is made as soon as the size that it removes
// is dear enough; what is left is multiplied outwards from the smallest size.
Tensor multiply_nearly_optimally(const std::vector<Tensor>& chain, const std::vector<double>& size) {
  const double least = std::max(1.0, *std::min_element(size.begin(), size.end()));
  auto inverse = [](int64_t n) { return 1.0 / static_cast<double>(std::max<int64_t>(n, 1)); };
  std::vector<Tensor> left;
  for (Tensor next : chain) {
    while (!left.empty() && inverse(left.back().size(0)) + inverse(next.size(1)) > inverse(next.size(0)) + 1 / least) {
      next = mm(left.back(), next);
      left.pop_back();
    }
    left.push_back(std::move(next));
  }
  size_t middle = 0;  // the first matrix whose rows are fewest
  for (size_t i = 1; i < left.size(); ++i)
    if (left[i].size(0) < left[middle].size(0)) middle = i;
  if (left.back().size(1) < left[middle].size(0)) middle = left.size();
  Tensor before, after;
  for (size_t i = middle; i-- > 0;) before = before.defined() ? mm(left[i], before) : left[i];
  for (size_t i = middle; i < left.size(); ++i) after = after.defined() ? mm(after, left[i]) : left[i];
  return !before.defined() ? after : after.defined() ? mm(before, after) : before;
}

}  // namespace

Tensor multi_dot(TensorSpan tensors) {
  size_t n = tensors.size();
  TG_CHECK(n >= 2, Runtime, "multi_dot: expected at least 2 tensors: got {}", n);
  bool row = tensors.front().ndim() == 1, column = tensors.back().ndim() == 1;
  std::vector<Tensor> chain(tensors.begin(), tensors.end());
  if (row) chain.front() = unsqueeze(chain.front(), 0);
  if (column) chain.back() = unsqueeze(chain.back(), 1);
  std::vector<double> size(n + 1);
  for (size_t i = 0; i < n; ++i) {
    TG_CHECK(chain[i].ndim() == 2, Runtime, "multi_dot: tensor {} must have 2 dimensions: got shape {}", i,
             format_ints(tensors[i].sizes()));
    TG_CHECK(i == 0 || chain[i].size(0) == chain[i - 1].size(1), Runtime,
             "multi_dot: shapes {} and {} cannot be multiplied", format_ints(tensors[i - 1].sizes()),
             format_ints(tensors[i].sizes()));
    size[i] = static_cast<double>(chain[i].size(0));
    size[i + 1] = static_cast<double>(chain[i].size(1));
  }
  constexpr size_t kShort = 200;
  Tensor r = n <= kShort ? multiply_optimally(chain, size) : multiply_nearly_optimally(chain, size);
  if (column) r = squeeze(r, IntSpan{1});
  if (row) r = squeeze(r, IntSpan{0});
  return r;
}

Tensor chain_matmul(TensorSpan matrices) {
  TG_CHECK(!matrices.empty(), Runtime, "chain_matmul(): Expected one or more matrices: got none");
  for (const Tensor& t : matrices)
    TG_CHECK(t.ndim() == 2, Runtime, "chain_matmul: expected matrices: got shape {}", format_ints(t.sizes()));
  return matrices.size() == 1 ? matrices[0] : tapegrad::multi_dot(matrices);
}

Tensor kron(const Tensor& input, const Tensor& other) {
  int64_t d = std::max(input.ndim(), other.ndim());
  DimVector a, b, sizes;
  for (int64_t i = 0; i < d; ++i) {
    int64_t ia = i - (d - input.ndim()), ib = i - (d - other.ndim());
    int64_t sa = ia >= 0 ? input.size(ia) : 1, sb = ib >= 0 ? other.size(ib) : 1;
    a.push_back(sa);
    a.push_back(1);
    b.push_back(1);
    b.push_back(sb);
    const CheckedInt size = CheckedInt(sa) * sb;
    TG_CHECK(size.fits(), Runtime, "kron: the result does not fit into 63 bits: shapes {} and {}",
             format_ints(input.sizes()), format_ints(other.sizes()));
    sizes.push_back(size.value());
  }
  return reshape(mul(reshape(input, a), reshape(other, b)), sizes);
}

Tensor cross(const Tensor& input, const Tensor& other, std::optional<int64_t> dim) {
  TG_CHECK(input.dtype() == other.dtype(), Runtime, "cross: expected operands of one dtype: got {} and {}",
           input.dtype(), other.dtype());
  TG_CHECK(input.ndim() == other.ndim(), Runtime, "cross: shapes {} and {} have different numbers of dimensions",
           format_ints(input.sizes()), format_ints(other.sizes()));
  int64_t d = -1;
  if (dim) {
    d = wrap_dim(*dim, input.ndim(), "cross");
  } else {
    warn(
        "Using cross without specifying the dim arg is deprecated: it takes the first dimension of size 3, and "
        "linalg.cross the last dimension. Please pass the dim explicitly, or use linalg.cross.");
    for (int64_t i = 0; i < input.ndim() && d < 0; ++i)
      if (input.size(i) == 3) d = i;
  }
  TG_CHECK(d >= 0 && input.ndim() > 0 && input.size(d) == 3 && other.size(d) == 3, Runtime,
           "cross: a dimension of size 3 is needed: shapes {} and {}", format_ints(input.sizes()),
           format_ints(other.sizes()));
  Tensor a0 = select(input, d, 0), a1 = select(input, d, 1), a2 = select(input, d, 2);
  Tensor b0 = select(other, d, 0), b1 = select(other, d, 1), b2 = select(other, d, 2);
  Tensor parts[3] = {sub(mul(a1, b2), mul(a2, b1)), sub(mul(a2, b0), mul(a0, b2)), sub(mul(a0, b1), mul(a1, b0))};
  DimVector sizes = broadcast_sizes(input.sizes(), other.sizes(), "cross");
  int64_t at = d + static_cast<int64_t>(sizes.size()) - input.ndim();
  return stack(TensorSpan(parts, 3), at);
}

}  // namespace tapegrad::composite

namespace tapegrad::cpu {

void linear_parameter_grads_cpu(const Tensor& grad_output, const Tensor& input, const Tensor& weight_grad,
                                const Tensor& bias_grad) {
  const int64_t rows[] = {0};
  raw::mm_out(raw::t(grad_output), input, weight_grad);
  raw::sum_out(grad_output, OptionalInts(IntSpan(rows, 1)), false, std::nullopt, bias_grad);
}

}  // namespace tapegrad::cpu
