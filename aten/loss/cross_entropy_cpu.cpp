// Cross entropy of rows in one pass: the maximum, the sum of exponentials, the loss. The softmax is not stored; the
// gradient recomputes it from the saved normaliser.
#include <algorithm>
#include <numeric>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/loss/label.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

constexpr int64_t kGrain = 16384;  // elements
constexpr int64_t kBlock = 512;

// What is subtracted from values in two parts, of which only the first is near them.
template <class C>
struct Shift {
  explicit Shift(double shift)
      : large(static_cast<C>(shift)),
        small(std::isfinite(large) ? static_cast<C>(shift - static_cast<double>(large)) : C(0)) {}
  C large, small;
};

// exp(x - shift) of a row, block by block, through `use(block, first, length)`, which may write to the block.
template <class T, class F>
void exponentials(const T* x, int64_t n, double shift, F&& use) {
  using C = compute_t<T>;
  const auto [large, small] = Shift<C>(shift);
  C block[kBlock];
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t length = std::min(kBlock, n - first);
    blocks::map(
        length, block, [=](C value) { return math::exp((value - large) - small); }, x + first);
    use(block, first, length);
  }
}

// Rows of few numbers lie side by side in a block that is filled up to whole vectors, so that each exponential is one
// of many, wherever its row is: fill(row, place in the block, to) writes `width` numbers, use(row, place, exponentials)
// gets theirs.
constexpr int64_t kFewClasses = 16;

template <class C, class Fill, class F>
void exponentials_of_rows(int64_t rows, int64_t width, Fill&& fill, F&& use) {
  static_assert(kBlock % blocks::kWidth == 0);
  C block[kBlock];
  const int64_t most = kBlock / width;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t many = std::min(most, rows - first), length = many * width;
    const int64_t whole = (length + blocks::kWidth - 1) / blocks::kWidth * blocks::kWidth;
    for (int64_t i = 0; i < many; ++i) fill(first + i, i, block + i * width);
    std::fill(block + length, block + whole, C(0));
    blocks::map(
        whole, block, [](C value) { return math::exp(value); }, block);
    for (int64_t i = 0; i < many; ++i) use(first + i, i, block + i * width);
  }
}

// As many chains of comparisons or additions side by side, which the compiler turns into vectors.
constexpr int64_t kLanes = blocks::kWidth;

template <class C, class T>
C largest_of(const T* x, int64_t n) {
  if (n < kLanes) {  // few classes: the lanes would be most of the work
    C largest = -std::numeric_limits<C>::infinity();
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<C>(x[i]));
    return largest;
  }
  C lane[kLanes];
  std::fill(lane, lane + kLanes, -std::numeric_limits<C>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    blocks::each([&](int64_t l, C value) { lane[l] = value > lane[l] ? value : lane[l]; }, x + i);
  for (int64_t l = 0; i < n; ++i, ++l) lane[l] = std::max(lane[l], static_cast<C>(x[i]));
  return *std::max_element(lane, lane + kLanes);
}

template <class C>
C sum_of(const C* x, int64_t n) {
  if (n < kLanes) return std::accumulate(x, x + n, C(0));
  C lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lane[l] += x[i + l];
  for (int64_t l = 0; i < n; ++i, ++l) lane[l] += x[i];
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

// log(sum(exp(x))) in two parts: the largest x, and what is added to it. The loss is taken from the parts: where the
// target has nearly all of the sum, their sum would round it away.
template <class C>
struct Normaliser {
  C largest, rest;
};

template <class C, class T>
C finite_largest_of(const T* x, int64_t n) {
  const C largest = largest_of<C>(x, n);
  return std::isfinite(largest) ? largest : C(0);
}

template <class T>
Normaliser<compute_t<T>> log_normaliser_of(const T* x, int64_t n) {
  using C = compute_t<T>;
  const C largest = finite_largest_of<C>(x, n);
  C total = 0;
  exponentials(x, n, largest, [&](const C* e, int64_t, int64_t length) { total += sum_of(e, length); });
  return {largest, std::log(total)};
}

}  // namespace

void cross_entropy_cpu(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t reduction,
                       int64_t ignore_index, const Tensor& out, const Tensor& out_log, const Tensor& out_total) {
  const int64_t rows = input.size(0), classes = input.size(1);
  const std::vector<int64_t> labels = label::read(target, classes, ignore_index, "cross_entropy");
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T* x = static_cast<const T*>(input.data_ptr());
    const T* w = weight.defined() ? static_cast<const T*>(weight.data_ptr()) : nullptr;
    double* normaliser = static_cast<double*>(out_log.data_ptr());
    std::vector<C> losses(labels.size()), weights(labels.size());
    const auto finish = [&](int64_t r, const Normaliser<C>& sum) {
      normaliser[r] = static_cast<double>(sum.largest) + static_cast<double>(sum.rest);
      const int64_t t = labels[static_cast<size_t>(r)];
      if (t == ignore_index) return;
      const C wr = w ? static_cast<C>(w[t]) : C(1);
      weights[static_cast<size_t>(r)] = wr;
      losses[static_cast<size_t>(r)] = wr * (sum.rest + (sum.largest - static_cast<C>(x[r * classes + t])));
    };
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(classes, 1)),
                 [&](int64_t begin, int64_t end) {
                   if (classes == 0 || classes > kFewClasses) {
                     for (int64_t r = begin; r < end; ++r) finish(r, log_normaliser_of(x + r * classes, classes));
                     return;
                   }
                   C largest[kBlock];
                   exponentials_of_rows<C>(
                       end - begin, classes,
                       [&](int64_t i, int64_t place, C* to) {
                         const T* row = x + (begin + i) * classes;
                         largest[place] = finite_largest_of<C>(row, classes);
                         for (int64_t j = 0; j < classes; ++j) to[j] = static_cast<C>(row[j]) - largest[place];
                       },
                       [&](int64_t i, int64_t place, const C* e) {
                         finish(begin + i, {largest[place], std::log(sum_of(e, classes))});
                       });
                 });
    label::write_reduced<T, C>(losses, weights, reduction, out, out_total);
  });
}

void cross_entropy_backward_cpu(const Tensor& grad_output, const Tensor& input, const Tensor& target,
                                const Tensor& weight, const Tensor& log_normaliser, const Tensor& total_weight,
                                int64_t reduction, int64_t ignore_index, const Tensor& out) {
  const int64_t rows = input.size(0), classes = input.size(1);
  const std::vector<int64_t> labels = label::read(target, classes, ignore_index, "cross_entropy");
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const label::GradientScale<T> scale(grad_output, total_weight, reduction);
    const T* x = static_cast<const T*>(input.data_ptr());
    const T* w = weight.defined() ? static_cast<const T*>(weight.data_ptr()) : nullptr;
    const double* normaliser = static_cast<const double*>(log_normaliser.data_ptr());
    T* o = static_cast<T*>(out.data_ptr());
    // How far the target is from the normaliser.
    const auto of_target = [&](int64_t r, int64_t t) {
      return static_cast<C>(static_cast<double>(static_cast<C>(x[r * classes + t])) - normaliser[r]);
    };
    const auto few = [&](int64_t begin, int64_t end) {
      exponentials_of_rows<C>(
          end - begin, classes + 1,
          [&](int64_t i, int64_t, C* to) {
            const int64_t r = begin + i, t = labels[static_cast<size_t>(r)];
            const auto [large, small] = Shift<C>(normaliser[r]);
            for (int64_t j = 0; j < classes; ++j) to[j] = (static_cast<C>(x[r * classes + j]) - large) - small;
            to[classes] = t == ignore_index ? C(0) : of_target(r, t);
          },
          [&](int64_t i, int64_t, C* p) {
            const int64_t r = begin + i, t = labels[static_cast<size_t>(r)];
            T* result = o + r * classes;
            if (t == ignore_index) {
              std::fill(result, result + classes, T(C(0)));
              return;
            }
            const C factor = scale(r) * (w ? static_cast<C>(w[t]) : C(1));
            const C at_target = p[classes];
            for (int64_t j = 0; j < classes; ++j) result[j] = T(p[j] * factor);
            p[t] = 0;
            result[t] = T(-(at_target > C(0.5) ? sum_of(p, classes) : C(1) - at_target) * factor);
          });
    };
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(classes, 1)),
                 [&](int64_t begin, int64_t end) {
                   if (classes > 0 && classes <= kFewClasses) return few(begin, end);
                   for (int64_t r = begin; r < end; ++r) {
                     const int64_t t = labels[static_cast<size_t>(r)];
                     T* result = o + r * classes;
                     if (t == ignore_index) {
                       std::fill(result, result + classes, T(C(0)));
                       continue;
                     }
                     const C factor = scale(r) * (w ? static_cast<C>(w[t]) : C(1));
                     // 1 - p[target]: where that would round most of it away, the sum of the others.
                     const C at_target = math::exp(of_target(r, t));
                     const bool sums = at_target > C(0.5);
                     C others = sums ? C(0) : C(1) - at_target;
                     exponentials(x + r * classes, classes, normaliser[r], [&](C* p, int64_t first, int64_t length) {
                       if (sums) {
                         if (t >= first && t < first + length) p[t - first] = 0;
                         others += sum_of(p, length);
                       }
                       blocks::map(
                           length, result + first, [factor](C e) { return e * factor; }, p);
                     });
                     result[t] = T(-others * factor);
                   }
                 });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
