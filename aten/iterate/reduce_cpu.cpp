// The strided, threaded walk of all reductions; see reduce_rows.h.
#include "tapegrad/aten/iterate/reduce_rows.h"

#include <cstdlib>
#include <memory>

#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA::reduce_rows {
namespace {

using reduce::Iterator;

inline constexpr int64_t kGrain = 65536;            // elements worth a thread
inline constexpr int64_t kFewElements = 32;         // per output: lanes would cost more than they bring
inline constexpr int64_t kSplitElements = 1 << 17;  // of one output: partial results for threads
inline constexpr int64_t kMaxChunks = 64;
inline constexpr size_t kMaxBlockBytes = kBlock * 3 * sizeof(complex128_t);
inline constexpr int64_t kStageBytes = 16384;  // of elements converted at once

enum class Mode : uint8_t {
  Rows,     // one output at a time, its elements dealt out to lanes
  Lines,    // as Rows, where the elements of an output lie in one line: several outputs at a time
  Columns,  // a strip of outputs, one element of each at a time
  Folded,   // as Columns, where several rows of the strip lie end to end in memory and are taken at once
};

struct Work {
  const Iterator& it;
  const Loops& loops;
  const void* functor;
  Mode mode;
  bool direct;     // elements are as the loops read them and side by side: no staging
  int64_t item;    // size of an element as the loops read it
  int64_t strip;   // outputs per unit, all in one line of the last outer dimension
  int64_t strips;  // units per line
  int64_t lines;
  int64_t width;  // Folded: lanes, a multiple of strip
  Convert load;

  int64_t units() const { return strips * lines; }
  int64_t block_bytes() const { return static_cast<int64_t>(loops.acc_size) * loops.planes * kBlock; }
};

struct Unit {
  const char* input;  // the element at reduced index 0 of the first output
  int64_t first;      // index of the first output
  int64_t count;
};

Unit unit_at(const Work& w, int64_t index) {
  const Iterator& it = w.it;
  const int last = it.outer_ndim - 1;
  const int64_t strip = index % w.strips;
  int64_t line = index / w.strips;
  Unit u;
  u.first = strip * w.strip;
  u.count = std::min(w.strip, it.outer_shape[last] - u.first);
  u.input = it.input + u.first * it.outer_strides[last];
  u.first += line * it.outer_shape[last];
  for (int d = last - 1; d >= 0; --d) {
    u.input += line % it.outer_shape[d] * it.outer_strides[d];
    line /= it.outer_shape[d];
  }
  return u;
}

// Calls run(address of the first element, number of elements) for the pieces of the range [begin, end) of
// reduced indices that lie along the last reduced dimension.
template <class F>
void walk_reduced(const Iterator& it, const char* base, int64_t begin, int64_t end, F&& run) {
  if (begin == end) return;  // of an empty tensor a size may be zero
  const int last = it.reduced_ndim - 1;
  int64_t at[kMaxDims];
  int64_t rest = begin;
  for (int d = last; d > 0; --d) {
    at[d] = rest % it.reduced_shape[d];
    rest /= it.reduced_shape[d];
  }
  at[0] = rest;
  while (begin < end) {
    const char* p = base;
    for (int d = 0; d <= last; ++d) p += at[d] * it.reduced_strides[d];
    const int64_t n = std::min(end - begin, it.reduced_shape[last] - at[last]);
    run(p, n);
    begin += n;
    at[last] += n;
    for (int d = last; d > 0 && at[d] == it.reduced_shape[d]; --d) {
      at[d] = 0;
      ++at[d - 1];
    }
  }
}

int64_t lanes_of(const Work& w, const Unit& u) {
  if (w.mode == Mode::Rows) return kLanes;
  return w.mode == Mode::Folded ? w.width : u.count;
}

// Takes the elements [begin, end) of a unit's outputs into a started block.
void take(const Work& w, const Unit& u, int pass, char* acc, int64_t begin, int64_t end) {
  const Loops& f = w.loops;
  const int64_t stride = w.it.reduced_strides[w.it.reduced_ndim - 1];
  alignas(64) char buffer[kStageBytes];
  walk_reduced(w.it, u.input, begin, end, [&](const char* p, int64_t n) {
    if (w.mode == Mode::Rows) {
      if (w.direct) return f.rows(w.functor, pass, acc, p, n);
      const int64_t fitting = kStageBytes / w.item;
      for (int64_t i = 0; i < n; i += fitting) {
        const int64_t m = std::min(fitting, n - i);
        w.load(p + i * stride, stride, 0, buffer, w.item, 0, m, 1);
        f.rows(w.functor, pass, acc, buffer, m);
      }
    } else if (w.mode == Mode::Folded) {
      const int64_t elements = n * u.count, rows = elements / w.width, rest = elements % w.width;
      f.columns(w.functor, pass, acc, p, w.width, w.width * w.item, rows);
      if (rest > 0) f.columns(w.functor, pass, acc, p + rows * w.width * w.item, rest, 0, 1);
    } else if (w.direct) {
      f.columns(w.functor, pass, acc, p, u.count, stride, n);
    } else {
      const int64_t outer = w.it.outer_strides[w.it.outer_ndim - 1], bytes = u.count * w.item;
      const int64_t fitting = kStageBytes / bytes, rows = fitting < 4 ? fitting : fitting / 4 * 4;
      for (int64_t i = 0; i < n; i += rows, p += rows * stride) {
        const int64_t m = std::min(rows, n - i);
        w.load(p, outer, stride, buffer, w.item, bytes, u.count, m);
        f.columns(w.functor, pass, acc, buffer, u.count, bytes, m);
      }
    }
  });
}

// Merges the lanes of a block until one per output is left.
void fold(const Work& w, const Unit& u, int pass, char* acc) {
  const Loops& f = w.loops;
  if (w.mode == Mode::Rows) {
    f.fold(w.functor, pass, acc);
  } else if (w.mode == Mode::Folded) {
    for (int64_t groups = w.width / u.count; groups > 1;) {
      const int64_t half = groups / 2;
      groups -= half;
      f.merge(w.functor, pass, acc, acc + groups * u.count * f.acc_size, half * u.count);
    }
  }
}

void start(const Work& w, const Unit& u, int pass, char* acc, const char* before) {
  const int64_t count = w.it.reduced_numel;
  if (w.mode != Mode::Folded || pass == 0)
    return w.loops.start(w.functor, pass, acc, lanes_of(w, u), before, w.mode == Mode::Rows, count);
  for (int64_t j = 0; j < w.width; j += u.count)
    w.loops.start(w.functor, pass, acc + j * w.loops.acc_size, u.count, before, false, count);
}

void finish(const Work& w, const Unit& u, const char* acc) {
  const int64_t n = u.count;
  const auto out_item = static_cast<int64_t>(element_size(w.it.output_dtype));
  char* out = w.it.output + u.first * out_item;
  if (w.loops.result == w.it.output_dtype) return w.loops.finish(w.functor, acc, out, n, w.it.reduced_numel);
  alignas(64) char buffer[kBlock * sizeof(complex128_t)];
  w.loops.finish(w.functor, acc, buffer, n, w.it.reduced_numel);
  const auto item = static_cast<int64_t>(element_size(w.loops.result));
  convert_for(w.loops.result, w.it.output_dtype)(buffer, item, 0, out, out_item, 0, n, 1);
}

// Keeps what a pass left in the first lanes for the start of the next.
void save(const Work& w, const Unit& u, const char* acc, char* before) {
  const int64_t plane = static_cast<int64_t>(kBlock) * w.loops.acc_size;
  for (int p = 0; p < w.loops.planes; ++p) std::copy_n(acc + p * plane, u.count * w.loops.acc_size, before + p * plane);
}

// All outputs of a unit at once, from start to fold: one line of each, merged with what the lines before gave.
void run_lines(const Work& w, const Unit& u, char* acc, char* part) {
  const Iterator& it = w.it;
  const int64_t outer = it.outer_strides[it.outer_ndim - 1], item = w.loops.acc_size;
  const int64_t stride = it.reduced_strides[it.reduced_ndim - 1];
  alignas(64) char buffer[kStageBytes];
  char* to = acc;
  walk_reduced(it, u.input, 0, it.reduced_numel, [&](const char* p, int64_t n) {
    if (w.direct) {
      w.loops.lines(w.functor, to, p, n, outer, u.count);
    } else {
      const int64_t bytes = n * w.item, rows = kStageBytes / bytes;
      for (int64_t i = 0; i < u.count; i += rows) {
        const int64_t m = std::min(rows, u.count - i);
        w.load(p + i * outer, stride, outer, buffer, w.item, bytes, n, m);
        w.loops.lines(w.functor, to + i * item, buffer, n, bytes, m);
      }
    }
    if (to == part) w.loops.merge(w.functor, 0, acc, part, u.count);
    to = part;
  });
}

void run_units(const Work& w, int64_t begin, int64_t end) {
  alignas(64) char acc[kMaxBlockBytes];
  alignas(64) char before[kMaxBlockBytes];
  for (int64_t i = begin; i < end; ++i) {
    const Unit u = unit_at(w, i);
    if (w.mode == Mode::Lines) {
      run_lines(w, u, acc, before);
      finish(w, u, acc);
      continue;
    }
    for (int pass = 0; pass < w.loops.passes; ++pass) {
      if (pass > 0) save(w, u, acc, before);
      start(w, u, pass, acc, before);
      take(w, u, pass, acc, 0, w.it.reduced_numel);
      fold(w, u, pass, acc);
    }
    finish(w, u, acc);
  }
}

// Few outputs of many elements: the elements are split, and the partial results merged in their order.
void run_split(const Work& w) {
  const int64_t n = w.it.reduced_numel;
  const int64_t per_chunk = std::max((n + kMaxChunks - 1) / kMaxChunks, kSplitElements / 2 / w.strip);
  const int64_t chunks = (n + per_chunk - 1) / per_chunk;
  const auto bytes = static_cast<size_t>(w.block_bytes());
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  const size_t step = (bytes + 63) / 64 * 64;
  std::unique_ptr<char, Free> blocks(static_cast<char*>(std::aligned_alloc(64, step * static_cast<size_t>(chunks))));
  if (!blocks) throw std::bad_alloc();
  alignas(64) char before[kMaxBlockBytes];
  for (int64_t i = 0; i < w.units(); ++i) {
    const Unit u = unit_at(w, i);
    for (int pass = 0; pass < w.loops.passes; ++pass) {
      if (pass > 0) save(w, u, blocks.get(), before);
      parallel_for(0, chunks, 1, [&](int64_t first, int64_t last) {
        for (int64_t c = first; c < last; ++c) {
          char* acc = blocks.get() + step * static_cast<size_t>(c);
          start(w, u, pass, acc, before);
          take(w, u, pass, acc, c * per_chunk, std::min(n, (c + 1) * per_chunk));
          fold(w, u, pass, acc);
        }
      });
      for (int64_t c = 1; c < chunks; ++c)
        w.loops.merge(w.functor, pass, blocks.get(), blocks.get() + step * static_cast<size_t>(c), u.count);
    }
    finish(w, u, blocks.get());
  }
}

Work plan(const Iterator& it, const Loops& loops, const void* functor) {
  Work w{it,
         loops,
         functor,
         Mode::Rows,
         false,
         static_cast<int64_t>(element_size(loops.input)),
         1,
         1,
         1,
         0,
         convert_for(it.input_dtype, loops.input)};
  const int64_t line = it.outer_shape[it.outer_ndim - 1];
  const int64_t along = it.outer_strides[it.outer_ndim - 1];
  const int64_t down = it.reduced_strides[it.reduced_ndim - 1];
  const bool same = it.input_dtype == loops.input;
  const bool columns = it.outer_numel > 1 && (it.reduced_numel < kFewElements || std::abs(along) < std::abs(down));
  if (columns) {
    w.mode = Mode::Columns;
    w.direct = same && (along == w.item || line == 1);
    w.strip = std::min<int64_t>(line, kBlock);
    if (w.direct && w.strip == line && down == line * w.item && it.reduced_numel > 1) {
      w.mode = Mode::Folded;
      w.width = std::min(kBlock / line, it.reduced_numel) * line;
    }
  } else {
    w.direct = same && (down == w.item || it.reduced_numel == 1);
    const int64_t n = it.reduced_shape[it.reduced_ndim - 1];
    if (loops.lines && it.reduced_numel > 0 && it.reduced_numel <= kSplitElements && n * w.item <= kStageBytes &&
        (it.reduced_ndim == 1 || n >= kLanes)) {
      w.mode = Mode::Lines;
      // Several lines that lie side by side before the next ones, far away.
      const int64_t fitting = std::min(kGrain / 4 / n, 2 * kGrain / it.reduced_numel);
      w.strip = std::min(std::clamp<int64_t>(fitting, 1, kBlock), line);
    }
  }
  w.strips = (line + w.strip - 1) / w.strip;
  w.lines = line == 0 ? 0 : it.outer_numel / line;
  return w;
}

}  // namespace

void run_loops(const Iterator& it, const Loops& loops, const void* functor) {
  const Work w = plan(it, loops, functor);
  const int64_t per_unit = std::max<int64_t>(1, it.reduced_numel * w.strip);
  if (w.units() < 8 && per_unit > kSplitElements) return run_split(w);
  parallel_for(0, w.units(), std::max<int64_t>(1, kGrain / per_unit),
               [&](int64_t begin, int64_t end) { run_units(w, begin, end); });
}

}  // namespace tapegrad::cpu::TG_ISA::reduce_rows
