// Connectionist temporal classification (Graves, Fernandez, Gomez, Schmidhuber, 2006): forward and backward variables
// over the target with blanks in between, all in logarithms, one sample per task. Both variables contain the
// probability of their own step, as in the paper, so their product is divided by it once.
#include <cmath>
#include <limits>

#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

template <class C>
constexpr C kNothing = -std::numeric_limits<C>::infinity();

template <class C>
C add_logs(C a, C b) {
  const C m = std::max(a, b);
  if (m == kNothing<C>) return m;
  return m + std::log(std::exp(a - m) + std::exp(b - m));
}

template <class C>
C add_logs(C a, C b, C c) {
  const C m = std::max(std::max(a, b), c);
  if (m == kNothing<C>) return m;
  return m + std::log(std::exp(a - m) + std::exp(b - m) + std::exp(c - m));
}

struct Sample {
  int64_t steps, length;       // of the input and of the target
  std::vector<int64_t> label;  // the target with blanks around every element: 2 length + 1
  // Whether s may be reached from s - 2: not a blank, and not a repetition.
  bool skips(int64_t s) const {
    return s >= 2 && s % 2 == 1 && label[static_cast<size_t>(s)] != label[static_cast<size_t>(s - 2)];
  }
  int64_t states() const { return 2 * length + 1; }
};

// All samples, checked.
std::vector<Sample> read_samples(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                                 const Tensor& target_lengths, int64_t blank, int64_t longest) {
  const int64_t steps = log_probs.size(0), n = log_probs.size(1), classes = log_probs.size(2);
  const int64_t *in = target_of<int64_t>(input_lengths), *wanted = target_of<int64_t>(target_lengths);
  std::vector<Sample> samples(static_cast<size_t>(n));
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    TG_CHECK(
        in[i] >= 0, Runtime,
        "ctc_loss: Expected input_lengths to have value at least 0, but got value {} (while checking arguments for "
        "ctc_loss_cpu)",
        in[i]);
    TG_CHECK(
        in[i] <= steps, Runtime,
        "ctc_loss: Expected input_lengths to have value at most {}, but got value {} (while checking arguments for "
        "ctc_loss_cpu)",
        steps, in[i]);
    TG_CHECK(wanted[i] >= 0 && wanted[i] <= longest, Runtime,
             "ctc_loss: Expected target_lengths to have value between 0 and {}, but got value {}", longest, wanted[i]);
    const int64_t from = targets.ndim() == 2 ? i * targets.size(1) : at;
    at += wanted[i];
    TG_CHECK(from + wanted[i] <= targets.numel() && (targets.ndim() == 1 || wanted[i] <= targets.size(1)), Runtime,
             "ctc_loss: target_lengths add up to more than the {} targets", targets.numel());
    Sample& s = samples[static_cast<size_t>(i)];
    s.steps = in[i];
    s.length = wanted[i];
    s.label.assign(static_cast<size_t>(s.states()), blank);
    for (int64_t k = 0; k < s.length; ++k) {
      const int64_t label = targets.dtype() == DType::int64 ? target_of<int64_t>(targets)[from + k]
                                                            : target_of<int32_t>(targets)[from + k];
      TG_CHECK(label >= 0 && label < classes, Runtime, "ctc_loss: target {} is out of bounds for {} classes", label,
               classes);
      s.label[static_cast<size_t>(2 * k + 1)] = label;
    }
  }
  if (targets.ndim() == 1)
    TG_CHECK(at <= targets.numel(), Runtime, "ctc_loss: target_lengths add up to {}, but there are {} targets", at,
             targets.numel());
  return samples;
}

}  // namespace

void ctc_loss_cpu(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                  const Tensor& target_lengths, int64_t blank, int64_t longest, bool, const Tensor& loss,
                  const Tensor& log_alpha) {
  const auto samples = read_samples(log_probs, targets, input_lengths, target_lengths, blank, longest);
  const int64_t steps = log_probs.size(0), n = log_probs.size(1), classes = log_probs.size(2);
  const int64_t width = 2 * longest + 1;
  dispatch_floating(log_probs.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(0, n, 4096 / (steps * width + 1) + 1, [&](int64_t begin, int64_t end) {
      WorkCount done;
      for (int64_t i = begin; i < end; ++i) {
        const Sample& s = samples[static_cast<size_t>(i)];
        C* alpha = target_of<C>(log_alpha) + i * steps * width;
        std::fill(alpha, alpha + steps * width, kNothing<C>);
        T& result = target_of<T>(loss)[i];
        if (s.steps == 0) {
          result = T(s.length == 0 ? C(0) : -kNothing<C>);
          continue;
        }
        const int64_t states = s.states();
        const T* first = data_of<T>(log_probs) + i * classes;
        alpha[0] = static_cast<C>(first[blank]);
        if (states > 1) alpha[1] = static_cast<C>(first[s.label[1]]);
        for (int64_t t = 1; t < s.steps; ++t) {
          done(16 * states);
          const T* p = first + t * n * classes;
          const C* before = alpha + (t - 1) * width;
          C* now = alpha + t * width;
          for (int64_t k = 0; k < states; ++k) {
            const C sum =
                add_logs(before[k], k > 0 ? before[k - 1] : kNothing<C>, s.skips(k) ? before[k - 2] : kNothing<C>);
            now[k] = sum + static_cast<C>(p[s.label[static_cast<size_t>(k)]]);
          }
        }
        const C* last = alpha + (s.steps - 1) * width;
        result = T(-add_logs(last[states - 1], states > 1 ? last[states - 2] : kNothing<C>));
      }
    });
  });
}

void ctc_loss_backward_cpu(const Tensor& grad_output, const Tensor& log_probs, const Tensor& targets,
                           const Tensor& input_lengths, const Tensor& target_lengths, const Tensor& loss,
                           const Tensor& log_alpha, int64_t blank, bool zero_infinity, const Tensor& out) {
  const int64_t steps = log_probs.size(0), n = log_probs.size(1), classes = log_probs.size(2);
  const int64_t width = log_alpha.size(2);
  const auto samples = read_samples(log_probs, targets, input_lengths, target_lengths, blank, width / 2);
  dispatch_floating(log_probs.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(0, n, 4096 / (steps * (width + classes) + 1) + 1, [&](int64_t begin, int64_t end) {
      std::vector<C> beta(static_cast<size_t>(width)), next(static_cast<size_t>(width)),
          sums(static_cast<size_t>(classes));
      WorkCount done;
      for (int64_t i = begin; i < end; ++i) {
        const Sample& s = samples[static_cast<size_t>(i)];
        const C nll = static_cast<C>(data_of<T>(loss)[i]), scale = static_cast<C>(data_of<T>(grad_output)[i]);
        const int64_t states = s.states();
        const C* alpha = data_of<C>(log_alpha) + i * steps * width;
        const bool none = zero_infinity && nll == -kNothing<C>;
        for (int64_t t = steps; t-- > 0;) {
          done(32 * (states + classes));
          const int64_t row = (t * n + i) * classes;
          const T* p = data_of<T>(log_probs) + row;
          T* to = target_of<T>(out) + row;
          if (t >= s.steps || none) {
            std::fill(to, to + classes, T(C(0)));
            continue;
          }
          if (t == s.steps - 1) {
            std::fill(beta.begin(), beta.end(), kNothing<C>);
            beta[static_cast<size_t>(states - 1)] = static_cast<C>(p[blank]);
            if (states > 1)
              beta[static_cast<size_t>(states - 2)] = static_cast<C>(p[s.label[static_cast<size_t>(states - 2)]]);
          } else {
            std::swap(beta, next);
            for (int64_t k = 0; k < states; ++k) {
              const auto of = [&](int64_t j) { return j < states ? next[static_cast<size_t>(j)] : kNothing<C>; };
              const C skip = k + 2 < states && s.skips(k + 2) ? of(k + 2) : kNothing<C>;
              beta[static_cast<size_t>(k)] =
                  add_logs(of(k), of(k + 1), skip) + static_cast<C>(p[s.label[static_cast<size_t>(k)]]);
            }
          }
          std::fill(sums.begin(), sums.end(), kNothing<C>);
          for (int64_t k = 0; k < states; ++k) {
            C& sum = sums[static_cast<size_t>(s.label[static_cast<size_t>(k)])];
            sum = add_logs(sum, alpha[t * width + k] + beta[static_cast<size_t>(k)]);
          }
          for (int64_t c = 0; c < classes; ++c) {
            const C lp = static_cast<C>(p[c]);
            to[c] = T((std::exp(lp) - std::exp(sums[static_cast<size_t>(c)] + nll - lp)) * scale);
          }
        }
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
