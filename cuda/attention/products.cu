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

// The scores at hand: of some heads from head `head` on the rows [row, row + rows) of each and the first `keys` keys.
// The rows of query heads that share a key are one after the other.
template <class T>
struct Block {
  Sizes z;
  Mask<T> mask;
  KeptWeights kept;
  int64_t head, row, rows, keys;
  bool packed;
  struct Line {
    int64_t h, row, all;  // all: among the rows of all heads
  };
  TG_DEVICE Line line(int64_t i) const {
    const int64_t h = head + i / rows, at = row + i % rows;
    return {h, at, h * z.rows + at};
  }
};

// Scores become weights, with the logarithm of each row's sum. A row that sees nothing gets zeros.
template <class T>
struct MakeWeights : Block<T> {
  static constexpr T kNothing = -std::numeric_limits<T>::infinity();
  T* scores;
  T* logsumexp;
  TG_DEVICE static T base_of(T top) { return top == kNothing ? T(0) : top; }
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t number) const {
    const Sizes& z = this->z;
    const int64_t keys = this->keys;
    const auto [h, row, all] = this->line(number);
    T* s = scores + number * keys;
    const auto seen = [&](T score, int64_t key) { return this->mask.apply(score, h, row, key); };
    // Of what a thread has seen: the largest score, and the sum of the exponentials of the distances from it.
    T own = kNothing, sum = 0;
    for_packs<T>(g, keys, this->packed, [&]<int V>(int64_t i) {
      auto v = load_values<V>(s + i);
      T higher = own;
      TG_UNROLL
      for (int j = 0; j < V; ++j) {
        v.v[j] = seen(v.v[j], i + j);
        higher = Largest()(v.v[j], higher);
      }
      if (higher > own) {
        sum *= math::exp(own - higher);
        own = higher;
      }
      TG_UNROLL
      for (int j = 0; j < V; ++j) sum += math::exp(v.v[j] - base_of(own));
    });
    const T top = g.reduce(own, Largest()), base = base_of(top);
    g.sync();
    sum = g.reduce(own == top ? sum : sum * math::exp(own - base), Sum());
    g.sync();
    const T share = sum == T(0) ? T(0) : T(1) / sum;
    for_packs<T>(g, keys, this->packed, [&]<int V>(int64_t i) {
      auto v = load_values<V>(s + i);
      TG_UNROLL
      for (int j = 0; j < V; ++j)
        v.v[j] = dropped(math::exp(seen(v.v[j], i + j) - base) * share, this->kept, z, h, row, i + j);
      store_values<V>(s + i, v);
    });
    if (g.lane() == 0) logsumexp[all] = sum == T(0) ? kNothing : base + math::log(sum);
  }
};

// Scores become weights after dropout, and the gradients of those become gradients of the scores.
template <class T>
struct MakeSlopes : Block<T> {
  T scale;
  T *scores, *slopes;
  const T *logsumexp, *delta;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t number) const {
    const Sizes& z = this->z;
    const int64_t keys = this->keys;
    const auto [h, row, all] = this->line(number);
    T* s = scores + number * keys;
    T* d = slopes + number * keys;
    const T minus = delta[all], saved = logsumexp[all];
    const T base = saved == -std::numeric_limits<T>::infinity() ? T(0) : saved;
    for_packs<T>(g, keys, this->packed, [&]<int V>(int64_t i) {
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

// Query heads that share a key are one matrix with the rows of all of them. Of causal scores only what rows may see is
// computed: blocks of kRows rows with the keys up to the last of them, the last block first, which has all keys.
template <class T>
class Steps {
 public:
  Steps(const Work& work, const ProductAttention<T>& a)
      : work_(work), a_(a), all_(a.z.batch * a.z.shared), lines_(a.z.group() * a.z.rows) {
    const Sizes& z = a.z;
    rows_ = a.mask.causal && z.group() == 1 && z.rows >= 2 * kRows ? kRows : lines_;
    const int64_t bytes = rows_ * z.keys * static_cast<int64_t>(sizeof(T));
    fit_ = product_library.load(std::memory_order_acquire) != nullptr && z.rows >= 64 && z.keys >= 64 && z.width > 0 &&
           z.value_width > 0 && bytes <= kMostScoreBytes;
    each_ = fit_ ? std::min(all_, kMostScoreBytes / bytes) : 0;
  }
  bool fit() const { return fit_; }
  size_t score_bytes() const { return static_cast<size_t>(each_ * rows_ * a_.z.keys) * sizeof(T); }

  // Some rows of some heads.
  struct Step {
    int64_t head, count, row, rows, keys;  // head: the first of `count` that have keys of their own
    bool first;                            // of these heads
  };
  // Calls f(step) for all of them until one is refused.
  template <class F>
  bool for_each(const F& f) const {
    for (int64_t head = 0; head < all_; head += each_)
      for (int64_t row = (lines_ - 1) / rows_ * rows_; row >= 0; row -= rows_) {
        const int64_t rows = std::min(rows_, lines_ - row);
        if (!f(Step{head, std::min(each_, all_ - head), row, rows, keys(row + rows), row + rows == lines_}))
          return false;
      }
    return true;
  }
  Block<T> block(const Step& s) const {
    return {a_.z,    a_.mask,
            a_.kept, s.head * a_.z.group(),
            s.row,   rows_ == lines_ ? a_.z.rows : s.rows,
            s.keys,  s.keys % kRowPack<T> == 0};
  }

  // Matrices of a step: rows of the query's side (or what is computed for them), keys' side, and scores.
  struct Side {
    const T* data;
    int64_t width, batch;
    bool transposed = false;
    Side t() const { return {data, width, batch, !transposed}; }
  };
  Side of_rows(const Step& s, const T* p, int64_t width) const {
    return {p + (s.head * lines_ + s.row) * width, width, lines_ * width};
  }
  Side of_keys(const Step& s, const T* p, int64_t width) const {
    return {p + s.head * a_.z.keys * width, width, a_.z.keys * width};
  }
  Side scores(const Step& s, const T* p) const { return {p, s.keys, s.rows * s.keys}; }

  // c (m x n) = alpha a (m x k) b (k x n), added to what is there where `add`.
  bool product(const Step& s, int64_t m, int64_t n, int64_t k, double alpha, const Side& a, const Side& b,
               const Side& c, bool add = false) const {
    const auto matrix = [](const Side& x) {
      return Matrix{x.data, x.transposed ? 1 : x.width, x.transposed ? x.width : 1, x.batch};
    };
    return library_product(work_, {dtype_of_v<T>, s.count, m, n, k, alpha, matrix(a), matrix(b), add ? 1 : 0,
                                   const_cast<T*>(c.data), nullptr, c.batch});
  }

 private:
  static constexpr int64_t kRows = 256;
  // The last rows have all keys, those that no row sees, too: their gradients are zero.
  int64_t keys(int64_t row_end) const { return row_end == lines_ ? a_.z.keys : a_.mask.key_end(row_end, a_.z.keys); }

  const Work& work_;
  const ProductAttention<T>& a_;
  int64_t all_, lines_, rows_, each_ = 0;
  bool fit_ = false;
};

}  // namespace attention_products

using namespace attention_products;

template <class T>
bool attention_by_products(const Work& work, const ProductAttention<T>& a, T* output, T* logsumexp) {
  using Step = typename Steps<T>::Step;
  const Steps<T> steps(work, a);
  if (!steps.fit()) return false;
  const Sizes& z = a.z;
  const Workspace scores(steps.score_bytes(), work);
  T* const s = static_cast<T*>(scores.data());
  return steps.for_each([&](const Step& at) {
    const auto q = steps.of_rows(at, a.query, z.width), k = steps.of_keys(at, a.key, z.width);
    if (!steps.product(at, at.rows, at.keys, z.width, a.scale, q, k.t(), steps.scores(at, s))) return false;
    for_lines(work, at.count * at.rows, at.keys, false, MakeWeights<T>{steps.block(at), s, logsumexp});
    return steps.product(at, at.rows, z.value_width, at.keys, 1, steps.scores(at, s),
                         steps.of_keys(at, a.value, z.value_width), steps.of_rows(at, output, z.value_width));
  });
}

template <class T>
bool attention_grad_by_products(const Work& work, const ProductAttention<T>& a, const T* grad, const T* logsumexp,
                                const T* delta, T* query_grad, T* key_grad, T* value_grad) {
  using Step = typename Steps<T>::Step;
  const Steps<T> steps(work, a);
  if (!steps.fit()) return false;
  const Sizes& z = a.z;
  const Workspace scores(steps.score_bytes(), work), slopes(steps.score_bytes(), work);
  T* const s = static_cast<T*>(scores.data());
  T* const d = static_cast<T*>(slopes.data());
  return steps.for_each([&](const Step& at) {
    const auto q = steps.of_rows(at, a.query, z.width), k = steps.of_keys(at, a.key, z.width);
    const auto v = steps.of_keys(at, a.value, z.value_width), g = steps.of_rows(at, grad, z.value_width);
    const auto weights = steps.scores(at, s), gradients = steps.scores(at, d);
    if (!steps.product(at, at.rows, at.keys, z.width, a.scale, q, k.t(), weights) ||
        !steps.product(at, at.rows, at.keys, z.value_width, 1, g, v.t(), gradients))
      return false;
    for_lines(work, at.count * at.rows, at.keys, false,
              MakeSlopes<T>{steps.block(at), static_cast<T>(a.scale), s, d, logsumexp, delta});
    // The first step of some heads has all their keys and writes; others add.
    return steps.product(at, at.keys, z.value_width, at.rows, 1, weights.t(), g,
                         steps.of_keys(at, value_grad, z.value_width), !at.first) &&
           steps.product(at, at.keys, z.width, at.rows, 1, gradients.t(), q, steps.of_keys(at, key_grad, z.width),
                         !at.first) &&
           steps.product(at, at.rows, z.width, at.keys, 1, gradients, k, steps.of_rows(at, query_grad, z.width));
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
