#include "tapegrad/aten/loss/reduction.h"

#include "tapegrad/aten/functions_reduce.h"

namespace tapegrad {

Reduction parse_reduction(std::string_view text, const char* op) {
  if (text == "mean") return Reduction::Mean;
  if (text == "sum") return Reduction::Sum;
  if (text == "none") return Reduction::None;
  TG_THROW(Value, "{}: reduction must be none, mean or sum: got '{}'", op, text);
}

Reduction parse_reduction(std::string_view text, std::optional<bool> size_average, std::optional<bool> reduce,
                          const char* op) {
  if (!size_average && !reduce) return parse_reduction(text, op);
  if (!reduce.value_or(true)) return Reduction::None;
  return size_average.value_or(true) ? Reduction::Mean : Reduction::Sum;
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
