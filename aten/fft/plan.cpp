#include "tapegrad/aten/fft/plan.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <type_traits>

#include "tapegrad/aten/fft/lengths.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::fft {
namespace {

int64_t balanced_divisor(int64_t n) {
  int64_t best = 1;
  for (int64_t d = 1; d * d <= n; ++d)
    if (n % d == 0) best = d;
  return best;
}

template <class T>
std::complex<T> rounded(std::complex<double> z) {
  return {static_cast<T>(z.real()), static_cast<T>(z.imag())};
}

// n zeros. The system maps new pages one by one, so interrupts are checked in between.
template <class V>
void fill_with_zeros(std::vector<V>& v, int64_t n) {
  v.reserve(static_cast<size_t>(n));
  serial_for(0, n, [&](int64_t, int64_t last) { v.resize(static_cast<size_t>(last)); });
}

// Values per length, the least recently used ones dropped beyond a number.
template <class V>
class Cache {
 public:
  template <class Make>
  std::shared_ptr<const V> get(int64_t n, Make&& make) {
    {
      std::lock_guard lock(mutex_);
      for (auto it = entries_.begin(); it != entries_.end(); ++it)
        if (it->first == n) {
          entries_.splice(entries_.begin(), entries_, it);
          return it->second;
        }
    }
    std::shared_ptr<const V> made = make();
    std::lock_guard lock(mutex_);
    entries_.emplace_front(n, made);
    if (entries_.size() > kKept) entries_.pop_back();
    return made;
  }

 private:
  static constexpr size_t kKept = 24;
  std::mutex mutex_;
  std::list<std::pair<int64_t, std::shared_ptr<const V>>> entries_;
};

}  // namespace

void reference_transform(std::vector<std::complex<double>>& x) {
  using C = std::complex<double>;
  const auto n = static_cast<int64_t>(x.size());
  std::vector<C> y;
  fill_with_zeros(y, n);
  int64_t left = n, stride = 1;
  for (int64_t r : radices_of(prime_factors(n))) {
    const int64_t m = left / r;
    std::vector<C> small(static_cast<size_t>(r));
    for (int64_t j = 0; j < r; ++j) small[static_cast<size_t>(j)] = root_of_unity(j, r);
    const C* from = x.data();
    C* to = y.data();
    // Butterfly p of elements q: the roots of p are found once for a run of q.
    parallel_for(0, m * stride, 4096, [&](int64_t first, int64_t last) {
      std::vector<C> turns(static_cast<size_t>(r));
      for (int64_t p = first / stride; first < last; ++p) {
        for (int64_t j = 0; j < r; ++j) turns[static_cast<size_t>(j)] = root_of_unity(j * p, left);
        const int64_t end = std::min(last, (p + 1) * stride);
        for (; first < end; ++first) {
          const int64_t q = first - p * stride;
          for (int64_t j = 0; j < r; ++j) {
            C sum = 0;
            for (int64_t k = 0; k < r; ++k)
              sum += from[q + stride * (p + m * k)] * small[static_cast<size_t>(j * k % r)];
            to[q + stride * (r * p + j)] = sum * turns[static_cast<size_t>(j)];
          }
        }
      }
    });
    x.swap(y);
    left = m;
    stride *= r;
  }
}

namespace {

// The n-th roots of unity in double, each the product of two from tables of sqrt(n): off by two units in the last
// place of double, which rounds to the same float but for one in 10^8. For double itself, the exact ones.
template <class T>
class Roots {
 public:
  explicit Roots(int64_t n) : n_(n) {
    if (std::is_same_v<T, double> || n < 4096) return;
    while (fine_ * fine_ < n) fine_ *= 2;
    for (int64_t k = 0; k < fine_; ++k) low_.push_back(root_of_unity(k, n));
    for (int64_t k = 0; k * fine_ < n; ++k) high_.push_back(root_of_unity(k * fine_, n));
  }
  // 0 <= k < n
  std::complex<T> operator()(int64_t k) const {
    if (low_.empty()) return rounded<T>(root_of_unity(k, n_));
    const std::complex<double> a = high_[static_cast<size_t>(k / fine_)], b = low_[static_cast<size_t>(k % fine_)];
    return {static_cast<T>(a.real() * b.real() - a.imag() * b.imag()),
            static_cast<T>(a.real() * b.imag() + a.imag() * b.real())};
  }

 private:
  int64_t n_, fine_ = 1;
  std::vector<std::complex<double>> low_, high_;
};

}  // namespace

template <class T>
Plan<T>::Plan(int64_t length) : n(length) {
  std::vector<int64_t> primes = prime_factors(n);
  smooth = primes.empty() || primes.back() <= kLargestRadix;
  if (!smooth) {
    int64_t m = good_length(2 * n - 1);
    convolution = plan_for<T>(m);
    std::vector<std::complex<double>> b;
    fill_with_zeros(b, m);
    fill_with_zeros(chirp, n);
    parallel_for(0, n, 4096, [&](int64_t begin, int64_t end) {
      int64_t square = static_cast<int64_t>(static_cast<unsigned __int128>(begin) * static_cast<uint64_t>(begin) %
                                            static_cast<uint64_t>(2 * n));  // k^2 modulo 2 n
      for (int64_t k = begin; k < end; ++k) {
        const std::complex<double> w = root_of_unity(square, 2 * n);
        chirp[static_cast<size_t>(k)] = rounded<T>(w);
        b[static_cast<size_t>(k)] = std::conj(w);
        if (k > 0) b[static_cast<size_t>(m - k)] = std::conj(w);
        square = (square + 2 * k + 1) % (2 * n);
      }
    });
    reference_transform(b);
    fill_with_zeros(chirp_transform, m);
    parallel_for(0, m, 32768, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        chirp_transform[static_cast<size_t>(k)] = rounded<T>(b[static_cast<size_t>(k)] / static_cast<double>(m));
    });
    return;
  }
  int64_t divisor = balanced_divisor(n);
  if (n >= 64 && divisor >= 4) {
    n1 = divisor;
    n2 = n / divisor;
    first = plan_for<T>(n1);
    second = plan_for<T>(n2);
    fill_with_zeros(twist, n);
    const Roots<T> root(n);
    parallel_for(0, n1, std::max<int64_t>(1, 4096 / n2), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        for (int64_t j = 0; j < n2; ++j) twist[static_cast<size_t>(k * n2 + j)] = root(j * k);  // below n
    });
  }
  if (n > kDirect && n1 > 0) return;  // never done by passes
  int64_t left = n, stride = 1;
  for (int64_t r : radices_of(primes)) {
    int64_t m = left / r;
    passes.push_back({r, m, stride, roots.size()});
    for (int64_t p = 0; p < m; ++p)
      for (int64_t j = 1; j < r; ++j) roots.push_back(rounded<T>(root_of_unity(j * p, left)));
    circle_at.push_back(circle.size());
    if (r > 5)
      for (int64_t j = 0; j < r; ++j) circle.push_back(rounded<T>(root_of_unity(j, r)));
    left = m;
    stride *= r;
  }
}

template <class T>
std::shared_ptr<const Plan<T>> plan_for(int64_t n) {
  static Cache<Plan<T>> cache;
  return cache.get(n, [&] { return std::make_shared<const Plan<T>>(n); });
}

template <class T>
std::shared_ptr<const std::vector<std::complex<T>>> half_circle(int64_t n) {
  static Cache<std::vector<std::complex<T>>> cache;
  return cache.get(n, [&] {
    std::vector<std::complex<T>> w;
    fill_with_zeros(w, n / 2 + 1);
    const Roots<T> root(n);
    parallel_for(0, n / 2 + 1, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) w[static_cast<size_t>(k)] = root(k);
    });
    return std::make_shared<const std::vector<std::complex<T>>>(std::move(w));
  });
}

template struct Plan<float>;
template struct Plan<double>;
template std::shared_ptr<const Plan<float>> plan_for<float>(int64_t);
template std::shared_ptr<const Plan<double>> plan_for<double>(int64_t);
template std::shared_ptr<const std::vector<std::complex<float>>> half_circle<float>(int64_t);
template std::shared_ptr<const std::vector<std::complex<double>>> half_circle<double>(int64_t);

}  // namespace tapegrad::fft
