// Sums, means and maxima of bags of rows, without copying the rows.
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// Everything is checked before anything is written.
void check(const Tensor& weight, const Tensor& indices, const Tensor& offsets) {
  const int64_t *index = target_of<int64_t>(indices), *bound = target_of<int64_t>(offsets);
  const int64_t n = indices.numel(), rows = weight.size(0), bags = offsets.numel() - 1;
  for (int64_t i = 0; i < n; ++i)
    TG_CHECK(index[i] >= 0 && index[i] < rows, Runtime,
             "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {}: there are {} rows",
             index[i], rows);
  if (bags == 0 && n == 0) return;
  TG_CHECK(
      bound[0] == 0, Runtime,
      "embedding_bag: offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position "
      "0. However, got {}",
      bound[0]);
  for (int64_t b = 0; b < bags; ++b)
    TG_CHECK(bound[b] <= bound[b + 1], Runtime, "embedding_bag: offsets must not fall: got {} before {}", bound[b],
             bound[b + 1]);
  TG_CHECK(bound[bags] <= n, Runtime, "embedding_bag: offsets[-1] can not be greater than input's length({}): got {}",
           n, bound[bags]);
}

// f.operator()<T>(begin, end) for parts of the bags, on several threads.
template <class F>
void for_bags(const Tensor& weight, const Tensor& indices, const Tensor& offsets, const Tensor& out, F&& f) {
  check(weight, indices, offsets);
  if (out.numel() == 0) return;
  const int64_t bags = out.size(0), per_bag = indices.numel() / bags + 1;
  dispatch_floating(weight.dtype(), [&]<class T>() {
    parallel_for(0, bags, 16384 / (per_bag * out.size(1)) + 1,
                 [&](int64_t begin, int64_t end) { f.template operator()<T>(begin, end); });
  });
}

}  // namespace

void embedding_bag_cpu(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                       const Tensor& per_sample_weights, bool mean, int64_t padding_idx, bool, bool,
                       const Tensor& out) {
  const int64_t width = out.size(1);
  const int64_t *index = data_of<int64_t>(indices), *bound = data_of<int64_t>(offsets);
  for_bags(weight, indices, offsets, out, [&]<class T>(int64_t begin, int64_t end) {
    using C = compute_t<T>;
    const T *rows = data_of<T>(weight), *factors = data_of<T>(per_sample_weights);
    std::vector<C> sums(static_cast<size_t>(width));
    C* sum = sums.data();
    for (int64_t b = begin; b < end; ++b) {
      std::fill(sums.begin(), sums.end(), C(0));
      int64_t count = 0;
      for (int64_t i = bound[b]; i < bound[b + 1]; ++i) {
        if (index[i] == padding_idx) continue;
        ++count;
        const T* row = rows + index[i] * width;
        if (factors) {
          const C f = static_cast<C>(factors[i]);
          for (int64_t j = 0; j < width; ++j) sum[j] += f * static_cast<C>(row[j]);
        } else {
          for (int64_t j = 0; j < width; ++j) sum[j] += static_cast<C>(row[j]);
        }
      }
      T* to = target_of<T>(out) + b * width;
      const C divisor = mean && count > 0 ? static_cast<C>(count) : C(1);
      for (int64_t j = 0; j < width; ++j) to[j] = T(sum[j] / divisor);
    }
  });
}

void embedding_bag_argmax_cpu(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t padding_idx,
                              const Tensor& out) {
  const int64_t width = out.size(1);
  const int64_t *index = data_of<int64_t>(indices), *bound = data_of<int64_t>(offsets);
  for_bags(weight, indices, offsets, out, [&]<class T>(int64_t begin, int64_t end) {
    using C = compute_t<T>;
    const T* rows = data_of<T>(weight);
    for (int64_t b = begin; b < end; ++b) {
      int64_t* best = target_of<int64_t>(out) + b * width;
      std::fill_n(best, width, int64_t{-1});
      for (int64_t i = bound[b]; i < bound[b + 1]; ++i) {
        if (index[i] == padding_idx) continue;
        const T* row = rows + index[i] * width;
        for (int64_t j = 0; j < width; ++j)
          if (best[j] < 0 || static_cast<C>(row[j]) > static_cast<C>(rows[best[j] * width + j])) best[j] = index[i];
      }
    }
  });
}

}  // namespace tapegrad::cpu::TG_ISA
