// Subscripts as Python writes them, `x[1, 2:5, None, ..., mask, indices]`, read and written with PyTorch's meaning:
// integers and slices make one view directly; tensors and bools then index that view, their dimensions standing where
// the indexed ones stood when those are neighbours, else in front. Plain values; threads as for the tensors.
#pragma once

#include <optional>
#include <span>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

struct Subscript {
  enum class Kind : uint8_t { None, Ellipsis, Int, Slice, Tensor, Bool };

  Kind kind = Kind::None;
  bool flag = false;                         // Bool
  int64_t index = 0;                         // Int
  std::optional<int64_t> start, stop, step;  // Slice
  tapegrad::Tensor tensor;                   // Tensor

  static Subscript none() { return {}; }
  static Subscript ellipsis() { return with(Kind::Ellipsis); }
  static Subscript integer(int64_t i) {
    Subscript s = with(Kind::Int);
    s.index = i;
    return s;
  }
  static Subscript slice(std::optional<int64_t> start, std::optional<int64_t> stop, std::optional<int64_t> step = {}) {
    Subscript s = with(Kind::Slice);
    s.start = start;
    s.stop = stop;
    s.step = step;
    return s;
  }
  static Subscript tensor_index(const tapegrad::Tensor& t) {
    Subscript s = with(Kind::Tensor);
    s.tensor = t;
    return s;
  }
  static Subscript boolean(bool b) {
    Subscript s = with(Kind::Bool);
    s.flag = b;
    return s;
  }

 private:
  static Subscript with(Kind kind) {
    Subscript s;
    s.kind = kind;
    return s;
  }
};

// x[subscripts]: a view when no tensor or bool is among them, else a copy. Raises Index (Value for a bad step).
TG_API Tensor get_subscript(const Tensor& input, std::span<const Subscript> subscripts);
// x[subscripts] = value: value is broadcast (leading dimensions of size 1 are dropped where needed) and converted.
TG_API void set_subscript(const Tensor& self, std::span<const Subscript> subscripts, const Operand& value);

}  // namespace tapegrad
