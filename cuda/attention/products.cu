#include "tapegrad/cuda/attention/products.h"

#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/linalg/product_library.h"

namespace tapegrad::cuda {
namespace attention_products {  // not unnamed: lambdas of exported templates capture its types

using attention::Sizes;
using attention_tiles::dropped;
using attention_tiles::KeptWeights;
using attention_tiles::Mask;

// The rows of the scores at hand; the first of them is row `before` of all heads.
template <class T>
struct Rows {
  Sizes z;
  Mask<T> mask;
  KeptWeights kept;
  int64_t before;
  bool packed;
};

// Scores become weights, with the logarithm of each row's sum. A row that sees nothing gets zeros.
template <class T>
struct MakeWeights : Rows<T> {
  T* scores;
  T* logsumexp;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    const Sizes& z = this->z;
    const int64_t all = this->before + line, h = all / z.rows, row = all % z.rows;
    T* s = scores + line * z.keys;
    const auto seen = [&](T score, int64_t key) { return this->mask.apply(score, h, row, key); };
    T top = -std::numeric_limits<T>::infinity();
    for_packs<T>(g, z.keys, this->packed, [&]<int V>(int64_t i) {
      const auto v = load_values<V>(s + i);
      TG_UNROLL
      for (int j = 0; j < V; ++j) top = Largest()(seen(v.v[j], i + j), top);
    });
    top = g.reduce(top, Largest());
    g.sync();
    const T base = top == -std::numeric_limits<T>::infinity() ? T(0) : top;
    T sum = 0;
    for_packs<T>(g, z.keys, this->packed, [&]<int V>(int64_t i) {
      auto v = load_values<V>(s + i);
      TG_UNROLL
      for (int j = 0; j < V; ++j) {
        v.v[j] = math::exp(seen(v.v[j], i + j) - base);
        sum += v.v[j];
      }
      store_values<V>(s + i, v);
    });
    sum = g.reduce(sum, Sum());
    g.sync();
    const T share = sum == T(0) ? T(0) : T(1) / sum;
    for_packs<T>(g, z.keys, this->packed, [&]<int V>(int64_t i) {
      auto v = load_values<V>(s + i);
      TG_UNROLL
      for (int j = 0; j < V; ++j) v.v[j] = dropped(v.v[j] * share, this->kept, z, h, row, i + j);
      store_values<V>(s + i, v);
    });
    if (g.lane() == 0) logsumexp[all] = sum == T(0) ? -std::numeric_limits<T>::infinity() : base + math::log(sum);
  }
};

// Scores become weights after dropout, and the gradients of those become gradients of the scores.
template <class T>
struct MakeSlopes : Rows<T> {
  T scale;
  T *scores, *slopes;
  const T *logsumexp, *delta;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    const Sizes& z = this->z;
    const int64_t all = this->before + line, h = all / z.rows, row = all % z.rows;
    T* s = scores + line * z.keys;
    T* d = slopes + line * z.keys;
    const T minus = delta[all], saved = logsumexp[all];
    const T base = saved == -std::numeric_limits<T>::infinity() ? T(0) : saved;
    for_packs<T>(g, z.keys, this->packed, [&]<int V>(int64_t i) {
      auto w = load_values<V>(s + i), slope = load_values<V>(d + i);
      TG_UNROLL
      for (int j = 0; j < V; ++j) {
        const T weight = math::exp(this->mask.apply(w.v[j], h, row, i + j) - base);
        w.v[j] = dropped(weight, this->kept, z, h, row, i + j);
        slope.v[j] = weight * (dropped(slope.v[j], this->kept, z, h, row, i + j) - minus) * scale;
      }
      store_values<V>(s + i, w);
      store_values<V>(d + i, slope);
    });
  }
};

// Query heads that share a key are one matrix with the rows of all of them.
template <class T>
class HeadSteps {
 public:
  HeadSteps(const Work& work, const ProductAttention<T>& a)
      : work_(work), a_(a), all_(a.z.batch * a.z.shared), lines_(a.z.group() * a.z.rows) {
    const Sizes& z = a.z;
    const int64_t bytes = lines_ * z.keys * static_cast<int64_t>(sizeof(T));
    fit_ = product_library.load(std::memory_order_acquire) != nullptr && z.rows >= 64 && z.keys >= 64 && z.width > 0 &&
           z.value_width > 0 && bytes <= kMostScoreBytes;
    each_ = fit_ ? std::min(all_, kMostScoreBytes / bytes) : 0;
  }
  bool fit() const { return fit_; }
  int64_t each() const { return each_; }  // heads of a step
  int64_t lines() const { return lines_; }
  size_t score_bytes() const { return static_cast<size_t>(each_ * lines_ * a_.z.keys) * sizeof(T); }
  Rows<T> rows(int64_t first) const { return {a_.z, a_.mask, a_.kept, first * lines_, a_.z.keys % kRowPack<T> == 0}; }

  // Calls f(first head, number) for steps of heads until one is refused.
  template <class F>
  bool for_steps(const F& f) const {
    for (int64_t first = 0; first < all_; first += each_)
      if (!f(first, std::min(each_, all_ - first))) return false;
    return true;
  }
  // c (m x n) = alpha a (m x k) b (k x n); `a_rows`, `b_rows`: as they lie in memory, else transposed.
  bool product(int64_t count, int64_t m, int64_t n, int64_t k, double alpha, const T* a, bool a_rows, const T* b,
               bool b_rows, T* c) const {
    const Matrix left{a, a_rows ? k : 1, a_rows ? 1 : m, m * k}, right{b, b_rows ? n : 1, b_rows ? 1 : k, k * n};
    return library_product(work_, {dtype_of_v<T>, count, m, n, k, alpha, left, right, 0, c});
  }

 private:
  const Work& work_;
  const ProductAttention<T>& a_;
  int64_t all_, lines_, each_ = 0;
  bool fit_ = false;
};

}  // namespace attention_products

using namespace attention_products;

template <class T>
bool attention_by_products(const Work& work, const ProductAttention<T>& a, T* output, T* logsumexp) {
  const HeadSteps<T> heads(work, a);
  if (!heads.fit()) return false;
  const Sizes& z = a.z;
  const int64_t m = heads.lines();
  const Workspace scores(heads.score_bytes(), work);
  T* const s = static_cast<T*>(scores.data());
  return heads.for_steps([&](int64_t first, int64_t count) {
    if (!heads.product(count, m, z.keys, z.width, a.scale, a.query + first * m * z.width, true,
                       a.key + first * z.keys * z.width, false, s))
      return false;
    for_lines(work, count * m, z.keys, false, MakeWeights<T>{heads.rows(first), s, logsumexp});
    return heads.product(count, m, z.value_width, z.keys, 1, s, true, a.value + first * z.keys * z.value_width, true,
                         output + first * m * z.value_width);
  });
}

template <class T>
bool attention_grad_by_products(const Work& work, const ProductAttention<T>& a, const T* grad, const T* logsumexp,
                                const T* delta, T* query_grad, T* key_grad, T* value_grad) {
  const HeadSteps<T> heads(work, a);
  if (!heads.fit()) return false;
  const Sizes& z = a.z;
  const int64_t m = heads.lines();
  const Workspace scores(heads.score_bytes(), work), slopes(heads.score_bytes(), work);
  T* const s = static_cast<T*>(scores.data());
  T* const d = static_cast<T*>(slopes.data());
  return heads.for_steps([&](int64_t first, int64_t count) {
    const T *q = a.query + first * m * z.width, *k = a.key + first * z.keys * z.width;
    const T *v = a.value + first * z.keys * z.value_width, *g = grad + first * m * z.value_width;
    if (!heads.product(count, m, z.keys, z.width, a.scale, q, true, k, false, s) ||
        !heads.product(count, m, z.keys, z.value_width, 1, g, true, v, false, d))
      return false;
    for_lines(work, count * m, z.keys, false,
              MakeSlopes<T>{heads.rows(first), static_cast<T>(a.scale), s, d, logsumexp, delta});
    return heads.product(count, z.keys, z.value_width, m, 1, s, false, g, true,
                         value_grad + first * z.keys * z.value_width) &&
           heads.product(count, z.keys, z.width, m, 1, d, false, q, true, key_grad + first * z.keys * z.width) &&
           heads.product(count, m, z.width, z.keys, 1, d, true, k, true, query_grad + first * m * z.width);
  });
}

#define TG_INSTANTIATE(T)                                                                                             \
  template bool attention_by_products(const Work&, const ProductAttention<T>&, T*, T*);                               \
  template bool attention_grad_by_products(const Work&, const ProductAttention<T>&, const T*, const T*, const T*, T*, \
                                           T*, T*);
TG_INSTANTIATE(float)
TG_INSTANTIATE(double)
#undef TG_INSTANTIATE

}  // namespace tapegrad::cuda
