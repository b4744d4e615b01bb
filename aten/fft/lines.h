// Transforms of many lines of complex numbers with any strides. Lines go through the passes in groups of one line per
// lane; few long lines are split or convolved one by one (plan.h). The choice of method and the grouping depend on
// sizes only: the same bits for any number of threads. Inverse transforms exchange real and imaginary parts when
// reading and writing. Reading and writing may be the same memory: a group is read before it is written.
#pragma once

#include <memory>
#include <new>

#include "tapegrad/aten/fft/passes.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/memory/available_memory.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// Scratch memory of one thread, kept between calls: fresh pages from the system cost more than a short transform.
template <class T>
T* scratch(size_t count, int slot) {
  struct Free {
    void operator()(void* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  require_thread_memory<Free>();
  static thread_local std::unique_ptr<void, Free> kept[2];
  static thread_local size_t size[2] = {0, 0};
  size_t bytes = count * sizeof(T);
  if (size[slot] < bytes) {
    kept[slot].reset(::operator new(bytes, std::align_val_t(64)));
    size[slot] = bytes;
  }
  return static_cast<T*>(kept[slot].get());
}

// Memory of one call, from the caching allocator and without initial values.
template <class E>
class Buffer {
 public:
  explicit Buffer(int64_t n) : bytes_(empty_tensor({n * static_cast<int64_t>(sizeof(E))}, DType::uint8)) {}
  E* get() const { return static_cast<E*>(bytes_.data_ptr()); }
  E& operator[](int64_t i) const { return get()[i]; }

 private:
  Tensor bytes_;
};

// Where lines are read from and written to: line i starts at base + of(i), its elements are `step` apart.
template <class E, class Of>
struct Side {
  E* base;
  int64_t step;
  Of of;
  E* line(int64_t i) const { return base + of(i); }
};
template <class E, class Of>
Side(E*, int64_t, Of) -> Side<E, Of>;

// The lines of a group: their starts, and whether they are adjacent in memory.
template <class E>
struct Group {
  E* start[64];
  int used = 0;
  bool adjacent = true;

  template <class S>
  Group(const S& side, int64_t first, int64_t count, int lanes) {
    used = static_cast<int>(std::min<int64_t>(count - first, lanes));
    for (int l = 0; l < lanes; ++l) {
      start[l] = side.line(first + (l < used ? l : 0));
      adjacent = adjacent && start[l] == start[0] + l;
    }
  }
};

// Elements 0 .. n - 1 of each line into Blocks; kSwap exchanges real and imaginary parts.
template <bool kSwap, class T>
void load_as(const Group<const std::complex<T>>& g, int64_t step, int64_t n, Block<T>* to) {
  constexpr int V = kLanes<T>;
  if (g.adjacent) {
    for (int64_t i = 0; i < n; ++i) {
      const T* p = reinterpret_cast<const T*>(g.start[0] + i * step);
      Block<T> b;
      for (int l = 0; l < V; ++l) {
        b.re[l] = p[2 * l + kSwap];
        b.im[l] = p[2 * l + 1 - kSwap];
      }
      to[i] = b;
    }
    return;
  }
  constexpr int64_t kTile = 16;  // a tile of Blocks stays in the first cache while the lines are read one by one
  for (int64_t first = 0; first < n; first += kTile) {
    int64_t last = std::min(first + kTile, n);
    for (int l = 0; l < V; ++l) {
      const T* p = reinterpret_cast<const T*>(g.start[l]);
      for (int64_t i = first; i < last; ++i) {
        to[i].re[l] = p[2 * i * step + kSwap];
        to[i].im[l] = p[2 * i * step + 1 - kSwap];
      }
    }
  }
}

template <class T>
void load(const Group<const std::complex<T>>& g, int64_t step, int64_t n, bool swap, Block<T>* to) {
  return swap ? load_as<true>(g, step, n, to) : load_as<false>(g, step, n, to);
}

template <bool kSwap, class T>
void store_as(const Group<std::complex<T>>& g, int64_t step, int64_t n, T scale, const Block<T>* from) {
  constexpr int V = kLanes<T>;
  if (g.adjacent && g.used == V) {
    for (int64_t i = 0; i < n; ++i) {
      T* p = reinterpret_cast<T*>(g.start[0] + i * step);
      const Block<T> b = from[i];
      for (int l = 0; l < V; ++l) {
        p[2 * l + kSwap] = b.re[l] * scale;
        p[2 * l + 1 - kSwap] = b.im[l] * scale;
      }
    }
    return;
  }
  constexpr int64_t kTile = 16;
  for (int64_t first = 0; first < n; first += kTile) {
    int64_t last = std::min(first + kTile, n);
    for (int l = 0; l < g.used; ++l) {
      T* p = reinterpret_cast<T*>(g.start[l]);
      for (int64_t i = first; i < last; ++i) {
        p[2 * i * step + kSwap] = from[i].re[l] * scale;
        p[2 * i * step + 1 - kSwap] = from[i].im[l] * scale;
      }
    }
  }
}

template <class T>
void store(const Group<std::complex<T>>& g, int64_t step, int64_t n, bool swap, T scale, const Block<T>* from) {
  return swap ? store_as<true>(g, step, n, scale, from) : store_as<false>(g, step, n, scale, from);
}

struct Direction {
  bool inverse_in = false, inverse_out = false;  // exchange the parts when reading, when writing
};

// Groups that are worth a thread of their own: about 2^16 operations.
inline int64_t group_grain(int64_t n, int lanes) {
  int64_t cost = n * lanes * 16;
  return std::max<int64_t>(1, 65536 / std::max<int64_t>(cost, 1));
}

// Lines that are transformed one by one: many lines in parallel, or few in turn, each by several threads.
template <class F>
void each_line(int64_t count, int64_t n, F&& f) {
  int64_t grain = count < 8 ? count : std::max<int64_t>(1, 8192 / n);
  parallel_for(0, count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(i);
  });
}

// The elements of one long line.
template <class F>
void each_element(int64_t n, F&& f) {
  parallel_for(0, n, 16384, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(i);
  });
}

// Whether Blocks can go through the plan: by passes, or by a convolution that is done by passes.
template <class T>
bool by_passes(const fft::Plan<T>& plan) {
  return plan.smooth ? plan.n == 1 || !plan.passes.empty() : !plan.convolution->passes.empty();
}

// Blocks that both buffers of transform_blocks must hold.
template <class T>
int64_t blocks_of(const fft::Plan<T>& plan) {
  return plan.smooth ? plan.n : plan.convolution->n;
}

// y = x * w, or with conjugated roots, for the second run through the same passes.
template <class T>
void multiply(Block<T>& x, std::complex<T> w) {
  for (int l = 0; l < kLanes<T>; ++l) {
    T re = x.re[l], im = x.im[l];
    x.re[l] = re * w.real() - im * w.imag();
    x.im[l] = re * w.imag() + im * w.real();
  }
}

// The transform of n Blocks in a; b is as long; the result is in one of them.
template <class T>
Block<T>* transform_blocks(const fft::Plan<T>& plan, Block<T>* a, Block<T>* b) {
  if (plan.smooth) return run_passes(plan, a, b);
  int64_t n = plan.n, m = plan.convolution->n;
  for (int64_t k = 0; k < n; ++k) multiply(a[k], plan.chirp[static_cast<size_t>(k)]);
  for (int64_t k = n; k < m; ++k) a[k] = Block<T>{};
  Block<T>* x = run_passes(*plan.convolution, a, b);
  for (int64_t k = 0; k < m; ++k) {
    multiply(x[k], plan.chirp_transform[static_cast<size_t>(k)]);
    for (int l = 0; l < kLanes<T>; ++l) std::swap(x[k].re[l], x[k].im[l]);
  }
  x = run_passes(*plan.convolution, x, x == a ? b : a);
  for (int64_t k = 0; k < n; ++k) {
    for (int l = 0; l < kLanes<T>; ++l) std::swap(x[k].re[l], x[k].im[l]);
    multiply(x[k], plan.chirp[static_cast<size_t>(k)]);
  }
  return x;
}

// Few lines fill few lanes: then a line that can be split is.
template <class T>
bool in_groups(const fft::Plan<T>& plan, int64_t count) {
  if (!by_passes(plan)) return false;
  bool splittable = plan.smooth ? plan.n1 > 0 : plan.convolution->n1 > 0;
  return !splittable || 2 * count > kLanes<T>;
}

template <class T, class In, class Out>
void transform_lines(const fft::Plan<T>& plan, int64_t count, const Side<const std::complex<T>, In>& in,
                     const Side<std::complex<T>, Out>& out, Direction direction, T scale,
                     const std::complex<T>* twist = nullptr);

// One line, split or convolved.
template <class T>
void transform_line(const fft::Plan<T>& plan, const std::complex<T>* in, int64_t in_step, std::complex<T>* out,
                    int64_t out_step, Direction direction, T scale) {
  using C = std::complex<T>;
  if (plan.smooth) {
    int64_t n1 = plan.n1, n2 = plan.n2;
    Buffer<C> middle(plan.n);
    transform_lines<T>(*plan.first, n2, Side{in, n2 * in_step, [=](int64_t i) { return i * in_step; }},
                       Side{middle.get(), n2, [](int64_t i) { return i; }}, {direction.inverse_in, false}, T(1),
                       plan.twist.data());
    transform_lines<T>(
        *plan.second, n1, Side{static_cast<const C*>(middle.get()), 1, [=](int64_t i) { return i * n2; }},
        Side{out, n1 * out_step, [=](int64_t i) { return i * out_step; }}, {false, direction.inverse_out}, scale);
    return;
  }
  const fft::Plan<T>& long_plan = *plan.convolution;
  int64_t n = plan.n, m = long_plan.n;
  Buffer<C> x(m), y(m);
  auto exchange = [](C z) { return C(z.imag(), z.real()); };
  auto times = [](C a, C b) {
    return C(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  };
  each_element(m, [&](int64_t k) {
    const C z = k < n ? in[k * in_step] : C(0);
    x[k] = k < n ? times(direction.inverse_in ? exchange(z) : z, plan.chirp[static_cast<size_t>(k)]) : C(0);
  });
  auto start = [](int64_t) { return int64_t{0}; };
  transform_lines<T>(long_plan, 1, Side{static_cast<const C*>(x.get()), 1, start}, Side{y.get(), 1, start}, {}, T(1));
  each_element(m, [&](int64_t k) { y[k] = times(y[k], plan.chirp_transform[static_cast<size_t>(k)]); });
  transform_lines<T>(long_plan, 1, Side{static_cast<const C*>(y.get()), 1, start}, Side{x.get(), 1, start},
                     {true, true}, T(1));
  each_element(n, [&](int64_t k) {
    C z = times(x[k], plan.chirp[static_cast<size_t>(k)]) * scale;
    out[k * out_step] = direction.inverse_out ? exchange(z) : z;
  });
}

// twist: factors at [element][line] that results are multiplied by.
template <class T, class In, class Out>
void transform_lines(const fft::Plan<T>& plan, int64_t count, const Side<const std::complex<T>, In>& in,
                     const Side<std::complex<T>, Out>& out, Direction direction, T scale,
                     const std::complex<T>* twist) {
  constexpr int V = kLanes<T>;
  int64_t n = plan.n;
  if (!in_groups(plan, count)) {
    return each_line(count, n, [&](int64_t i) {
      std::complex<T>* to = out.line(i);
      transform_line(plan, in.line(i), in.step, to, out.step, direction, scale);
      if (twist) each_element(n, [&](int64_t k) { to[k * out.step] *= twist[k * count + i]; });
    });
  }
  parallel_for(0, (count + V - 1) / V, group_grain(n, V), [&](int64_t first, int64_t last) {
    const size_t blocks = static_cast<size_t>(blocks_of(plan));
    Block<T>*a = scratch<Block<T>>(blocks, 0), *b = scratch<Block<T>>(blocks, 1);
    for (int64_t i = first; i < last; ++i) {
      load<T>(Group<const std::complex<T>>(in, i * V, count, V), in.step, n, direction.inverse_in, a);
      Block<T>* x = transform_blocks(plan, a, b);
      Group<std::complex<T>> to(out, i * V, count, V);
      for (int64_t k = 0; twist && k < n; ++k) {
        const T* w = reinterpret_cast<const T*>(twist + k * count + i * V);
        for (int l = 0; l < to.used; ++l) {
          T re = x[k].re[l], im = x[k].im[l];
          x[k].re[l] = re * w[2 * l] - im * w[2 * l + 1];
          x[k].im[l] = re * w[2 * l + 1] + im * w[2 * l];
        }
      }
      store<T>(to, out.step, n, direction.inverse_out, scale, x);
    }
  });
}

}  // namespace
}  // namespace tapegrad::cpu::TG_ISA
