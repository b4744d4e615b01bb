// Building blocks of batching rules: an argument as it is below the level, and where its samples lie.
#pragma once

#include <algorithm>
#include <functional>
#include <tuple>
#include <vector>

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/c10/tensor/product.h"

namespace tapegrad::batch {

inline DimVector led_by(int64_t first, IntSpan rest) {
  DimVector all{first};
  for (int64_t d : rest) all.push_back(d);
  return all;
}

// An argument below the level.
struct Part {
  Tensor t;
  bool has_dim;
  int64_t ndim() const { return t.ndim() - (has_dim ? 1 : 0); }                               // of one sample
  DimVector sizes() const { return DimVector(IntSpan(t.sizes()).subspan(has_dim ? 1 : 0)); }  // of one sample
  // With samples in front; an absent tensor stays absent.
  Tensor led(int64_t n) const { return has_dim || !t.defined() ? t : tapegrad::expand(t, led_by(n, t.sizes())); }
  // (samples, all elements of a sample).
  Tensor rows(int64_t n) const { return tapegrad::reshape(led(n), {n, product(sizes())}); }
  // With samples in front, followed by dimensions of size 1 up to `all` dimensions, so that it broadcasts against
  // others.
  Tensor behind(int64_t n, int64_t all) const {
    DimVector padded{n};
    padded.resize(static_cast<size_t>(std::max<int64_t>(all - ndim(), 1)), 1);
    for (int64_t s : sizes()) padded.push_back(s);
    return tapegrad::reshape(led(n), padded);
  }
  // With samples as part of dimension `d` of one sample.
  Tensor folded(int64_t n, int64_t d) const {
    Tensor full = led(n);
    if (!full.defined()) return full;
    if (d > 0) full = tapegrad::movedim(full, IntSpan{0}, IntSpan{d});
    DimVector sizes;
    for (int64_t i = 0; i < full.ndim(); ++i) {
      if (i == d + 1)
        sizes[static_cast<size_t>(d)] *= full.size(i);
      else
        sizes.push_back(full.size(i));
    }
    return tapegrad::reshape(full, sizes);
  }
};

// Where samples of `size` elements begin among those of all, as a tensor that broadcasts against (n, ...) of `ndim`.
inline Tensor first_places(int64_t n, int64_t size, int64_t ndim, Device device) {
  DimVector sizes(static_cast<size_t>(ndim), 1);
  sizes[0] = n;
  return tapegrad::reshape(tapegrad::mul(tapegrad::arange(Scalar(n), DType::int64, host_device(device)), Scalar(size)),
                           sizes);
}

inline Part part(const Tensor& t, int level) {
  auto [below, has_dim] = unwrap(t, level);
  return {below, has_dim};
}

// The reverse of Part::folded.
inline Tensor unfolded(const Tensor& t, int64_t n, int64_t d) {
  DimVector sizes;
  for (int64_t i = 0; i < t.ndim(); ++i) {
    if (i == d) sizes.push_back(n);
    sizes.push_back(i == d ? t.size(i) / n : t.size(i));
  }
  Tensor split = tapegrad::reshape(t, sizes);
  return d > 0 ? tapegrad::movedim(split, IntSpan{d}, IntSpan{0}) : split;
}

inline void check_samples(const char* op, int64_t n) { TG_CHECK(n > 0, Runtime, "{}: vmap: there are no samples", op); }

// The highest level of some tensors, how many samples it has, and the tensors below it, in their order.
template <class... T>
auto parts_of(const T&... tensors) {
  const int here = highest_level({&tensors...});
  return std::tuple(here, level(here).size, part(tensors, here)...);
}
// The same for rules that need a sample.
template <class... T>
auto samples_of(const char* op, const T&... tensors) {
  auto parts = parts_of(tensors...);
  check_samples(op, std::get<1>(parts));
  return parts;
}

// The same for many tensors, or those of a rule that goes through them by number.
inline std::tuple<int, int64_t, std::vector<Part>> list_of_parts(std::initializer_list<const Tensor*> tensors) {
  const int here = highest_level(tensors);
  std::vector<Part> parts;
  for (const Tensor* t : tensors) parts.push_back(part(*t, here));
  return {here, level(here).size, std::move(parts)};
}

// Runs f below the level and wraps its result as a tensor of the level.
template <class F>
Tensor at_level(int n, bool has_dim, F&& f) {
  Tensor result;
  {
    Below below(n);
    result = f();
  }
  return wrap(result, n, has_dim);
}

// The same for several results, all with samples in front.
template <class Tuple, class F>
Tuple all_at_level(int n, F&& f) {
  Tuple results;
  {
    Below below(n);
    results = f();
  }
  std::apply([&](auto&... t) { ((t = t.defined() ? wrap(t, n, true) : t), ...); }, results);
  return results;
}

inline bool any_has_dim(std::initializer_list<const Part*> parts) {
  for (const Part* p : parts)
    if (p->has_dim) return true;
  return false;
}

// Calls f once per sample, below the level, with the arguments of that sample, and stacks the results. For operators
// that no single call can compute for all samples.
template <class Tuple, class F>
Tuple each_sample(int64_t n, const std::vector<Part>& parts, F&& f) {
  std::vector<std::vector<Tensor>> rows(std::tuple_size_v<Tuple>);
  std::vector<Tensor> now(parts.size());
  for (int64_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < parts.size(); ++k)
      now[k] = parts[k].has_dim ? tapegrad::select(parts[k].t, 0, i) : parts[k].t;
    size_t at = 0;
    std::apply([&](const auto&... t) { (rows[at++].push_back(t), ...); }, f(now));
  }
  Tuple results;
  size_t at = 0;
  auto take = [&](Tensor& t) {
    const auto& row = rows[at++];
    if (row[0].defined()) t = tapegrad::stack(row, 0);
  };
  std::apply([&](auto&... t) { (take(t), ...); }, results);
  return results;
}

}  // namespace tapegrad::batch
