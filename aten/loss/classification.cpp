// Losses of probabilities and class labels.
#include "tapegrad/aten/functions_activation.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_loss.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_softmax.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_loss.h"
#include "tapegrad/aten/loss/reduction.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::composite {

using Flag = std::optional<bool>;

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight, Flag size_average,
                            Flag reduce, std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "binary_cross_entropy");
  TG_CHECK(input.sizes() == target.sizes(), Value,
           "binary_cross_entropy: input and target need equal sizes: got {} and {}", format_ints(input.sizes()),
           format_ints(target.sizes()));
  TG_CHECK(input.dtype() == target.dtype(), Runtime, "binary_cross_entropy: Found dtype {} but expected {}",
           target.dtype(), input.dtype());
  if (!input.is_meta() && !input.is_batched() && input.numel() > 0) {
    NoGradGuard guard;
    TG_CHECK(all((input >= 0) & (input <= 1)).item<bool>(), Runtime,
             "binary_cross_entropy: input must lie between 0 and 1\nhint: use binary_cross_entropy_with_logits");
  }
  Tensor loss = _binary_cross_entropy(input, target);
  if (weight.defined()) loss = loss * weight;
  return apply_reduction(loss, r);
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight,
                                        Flag size_average, Flag reduce, std::string_view reduction,
                                        const Tensor& pos_weight) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "binary_cross_entropy_with_logits");
  TG_CHECK(input.sizes() == target.sizes(), Value,
           "binary_cross_entropy_with_logits: input and target need equal sizes: got {} and {}",
           format_ints(input.sizes()), format_ints(target.sizes()));
  // log(1 + exp(-x)) = -logsigmoid(x), which does not overflow.
  const Tensor log_term = -logsigmoid(input);
  Tensor loss = (1 - target) * input;
  loss = loss + (pos_weight.defined() ? (1 + (pos_weight - 1) * target) * log_term : log_term);
  if (weight.defined()) loss = loss * weight;
  return apply_reduction(loss, r);
}

Tensor kl_div(const Tensor& input, const Tensor& target, Flag size_average, Flag reduce, std::string_view reduction,
              bool log_target) {
  const bool batchmean = reduction == "batchmean";
  TG_CHECK(!is_integral(input.dtype()) && !is_integral(target.dtype()), Runtime,
           "kl_div: Integral inputs not supported: got {} and {}", input.dtype(), target.dtype());
  if (reduction == "mean" && !size_average && !reduce)
    warn(
        "reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides "
        "only "
        "by the batch size, and aligns with the KL div math definition.");
  const Reduction r = batchmean ? Reduction::Sum : parse_reduction(reduction, size_average, reduce, "kl_div");
  const Tensor loss = log_target ? exp(target) * (target - input) : xlogy(target, target) - target * input;
  const Tensor reduced = apply_reduction(loss, r);
  return batchmean && input.ndim() > 0 ? reduced / input.size(0) : reduced;
}

namespace {

// Brings (C) or (N, C, d1, ...) with targets of sizes () or (N, d1, ...) to the kernels' (N, C, ...).
struct Batched {
  Tensor input;
  Tensor target;
  bool single;
};

Batched batched(const Tensor& input, const Tensor& target, const char* op) {
  TG_CHECK(input.ndim() >= 1, Value, "{}: expected input of at least one dimension: got a scalar", op);
  TG_CHECK(target.dtype() == DType::int64 || target.dtype() == DType::uint8 || !is_integral(target.dtype()), Runtime,
           "{}: expected target dtype to be Long or Byte: got {}\nuse target.long()", op, target.dtype());
  if (input.ndim() == 1) {
    TG_CHECK(target.ndim() == 0 || (target.ndim() == 1 && target.size(0) == 1), Runtime,
             "{}: for input of sizes {} the target must be one class index: got sizes {}", op,
             format_ints(input.sizes()), format_ints(target.sizes()));
    return {unsqueeze(input, 0), reshape(target, {1}), true};
  }
  DimVector expected(input.sizes());
  expected.erase(1);
  TG_CHECK(target.sizes() == IntSpan(expected) || target.ndim() == 0 || target.size(0) != input.size(0), Runtime,
           "{}: for input of sizes {} the target must have sizes {}: got {}", op, format_ints(input.sizes()),
           format_ints(expected), format_ints(target.sizes()));
  TG_CHECK(target.sizes() == IntSpan(expected), Value,
           "{}: for input of sizes {} the target must have sizes {}: got {}", op, format_ints(input.sizes()),
           format_ints(expected), format_ints(target.sizes()));
  return {input, target, false};
}

Tensor unbatched(const Tensor& loss, bool single, Reduction r) {
  return single && r == Reduction::None ? reshape(loss, {}) : loss;
}

}  // namespace

Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight, Flag size_average,
                int64_t ignore_index, Flag reduce, std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "nll_loss");
  const Batched b = batched(input, target, "nll_loss");
  auto result = _nll_loss(b.input, b.target, weight, static_cast<int64_t>(r), ignore_index);
  return unbatched(std::get<0>(result), b.single, r);
}

namespace {

// Class probabilities as targets.
Tensor soft_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight, Reduction r,
                          double label_smoothing) {
  const int64_t dim = input.ndim() == 1 ? 0 : 1;
  const int64_t classes = input.size(dim);
  const Tensor log_probabilities = log_softmax(input, dim);
  Tensor goal = target;
  if (label_smoothing > 0) goal = goal * (1 - label_smoothing) + label_smoothing / static_cast<double>(classes);
  Tensor terms = log_probabilities * goal;
  if (weight.defined()) {
    DimVector shape(static_cast<size_t>(input.ndim()), 1);
    shape[dim] = classes;
    terms = terms * reshape(weight, shape);
  }
  const int64_t dims[] = {dim};
  const Tensor loss = -sum(terms, OptionalInts(IntSpan(dims, 1)));
  if (r != Reduction::Mean) return apply_reduction(loss, r);
  // PyTorch divides by the batch size, whatever the weights.
  return sum(loss) / (input.ndim() == 1 ? 1.0 : static_cast<double>(input.numel() / std::max<int64_t>(classes, 1)));
}

// (1 - s) nll + s / C * sum over classes of -log p, both weighted.
Tensor smoothed_cross_entropy(const Batched& b, const Tensor& weight, Reduction r, int64_t ignore_index, double s) {
  const Tensor log_probabilities = log_softmax(b.input, 1);
  auto nll = _nll_loss(b.input.is_same(log_probabilities) ? b.input : log_probabilities, b.target, weight,
                       static_cast<int64_t>(r), ignore_index);
  const int64_t classes = b.input.size(1);
  Tensor terms = log_probabilities;
  if (weight.defined()) {
    DimVector shape(static_cast<size_t>(b.input.ndim()), 1);
    shape[1] = classes;
    terms = terms * reshape(weight, shape);
  }
  const int64_t dims[] = {1};
  Tensor smooth = masked_fill(-sum(terms, OptionalInts(IntSpan(dims, 1))), eq(b.target, ignore_index), 0);
  if (r == Reduction::Mean)
    smooth = sum(smooth) / std::get<1>(nll);
  else if (r == Reduction::Sum)
    smooth = sum(smooth);
  return std::get<0>(nll) * (1 - s) + smooth * (s / static_cast<double>(classes));
}

}  // namespace

Tensor cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight, Flag size_average,
                     int64_t ignore_index, Flag reduce, std::string_view reduction, double label_smoothing) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "cross_entropy");
  TG_CHECK(label_smoothing >= 0 && label_smoothing <= 1, Runtime,
           "cross_entropy: label_smoothing must lie between 0 and 1: got {}", label_smoothing);
  if (target.is_floating_point()) {
    TG_CHECK(target.sizes() == input.sizes(), Runtime,
             "cross_entropy: class probabilities need the sizes of input, {}: got {}{}", format_ints(input.sizes()),
             format_ints(target.sizes()),
             target.ndim() < input.ndim()
                 ? fmt::format("\nclass indices need an integer dtype, not {}: use target.long()", target.dtype())
                 : std::string());
    TG_CHECK(ignore_index < 0, Runtime, "cross_entropy: ignore_index goes with class indices only: got {}",
             ignore_index);
    return soft_cross_entropy(input, target, weight, r, label_smoothing);
  }
  const Batched b = batched(input, target, "cross_entropy");
  Tensor loss;
  if (label_smoothing > 0)
    loss = smoothed_cross_entropy(b, weight, r, ignore_index, label_smoothing);
  else if (b.input.ndim() == 2)
    loss = std::get<0>(_cross_entropy(b.input, b.target, weight, static_cast<int64_t>(r), ignore_index));
  else
    loss = std::get<0>(_nll_loss(log_softmax(b.input, 1), b.target, weight, static_cast<int64_t>(r), ignore_index));
  return unbatched(loss, b.single, r);
}

}  // namespace tapegrad::composite
