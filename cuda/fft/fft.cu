// Fourier transforms (rows of fft.toml): by the library if there is one, else by the passes of transform.h, in shared
// memory if a line fits, and in global memory for longer ones. Roots of unity are made for each call, in double, and
// rounded once; so are chirps. Results depend on the values and the lengths alone.
#include "tapegrad/aten/fft/lengths.h"
#include "tapegrad/aten/fft/plan.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/fft/fft_library.h"
#include "tapegrad/cuda/fft/transform.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace fft {

std::atomic<Library> library{nullptr};

std::vector<Pass> passes_of(int64_t length, int64_t roots) {
  std::vector<Pass> passes;
  int64_t left = length, stride = 1;
  for (const int64_t radix : tapegrad::fft::radices_of(tapegrad::fft::prime_factors(length))) {
    Pass s;
    s.radix = radix;
    s.m = left / radix;
    s.stride = stride;
    const int64_t butterflies = length / radix;
    s.units = radix <= 5 ? butterflies : length;
    s.turn = roots / left;
    s.circle = roots / radix;
    s.by_stride = Divider(stride, length);
    s.by_butterflies = Divider(butterflies, length);
    passes.push_back(s);
    left = s.m;
    stride *= radix;
  }
  return passes;
}

namespace {

// Elements of the lines that a block works on at once: two of each in 48 KiB, which every device has.
template <class T>
inline constexpr int64_t kShared = 49152 / (2 * sizeof(std::complex<T>));
inline constexpr int kSmallPasses = 8;
inline constexpr int64_t kMostCalls = 16;          // of the library for one dimension
inline constexpr int64_t kLongElements = 1 << 24;  // of the lines that pass through memory at once

struct SmallPasses {
  int count = 0;
  Pass pass[kSmallPasses];
};
// How elements of a block's lines are dealt out to its threads: along lines, or across where those lie side by side.
struct ThreadLayout {
  bool across;
  Divider by_length, by_lines;
  ThreadLayout(bool a, int64_t length, int64_t lines)
      : across(a), by_length(length, length * lines), by_lines(lines, length * lines) {}
  TG_DEVICE void at(int64_t e, int64_t& line, int64_t& i) const {
    if (across)
      by_lines.divide(e, i, line);
    else
      by_length.divide(e, line, i);
  }
};

template <class T>
TG_KERNEL void small_kernel(Ends<T> ends, SmallPasses passes, Chirp<T> chirp, const std::complex<T>* roots,
                            int64_t length, int64_t together, int64_t count, ThreadLayout in, ThreadLayout out) {
  using C = std::complex<T>;
  TG_DYNAMIC_SHARED(C, shared);
  for (int64_t first = static_cast<int64_t>(block_index()) * together; first < count;
       first += static_cast<int64_t>(grid_size()) * together) {
    const int64_t lines = count - first < together ? count - first : together;
    C *a = shared, *b = shared + together * length;
    for (int64_t e = thread_index(); e < together * length; e += block_size()) {
      int64_t line, i;
      in.at(e, line, i);
      if (line < lines) a[line * length + i] = chirp.load(ends, first + line, i);
    }
    block_sync();
    for (int round = 0; round < (chirp.chirp == nullptr ? 1 : 2); ++round) {
      if (round == 1) {
        for (int64_t e = thread_index(); e < lines * length; e += block_size())
          a[e] = chirp.between(a[e], static_cast<uint32_t>(e) % static_cast<uint32_t>(length));
        block_sync();
      }
      for (int s = 0; s < passes.count; ++s) {
        const Pass& pass = passes.pass[s];
        for (int64_t e = thread_index(); e < lines * pass.units; e += block_size()) {
          const int64_t line = static_cast<uint32_t>(e) / static_cast<uint32_t>(pass.units);
          run_unit(pass, roots, e - line * pass.units, a + line * length, b + line * length);
        }
        block_sync();
        C* const other = a;
        a = b;
        b = other;
      }
    }
    for (int64_t e = thread_index(); e < together * ends.outputs; e += block_size()) {
      int64_t line, k;
      out.at(e, line, k);
      if (line < lines)
        ends.store(first + line, k, [&](int64_t at) { return chirp.result(a[line * length + at], at); });
    }
    block_sync();
  }
}

// The bodies of longer lines, `length` elements apart in memory.
template <class T>
struct Load {
  Ends<T> ends;
  Chirp<T> chirp;
  int64_t first;
  Divider by_length;
  std::complex<T>* to;
  TG_DEVICE void operator()(int64_t e) const {
    int64_t line, i;
    by_length.divide(e, line, i);
    to[e] = chirp.load(ends, first + line, i);
  }
};
template <class T>
struct RunPass {
  Pass pass;
  const std::complex<T>* roots;
  int64_t length;
  Divider by_units;
  const std::complex<T>* from;
  std::complex<T>* to;
  TG_DEVICE void operator()(int64_t e) const {
    int64_t line, unit;
    by_units.divide(e, line, unit);
    run_unit(pass, roots, unit, from + line * length, to + line * length);
  }
};
template <class T>
struct Middle {
  Chirp<T> chirp;
  Divider by_length;
  std::complex<T>* x;
  TG_DEVICE void operator()(int64_t e) const {
    int64_t line, i;
    by_length.divide(e, line, i);
    x[e] = chirp.between(x[e], i);
  }
};
template <class T>
struct Store {
  Ends<T> ends;
  Chirp<T> chirp;
  int64_t first, length;
  Divider by_outputs;
  const std::complex<T>* from;
  TG_DEVICE void operator()(int64_t e) const {
    int64_t line, k;
    by_outputs.divide(e, line, k);
    const std::complex<T>* x = from + line * length;
    ends.store(first + line, k, [&](int64_t at) { return chirp.result(x[at], at); });
  }
};

template <class T>
struct MakeRoots {
  std::complex<T>* to;
  int64_t n;
  TG_DEVICE void operator()(int64_t k) const {
    const std::complex<double> w = tapegrad::fft::root_of_unity(k, n);
    to[k] = {static_cast<T>(w.real()), static_cast<T>(w.imag())};
  }
};
// The chirp exp(-pi i k^2 / n), and its conjugate as it is convolved with, in m elements. Squares are below 2^64:
// memory ends before that.
template <class T>
struct MakeChirp {
  std::complex<T>* chirp;
  std::complex<double>* convolved;
  int64_t n, m;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t k = i < n ? i : m - i;
    if (k >= n) {
      convolved[i] = {0, 0};
      return;
    }
    const uint64_t square = static_cast<uint64_t>(k) * static_cast<uint64_t>(k) % static_cast<uint64_t>(2 * n);
    const std::complex<double> w = tapegrad::fft::root_of_unity(static_cast<int64_t>(square), 2 * n);
    convolved[i] = {w.real(), -w.imag()};
    if (i < n) chirp[i] = {static_cast<T>(w.real()), static_cast<T>(w.imag())};
  }
};
template <class T>
struct Divided {
  const std::complex<double>* from;
  std::complex<T>* to;
  int64_t m;
  TG_DEVICE void operator()(int64_t i) const {
    const double by = static_cast<double>(m);
    to[i] = {static_cast<T>(from[i].real() / by), static_cast<T>(from[i].imag() / by)};
  }
};

template <class T>
class Complexes {
 public:
  Complexes(const Work& work, int64_t n) : memory_(static_cast<size_t>(n) * sizeof(std::complex<T>), work) {}
  std::complex<T>* get() const { return static_cast<std::complex<T>*>(memory_.data()); }

 private:
  Workspace memory_;
};
template <class T>
class Roots : public Complexes<T> {
 public:
  Roots(const Work& work, int64_t n) : Complexes<T>(work, n) { for_elements(work, n, MakeRoots<T>{this->get(), n}); }
};

// `count` lines through memory; a and b are exchanged until the result is in a.
template <class T>
void run_passes(const Work& work, const std::vector<Pass>& passes, const std::complex<T>* roots, int64_t count,
                int64_t length, std::complex<T>*& a, std::complex<T>*& b) {
  for (const Pass& pass : passes) {
    const int64_t units = count * pass.units;
    for_elements(work, units, RunPass<T>{pass, roots, length, Divider(pass.units, units), a, b});
    std::swap(a, b);
  }
}

template <class T>
void run_lines(const Work& work, const Ends<T>& ends, int64_t count, int64_t length, const Chirp<T>& chirp,
               const std::vector<Pass>& passes, const std::complex<T>* roots) {
  if (length <= kShared<T> && passes.size() <= kSmallPasses) {
    SmallPasses small;
    for (const Pass& pass : passes) small.pass[small.count++] = pass;
    const bool in_across = ends.in_step != 1, out_across = ends.out_step != 1;
    const int64_t most = kShared<T> / length;
    int64_t together = std::clamp<int64_t>(1024 / length, 1, most);
    if (in_across || out_across) together = std::max(together, std::min<int64_t>(8, most));
    together = std::min(together, count);
    launch_block(work, &small_kernel<T>, grid_for(count, together, 1 << 22), together * length <= 64 ? kWarp : kBlock,
                 static_cast<size_t>(2 * together * length) * sizeof(std::complex<T>), ends, small, chirp, roots,
                 length, together, count, ThreadLayout(in_across, length, together),
                 ThreadLayout(out_across, ends.outputs, together));
    return;
  }
  const int64_t chunk = std::min(count, std::max<int64_t>(1, kLongElements / length));
  const Complexes<T> first(work, chunk * length), second(work, chunk * length);
  for (int64_t at = 0; at < count; at += chunk) {
    const int64_t lines = std::min(chunk, count - at), elements = lines * length;
    std::complex<T>*a = first.get(), *b = second.get();
    for_elements(work, elements, Load<T>{ends, chirp, at, Divider(length, elements), a});
    run_passes(work, passes, roots, lines, length, a, b);
    if (chirp.chirp != nullptr) {
      for_elements(work, elements, Middle<T>{chirp, Divider(length, elements), a});
      run_passes(work, passes, roots, lines, length, a, b);
    }
    const int64_t outputs = lines * ends.outputs;
    for_elements(work, outputs, Store<T>{ends, chirp, at, length, Divider(ends.outputs, outputs), a});
  }
}

// All lines of a tensor along a dimension. `n`: elements of a line, of real numbers where one side is real.
template <class T>
void run_own(const Work& work, Ends<T> ends, int64_t count) {
  const bool pairs = ends.kind == Kind::RealPairs || ends.kind == Kind::HalfPairs;
  const int64_t n = pairs ? ends.n / 2 : ends.n;
  const std::vector<int64_t> primes = tapegrad::fft::prime_factors(n);
  const bool smooth = primes.empty() || primes.back() <= tapegrad::fft::kLargestRadix;
  const Roots<T> roots(work, smooth || pairs ? ends.n : 1);
  ends.roots = roots.get();
  if (smooth) return run_lines<T>(work, ends, count, n, {}, passes_of(n, ends.n), roots.get());
  const int64_t m = tapegrad::fft::good_length(2 * n - 1);
  const Complexes<T> chirp(work, n), transform(work, m);
  {
    const Roots<double> wide_roots(work, m);
    const Complexes<double> first(work, m), second(work, m);
    std::complex<double>*a = first.get(), *b = second.get();
    for_elements(work, m, MakeChirp<T>{chirp.get(), a, n, m});
    run_passes(work, passes_of(m, m), static_cast<const std::complex<double>*>(wide_roots.get()), 1, m, a, b);
    for_elements(work, m, Divided<T>{a, transform.get(), m});
  }
  const Roots<T> long_roots(work, m);
  run_lines<T>(work, ends, count, m, {chirp.get(), transform.get(), n}, passes_of(m, m), long_roots.get());
}

// Where the lines along dimension d begin, with dimensions that follow each other in memory as one.
reduce_rows::Places lines_along(const Tensor& t, int64_t d) {
  DimVector sizes, strides;
  for (int i = 0; i < t.ndim(); ++i) {
    if (i == d || t.size(i) == 1) continue;
    if (!sizes.empty() && strides.back() == t.stride(i) * t.size(i)) {
      sizes[sizes.size() - 1] *= t.size(i);
      strides[strides.size() - 1] = t.stride(i);
    } else {
      sizes.push_back(t.size(i));
      strides.push_back(t.stride(i));
    }
  }
  return {static_cast<int>(sizes.size()), sizes.data(), strides.data()};
}

template <class T>
Ends<T> ends_of(Kind kind, const Tensor& input, const Tensor& out, int64_t d, int64_t n, double scale) {
  const int dim = static_cast<int>(d);
  Ends<T> ends{};
  ends.kind = kind;
  ends.n = n;
  ends.outputs = out.size(dim);
  ends.in = input.data_ptr();
  ends.out = out.data_ptr();
  ends.in_step = input.stride(dim);
  ends.out_step = out.stride(dim);
  ends.in_lines = lines_along(input, d);
  ends.out_lines = lines_along(out, d);
  ends.scale = static_cast<T>(scale);
  return ends;
}

template <class T>
struct Scale {
  T* x;
  T factor;
  TG_DEVICE void operator()(int64_t i) const { x[i] *= factor; }
};
void multiply(const Work& work, const Tensor& t, double factor) {
  if (factor == 1) return;
  const int64_t parts = t.is_complex() ? 2 * t.numel() : t.numel();
  dispatch_precision(to_real(t.dtype()), [&]<class T>() {
    for_elements(work, parts, Scale<T>{static_cast<T*>(t.data_ptr()), static_cast<T>(factor)});
  });
}

// Dimensions [first, first + rank) of contiguous tensors by the library, with a factor of 1.
bool by_library(const Work& work, Between between, const Tensor& in, const Tensor& out, int first, int rank,
                bool forward) {
  const Library ask = library.load(std::memory_order_acquire);
  if (ask == nullptr || !in.is_contiguous() || !out.is_contiguous()) return false;
  const Dims from(in.sizes(), first, rank), to(out.sizes(), first, rank);
  if (from.calls() > kMostCalls) return false;
  const auto item = [](const Tensor& t) { return static_cast<int64_t>(element_size(t.dtype())); };
  for (int64_t call = 0; call < from.calls(); ++call) {
    const Request request{between,
                          to_real(in.dtype()) == DType::float64,
                          forward,
                          rank,
                          between == Between::ComplexToReal ? to.n : from.n,
                          from.count(),
                          static_cast<const char*>(in.data_ptr()) + call * from.part() * item(in),
                          from.step(),
                          from.dist(),
                          static_cast<char*>(out.data_ptr()) + call * to.part() * item(out),
                          to.step(),
                          to.dist()};
    if (!ask(work, request)) {
      // Of real numbers a later part may lie where the library does not take it; what was read is still there.
      TG_CHECK(call == 0 || in.data_ptr() != out.data_ptr(), Runtime,
               "fft: the library refuses a part of what it began");
      return false;
    }
  }
  return true;
}

// Elements of lines: `by` has their number in a line.
template <class T>
struct LineElements {
  Ends<T> ends;
  Divider by;
};
// The half that a real inverse transform reads, with real ends, in memory that it may destroy.
template <class T>
struct CopyHalf {
  LineElements<T> elements;
  TG_DEVICE void operator()(int64_t e) const {
    const Ends<T>& ends = elements.ends;
    int64_t line, i;
    elements.by.divide(e, line, i);
    const std::complex<T> x = static_cast<const std::complex<T>*>(ends.in)[ends.in_lines.at(line) + i * ends.in_step];
    static_cast<std::complex<T>*>(ends.out)[ends.out_lines.at(line) + i * ends.out_step] =
        i == 0 || 2 * i == ends.n ? std::complex<T>(x.real(), T(0)) : x;
  }
};
// All of a transform from the half that the library gives of it.
template <class T>
struct Expand {
  LineElements<T> elements;
  TG_DEVICE void operator()(int64_t e) const {
    int64_t line, k;
    elements.by.divide(e, line, k);
    const Ends<T>& ends = elements.ends;
    const auto* half = static_cast<const std::complex<T>*>(ends.in) + ends.in_lines.at(line);
    ends.store(line, k, [&](int64_t at) { return half[at * ends.in_step]; });
  }
};

Tensor few_dims(const Tensor& input) { return input.ndim() > kKernelDims ? contiguous_or_copy(input) : input; }

}  // namespace
}  // namespace fft

void fft_c2c_cuda(const Tensor& input, IntSpan dims, double scale, bool forward, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor given = fft::few_dims(input);
  const Work work(out.device(), {&given, &out});
  DimVector left(dims);
  std::sort(left.begin(), left.end());
  Tensor from = given;
  if (fft::library.load(std::memory_order_acquire) != nullptr && from.is_contiguous()) {
    // Up to three dimensions at the end by one call.
    const auto ndim = static_cast<int64_t>(out.ndim());
    int rank = 0;
    while (rank < 3 && static_cast<size_t>(rank) < left.size() &&
           left[left.size() - 1 - static_cast<size_t>(rank)] == ndim - 1 - rank)
      ++rank;
    if (rank > 0 && fft::by_library(work, fft::Between::ComplexToComplex, from, out, static_cast<int>(ndim) - rank,
                                    rank, forward)) {
      left.resize(left.size() - static_cast<size_t>(rank));
      from = out;
      if (left.empty()) fft::multiply(work, out, scale);
    }
  }
  while (!left.empty()) {
    const int64_t d = left.back();
    left.resize(left.size() - 1);
    const double factor = left.empty() ? scale : 1;
    if (fft::by_library(work, fft::Between::ComplexToComplex, from, out, static_cast<int>(d), 1, forward)) {
      fft::multiply(work, out, factor);
    } else {
      dispatch_precision(to_real(out.dtype()), [&]<class T>() {
        auto ends = fft::ends_of<T>(fft::Kind::Complex, from, out, d, out.size(static_cast<int>(d)), factor);
        ends.inverse = !forward;
        fft::run_own(work, ends, out.numel() / ends.n);
      });
    }
    from = out;
  }
}

void fft_r2c_cuda(const Tensor& input, int64_t dim, double scale, bool onesided, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor from = fft::few_dims(input);
  const Work work(out.device(), {&from, &out});
  const int64_t n = from.size(static_cast<int>(dim));
  if (fft::library.load(std::memory_order_acquire) != nullptr && from.is_contiguous()) {
    DimVector sizes(out.sizes());
    sizes[static_cast<size_t>(dim)] = n / 2 + 1;
    const Tensor half = onesided ? out : empty_tensor(sizes, out.dtype(), out.device());
    if (fft::by_library(work, fft::Between::RealToComplex, from, half, static_cast<int>(dim), 1, true)) {
      if (onesided) return fft::multiply(work, out, scale);
      return dispatch_precision(to_real(out.dtype()), [&]<class T>() {
        const auto ends = fft::ends_of<T>(fft::Kind::Real, half, out, dim, n, scale);
        for_elements(work, out.numel(), fft::Expand<T>{{ends, Divider(n, out.numel())}});
      });
    }
  }
  dispatch_precision(to_real(out.dtype()), [&]<class T>() {
    const auto kind = n % 2 == 0 ? fft::Kind::RealPairs : fft::Kind::Real;
    fft::run_own(work, fft::ends_of<T>(kind, from, out, dim, n, scale), from.numel() / n);
  });
}

void fft_c2r_cuda(const Tensor& input, int64_t dim, int64_t n, double scale, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor from = fft::few_dims(input);
  const Work work(out.device(), {&from, &out});
  const int64_t count = out.numel() / n;
  if (fft::library.load(std::memory_order_acquire) != nullptr) {
    const Tensor half = empty_tensor(DimVector(from.sizes()), from.dtype(), from.device());
    dispatch_precision(to_real(out.dtype()), [&]<class T>() {
      const auto ends = fft::ends_of<T>(fft::Kind::Half, from, half, dim, n, 1);
      for_elements(work, half.numel(), fft::CopyHalf<T>{{ends, Divider(ends.outputs, half.numel())}});
    });
    if (fft::by_library(work, fft::Between::ComplexToReal, half, out, static_cast<int>(dim), 1, false))
      return fft::multiply(work, out, scale);
  }
  dispatch_precision(to_real(out.dtype()), [&]<class T>() {
    const auto kind = n % 2 == 0 ? fft::Kind::HalfPairs : fft::Kind::Half;
    fft::run_own(work, fft::ends_of<T>(kind, from, out, dim, n, scale), count);
  });
}

}  // namespace tapegrad::cuda
