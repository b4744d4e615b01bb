// Sampling at given positions and its gradients. Positions share neighbours, so the input's gradient sorts the places
// that all taps name, and one thread per place and channel adds up what falls there, in the order of the positions.
#include "tapegrad/aten/typed.h"
#include "tapegrad/aten/upsample/grid_taps.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/index/places.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/divide.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

using grid::Image;
using grid::Sampling;
using grid::Taps;

template <class T>
struct Positions {
  Sampling sampling;
  Image image;
  const T* grid;
  int64_t channels, count;  // positions of an image
  Divider by_count;

  Positions(const Sampling& s, const Tensor& input, const Tensor& grid_tensor, int64_t positions)
      : sampling(s),
        image(input.sizes()),
        grid(data_of<T>(grid_tensor)),
        channels(input.size(1)),
        count(positions),
        by_count(positions, input.size(0) * positions) {}
  TG_DEVICE Taps<compute_t<T>> taps(int64_t i) const {
    return Taps<compute_t<T>>(sampling, grid + i * image.spatial, image);
  }
  // f(where the plane of the input begins, element of the output) for the channels of position i.
  template <class F>
  TG_DEVICE void for_channels(int64_t i, const F& f) const {
    int64_t n, p;
    by_count.divide(i, n, p);
    const int64_t plane = image.plane();
    for (int64_t c = n * channels; c < (n + 1) * channels; ++c) f(c * plane, c * count + p);
  }
};

template <class T>
struct Sample {
  Positions<T> positions;
  const T* from;
  T* to;
  TG_DEVICE void operator()(int64_t i) const {
    using C = compute_t<T>;
    const Taps<C> taps = positions.taps(i);
    positions.for_channels(i, [&](int64_t plane, int64_t element) {
      C sum = C(0);
      for (int k = 0; k < taps.count; ++k) sum += taps.weight[k] * load_value(from + plane + taps.offset[k]);
      store_value(to + element, sum);
    });
  }
};

template <class T>
struct GridGrad {
  Positions<T> positions;
  const T* from;
  const T* grad;
  T* to;
  TG_DEVICE void operator()(int64_t i) const {
    using C = compute_t<T>;
    const Taps<C> taps = positions.taps(i);
    C d[3] = {C(0), C(0), C(0)};
    positions.for_channels(i, [&](int64_t plane, int64_t element) {
      const C here = load_value(grad + element);
      for (int k = 0; k < taps.count; ++k) {
        const C value = here * load_value(from + plane + taps.offset[k]);
        for (int a = 0; a < 3; ++a) d[a] += value * taps.slope[a][k];
      }
    });
    for (int a = 0; a < positions.image.spatial; ++a) store_value(to + i * positions.image.spatial + a, d[a]);
  }
};

// Tap k of position i is entry i * most + k; those that are not there have the key `bad`.
template <class T>
struct Entries {
  Positions<T> positions;
  int64_t most;
  uint64_t* keys;
  int64_t* order;
  compute_t<T>* weights;
  uint64_t bad;
  TG_DEVICE void operator()(int64_t i) const {
    const Taps<compute_t<T>> taps = positions.taps(i);
    int64_t n, p;
    positions.by_count.divide(i, n, p);
    for (int64_t k = 0; k < most; ++k) {
      const int64_t e = i * most + k;
      const bool there = k < taps.count;
      keys[e] = there ? static_cast<uint64_t>(n * positions.image.plane() + taps.offset[k]) : bad;
      order[e] = e;
      weights[e] = there ? taps.weight[k] : compute_t<T>(0);
    }
  }
};
template <class T>
struct AddEntries {
  const uint64_t* keys;
  const int64_t* order;
  const compute_t<T>* weights;
  int64_t entries, most, channels, positions, plane;
  const T* grad;
  T* to;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t c = i / entries, first = i % entries;
    if (!begins_place(keys, first)) return;
    const uint64_t key = keys[first];
    const int64_t place = static_cast<int64_t>(key), n = place / plane;
    compute_t<T> sum = 0;
    for (int64_t e = first; e < entries && keys[e] == key; ++e) {
      const int64_t p = order[e] / most % positions;
      sum += load_value(grad + (n * channels + c) * positions + p) * weights[order[e]];
    }
    store_value(to + (n * channels + c) * plane + place % plane, sum);
  }
};

int64_t positions_of(const Tensor& out) {
  int64_t n = 1;
  for (int d = 2; d < out.ndim(); ++d) n *= out.size(d);
  return n;
}

}  // namespace

void grid_sample_cuda(const Tensor& input, const Tensor& grid, std::string_view mode, std::string_view padding_mode,
                      bool align_corners, const Tensor& out) {
  if (out.numel() == 0) return;
  const Sampling s(mode, padding_mode, align_corners);
  const int64_t count = positions_of(out);
  const Work work(out.device(), {&input, &grid, &out});
  dispatch_floating(input.dtype(), [&]<class T>() {
    for_elements(work, input.size(0) * count,
                 Sample<T>{Positions<T>(s, input, grid, count), data_of<T>(input), target_of<T>(out)});
  });
}

void grid_sample_grad_cuda(const Tensor& output, const Tensor& input, const Tensor& grid, std::string_view mode,
                           std::string_view padding_mode, bool align_corners, const Tensor& input_grad,
                           const Tensor& grid_grad) {
  zero_dense(input_grad);
  const int64_t count = positions_of(output), all = input.size(0) * count;
  if (all == 0 || input.numel() == 0) return zero_dense(grid_grad);
  const Sampling s(mode, padding_mode, align_corners);
  const Work work(output.device(), {&output, &input, &grid, &input_grad, &grid_grad});
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Positions<T> positions(s, input, grid, count);
    for_elements(work, all, GridGrad<T>{positions, data_of<T>(input), data_of<T>(output), target_of<T>(grid_grad)});
    const int64_t most = grid::most_taps(s, positions.image), entries = all * most;
    const int64_t plane = positions.image.plane(), extent = input.size(0) * plane;
    const Tensor keys = empty_tensor({entries}, DType::int64, output.device());
    const Tensor order = empty_tensor({entries}, DType::int64, output.device());
    const Workspace weights(static_cast<size_t>(entries) * sizeof(C), work);
    for_elements(work, all,
                 Entries<T>{positions, most, static_cast<uint64_t*>(keys.data_ptr()), target_of<int64_t>(order),
                            static_cast<C*>(weights.data()), static_cast<uint64_t>(extent)});
    const SortedPlaces sorted(work, keys, order, static_cast<uint64_t>(extent));
    for_elements(work, entries * positions.channels,
                 AddEntries<T>{sorted.key_data(), sorted.order_data(), static_cast<const C*>(weights.data()), entries,
                               most, positions.channels, count, plane, data_of<T>(output), target_of<T>(input_grad)});
  });
}

}  // namespace tapegrad::cuda
