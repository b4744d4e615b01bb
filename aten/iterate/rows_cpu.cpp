// The strided, threaded outer loop of all pointwise kernels; see rows.h.
#include "tapegrad/aten/iterate/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA::rows {
namespace {

using pointwise::Iterator;
inline constexpr int kMaxOperands = 1 + pointwise::kMaxInputs;
inline constexpr int64_t kTileBytes = 4096;  // staging buffer per operand
inline constexpr int64_t kSlack = 64;        // behind it, for the last block that spread() writes
inline constexpr int64_t kMaxItem = 16;      // complex128
inline constexpr int64_t kGrain = 32768;     // additions worth a thread

enum class Access : uint8_t {
  Direct,    // contiguous over the whole iteration, of the right dtype: no copy
  Row,       // contiguous within a row: no copy while a tile stays in its row
  Constant,  // one element: its buffer is filled once
  Repeated,  // the same short row for every row: its buffer is filled once, with as many of it as a tile meets
  Staged,    // converted or gathered into the buffer, tile by tile
};

struct Plan {
  const Iterator& it;
  Loop loop;
  const void* functor;
  DType seen[kMaxOperands];    // dtype of an operand as the loop sees it
  int64_t item[kMaxOperands];  // size of an element as the loop sees it
  Access access[kMaxOperands];
  int64_t tile;  // elements per tile, a multiple of kLane
  bool stay_in_row = false;
  bool whole = true;           // every operand is Direct: no tiles needed
  Loop with_number = nullptr;  // if set, input `number` is one number in each row, and the others are dense there
  int number = 0;
};

bool is_constant(const Iterator& it, int k) {
  if (it.numel <= 1) return false;
  for (int d = 0; d < it.ndim; ++d)
    if (it.strides[k][d] != 0) return false;
  return true;
}

// A loop over the 16-bit format that all operands but the numbers among them have, and that format; or null.
Loop choose(const Iterator& it, Loop16 loop16, unsigned constants, DType& format) {
  if (loop16 == nullptr) return nullptr;
  int first = 1;
  while (first < it.num_inputs && (constants >> (first - 1) & 1)) ++first;
  format = it.dtype[first];
  if (it.dtype[0] != (it.result == DType::bool_ ? DType::bool_ : format)) return nullptr;
  for (int k = first; k <= it.num_inputs; ++k)
    if (it.dtype[k] != format && !(constants >> (k - 1) & 1)) return nullptr;
  return loop16(format, constants);
}

Access classify(const Plan& plan, int k) {
  const Iterator& it = plan.it;
  const int64_t item = plan.item[k];
  const int64_t* strides = it.strides[k];
  const int last = it.ndim - 1;
  bool contiguous = true;
  int64_t expected = item;
  for (int d = last; d >= 0; --d) {
    contiguous &= strides[d] == expected;
    expected *= it.shape[d];
  }
  if (it.dtype[k] != plan.seen[k]) return Access::Staged;
  if (contiguous || it.numel == 1) return Access::Direct;
  return strides[last] == item ? Access::Row : Access::Staged;
}

// Position in the iteration space, carried along so that no tile divides.
struct Cursor {
  int64_t at[kMaxDims];

  Cursor(const Iterator& it, int64_t linear) {
    for (int d = it.ndim - 1; d > 0; --d) {
      at[d] = linear % it.shape[d];
      linear /= it.shape[d];
    }
    at[0] = linear;
  }
  void advance(const Iterator& it, int64_t n) {
    int d = it.ndim - 1;
    at[d] += n;
    while (d > 0 && at[d] >= it.shape[d]) {
      const int64_t over = at[d] - it.shape[d];  // mostly by one row: no division
      const int64_t rows = over < it.shape[d] ? 1 : at[d] / it.shape[d];
      at[d - 1] += rows;
      at[d] -= rows * it.shape[d];
      --d;
    }
  }
  int64_t offset(const Iterator& it, int k) const {
    int64_t bytes = 0;
    for (int d = 0; d < it.ndim; ++d) bytes += at[d] * it.strides[k][d];
    return bytes;
  }
};

// Each of `many` elements `n` times. Blocks end in the next element's, which is written after them, or behind the last
// one.
template <class T>
void spread(const T* from, int64_t many, int64_t n, T* to) {
  constexpr int64_t kBlock = kSlack / static_cast<int64_t>(sizeof(T));
  for (int64_t j = 0; j < many; ++j, to += n)
    for (int64_t i = 0; i < n; i += kBlock) std::fill_n(to + i, kBlock, from[j]);
}

// Copies n elements of operand k between its memory and a contiguous buffer, in iteration order from `start`:
// the rest of the first row, whole rows in blocks, the beginning of the last one.
template <bool kLoad>
void transfer(const Plan& plan, int k, const Cursor& start, int64_t n, char* buffer) {
  const Iterator& it = plan.it;
  const int64_t item = plan.item[k];
  const DType seen = plan.seen[k];
  const Convert convert = kLoad ? convert_for(it.dtype[k], seen) : convert_for(seen, it.dtype[k]);
  const int last = it.ndim - 1;
  const int64_t row = it.shape[last];
  const int64_t s0 = it.strides[k][last];
  const int64_t s1 = last > 0 ? it.strides[k][last - 1] : 0;
  auto move = [&](char* memory, int64_t n0, int64_t n1) {
    if (kLoad && s0 == 0 && n1 > 1) {  // a number for each of several rows: converted once, not row by row
      alignas(64) char numbers[kTileBytes];
      convert(memory, s1, 0, numbers, item, 0, n1, 1);
      dispatch_bytes(static_cast<size_t>(item), [&]<class T>() {
        spread(reinterpret_cast<const T*>(numbers), n1, n0, reinterpret_cast<T*>(buffer));
      });
    } else if constexpr (kLoad)
      convert(memory, s0, s1, buffer, item, n0 * item, n0, n1);
    else
      convert(buffer, item, n0 * item, memory, s0, s1, n0, n1);
    buffer += n0 * n1 * item;
  };
  if (n <= row - start.at[last]) {
    move(it.data[k] + start.offset(it, k), n, 1);
    return;
  }
  Cursor c = start;
  while (n > 0) {
    int64_t n0 = std::min(n, row - c.at[last]);
    int64_t n1 = 1;
    if (n0 == row && last > 0) n1 = std::max<int64_t>(1, std::min(n / row, it.shape[last - 1] - c.at[last - 1]));
    move(it.data[k] + c.offset(it, k), n0, n1);
    n -= n0 * n1;
    if (n > 0) c.advance(it, n0 * n1);
  }
}

// Fills buffer with n elements and, up to kLane, copies of the last one: numbers that occur in the data raise no trap
// and take no slow path that the data did not take.
template <class Element>
void load_padded(char* buffer, const char* from, int64_t n) {
  Element last;
  std::memcpy(&last, from + (n - 1) * static_cast<int64_t>(sizeof last), sizeof last);
#if defined(__AVX512F__)
  if constexpr (sizeof last == 4) {  // without a call of memcpy: `a + b` takes 59 instructions fewer
    const __m512i copies = _mm512_set1_epi32(std::bit_cast<int32_t>(last));
    return _mm512_storeu_si512(buffer, _mm512_mask_loadu_epi32(copies, static_cast<__mmask16>((1u << n) - 1), from));
  }
#endif
  for (int64_t i = 0; i < kLane; ++i) std::memcpy(buffer + i * static_cast<int64_t>(sizeof last), &last, sizeof last);
  std::memcpy(buffer, from, static_cast<size_t>(n) * sizeof last);
}

// Fewer than 64 bytes or, of wide elements, some more.
TG_INLINE void store_rest(char* to, const char* from, int64_t bytes) {
#if defined(__AVX512F__)
  if (bytes < 64) {
    const __mmask64 some = (__mmask64{1} << bytes) - 1;
    return _mm512_mask_storeu_epi8(to, some, _mm512_maskz_loadu_epi8(some, from));
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Fewer elements than kLane: through padded buffers.
void run_rest(const Plan& plan, char* out, const char* const* in, int64_t n) {
  alignas(64) char buffer[kMaxOperands][kLane * kMaxItem];
  const char* padded[pointwise::kMaxInputs];
  for (int k = 1; k <= plan.it.num_inputs; ++k) {
    dispatch_bytes(static_cast<size_t>(plan.item[k]), [&]<class T>() { load_padded<T>(buffer[k], in[k - 1], n); });
    padded[k - 1] = buffer[k];
  }
  plan.loop(plan.functor, buffer[0], padded, kLane);
  store_rest(out, buffer[0], n * plan.item[0]);
}

// Calls f(out, first element, count) for counts that are multiples of kLane and cover n >= kLane elements. The last
// kLane come first where they are not a multiple's, with a buffer as `out`: the output may be one of the inputs.
template <class F>
void in_lanes(const Plan& plan, char* out, int64_t n, F&& f) {
  const int64_t main = n & ~(kLane - 1), item = plan.item[0];
  if (main == n) return f(out, 0, n);
  alignas(64) char last[kLane * kMaxItem];
  f(last, n - kLane, kLane);
  f(out, 0, main);
  store_rest(out + main * item, last + (main + kLane - n) * item, (n - main) * item);
}

void run_contiguous(const Plan& plan, char* out, const char* const* in, int64_t n) {
  if (n % kLane == 0) return plan.loop(plan.functor, out, in, n);
  if (n < kLane) return run_rest(plan, out, in, n);
  in_lanes(plan, out, n, [&](char* to, int64_t first, int64_t count) {
    const char* from[pointwise::kMaxInputs];
    for (int k = 1; k <= plan.it.num_inputs; ++k) from[k - 1] = in[k - 1] + first * plan.item[k];
    plan.loop(plan.functor, to, from, count);
  });
}

void run_tiles(const Plan& plan, int64_t begin, int64_t end) {
  const Iterator& it = plan.it;
  const int last = it.ndim - 1;
  const int inputs = it.num_inputs;
  alignas(64) char buffer[kMaxOperands][kTileBytes + kSlack];
  const char* in[pointwise::kMaxInputs];
  Cursor cursor(it, begin);
  const int64_t most = std::min(plan.tile, (end - begin + kLane - 1) & ~(kLane - 1));
  for (int k = 1; k <= inputs; ++k) {
    const Convert convert = convert_for(it.dtype[k], plan.seen[k]);
    if (plan.access[k] == Access::Constant) {
      convert(it.data[k], 0, 0, buffer[k], plan.item[k], 0, most, 1);
      in[k - 1] = buffer[k];
    } else if (plan.access[k] == Access::Repeated) {
      const int64_t row = it.shape[last], bytes = (row + most) * plan.item[k];
      convert(it.data[k], it.strides[k][last], 0, buffer[k], plan.item[k], 0, row, 1);
      for (int64_t have = row * plan.item[k]; have < bytes; have *= 2)
        std::memcpy(buffer[k] + have, buffer[k], static_cast<size_t>(std::min(have, bytes - have)));
    }
  }
  for (int64_t position = begin; position < end;) {
    int64_t n = std::min(plan.tile, end - position);
    const int64_t left_in_row = it.shape[last] - cursor.at[last];
    if (plan.stay_in_row) n = std::min(n, left_in_row);
    auto pointer = [&](int k) -> char* {
      if (plan.access[k] == Access::Direct) return it.data[k] + position * plan.item[k];
      if (plan.access[k] == Access::Row && n <= left_in_row) return it.data[k] + cursor.offset(it, k);
      if (plan.access[k] == Access::Repeated) return buffer[k] + cursor.at[last] * plan.item[k];
      return nullptr;
    };
    for (int k = 1; k <= inputs; ++k) {
      if (plan.access[k] == Access::Constant) continue;
      const char* direct = pointer(k);
      if (direct == nullptr) {
        transfer<true>(plan, k, cursor, n, buffer[k]);
        direct = buffer[k];
      }
      in[k - 1] = direct;
    }
    char* out = pointer(0);
    run_contiguous(plan, out ? out : buffer[0], in, n);
    if (out == nullptr) transfer<false>(plan, 0, cursor, n, buffer[0]);
    position += n;
    cursor.advance(it, n);
  }
}

// Row by row, with one number for each.
[[gnu::noinline]] void run_numbers(const Plan& plan, int64_t begin, int64_t end) {
  const Iterator& it = plan.it;
  const int last = it.ndim - 1, other = 3 - plan.number;
  Cursor cursor(it, begin);
  for (int64_t n; begin < end; begin += n, cursor.advance(it, n)) {
    n = std::min(end - begin, it.shape[last] - cursor.at[last]);
    char* out = it.data[0] + cursor.offset(it, 0);
    const char* in[3] = {};
    for (int k = 1; k <= 2; ++k) in[k] = it.data[k] + cursor.offset(it, k);
    if (n >= kLane) {
      const char* dense = in[other];
      in_lanes(plan, out, n, [&](char* to, int64_t first, int64_t count) {
        in[other] = dense + first * plan.item[other];
        plan.with_number(plan.functor, to, in + 1, count);
      });
      continue;
    }
    alignas(64) char number[kLane * kMaxItem];
    convert_for(it.dtype[plan.number], plan.seen[plan.number])(in[plan.number], 0, 0, number, plan.item[plan.number], 0,
                                                               kLane, 1);
    in[plan.number] = number;
    run_rest(plan, out, in + 1, n);
  }
}

// Sets `with_number` where it can be used: rows are long, and one of two inputs has one number for each.
void choose_number(Plan& plan, const NumberLoops& numbers) {
  const Iterator& it = plan.it;
  constexpr int64_t kLong = 128;
  const int last = it.ndim - 1;
  if (last < 1 || it.shape[last] < kLong) return;
  auto dense = [&](int k) { return plan.access[k] == Access::Direct || plan.access[k] == Access::Row; };
  for (int k = 1; k <= 2; ++k)
    if (it.strides[k][last] == 0 && it.dtype[k] == plan.seen[k] && plan.access[k] == Access::Staged && dense(0) &&
        dense(3 - k)) {
      plan.with_number = numbers.number[k - 1];
      plan.number = k;
    }
}

// Inputs of which every row is the same, where tiles stay long enough.
void choose_repeated(Plan& plan) {
  const Iterator& it = plan.it;
  const int last = it.ndim - 1;
  const int64_t row = it.shape[last];
  if (last < 1 || row > plan.tile / 2) return;
  const bool in_place = row >= plan.tile / 4 && row % kLane == 0;  // rows as they lie are as good
  bool any = false;
  for (int k = 1; k <= it.num_inputs; ++k) {
    if (plan.access[k] != Access::Staged && (plan.access[k] != Access::Row || in_place)) continue;
    if (!std::all_of(it.strides[k], it.strides[k] + last, [](int64_t stride) { return stride == 0; })) continue;
    plan.access[k] = Access::Repeated;
    any = true;
  }
  if (any) plan.tile = (plan.tile - row) & ~(kLane - 1);  // a buffer begins anywhere in the row
}

TG_INLINE void run_whole(const Plan& plan, int64_t begin, int64_t end) {
  const char* in[pointwise::kMaxInputs];
  for (int k = 1; k <= plan.it.num_inputs; ++k) in[k - 1] = plan.it.data[k] + begin * plan.item[k];
  run_contiguous(plan, plan.it.data[0] + begin * plan.item[0], in, end - begin);
}

void run_range(const Plan& plan, int64_t begin, int64_t end) {
  if (plan.with_number) return run_numbers(plan, begin, end);
  if (!plan.whole) return run_tiles(plan, begin, end);
  run_whole(plan, begin, end);
}

// The common small case, without a plan of its own: contiguous operands that the loop sees as they are.
bool run_flat(const Iterator& it, Loop loop, const void* functor) {
  if (it.ndim != 1 || it.dtype[0] != it.result) return false;
  Plan plan{it, loop, functor, {}, {}, {}, 0};
  for (int k = 0; k <= it.num_inputs; ++k) {
    plan.item[k] = static_cast<int64_t>(element_size(it.dtype[k]));
    if (it.strides[k][0] != plan.item[k] || (k > 0 && it.dtype[k] != it.compute)) return false;
  }
  run_whole(plan, 0, it.numel);
  return true;
}

}  // namespace

void run_loop(const Iterator& it, Loop loop, Loop16 loop16, const NumberLoops* numbers, const void* functor, int cost,
              detail::CostHint& hint) {
  if (it.numel <= kGrain && it.numel * cost <= kGrain && run_flat(it, loop, functor)) return;
  unsigned constants = 0;
  for (int k = 1; k <= it.num_inputs; ++k) constants |= is_constant(it, k) ? 1u << (k - 1) : 0u;
  DType format = it.compute;
  const Loop special = choose(it, loop16, constants, format);
  if (special == nullptr) format = it.compute;
  Plan plan{it, special ? special : loop, functor, {}, {}, {}, 0};
  int64_t largest = 1;
  for (int k = 0; k <= it.num_inputs; ++k) {
    const bool constant = k > 0 && (constants >> (k - 1) & 1);
    plan.seen[k] = constant ? it.compute : k > 0 || it.result == it.compute ? format : it.result;
    plan.item[k] = static_cast<int64_t>(element_size(plan.seen[k]));
    plan.access[k] = constant ? Access::Constant : classify(plan, k);
    plan.whole &= plan.access[k] == Access::Direct;
    largest = std::max(largest, plan.item[k]);
  }
  if (numbers && !special) choose_number(plan, *numbers);
  plan.tile = kTileBytes / std::max<int64_t>(largest, 4);
  if (!plan.with_number) choose_repeated(plan);
  for (int k = 0; k <= it.num_inputs; ++k)
    plan.stay_in_row |= plan.access[k] == Access::Row && it.shape[it.ndim - 1] >= plan.tile / 4;
  const int64_t grain = kGrain / cost;
  if (it.numel <= grain) return run_range(plan, 0, it.numel);
  // Cut between tiles, or each piece would end with a rest.
  detail::parallel_run(
      0, (it.numel + plan.tile - 1) / plan.tile, std::max<int64_t>(1, grain / plan.tile),
      [](void* context, int64_t begin, int64_t end, int64_t) {
        const Plan& p = *static_cast<const Plan*>(context);
        run_range(p, begin * p.tile, std::min(end * p.tile, p.it.numel));
      },
      &plan, hint);
}

}  // namespace tapegrad::cpu::TG_ISA::rows
