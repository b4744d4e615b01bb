// Resampling and its gradient, an element of the result per thread. Each dimension has a table of taps on the device;
// as the elements that tap k names rise with the output, the outputs that name an element by it are side by side, and
// the gradient adds them up without atomics.
#include "tapegrad/aten/index/search.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/aten/upsample/taps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/divide.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

namespace search = cpu::TG_ISA;
using resampling::Mode;
using resampling::rounded;
using resampling::Rule;
using resampling::sum_t;

// Tables of one dimension: tap k of output i at k * out + i; for the gradient the outputs [first, last) whose tap k
// names element x, at k * in + x.
template <class C>
struct Table {
  int64_t in, out, count;
  int32_t *index, *first, *last;
  C* weight;

  TG_DEVICE int64_t at(int64_t k, int64_t i) const { return index[k * out + i]; }
  TG_DEVICE C weight_at(int64_t k, int64_t i) const { return weight[k * out + i]; }
};

template <class C>
struct FillTable {
  Rule<C> rule;
  Table<C> table;
  TG_DEVICE void operator()(int64_t i) const {
    const Table<C> t = table;
    rule.taps(i, [&](int64_t k, int64_t element, C w) {
      t.index[k * t.out + i] = static_cast<int32_t>(element);
      t.weight[k * t.out + i] = w;
    });
  }
};

template <class C>
struct FillRanges {
  Table<C> t;
  TG_DEVICE void operator()(int64_t i) const {
    const int32_t* row = t.index + i / t.in * t.out;
    const int64_t element = i % t.in;
    t.first[i] = static_cast<int32_t>(search::first_not(t.out, [&](int64_t o) { return row[o] < element; }));
    t.last[i] = static_cast<int32_t>(search::first_not(t.out, [&](int64_t o) { return row[o] <= element; }));
  }
};

// The tables of up to three spatial dimensions, fewer are widened by leading ones, in one piece of memory.
template <class C>
class Tables {
 public:
  Tables(const Work& work, Mode mode, IntSpan in, IntSpan out, bool corners,
         const std::optional<std::vector<double>>& scales, bool ranges) {
    const size_t n = in.size() - 2;
    Rule<C> rule[3];
    size_t bytes = 0;
    for (size_t d = 0; d < 3; ++d) {
      const size_t s = d + n - 3;
      if (d + n >= 3) rule[d] = Rule<C>(mode, in[s + 2], out[s + 2], corners, scales ? (*scales)[s] : 0.0);
      bytes += part(rule[d].count * rule[d].out, sizeof(C)) + part(rule[d].count * rule[d].out, sizeof(int32_t));
      if (ranges) bytes += 2 * part(rule[d].count * rule[d].in, sizeof(int32_t));
    }
    memory_.emplace(bytes, work);
    char* at = static_cast<char*>(memory_->data());
    const auto take = [&]<class E>(E*& p, int64_t count) {
      p = reinterpret_cast<E*>(at);
      at += part(count, sizeof(E));
    };
    for (size_t d = 0; d < 3; ++d) {
      Table<C>& t = table[d];
      t = {rule[d].in, rule[d].out, rule[d].count, nullptr, nullptr, nullptr, nullptr};
      take(t.weight, t.count * t.out);
      take(t.index, t.count * t.out);
      for_elements(work, t.out, FillTable<C>{rule[d], t});
      if (!ranges) continue;
      take(t.first, t.count * t.in);
      take(t.last, t.count * t.in);
      for_elements(work, t.count * t.in, FillRanges<C>{t});
    }
  }
  Table<C> table[3];
  Space in_space() const { return {table[0].in, table[1].in, table[2].in}; }
  Space out_space() const { return {table[0].out, table[1].out, table[2].out}; }

 private:
  static size_t part(int64_t count, size_t size) { return (static_cast<size_t>(count) * size + 15) / 16 * 16; }
  std::optional<Workspace> memory_;
};

// Planes of the input and the output, and how they are sampled.
template <class T>
struct Planes {
  Table<sum_t<T>> z, y, x;
  Space in, out;
  Divider by;  // the elements of a plane of the tensor that is written
  const T* from;
  T* to;
};

template <class T, bool kNearest>
struct Resample {
  using C = sum_t<T>;
  Planes<T> p;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t plane, at;
    p.by.divide(i, plane, at);
    const Point o = p.out.point(at);
    const T* image = p.from + plane * p.in.numel();
    if constexpr (kNearest)
      p.to[i] = image[p.in.place(p.z.at(0, o.at[0]), p.y.at(0, o.at[1]), p.x.at(0, o.at[2]))];
    else
      p.to[i] = rounded<T>(sum_at(image, o));
  }
  TG_DEVICE C sum_at(const T* image, const Point& o) const {
    // Taps without weight are not there: an infinity below them does not count. One or two are always taken.
    C sum = C(0);
    for (int64_t kx = 0; kx < p.x.count; ++kx) {
      const C wx = p.x.weight_at(kx, o.at[2]);
      if (p.x.count > 2 && wx == C(0)) continue;
      C column = C(0);
      for (int64_t kz = 0; kz < p.z.count; ++kz)
        for (int64_t ky = 0; ky < p.y.count; ++ky) {
          const C w = p.z.weight_at(kz, o.at[0]) * p.y.weight_at(ky, o.at[1]);
          if (kz + ky > 0 && w == C(0)) continue;
          column +=
              w * static_cast<C>(image[p.in.place(p.z.at(kz, o.at[0]), p.y.at(ky, o.at[1]), p.x.at(kx, o.at[2]))]);
        }
      sum += wx * column;
    }
    return sum;
  }
};

template <class T>
struct Spread {
  using C = sum_t<T>;
  Planes<T> p;
  // f(output, weight) for the outputs that name element i.
  template <class F>
  TG_DEVICE static void for_outputs(const Table<C>& t, int64_t i, const F& f) {
    for (int64_t k = 0; k < t.count; ++k)
      for (int64_t o = t.first[k * t.in + i]; o < t.last[k * t.in + i]; ++o) f(o, t.weight_at(k, o));
  }
  TG_DEVICE void operator()(int64_t i) const {
    int64_t plane, at;
    p.by.divide(i, plane, at);
    const Point here = p.in.point(at);
    const T* grad = p.from + plane * p.out.numel();
    C sum = C(0);
    for_outputs(p.z, here.at[0], [&](int64_t oz, C wz) {
      for_outputs(p.y, here.at[1], [&](int64_t oy, C wy) {
        C line = C(0);
        for_outputs(p.x, here.at[2],
                    [&](int64_t ox, C wx) { line += wx * static_cast<C>(grad[p.out.place(oz, oy, ox)]); });
        sum += wz * wy * line;
      });
    });
    p.to[i] = T(sum);
  }
};

}  // namespace

void upsample_cuda(const Tensor& any_input, IntSpan, std::string_view mode, bool align_corners,
                   const std::optional<std::vector<double>>& scales, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor input = contiguous_or_copy(any_input);
  const Mode m = *resampling::mode_of(mode);
  const Work work(out.device(), {&input, &out});
  const auto run = [&]<class T>() {
    const Tables<sum_t<T>> tables(work, m, input.sizes(), out.sizes(), align_corners, scales, false);
    const auto& t = tables.table;
    const Divider by_out(tables.out_space().numel(), out.numel());
    const auto start = [&]<class Body>() {
      for_elements(work, out.numel(),
                   Body{{t[0], t[1], t[2], tables.in_space(), tables.out_space(), by_out, data_of<T>(input),
                         target_of<T>(out)}});
    };
    if (m == Mode::Nearest || m == Mode::NearestExact)
      start.template operator()<Resample<T, true>>();
    else
      start.template operator()<Resample<T, false>>();
  };
  if (out.dtype() == DType::uint8) return run.template operator()<uint8_t>();
  dispatch_floating(out.dtype(), run);
}

void upsample_grad_cuda(const Tensor& any_output, IntSpan, std::string_view mode, bool align_corners,
                        const std::optional<std::vector<double>>& scales, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor output = contiguous_or_copy(any_output);
  const Work work(out.device(), {&output, &out});
  dispatch_floating(out.dtype(), [&]<class T>() {
    const Tables<sum_t<T>> tables(work, *resampling::mode_of(mode), out.sizes(), output.sizes(), align_corners, scales,
                                  true);
    const auto& t = tables.table;
    for_elements(work, out.numel(),
                 Spread<T>{{t[0], t[1], t[2], tables.in_space(), tables.out_space(),
                            Divider(tables.in_space().numel(), out.numel()), data_of<T>(output), target_of<T>(out)}});
  });
}

}  // namespace tapegrad::cuda
