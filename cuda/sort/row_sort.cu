#include "tapegrad/cuda/sort/row_sort.h"

#include <bit>

#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/sort/device_sort.h"

namespace tapegrad::cuda {
namespace {

constexpr int64_t kTile = 2048;                   // items that a block sorts
constexpr int64_t kFew = 256;                     // so many smallest of a row are found tile by tile
constexpr int64_t kMostItems = int64_t{1} << 31;  // of one call of sort_pairs

Device device_of(const Work& work) { return {DeviceType::CUDA, static_cast<int8_t>(work.stream().device)}; }

template <class T>
struct ToKeys {
  using U = typename Keys<T>::U;
  const T* x;
  U* keys;
  U mask;
  TG_DEVICE void operator()(int64_t i) const { keys[i] = static_cast<U>(Keys<T>::of(x[i]) ^ mask); }
};

// Rows cut into tiles of which a block sorts one or, where tiles are small, several side by side. Every tile writes its
// `keep` smallest items; those of a row are contiguous.
template <class U>
struct Tiles {
  const U* keys;           // [rows, n]
  const uint32_t* places;  // of the keys; null: 0, 1, ... in each row
  int64_t rows, n;
  uint32_t tile, per_block;  // items of a tile, a power of two; tiles of a block
  int64_t tiles, keep;       // tiles of a row
  int64_t out_n;             // items of a row that are left
  U* out_keys;               // null where they are not wanted
  uint32_t* out_places;      // this or
  int64_t* out_indices;      // that
};

// Items are in order of key and place, so all differ and every order of exchanges gives the stable result: a bitonic
// network. K. E. Batcher, Sorting networks and their applications, AFIPS 1968.
template <class U>
TG_KERNEL void sort_tiles(Tiles<U> t) {
  TG_SHARED(U, key, kTile);
  TG_SHARED(uint32_t, place, kTile);
  const uint32_t items = t.tile * t.per_block;
  const int64_t all = t.rows * t.tiles;
  for (int64_t first = static_cast<int64_t>(block_index()) * t.per_block; first < all;
       first += static_cast<int64_t>(grid_size()) * t.per_block) {
    for (uint32_t i = thread_index(); i < items; i += block_size()) {
      const int64_t which = first + i / t.tile, row = which / t.tiles;
      const int64_t at = which % t.tiles * t.tile + i % t.tile;
      const bool there = which < all && at < t.n;
      key[i] = there ? t.keys[row * t.n + at] : static_cast<U>(~U{0});
      place[i] = !there ? UINT32_MAX : t.places != nullptr ? t.places[row * t.n + at] : static_cast<uint32_t>(at);
    }
    for (uint32_t size = 2; size <= t.tile; size *= 2)
      for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
        block_sync();
        for (uint32_t pair = thread_index(); pair < items / 2; pair += block_size()) {
          const uint32_t a = 2 * pair - (pair & (stride - 1)), b = a + stride;
          const bool ascending = (a & (t.tile - 1) & size) == 0;
          const bool after = key[a] != key[b] ? key[a] > key[b] : place[a] > place[b];
          if (after != ascending) continue;
          const U k = key[a];
          key[a] = key[b];
          key[b] = k;
          const uint32_t p = place[a];
          place[a] = place[b];
          place[b] = p;
        }
      }
    block_sync();
    for (uint32_t i = thread_index(); i < items; i += block_size()) {
      const int64_t which = first + i / t.tile, tile = which % t.tiles, j = i % t.tile;
      if (which >= all || j >= t.keep || tile * t.tile + j >= t.n) continue;
      const int64_t to = which / t.tiles * t.out_n + tile * t.keep + j;
      if (t.out_keys != nullptr) t.out_keys[to] = key[i];
      if (t.out_places != nullptr) t.out_places[to] = place[i];
      if (t.out_indices != nullptr) t.out_indices[to] = place[i];
    }
    block_sync();
  }
}

template <class U>
void run_tiles(const Work& work, Tiles<U> t) {
  t.tile = static_cast<uint32_t>(std::min(kTile, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(t.n)))));
  t.tile = std::max(t.tile, 2U);
  t.per_block = std::max(512 / t.tile, 1U);
  t.tiles = (t.n + t.tile - 1) / t.tile;
  launch_block(work, &sort_tiles<U>, grid_for(t.rows * t.tiles, t.per_block, 1 << 22), kBlock, 0, t);
}

template <class U>
void few_of_each(const Work& work, const U* keys, int64_t rows, int64_t n, int64_t keep, int64_t* places, U* sorted) {
  const uint32_t* from = nullptr;
  Tensor kept_keys, kept_places;  // of the last pass
  while (n > kTile) {
    const int64_t tiles = (n + kTile - 1) / kTile, left = (tiles - 1) * keep + std::min(keep, n - (tiles - 1) * kTile);
    const Tensor next_keys = empty_tensor({rows, left}, sizeof(U) == 8 ? DType::int64 : DType::int32, device_of(work));
    const Tensor next_places = empty_tensor({rows, left}, DType::int32, device_of(work));
    run_tiles<U>(work, {keys, from, rows, n, 0, 0, 0, keep, left, target_of<U>(next_keys),
                        target_of<uint32_t>(next_places), nullptr});
    kept_keys = next_keys;
    kept_places = next_places;
    keys = data_of<U>(kept_keys);
    from = data_of<uint32_t>(kept_places);
    n = left;
  }
  run_tiles<U>(work, {keys, from, rows, n, 0, 0, 0, keep, keep, sorted, nullptr, places});
}

// Keys with the number of the row before them, so that one sort does all rows.
template <class U, class Out>
struct WithRow {
  const U* keys;
  Out* out;
  uint32_t* numbers;
  int64_t n;
  int bits;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / n;
    out[i] = row == 0 ? static_cast<Out>(keys[i]) : static_cast<Out>(keys[i]) | static_cast<Out>(row) << bits;
    numbers[i] = static_cast<uint32_t>(i);
  }
};
struct RowOf {
  const uint32_t* numbers;
  uint32_t* rows;
  int64_t n;
  TG_DEVICE void operator()(int64_t i) const { rows[i] = static_cast<uint32_t>(numbers[i] / n); }
};
template <class U>
struct FirstOfRows {
  const uint32_t* numbers;
  const U* keys;
  int64_t* places;
  U* sorted;
  int64_t n, keep;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / keep, number = numbers[row * n + i % keep];
    places[i] = number - row * n;
    if (sorted != nullptr) sorted[i] = keys[number];
  }
};

// Numbers of all elements, sorted by row and key.
template <class Key, class U>
Tensor sort_with_rows(const Work& work, const U* keys, int64_t rows, int64_t n, int bits, int row_bits) {
  const int64_t all = rows * n;
  const Device device = device_of(work);
  const DType dtype = sizeof(Key) == 8 ? DType::int64 : DType::int32;
  const Tensor from = empty_tensor({all}, dtype, device), to = empty_tensor({all}, dtype, device);
  const Tensor numbers = empty_tensor({all}, DType::int32, device), out = empty_tensor({all}, DType::int32, device);
  for_elements(work, all, WithRow<U, Key>{keys, target_of<Key>(from), target_of<uint32_t>(numbers), n, bits});
  sort_pairs(work, data_of<Key>(from), target_of<Key>(to), data_of<uint32_t>(numbers), target_of<uint32_t>(out), all,
             bits + row_bits);
  return out;
}

template <class U>
void all_of_each(const Work& work, const U* keys, int64_t rows, int64_t n, int bits, int64_t keep, int64_t* places,
                 U* sorted) {
  const int row_bits = std::bit_width(static_cast<uint64_t>(rows - 1));
  Tensor order;
  if (bits + row_bits <= 32) {
    order = sort_with_rows<uint32_t>(work, keys, rows, n, bits, row_bits);
  } else if (bits + row_bits <= 64) {
    order = sort_with_rows<uint64_t>(work, keys, rows, n, bits, row_bits);
  } else {  // by the keys, then by the rows, which keeps the order within them
    const int64_t all = rows * n;
    const Device device = device_of(work);
    auto words = [&] { return empty_tensor({all}, DType::int32, device); };
    const Tensor by_key = [&] {
      const Tensor numbers = words(), out = words(), to = empty_tensor({all}, DType::int64, device);
      const Tensor from = empty_tensor({all}, DType::int64, device);
      // A row's length that no element reaches: no number of a row is put before the keys.
      for_elements(work, all,
                   WithRow<U, uint64_t>{keys, target_of<uint64_t>(from), target_of<uint32_t>(numbers), all, 0});
      sort_pairs(work, data_of<uint64_t>(from), target_of<uint64_t>(to), data_of<uint32_t>(numbers),
                 target_of<uint32_t>(out), all, bits);
      return out;
    }();
    const Tensor row = words(), sorted_row = words();
    order = words();
    for_elements(work, all, RowOf{data_of<uint32_t>(by_key), target_of<uint32_t>(row), n});
    sort_pairs(work, data_of<uint32_t>(row), target_of<uint32_t>(sorted_row), data_of<uint32_t>(by_key),
               target_of<uint32_t>(order), all, row_bits);
  }
  for_elements(work, rows * keep, FirstOfRows<U>{data_of<uint32_t>(order), keys, places, sorted, n, keep});
}

template <class T>
struct TakePlaces {
  const T* from;
  const int64_t* places;
  T* to;
  int64_t n, keep;
  TG_DEVICE void operator()(int64_t i) const { to[i] = from[i / keep * n + places[i]]; }
};

}  // namespace

Rows::Rows(const Tensor& input, int64_t dim) : dense(clean_flags(input)) {
  if (input.ndim() > 0) {
    const int64_t d = wrap_dim(dim, input.ndim(), "sort");
    n = input.size(d);
    rows = n == 0 ? 0 : input.numel() / n;
    dense = raw::movedim(dense, {d}, {-1});
  }
  dense = contiguous_or_copy(dense);
}

RowsTarget::RowsTarget(const Tensor& out, int64_t dim) : target(out) {
  if (out.ndim() > 0) target = raw::movedim(out, {wrap_dim(dim, out.ndim(), "sort")}, {-1});
  memory = target.is_contiguous() ? target : empty_tensor(target.sizes(), target.dtype(), target.device());
}
void RowsTarget::finish() const {
  if (!memory.is_same(target)) copy_any(target, memory, true);
}

RowKeys::RowKeys(const Work& work, const Tensor& dense, bool turn) {
  dispatch_dtype(dense.dtype(), [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      using U = typename Keys<T>::U;
      bits = Keys<T>::kBits;
      memory = empty_tensor(dense.sizes(), sizeof(U) == 8 ? DType::int64 : DType::int32, dense.device());
      for_elements(work, dense.numel(),
                   ToKeys<T>{data_of<T>(dense), target_of<U>(memory), turn ? Keys<T>::kAll : U{0}});
    }
  });
}

void sort_rows(const Work& work, const RowKeys& keys, int64_t rows, int64_t n, int64_t keep, const Tensor& places,
               const Tensor& sorted) {
  if (rows * keep == 0) return;
  TG_CHECK(n < kMostItems, NotImplemented, "sort: rows of 2^31 or more elements on cuda: got {}", n);
  auto run = [&]<class U>() {
    const auto* from = data_of<U>(keys.memory);
    auto* to = target_of<int64_t>(places);
    U* sorted_to = sorted.defined() ? target_of<U>(sorted) : nullptr;
    if (n <= kTile || keep <= kFew) return few_of_each<U>(work, from, rows, n, keep, to, sorted_to);
    const int64_t together = std::max<int64_t>(1, (kMostItems - 1) / n);
    for (int64_t r = 0; r < rows; r += together)
      all_of_each<U>(work, from + r * n, std::min(together, rows - r), n, keys.bits, keep, to + r * keep,
                     sorted_to == nullptr ? nullptr : sorted_to + r * keep);
  };
  if (keys.wide())
    run.template operator()<uint64_t>();
  else
    run.template operator()<uint32_t>();
}

void take_places(const Work& work, const Tensor& dense, int64_t n, const Tensor& places, int64_t keep,
                 const Tensor& out) {
  dispatch_bytes(dense.dtype(), [&]<class T>() {
    for_elements(work, out.numel(),
                 TakePlaces<T>{data_of<T>(dense), data_of<int64_t>(places), target_of<T>(out), n, keep});
  });
}

}  // namespace tapegrad::cuda
