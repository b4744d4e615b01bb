// Kernels of the Fourier transforms: complex ones along several dimensions, real ones along one. A real transform of
// even length is a complex one of half the length, whose result is then separated (Van Loan, section 4.3).
#include "tapegrad/aten/fft/lines.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/typed.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// The start of each line along dimension d.
class LineStarts {
 public:
  LineStarts(const Tensor& t, int64_t d) {
    for (int i = 0; i < t.ndim(); ++i)
      if (i != d) {
        sizes_.push_back(t.impl()->size(i));
        strides_.push_back(t.impl()->stride(i));
        count *= t.impl()->size(i);
      }
  }
  int64_t operator()(int64_t i) const {
    int64_t offset = 0;
    for (size_t d = sizes_.size(); d-- > 1;) {
      offset += i % sizes_[d] * strides_[d];
      i /= sizes_[d];
    }
    return sizes_.empty() ? 0 : offset + i * strides_[0];
  }
  int64_t count = 1;

 private:
  DimVector sizes_, strides_;
};

template <class E>
auto side(const Tensor& t, int64_t d, E*) {
  LineStarts starts(t, d);
  return Side{static_cast<E*>(t.data_ptr()), t.impl()->stride(static_cast<int>(d)),
              [starts](int64_t i) { return starts(i); }};
}

// Real numbers as complex ones: each by itself, or 2 i and 2 i + 1 as real and imaginary part of element i.
template <bool kPairs, class T>
void load_real(const Group<const T>& g, int64_t step, int64_t n, Block<T>* to) {
  constexpr int64_t kTile = 16;
  for (int64_t first = 0; first < n; first += kTile) {
    int64_t last = std::min(first + kTile, n);
    for (int l = 0; l < kLanes<T>; ++l)
      for (int64_t i = first; i < last; ++i) {
        to[i].re[l] = g.start[l][kPairs ? 2 * i * step : i * step];
        to[i].im[l] = kPairs ? g.start[l][(2 * i + 1) * step] : T(0);
      }
  }
}

// x[k] for k <= half from the transform z of the pairs.
template <class T>
void take_apart(const Block<T>* z, const std::complex<T>* w, int64_t half, Block<T>* x) {
  for (int64_t k = 0; k <= half; ++k) {
    const Block<T>&a = z[k == half ? 0 : k], &b = z[k == 0 ? 0 : half - k];
    T wr = w[k].real(), wi = w[k].imag();
    for (int l = 0; l < kLanes<T>; ++l) {
      T er = T(0.5) * (a.re[l] + b.re[l]), ei = T(0.5) * (a.im[l] - b.im[l]);
      T odd_r = T(0.5) * (a.im[l] + b.im[l]), odd_i = T(0.5) * (b.re[l] - a.re[l]);
      x[k].re[l] = er + odd_r * wr - odd_i * wi;
      x[k].im[l] = ei + odd_r * wi + odd_i * wr;
    }
  }
}

// The reverse, twice as large, with the parts exchanged for the inverse transform.
template <class T>
void put_together(const Block<T>* x, const std::complex<T>* w, int64_t half, Block<T>* z) {
  for (int64_t k = 0; k < half; ++k) {
    const Block<T>&a = x[k], &b = x[half - k];
    T wr = w[k].real(), wi = -w[k].imag();
    for (int l = 0; l < kLanes<T>; ++l) {
      T er = a.re[l] + b.re[l], ei = a.im[l] - b.im[l], dr = a.re[l] - b.re[l], di = a.im[l] + b.im[l];
      T odd_r = dr * wr - di * wi, odd_i = dr * wi + di * wr;
      z[k].im[l] = er - odd_i;
      z[k].re[l] = ei + odd_r;
    }
  }
}

template <class T>
void clear_imaginary(Block<T>& x) {
  for (int l = 0; l < kLanes<T>; ++l) x.im[l] = T(0);
}

// The other half of a real line's transform: conj(x[k]) at n - k.
template <class T>
void mirror(std::complex<T>* line, int64_t step, int64_t n) {
  const int64_t first = n / 2 + 1;
  each_element(n - first, [&](int64_t i) { line[(first + i) * step] = std::conj(line[(n - first - i) * step]); });
}

template <class T>
std::complex<T> times(std::complex<T> a, std::complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

int64_t start_of_one(int64_t) { return 0; }

// One long real line, by way of a complex one.
template <class T>
void real_line(const fft::Plan<T>& plan, const std::complex<T>* w, const T* in, int64_t in_step, int64_t n,
               std::complex<T>* out, int64_t out_step, T scale) {
  using C = std::complex<T>;
  int64_t m = plan.n;
  Buffer<C> x(m), z(m);
  bool pairs = n % 2 == 0;
  each_element(plan.n, [&](int64_t i) {
    x[i] = pairs ? C(in[2 * i * in_step], in[(2 * i + 1) * in_step]) : C(in[i * in_step]);
  });
  transform_lines<T>(plan, 1, Side{static_cast<const C*>(x.get()), 1, start_of_one}, Side{z.get(), 1, start_of_one}, {},
                     T(1));
  each_element(n / 2 + 1, [&](int64_t k) {
    if (!pairs) {
      out[k * out_step] = z[k] * scale;
      return;
    }
    C a = z[k % m], b = std::conj(z[(m - k) % m]);
    C even = (a + b) * T(0.5), d = (a - b) * T(0.5), odd(d.imag(), -d.real());
    out[k * out_step] = (even + times(w[k], odd)) * scale;
  });
  // Sums of real numbers, whatever an infinity has made of the other part.
  out[0] = out[0].real();
  if (pairs) out[n / 2 * out_step] = out[n / 2 * out_step].real();
}

template <class T>
void complex_line(const fft::Plan<T>& plan, const std::complex<T>* w, const std::complex<T>* in, int64_t in_step,
                  int64_t n, T* out, int64_t out_step, T scale) {
  using C = std::complex<T>;
  Buffer<C> x(plan.n), z(plan.n);
  bool pairs = n % 2 == 0;
  int64_t half = n / 2;
  auto at = [&](int64_t k) {
    C value = in[k * in_step];
    return k == 0 || (pairs && k == half) ? C(value.real()) : value;
  };
  if (pairs) {
    each_element(half, [&](int64_t k) {
      C a = at(k), b = std::conj(at(half - k)), odd = times(a - b, std::conj(w[k]));
      x[k] = a + b + C(-odd.imag(), odd.real());
    });
  } else {
    each_element(half + 1, [&](int64_t k) {
      x[k] = at(k);
      if (k > 0) x[n - k] = std::conj(at(k));
    });
  }
  transform_lines<T>(plan, 1, Side{static_cast<const C*>(x.get()), 1, start_of_one}, Side{z.get(), 1, start_of_one},
                     {true, true}, T(1));
  each_element(plan.n, [&](int64_t i) {
    C value = z[i];
    if (pairs) {
      out[2 * i * out_step] = value.real() * scale;
      out[(2 * i + 1) * out_step] = value.imag() * scale;
    } else {
      out[i * out_step] = value.real() * scale;
    }
  });
}

}  // namespace

void fft_c2c_cpu(const Tensor& input, IntSpan dims, double scale, bool forward, const Tensor& out) {
  if (out.numel() == 0) return;
  dispatch_precision(to_real(input.dtype()), [&]<class T>() {
    using C = std::complex<T>;
    for (size_t i = dims.size(); i-- > 0;) {
      const Tensor& from = i + 1 == dims.size() ? input : out;
      auto plan = fft::plan_for<T>(out.impl()->size(static_cast<int>(dims[i])));
      int64_t count = out.numel() / plan->n;
      transform_lines<T>(*plan, count, side(from, dims[i], static_cast<const C*>(nullptr)),
                         side(out, dims[i], static_cast<C*>(nullptr)), {!forward, !forward},
                         i == 0 ? static_cast<T>(scale) : T(1));
    }
  });
}

namespace {

// What real transforms of length n need: the plan of half as many pairs where n is even, and how these are separated.
template <class T>
struct RealPlan {
  int64_t half;
  bool pairs;
  decltype(fft::plan_for<T>(0)) plan;
  decltype(fft::half_circle<T>(0)) circle;
  explicit RealPlan(int64_t n)
      : half(n / 2), pairs(n % 2 == 0), plan(fft::plan_for<T>(pairs ? half : n)), circle(fft::half_circle<T>(n)) {}
};

}  // namespace

void fft_r2c_cpu(const Tensor& input, int64_t dim, double scale, bool onesided, const Tensor& out) {
  if (out.numel() == 0) return;
  dispatch_precision(to_real(input.dtype()), [&]<class T>() {
    using C = std::complex<T>;
    constexpr int V = kLanes<T>;
    auto in = side(input, dim, static_cast<const T*>(nullptr));
    auto to = side(out, dim, static_cast<C*>(nullptr));
    int64_t n = input.impl()->size(static_cast<int>(dim)), count = input.numel() / n;
    const RealPlan<T> real(n);
    const int64_t half = real.half;
    const bool pairs = real.pairs;
    const auto& plan = real.plan;
    const C* w = real.circle->data();
    T factor = static_cast<T>(scale);
    if (!in_groups(*plan, count)) {
      return each_line(count, n, [&](int64_t i) {
        real_line<T>(*plan, w, in.line(i), in.step, n, to.line(i), to.step, factor);
        if (!onesided) mirror(to.line(i), to.step, n);
      });
    }
    parallel_for(0, (count + V - 1) / V, group_grain(plan->n, V), [&](int64_t first, int64_t last) {
      const size_t blocks = static_cast<size_t>(std::max(blocks_of(*plan), half + 1));
      Block<T>*a = scratch<Block<T>>(blocks, 0), *b = scratch<Block<T>>(blocks, 1);
      for (int64_t i = first; i < last; ++i) {
        Group<const T> from(in, i * V, count, V);
        Group<C> lines(to, i * V, count, V);
        if (pairs)
          load_real<true>(from, in.step, half, a);
        else
          load_real<false>(from, in.step, n, a);
        Block<T>* x = transform_blocks(*plan, a, b);
        if (pairs) {
          Block<T>* y = x == a ? b : a;
          take_apart(x, w, half, y);
          x = y;
        }
        clear_imaginary(x[0]);  // sums of real numbers
        if (pairs) clear_imaginary(x[half]);
        store<T>(lines, to.step, half + 1, false, factor, x);
        for (int l = 0; !onesided && l < lines.used; ++l) mirror(lines.start[l], to.step, n);
      }
    });
  });
}

void fft_c2r_cpu(const Tensor& input, int64_t dim, int64_t n, double scale, const Tensor& out) {
  if (out.numel() == 0) return;
  dispatch_precision(to_real(input.dtype()), [&]<class T>() {
    using C = std::complex<T>;
    constexpr int V = kLanes<T>;
    auto in = side(input, dim, static_cast<const C*>(nullptr));
    auto to = side(out, dim, static_cast<T*>(nullptr));
    const RealPlan<T> real(n);
    const auto& plan = real.plan;
    const bool pairs = real.pairs;
    const int64_t count = out.numel() / n, half = real.half;
    const T factor = static_cast<T>(scale);
    const C* w = real.circle->data();
    if (!in_groups(*plan, count)) {
      return each_line(
          count, n, [&](int64_t i) { complex_line<T>(*plan, w, in.line(i), in.step, n, to.line(i), to.step, factor); });
    }
    parallel_for(0, (count + V - 1) / V, group_grain(plan->n, V), [&](int64_t first, int64_t last) {
      const size_t blocks = static_cast<size_t>(std::max(blocks_of(*plan), half + 1));
      Block<T>*a = scratch<Block<T>>(blocks, 0), *b = scratch<Block<T>>(blocks, 1);
      for (int64_t i = first; i < last; ++i) {
        load<T>(Group<const C>(in, i * V, count, V), in.step, half + 1, false, b);
        clear_imaginary(b[0]);
        if (pairs) {
          clear_imaginary(b[half]);
          put_together(b, w, half, a);
        } else {
          for (int64_t k = 0; k <= half; ++k)
            for (int l = 0; l < V; ++l) {  // parts exchanged, for the inverse
              T re = b[k].re[l], im = b[k].im[l];
              a[k].re[l] = im;
              a[k].im[l] = re;
              if (k > 0) {
                a[n - k].re[l] = -im;
                a[n - k].im[l] = re;
              }
            }
        }
        Block<T>* x = transform_blocks(*plan, a, b);
        Group<T> lines(to, i * V, count, V);
        for (int l = 0; l < lines.used; ++l) {
          T* line = lines.start[l];
          for (int64_t k = 0; k < plan->n; ++k) {
            if (pairs) {
              line[2 * k * to.step] = x[k].im[l] * factor;
              line[(2 * k + 1) * to.step] = x[k].re[l] * factor;
            } else {
              line[k * to.step] = x[k].im[l] * factor;
            }
          }
        }
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
