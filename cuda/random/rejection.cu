// Distributions that are drawn by rejection: the CPU's functions (aten/random/rejection.h), a thread per element. Where
// an argument is out of range it is recorded and nothing is drawn.
#include "tapegrad/aten/random/rejection.h"

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/launch/value_fault.h"
#include "tapegrad/cuda/random/draws.h"

namespace tapegrad::cuda {

using Gen = const GeneratorPtr&;
namespace draws = cpu::TG_ISA;

namespace {

Tensor in_double(const Tensor& t, const Tensor& out) {
  return contiguous_as(t, out.sizes(), DType::float64, out.device());
}

// Records a bad argument. The sentence lies in host memory; kernels only copy its address.
struct FaultReporter {
  FaultRecord* fault;
  FaultText sentence;
  TG_DEVICE double operator()(double value) const {
    record_value_fault(fault, sentence, value);
    return 0;
  }
};

struct Poisson {
  const double* rate;
  FaultReporter report;
  TG_DEVICE double operator()(int64_t i, draws::DrawStream& stream) const {
    const double r = rate[i];
    return r >= 0 && r <= 1e300 ? draws::poisson_of(r, stream) : report(r);
  }
};
struct Gamma {
  const double* shape;
  double least;
  TG_DEVICE double operator()(int64_t i, draws::DrawStream& stream) const {
    const double drawn = std::exp(draws::log_gamma_variate(shape[i], stream));
    return drawn < least ? least : drawn;
  }
};
struct Binomial {
  const double* count;
  const double* prob;
  FaultReporter bad_count, bad_prob;
  TG_DEVICE double operator()(int64_t i, draws::DrawStream& stream) const {
    const double n = count[i], p = prob[i];
    if (!(n >= 0 && n <= 9007199254740992.0 && n == std::floor(n))) return bad_count(n);
    return p >= 0 && p <= 1 ? draws::binomial_of(n, p, stream) : bad_prob(p);
  }
};
struct LogGamma {
  const double* shape;
  TG_DEVICE double operator()(int64_t i, draws::DrawStream& stream) const {
    return draws::log_gamma_variate(shape[i], stream);
  }
};
// Element i of the result from numbers of its own.
template <class Of>
struct Draw {
  Of of;
  double* out;
  DrawState state;
  TG_DEVICE void operator()(int64_t i) const {
    draws::DrawStream stream(state, i);
    out[i] = of(i, stream);
  }
};

// A row of logarithms of gamma variates, normalised; summed in order, as on the CPU.
struct Normalise {
  double* value;
  int64_t n;
  double least, most;
  TG_DEVICE void operator()(int64_t row) const {
    double* p = value + row * n;
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t k = 0; k < n; ++k) largest = largest < p[k] ? p[k] : largest;
    for (int64_t k = 0; k < n; ++k) sum += p[k] = std::exp(p[k] - largest);
    for (int64_t k = 0; k < n; ++k) {
      const double share = p[k] / sum, bounded = share < least ? least : share;
      p[k] = most < bounded ? most : bounded;
    }
  }
};

template <class Of>
void draw_each(const Tensor& out, const DrawState& state, const Of& of) {
  if (out.numel() == 0) return;
  const Tensor drawn = empty_tensor(out.sizes(), DType::float64, out.device());
  {
    const Work work(out.device());
    for_elements(work, out.numel(), Draw<Of>{of, target_of<double>(drawn), state});
  }
  copy_any(out, drawn, true);
}

}  // namespace

void poisson_cuda(const Tensor& input, Gen g, const PhiloxState& state, const Tensor& out) {
  const Tensor rates = in_double(input, out);
  const FaultReporter bad{fault_record(out.device().index), "poisson: rates must be finite and not negative"};
  draw_each(out, draw_state(state, g, out.device()), Poisson{data_of<double>(rates), bad});
}

void standard_gamma_cuda(const Tensor& input, Gen g, const PhiloxState& state, const Tensor& out) {
  const Tensor shapes = in_double(input, out);
  draw_each(out, draw_state(state, g, out.device()),
            Gamma{data_of<double>(shapes), draws::limits_of(out.dtype()).first});
}

void binomial_cuda(const Tensor& count, const Tensor& prob, Gen g, const PhiloxState& state, const Tensor& out) {
  const Tensor counts = in_double(count, out), probs = in_double(prob, out);
  FaultRecord* fault = fault_record(out.device().index);
  draw_each(out, draw_state(state, g, out.device()),
            Binomial{data_of<double>(counts),
                     data_of<double>(probs),
                     {fault, "binomial: counts must be whole numbers from 0 to 2^53"},
                     {fault, "binomial: probabilities lie between 0 and 1"}});
}

void sample_dirichlet_cuda(const Tensor& input, Gen g, const PhiloxState& state, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor shapes = in_double(input, out), drawn = empty_tensor(out.sizes(), DType::float64, out.device());
  const auto [least, gap] = draws::limits_of(out.dtype());
  {
    const Work work(out.device(), {&shapes, &drawn});
    for_elements(
        work, out.numel(),
        Draw<LogGamma>{{data_of<double>(shapes)}, target_of<double>(drawn), draw_state(state, g, out.device())});
    const int64_t n = input.size(-1);
    for_elements(work, out.numel() / n, Normalise{target_of<double>(drawn), n, least, 1 - gap});
  }
  copy_any(out, drawn, true);
}

}  // namespace tapegrad::cuda
