// Operators of std::complex<float> and std::complex<double> for kernels.
//
// libstdc++ keeps these two in C's _Complex, and nvcc removes from kernels, without a word, whatever computes with
// that: `a + b` of complex numbers is `a` there. What only reads, stores or compares the parts is compiled. The
// functions here are no templates, so they are preferred to those of the library, for which they stand in namespace
// std: others are found only by luck. Division is deleted: math::div has the algorithm. Members that are not templates
// cannot be replaced: in kernels never assign a real number to a complex one, nor write `a += 2.0f` or complex<float>(a
// complex<double>), but name the parts (fn::widen). test/python/cuda/test_library.py looks for what is left of them
// in the PTX.
#pragma once

#include <complex>

#define TG_COMPLEX_OPERATORS(R)                                                                                      \
  __host__ __device__ constexpr complex<R> operator+(const complex<R>& a, const complex<R>& b) {                     \
    return {a.real() + b.real(), a.imag() + b.imag()};                                                               \
  }                                                                                                                  \
  __host__ __device__ constexpr complex<R> operator-(const complex<R>& a, const complex<R>& b) {                     \
    return {a.real() - b.real(), a.imag() - b.imag()};                                                               \
  }                                                                                                                  \
  __host__ __device__ constexpr complex<R> operator*(const complex<R>& a, const complex<R>& b) {                     \
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};                   \
  }                                                                                                                  \
  __host__ __device__ constexpr complex<R> operator+(const complex<R>& a, R b) { return {a.real() + b, a.imag()}; }  \
  __host__ __device__ constexpr complex<R> operator+(R a, const complex<R>& b) { return {a + b.real(), b.imag()}; }  \
  __host__ __device__ constexpr complex<R> operator-(const complex<R>& a, R b) { return {a.real() - b, a.imag()}; }  \
  __host__ __device__ constexpr complex<R> operator-(R a, const complex<R>& b) { return {a - b.real(), -b.imag()}; } \
  __host__ __device__ constexpr complex<R> operator*(const complex<R>& a, R b) {                                     \
    return {a.real() * b, a.imag() * b};                                                                             \
  }                                                                                                                  \
  __host__ __device__ constexpr complex<R> operator*(R a, const complex<R>& b) {                                     \
    return {a * b.real(), a * b.imag()};                                                                             \
  }                                                                                                                  \
  __host__ __device__ constexpr complex<R> operator/(const complex<R>& a, R b) {                                     \
    return {a.real() / b, a.imag() / b};                                                                             \
  }                                                                                                                  \
  __host__ __device__ constexpr complex<R>& operator+=(complex<R>& a, const complex<R>& b) { return a = a + b; }     \
  __host__ __device__ constexpr complex<R>& operator-=(complex<R>& a, const complex<R>& b) { return a = a - b; }     \
  __host__ __device__ constexpr complex<R>& operator*=(complex<R>& a, const complex<R>& b) { return a = a * b; }     \
  complex<R> operator/(const complex<R>&, const complex<R>&) = delete;                                               \
  complex<R> operator/(R, const complex<R>&) = delete;                                                               \
  complex<R>& operator/=(complex<R>&, const complex<R>&) = delete;

namespace std {
TG_COMPLEX_OPERATORS(float)
TG_COMPLEX_OPERATORS(double)
}  // namespace std
#undef TG_COMPLEX_OPERATORS
