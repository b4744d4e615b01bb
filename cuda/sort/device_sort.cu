#include "tapegrad/cuda/sort/device_sort.h"

#include "tapegrad/cuda/launch/launch.h"

#if defined(__CUDACC__)
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#else
#include <algorithm>
#include <vector>
#endif

namespace tapegrad::cuda {

#if defined(__CUDACC__)

namespace {

// CUB's functions are called twice: for the size of their workspace, and to work.
template <class F>
void with_workspace(const Stream& stream, F&& f) {
  size_t bytes = 0;
  check_cuda(f(nullptr, bytes));
  const Workspace memory(bytes, stream);
  check_cuda(f(memory.data(), bytes));
}

template <class K, class V>
void sort_any(const Stream& stream, const K* keys, K* sorted_keys, const V* values, V* sorted_values, int64_t n,
              int bits) {
  if (n == 0) return;
  with_workspace(stream, [&](void* memory, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, keys, sorted_keys, values, sorted_values, n, 0, bits,
                                           stream.handle);
  });
}

}  // namespace

void inclusive_sums(const Stream& stream, const uint8_t* flags, int64_t* sums, int64_t n) {
  if (n == 0) return;
  with_workspace(stream, [&](void* memory, size_t& bytes) {
    return cub::DeviceScan::InclusiveScan(memory, bytes, flags, sums, ::cuda::std::plus<int64_t>(), n, stream.handle);
  });
}

#else

namespace {

template <class K, class V>
void sort_any(const Stream& stream, const K* keys, K* sorted_keys, const V* values, V* sorted_values, int64_t n,
              int bits) {
  if (n == 0) return;
  simulated::enqueue(stream.handle, "sort_pairs", [=] {
    const K mask = bits >= 8 * static_cast<int>(sizeof(K)) ? static_cast<K>(~K{0}) : (K{1} << bits) - 1;
    std::vector<int64_t> order(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(),
                     [=](int64_t a, int64_t b) { return (keys[a] & mask) < (keys[b] & mask); });
    for (int64_t i = 0; i < n; ++i) {
      sorted_keys[i] = keys[order[static_cast<size_t>(i)]];
      sorted_values[i] = values[order[static_cast<size_t>(i)]];
    }
  });
}

}  // namespace

void inclusive_sums(const Stream& stream, const uint8_t* flags, int64_t* sums, int64_t n) {
  if (n == 0) return;
  simulated::enqueue(stream.handle, "inclusive_sums", [=] {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) sums[i] = sum += flags[i];
  });
}

#endif

void sort_pairs(const Stream& stream, const uint64_t* keys, uint64_t* sorted_keys, const int64_t* values,
                int64_t* sorted_values, int64_t n, int bits) {
  sort_any(stream, keys, sorted_keys, values, sorted_values, n, bits);
}
void sort_pairs(const Stream& stream, const uint64_t* keys, uint64_t* sorted_keys, const uint32_t* values,
                uint32_t* sorted_values, int64_t n, int bits) {
  sort_any(stream, keys, sorted_keys, values, sorted_values, n, bits);
}
void sort_pairs(const Stream& stream, const uint32_t* keys, uint32_t* sorted_keys, const uint32_t* values,
                uint32_t* sorted_values, int64_t n, int bits) {
  sort_any(stream, keys, sorted_keys, values, sorted_values, n, bits);
}

}  // namespace tapegrad::cuda
