#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_pointwise.h"

namespace tapegrad {

Tensor operator+(const Operand& a, const Operand& b) { return add(a, b); }
Tensor operator-(const Operand& a, const Operand& b) { return sub(a, b); }
Tensor operator*(const Operand& a, const Operand& b) { return mul(a, b); }
Tensor operator/(const Operand& a, const Operand& b) { return div(a, b); }
Tensor operator-(const Tensor& a) { return neg(a); }
Tensor operator~(const Tensor& a) { return bitwise_not(a); }
Tensor operator==(const Tensor& a, const Operand& b) { return eq(a, b); }
Tensor operator!=(const Tensor& a, const Operand& b) { return ne(a, b); }
Tensor operator<(const Tensor& a, const Operand& b) { return lt(a, b); }
Tensor operator<=(const Tensor& a, const Operand& b) { return le(a, b); }
Tensor operator>(const Tensor& a, const Operand& b) { return gt(a, b); }
Tensor operator>=(const Tensor& a, const Operand& b) { return ge(a, b); }
Tensor operator&(const Tensor& a, const Operand& b) { return bitwise_and(a, b); }
Tensor operator|(const Tensor& a, const Operand& b) { return bitwise_or(a, b); }
Tensor operator^(const Tensor& a, const Operand& b) { return bitwise_xor(a, b); }
const Tensor& operator+=(const Tensor& a, const Operand& b) { return add_(a, b); }
const Tensor& operator-=(const Tensor& a, const Operand& b) { return sub_(a, b); }
const Tensor& operator*=(const Tensor& a, const Operand& b) { return mul_(a, b); }
const Tensor& operator/=(const Tensor& a, const Operand& b) { return div_(a, b); }

}  // namespace tapegrad
