// Arithmetic written as in mathematics. Numbers may stand on either side; comparison gives a bool tensor, as in
// Python. Included by tensor.h.
#pragma once

namespace tapegrad {

inline Tensor operator+(const Operand& a, const Operand& b) { return add(a, b); }
inline Tensor operator-(const Operand& a, const Operand& b) { return sub(a, b); }
inline Tensor operator*(const Operand& a, const Operand& b) { return mul(a, b); }
inline Tensor operator/(const Operand& a, const Operand& b) { return div(a, b); }
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator~(const Tensor& a) { return bitwise_not(a); }
inline Tensor operator==(const Tensor& a, const Operand& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Operand& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Operand& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Operand& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Operand& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Operand& b) { return ge(a, b); }
inline Tensor operator&(const Tensor& a, const Operand& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Operand& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Operand& b) { return bitwise_xor(a, b); }
inline const Tensor& operator+=(const Tensor& a, const Operand& b) { return add_(a, b); }
inline const Tensor& operator-=(const Tensor& a, const Operand& b) { return sub_(a, b); }
inline const Tensor& operator*=(const Tensor& a, const Operand& b) { return mul_(a, b); }
inline const Tensor& operator/=(const Tensor& a, const Operand& b) { return div_(a, b); }

}  // namespace tapegrad
