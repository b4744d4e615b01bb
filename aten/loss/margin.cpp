// Losses of margins and distances.
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_loss.h"
#include "tapegrad/aten/loss/reduction.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::composite {

using Flag = std::optional<bool>;

namespace {

Tensor sum_over(const Tensor& t, int64_t dim, bool keepdim = false) {
  const int64_t dims[] = {dim};
  return sum(t, OptionalInts(IntSpan(dims, 1)), keepdim);
}

}  // namespace

Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                           Flag size_average, Flag reduce, std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "margin_ranking_loss");
  return apply_reduction(clamp_min(-target * (input1 - input2) + margin, 0), r);
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin, Flag size_average, Flag reduce,
                            std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "hinge_embedding_loss");
  const Tensor zero = zeros_like(input);
  const Tensor loss = where(target != 1, clamp_min(margin - input, 0), zero) + where(target != -1, input, zero);
  return apply_reduction(loss, r);
}

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim, double eps) {
  const DType common = promote_types(x1.dtype(), x2.dtype());
  TG_CHECK(is_floating_point(common), Runtime, "cosine_similarity: expected floating tensors: got {} and {}",
           x1.dtype(), x2.dtype());
  if (!x1.is_floating_point()) return composite::cosine_similarity(to(x1, common), x2, dim, eps);
  if (!x2.is_floating_point()) return composite::cosine_similarity(x1, to(x2, common), dim, eps);
  TG_CHECK(eps >= 0, Runtime, "cosine_similarity: eps must not be negative: got {}", eps);
  const DimVector shape = broadcast_sizes(x1.sizes(), x2.sizes(), "cosine_similarity");
  const Tensor a = expand(x1, shape), b = expand(x2, shape);
  // Normalising before the product keeps its square from overflowing. The bound is not on the tape, as in PyTorch.
  const auto bounded_norm = [&](const Tensor& t) {
    const Tensor length = clone(_norm_2(t, OptionalInts(IntSpan(&dim, 1)), true));
    raw::clamp_min_(length, eps);
    return length;
  };
  return sum_over((a / bounded_norm(a)) * (b / bounded_norm(b)), dim);
}

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                             Flag size_average, Flag reduce, std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "cosine_embedding_loss");
  TG_CHECK(target.ndim() <= 1 && input1.ndim() == target.ndim() + 1 && input2.ndim() == target.ndim() + 1, Runtime,
           "cosine_embedding_loss: expected inputs (N, D) with target (N), or (D) with (): got {}, {} and {}",
           format_ints(input1.sizes()), format_ints(input2.sizes()), format_ints(target.sizes()));
  const auto floating = [](const Tensor& t) { return t.is_floating_point() ? t : t.to(default_dtype()); };
  // Not by cosine_similarity: the squared lengths are kept from zero, which also bounds the gradient there, as in
  // PyTorch.
  const Tensor a = floating(input1), b = floating(input2);
  constexpr double least = 1e-12F;  // a float in PyTorch, which shows in the gradient
  const Tensor squares_a = sum_over(square(a), target.ndim()) + least;
  const Tensor squares_b = sum_over(square(b), target.ndim()) + least;
  const Tensor cosine = sum_over(a * b, target.ndim()) / sqrt(squares_a * squares_b);
  const Tensor zero = zeros_like(cosine);
  const Tensor loss = where(target == 1, 1 - cosine, zero) + where(target == -1, clamp_min(cosine - margin, 0), zero);
  return apply_reduction(loss, r);
}

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  const int64_t last[] = {-1};
  return tapegrad::norm(x1 - x2 + eps, Scalar(p), OptionalInts(IntSpan(last, 1)), keepdim);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin,
                           double p, double eps, bool swap, Flag size_average, Flag reduce,
                           std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "triplet_margin_loss");
  TG_CHECK(margin > 0, Value, "triplet_margin_loss: margin must be positive: got {}", margin);
  const Tensor near = tapegrad::pairwise_distance(anchor, positive, p, eps, false);
  Tensor far = tapegrad::pairwise_distance(anchor, negative, p, eps, false);
  if (swap) far = minimum(far, tapegrad::pairwise_distance(positive, negative, p, eps, false));
  return apply_reduction(clamp_min(near - far + margin, 0), r);
}

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, Flag size_average, Flag reduce,
                        std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "soft_margin_loss");
  return apply_reduction(-logsigmoid(target * input), r);
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const Tensor& weight, Flag size_average,
                                   Flag reduce, std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "multilabel_soft_margin_loss");
  TG_CHECK(input.ndim() > 0, Runtime, "multilabel_soft_margin_loss: expected at least one dimension: got a scalar");
  Tensor loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input));
  if (weight.defined()) loss = loss * weight;
  return apply_reduction(sum_over(loss, -1) / input.size(-1), r);
}

Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p, double margin, const Tensor& weight,
                         Flag size_average, Flag reduce, std::string_view reduction) {
  TG_CHECK(!weight.defined() || weight.ndim() == 1, Value, "multi_margin_loss: weight must have 1 dimension: got {}",
           weight.ndim());
  if (input.ndim() < 2 && target.ndim() < 2 && target.numel() == 1) {  // one sample: (C) or () with (1) or ()
    const Tensor loss = tapegrad::multi_margin_loss(reshape(input, {1, -1}), reshape(target, {1}), p, margin, weight,
                                                    size_average, reduce, reduction);
    return loss.ndim() ? reshape(loss, target.sizes()) : loss;
  }
  const Reduction r = parse_reduction(reduction, size_average, reduce, "multi_margin_loss");
  TG_CHECK(p == 1 || p == 2, Value, "multi_margin_loss: p must be 1 or 2: got {}", p);
  TG_CHECK(input.ndim() == 2 && target.ndim() == 1 && target.size(0) == input.size(0), Runtime,
           "multi_margin_loss: expected input (N, C) and target (N): got {} and {}", format_ints(input.sizes()),
           format_ints(target.sizes()));
  TG_CHECK(target.dtype() == DType::int64, Runtime, "multi_margin_loss: expected a target of dtype int64: got {}",
           target.dtype());
  TG_CHECK(!weight.defined() || weight.dtype() == input.dtype(), Runtime,
           "multi_margin_loss: input of dtype {} and weight of dtype {}", input.dtype(), weight.dtype());
  const Tensor index = unsqueeze(target, 1);
  const Tensor own = gather(input, 1, index), distances = margin - own + input;
  Tensor terms = clamp_min(scatter(distances, 1, index, zeros_like(own)), 0);  // the target itself does not count
  if (p == 2) terms = square(terms);
  if (weight.defined()) terms = terms * unsqueeze(index_select(weight, 0, target), 1);
  return apply_reduction(sum_over(terms, 1) / input.size(1), r);
}

Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, Flag size_average, Flag reduce,
                              std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "multilabel_margin_loss");
  if (input.ndim() == 0 && target.numel() == 1) {
    const Tensor single = reshape(target, {1});
    const Tensor loss = composite::multilabel_margin_loss(reshape(input, {1}), single, Flag(), Flag(), "sum");
    return apply_reduction(loss, r);
  }
  TG_CHECK((input.ndim() == 1 || input.ndim() == 2) && input.sizes() == target.sizes(), Runtime,
           "multilabel_margin_loss: expected input and target (N, C) or (C): got {} and {}", format_ints(input.sizes()),
           format_ints(target.sizes()));
  TG_CHECK(target.dtype() == DType::int64, Runtime,
           "multilabel_margin_loss: expected class indices of dtype int64: got {}", target.dtype());
  const Tensor x = input.ndim() == 1 ? unsqueeze(input, 0) : input;
  const int64_t classes = x.size(1);
  Tensor index, listed, others;
  {
    NoGradGuard guard;
    const Tensor t = target.ndim() == 1 ? unsqueeze(target, 0) : target;
    if (t.numel() > 0 && !t.is_batched()) {
      const int64_t least = min(t).item<int64_t>(), most = max(t).item<int64_t>();
      TG_CHECK(least >= -1 && most < classes, Runtime,
               "multilabel_margin_loss: target {} is out of range for {} classes", least < -1 ? least : most, classes);
    }
    listed = cumprod(to(ge(t, 0), DType::int64), 1);  // before the first -1
    index = mul(t, listed);
    others = eq(scatter_add(zeros_like(t), 1, index, listed), 0);
    listed = logical_and(to(unsqueeze(listed, 2), DType::bool_), unsqueeze(others, 1));
  }
  const Tensor terms = clamp_min(1 - unsqueeze(gather(x, 1, index), 2) + unsqueeze(x, 1), 0);
  const Tensor loss = sum_over(sum_over(terms * to(listed, input.dtype()), 2), 1) / classes;
  return apply_reduction(input.ndim() == 1 ? squeeze(loss, IntSpan({0})) : loss, r);
}

}  // namespace tapegrad::composite
