#include "tapegrad/c10/tensor/small_vector.h"

namespace tapegrad {

std::string format_ints(IntSpan values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + "]";
}

}  // namespace tapegrad
