// Arithmetic written as in mathematics. Numbers may stand on either side; comparison gives a bool tensor, as in
// Python. Included by tensor.h.
#pragma once

namespace tapegrad {

TG_API Tensor operator+(const Operand& a, const Operand& b);
TG_API Tensor operator-(const Operand& a, const Operand& b);
TG_API Tensor operator*(const Operand& a, const Operand& b);
TG_API Tensor operator/(const Operand& a, const Operand& b);
TG_API Tensor operator-(const Tensor& a);
TG_API Tensor operator~(const Tensor& a);
TG_API Tensor operator==(const Tensor& a, const Operand& b);
TG_API Tensor operator!=(const Tensor& a, const Operand& b);
TG_API Tensor operator<(const Tensor& a, const Operand& b);
TG_API Tensor operator<=(const Tensor& a, const Operand& b);
TG_API Tensor operator>(const Tensor& a, const Operand& b);
TG_API Tensor operator>=(const Tensor& a, const Operand& b);
TG_API Tensor operator&(const Tensor& a, const Operand& b);
TG_API Tensor operator|(const Tensor& a, const Operand& b);
TG_API Tensor operator^(const Tensor& a, const Operand& b);
TG_API const Tensor& operator+=(const Tensor& a, const Operand& b);
TG_API const Tensor& operator-=(const Tensor& a, const Operand& b);
TG_API const Tensor& operator*=(const Tensor& a, const Operand& b);
TG_API const Tensor& operator/=(const Tensor& a, const Operand& b);

}  // namespace tapegrad
