#include "tapegrad/aten/loss/reduction.h"

#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad {

Reduction parse_reduction(std::string_view text, const char* op) {
  if (text == "mean") return Reduction::Mean;
  if (text == "sum") return Reduction::Sum;
  if (text == "none") return Reduction::None;
  if (text == "elementwise_mean") {
    warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.");
    return Reduction::Mean;
  }
  TG_THROW(Value, "{}: reduction must be none, mean or sum: got '{}'", op, text);
}

Reduction parse_reduction(std::string_view text, std::optional<bool> size_average, std::optional<bool> reduce,
                          const char* op) {
  if (!size_average && !reduce) return parse_reduction(text, op);
  if (!reduce.value_or(true)) return Reduction::None;
  return size_average.value_or(true) ? Reduction::Mean : Reduction::Sum;
}

void warn_of_broadcast(const Tensor& input, const Tensor& target) {
  if (TG_LIKELY(input.sizes() == target.sizes())) return;
  warn(fmt::format(
      "Using a target size ({}) that is different to the input size ({}). This will likely lead to incorrect "
      "results due to broadcasting. Please ensure they have the same size.",
      format_ints(target.sizes()), format_ints(input.sizes())));
}

Tensor apply_reduction(const Tensor& loss, Reduction reduction) {
  switch (reduction) {
    case Reduction::Mean:
      return mean(loss);
    case Reduction::Sum:
      return sum(loss);
    default:
      return loss;
  }
}

}  // namespace tapegrad
