// Random fills: element i is a function of its number and of the call's state alone (c10/random/philox.h), so the
// numbers are the CPU's, bit for bit, for any grid.
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/aten/random/open_uniform.h"
#include "tapegrad/aten/random/ranges.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/random/draws.h"

namespace tapegrad::cuda {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;
using OptFormat = std::optional<MemoryFormat>;
using Gen = const GeneratorPtr&;
using random::exact_range;
using random::integers_from;
using random::integers_in;

namespace {

// The draw of element i as a uniform in [0, 1), in (0, 1), and the pair of normals of elements 2k and 2k + 1.
template <class T>
TG_DEVICE T uniform_draw(PhiloxState s, uint64_t i) {
  if constexpr (std::is_same_v<T, float>)
    return philox_uniform(philox_word(s, i));
  else
    return philox_uniform(philox_word64(s, i));
}
template <class T>
TG_DEVICE T open_draw(PhiloxState s, uint64_t i) {
  if constexpr (std::is_same_v<T, float>)
    return open_uniform(philox_word(s, i));
  else
    return open_uniform(philox_word64(s, i));
}
template <class T>
TG_DEVICE NormalPair<T> normal_draws(PhiloxState s, uint64_t k) {
  if constexpr (std::is_same_v<T, float>) {
    const PhiloxBlock b = philox_block(s, k / 2);
    return k % 2 == 0 ? philox_normal_pair(b.word[0], b.word[1]) : philox_normal_pair(b.word[2], b.word[3]);
  } else {
    const PhiloxBlock b = philox_block(s, k);
    return philox_normal_pair(b.word[0] | uint64_t{b.word[1]} << 32, b.word[2] | uint64_t{b.word[3]} << 32);
  }
}

template <class T, class F>
struct Normals {
  T* out;
  int64_t n;
  DrawState state;
  F f;
  TG_DEVICE void operator()(int64_t k) const {
    const NormalPair<T> z = normal_draws<T>(state, static_cast<uint64_t>(k));
    out[2 * k] = f(z.first);
    if (2 * k + 1 < n) out[2 * k + 1] = f(z.second);
  }
};
template <class T, class F, bool kOpen = false>
struct Uniforms {
  T* out;
  DrawState state;
  F f;
  TG_DEVICE void operator()(int64_t i) const {
    const auto place = static_cast<uint64_t>(i);
    out[i] = f(kOpen ? open_draw<T>(state, place) : uniform_draw<T>(state, place));
  }
};
template <class T, class F>
using OpenUniforms = Uniforms<T, F, true>;

// Calls fill.template operator()<T>(pointer, count, stream) on dense memory of float or double: the tensor's own where
// it can be, else a buffer that is then copied. Complex tensors are pairs.
template <class Fill>
void with_real_memory(const Tensor& t, Fill&& fill) {
  if (t.numel() == 0) return;
  const DType real = to_real(t.dtype());
  const int64_t n = t.numel() * (t.is_complex() ? 2 : 1);
  const bool direct = (real == DType::float32 || real == DType::float64) && t.is_contiguous();
  const Tensor memory = direct ? t : empty_tensor(t.sizes(), is_half(real) ? DType::float32 : t.dtype(), t.device());
  {
    const Work work(t.device(), {&memory});
    if (real == DType::float64)
      fill(static_cast<double*>(memory.data_ptr()), n, work.stream());
    else
      fill(static_cast<float*>(memory.data_ptr()), n, work.stream());
  }
  if (!direct) copy_any(t, memory, true);
}

template <class T>
struct Scaled {
  T mean, deviation;
  bool plain;
  TG_DEVICE T operator()(T z) const { return plain ? z : std::fma(z, deviation, mean); }
};
template <class T>
struct Between {
  T from, width, last;
  bool plain;
  TG_DEVICE T operator()(T u) const {
    const T v = std::fma(u, width, from);
    return plain ? u : v < last ? v : last;
  }
};
template <class T>
struct LogTimes {
  T scale;
  TG_DEVICE T operator()(T u) const { return scale * tapegrad::detail::philox_log(u); }
};
template <class T>
struct ExpOf {
  double mean, deviation;
  TG_DEVICE T operator()(T z) const {
    return static_cast<T>(math::exp(std::fma(static_cast<double>(z), deviation, mean)));
  }
};
template <class T>
struct CauchyOf {
  double median, sigma;
  TG_DEVICE T operator()(T u) const {
    return static_cast<T>(std::fma(sigma, math::tan(math::kPi * (static_cast<double>(u) - 0.5)), median));
  }
};
struct Trials {
  double scale;
  TG_DEVICE double operator()(double u) const { return math::ceil(math::log(u) * scale); }
};

void normal(const Tensor& t, double mean, double std, DrawState state) {
  const double spread = t.is_complex() ? std * std::sqrt(0.5) : std;
  with_real_memory(t, [&]<class T>(T* p, int64_t n, const Stream& stream) {
    const T m = static_cast<T>(mean), s = static_cast<T>(spread);
    for_elements(stream, (n + 1) / 2, Normals<T, Scaled<T>>{p, n, state, {m, s, m == 0 && s == 1}});
  });
}
void uniform(const Tensor& t, double low, double high, DrawState state) {
  with_real_memory(t, [&]<class T>(T* p, int64_t n, const Stream& stream) {
    const T a = static_cast<T>(low), b = static_cast<T>(high), width = b - a;
    const T last = random::last_of(a, b, t.dtype());
    const bool plain = a == 0 && width == 1 && !is_half(t.dtype());
    for_elements(stream, n, Uniforms<T, Between<T>>{p, state, {a, width, last, plain}});
  });
}

template <class T>
struct Integers {
  T* out;
  DrawState state;
  uint64_t low, range;  // a range of 0 is all of 2^64
  TG_DEVICE void operator()(int64_t i) const {
    const uint64_t word = philox_word64(state, static_cast<uint64_t>(i));
    const uint64_t offset = range != 0 && range <= UINT32_MAX ? philox_bounded32(word, static_cast<uint32_t>(range))
                                                              : philox_bounded(word, range);
    out[i] = cast_element<T>(static_cast<int64_t>(low + offset));
  }
};
void integers(const Tensor& t, random::Integers drawn, DrawState state) {
  if (t.numel() == 0) return;
  const bool direct = t.is_contiguous() && !is_half(t.dtype()) && !t.is_complex();
  const Tensor out =
      direct ? t
             : empty_tensor(t.sizes(), t.is_complex() || is_half(t.dtype()) ? DType::float32 : t.dtype(), t.device());
  {
    const Work work(t.device(), {&out});
    dispatch_dtype(bits_dtype(out.dtype()), [&]<class T>() {
      if constexpr (!is_half_type<T> && !is_complex_type<T>)
        for_elements(work, out.numel(),
                     Integers<T>{target_of<T>(out), state, static_cast<uint64_t>(drawn.low), drawn.range});
    });
  }
  if (!direct) copy_any(t, out, true);
}

// A thread takes 16: four blocks of words.
struct Toss {
  uint8_t* out;
  int64_t n;
  bool packed;
  DrawState state;
  float limit;
  TG_DEVICE void operator()(int64_t i) const {
    uint8_t drawn[16];
    TG_UNROLL
    for (int b = 0; b < 4; ++b) {
      const PhiloxBlock words = philox_block(state, static_cast<uint64_t>(i * 4 + b));
      TG_UNROLL
      for (int j = 0; j < 4; ++j) drawn[b * 4 + j] = philox_uniform(words.word[j]) < limit;
    }
    if (packed && i * 16 + 16 <= n) return store_pieces<uint8_t, 16>(out + i * 16, drawn);
    TG_UNROLL
    for (int j = 0; j < 16; ++j)
      if (i * 16 + j < n) out[i * 16 + j] = drawn[j];
  }
};
void toss(const Tensor& self, double p, DrawState state) {
  if (self.numel() == 0) return;
  const bool direct = self.dtype() == DType::bool_ && self.is_contiguous();
  const Tensor out = direct ? self : empty_tensor(self.sizes(), DType::bool_, self.device());
  {
    const Work work(self.device(), {&out});
    for_elements(work, (out.numel() + 15) / 16,
                 Toss{target_of<uint8_t>(out), out.numel(), in_packs(16, {&out}), state, static_cast<float>(p)});
  }
  if (!direct) copy_any(self, out, true);
}

// Words are shared by four neighbours, so a thread takes four.
template <class T>
struct Dropout {
  const T* in;
  T* out;
  uint8_t* mask;
  int64_t n;
  DrawState state;
  float keep;
  double scale;
  TG_DEVICE void operator()(int64_t block) const {
    const PhiloxBlock b = philox_block(state, static_cast<uint64_t>(block));
    for (int j = 0; j < 4 && block * 4 + j < n; ++j) {
      const int64_t i = block * 4 + j;
      const bool kept = philox_uniform(b.word[j]) < keep;
      mask[i] = kept;
      if constexpr (is_complex_type<T>) {
        out[i] = kept ? in[i] * static_cast<typename T::value_type>(scale) : T(0);
      } else {
        using C = compute_t<T>;
        const C v = load_value(in + i) * static_cast<C>(scale);
        store_value(out + i, kept ? v : C(0));
      }
    }
  }
};
template <class T>
struct MaskedScale {
  const T* in;
  const uint8_t* mask;
  T* out;
  double scale;
  // All is loaded before it is looked at.
  template <int V>
  TG_DEVICE void operator()(int64_t i) const {
    uint8_t kept[V];
    T x[V];
    load_pieces<uint8_t, V>(kept, mask + i);
    load_pieces<T, V>(x, in + i);
    TG_UNROLL
    for (int j = 0; j < V; ++j) {
      if constexpr (is_complex_type<T>) {
        x[j] = kept[j] != 0 ? x[j] * static_cast<typename T::value_type>(scale) : T(0);
      } else {
        using C = compute_t<T>;
        store_value(x + j, kept[j] != 0 ? load_value(x + j) * static_cast<C>(scale) : C(0));
      }
    }
    store_pieces<T, V>(out + i, x);
  }
};

}  // namespace

void rand_cuda(IntSpan, Gen g, OptDType, OptDevice, const PhiloxState& state, const Tensor& out) {
  uniform(out, 0, 1, draw_state(state, g, out.device()));
}
void randn_cuda(IntSpan, Gen g, OptDType, OptDevice, const PhiloxState& state, const Tensor& out) {
  normal(out, 0, 1, draw_state(state, g, out.device()));
}
void rand_like_cuda(const Tensor&, Gen g, OptDType, OptDevice, OptFormat, const PhiloxState& state, const Tensor& out) {
  uniform(out, 0, 1, draw_state(state, g, out.device()));
}
void randn_like_cuda(const Tensor&, Gen g, OptDType, OptDevice, OptFormat, const PhiloxState& state,
                     const Tensor& out) {
  normal(out, 0, 1, draw_state(state, g, out.device()));
}
void normal_fill_cuda(const Tensor& self, double mean, double std, Gen g, const PhiloxState& state) {
  normal(self, mean, std, draw_state(state, g, self.device()));
}
void uniform_fill_cuda(const Tensor& self, double from, double to, Gen g, const PhiloxState& state) {
  uniform(self, from, to, draw_state(state, g, self.device()));
}
void exponential_fill_cuda(const Tensor& self, double lambd, Gen g, const PhiloxState& state) {
  with_real_memory(self, [&]<class T>(T* p, int64_t n, const Stream& stream) {
    for_elements(stream, n,
                 OpenUniforms<T, LogTimes<T>>{p, draw_state(state, g, self.device()), {static_cast<T>(-1 / lambd)}});
  });
}
void log_normal_fill_cuda(const Tensor& self, double mean, double std, Gen g, const PhiloxState& state) {
  with_real_memory(self, [&]<class T>(T* p, int64_t n, const Stream& stream) {
    for_elements(stream, (n + 1) / 2, Normals<T, ExpOf<T>>{p, n, draw_state(state, g, self.device()), {mean, std}});
  });
}
void cauchy_fill_cuda(const Tensor& self, double median, double sigma, Gen g, const PhiloxState& state) {
  with_real_memory(self, [&]<class T>(T* p, int64_t n, const Stream& stream) {
    for_elements(stream, n, OpenUniforms<T, CauchyOf<T>>{p, draw_state(state, g, self.device()), {median, sigma}});
  });
}
void geometric_fill_cuda(const Tensor& self, double p, Gen g, const PhiloxState& state) {
  const Tensor trials = empty_tensor(self.sizes(), DType::float64, self.device());
  {
    const Work work(self.device(), {&trials});
    for_elements(work, trials.numel(),
                 OpenUniforms<double, Trials>{
                     target_of<double>(trials), draw_state(state, g, self.device()), {1 / std::log1p(-p)}});
  }
  copy_any(self, trials, true);
}

void randint_cuda(int64_t low, int64_t high, IntSpan, Gen g, OptDType, OptDevice, const PhiloxState& state,
                  const Tensor& out) {
  integers(out, integers_in(low, high, out.dtype()), draw_state(state, g, out.device()));
}
void randint_high_cuda(int64_t high, IntSpan, Gen g, OptDType, OptDevice, const PhiloxState& state, const Tensor& out) {
  integers(out, integers_in(0, high, out.dtype()), draw_state(state, g, out.device()));
}
void randint_like_cuda(const Tensor&, int64_t low, int64_t high, Gen g, OptDType, OptDevice, OptFormat,
                       const PhiloxState& state, const Tensor& out) {
  integers(out, integers_in(low, high, out.dtype()), draw_state(state, g, out.device()));
}
void randint_like_high_cuda(const Tensor&, int64_t high, Gen g, OptDType, OptDevice, OptFormat,
                            const PhiloxState& state, const Tensor& out) {
  integers(out, integers_in(0, high, out.dtype()), draw_state(state, g, out.device()));
}
void random_all_cuda(const Tensor& self, Gen g, const PhiloxState& state) {
  integers(self, {0, exact_range(self.dtype())}, draw_state(state, g, self.device()));
}
void random_to_cuda(const Tensor& self, int64_t to, Gen g, const PhiloxState& state) {
  integers(self, integers_in(0, to, self.dtype()), draw_state(state, g, self.device()));
}
void random_from_cuda(const Tensor& self, int64_t from, std::optional<int64_t> to, Gen g, const PhiloxState& state) {
  integers(self, to ? integers_in(from, *to, self.dtype()) : integers_from(from, self.dtype()),
           draw_state(state, g, self.device()));
}
void bernoulli_p_cuda(const Tensor&, double p, Gen g, const PhiloxState& state, const Tensor& out) {
  toss(out, p, draw_state(state, g, out.device()));
}
void bernoulli_float_fill_cuda(const Tensor& self, double p, Gen g, const PhiloxState& state) {
  toss(self, p, draw_state(state, g, self.device()));
}

void dropout_cuda(const Tensor& input, double p, Gen g, const PhiloxState& state, const Tensor& out,
                  const Tensor& mask) {
  const int64_t n = out.numel();
  if (n == 0) return;
  const Work work(out.device(), {&input, &out, &mask});
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (!std::is_integral_v<T>)
      for_elements(work, (n + 3) / 4,
                   Dropout<T>{data_of<T>(input), target_of<T>(out), target_of<uint8_t>(mask), n,
                              draw_state(state, g, out.device()), static_cast<float>(1 - p), 1 / (1 - p)});
  });
}
void masked_scale_cuda(const Tensor& input, const Tensor& mask, double scale, const Tensor& out) {
  const Work work(out.device(), {&input, &out, &mask});
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (!std::is_integral_v<T>)
      for_element_packs<T>(work, out.numel(), out.numel(), {&input, &mask, &out},
                           MaskedScale<T>{data_of<T>(input), data_of<uint8_t>(mask), target_of<T>(out), scale});
  });
}

}  // namespace tapegrad::cuda
