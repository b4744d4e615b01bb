// Connectionist temporal classification, as aten/loss/ctc_cpu.cpp does it: a block per sample walks through the steps,
// its threads share the states of the target with blanks in between. Sums of states with one label are made by one
// thread, in order.
#include <limits>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/launch/value_fault.h"

namespace tapegrad::cuda {
namespace {

template <class C>
constexpr C kNothing = -std::numeric_limits<C>::infinity();

template <class C>
TG_DEVICE C add_logs(C a, C b, C c = kNothing<C>) {
  const C m = Largest()(Largest()(a, b), c);
  if (m == kNothing<C>) return m;
  return m + math::log(math::exp(a - m) + math::exp(b - m) + math::exp(c - m));
}

struct Targets {
  const void* data;
  bool narrow;                  // int32, else int64
  int64_t row, numel;           // row: from sample to sample, 0 where they lie one after the other
  const int64_t *in, *lengths;  // of the input and of the targets
  int64_t steps, n, classes, blank, longest;
  FaultRecord* fault;
  FaultText op, in_sentence, length_sentence, total_sentence;
};

// A sample, cut to nothing where its lengths do not fit.
struct Sample {
  const Targets& all;
  int64_t steps, length, from;

  TG_DEVICE Sample(const Targets& t, int64_t i) : all(t), steps(t.in[i]), length(t.lengths[i]), from(i * t.row) {
    if (t.row == 0)
      for (int64_t k = 0; k < i; ++k) from += t.lengths[k];
    const bool steps_fit = steps >= 0 && steps <= t.steps, length_fits = length >= 0 && length <= t.longest;
    const bool there = from >= 0 && length <= t.numel - from && (t.row == 0 || length <= t.row);
    if (!steps_fit) record_value_fault(t.fault, t.in_sentence, static_cast<double>(steps));
    if (!length_fits)
      record_value_fault(t.fault, t.length_sentence, static_cast<double>(length));
    else if (!there)
      record_value_fault(t.fault, t.total_sentence, static_cast<double>(from + length));
    if (!steps_fit || !length_fits || !there) steps = length = 0;
  }
  TG_DEVICE int64_t states() const { return 2 * length + 1; }
  TG_DEVICE int64_t label(int64_t state) const {
    if (state % 2 == 0) return all.blank;
    const int64_t at = from + state / 2;
    const int64_t l = all.narrow ? static_cast<int64_t>(static_cast<const int32_t*>(all.data)[at])
                                 : static_cast<const int64_t*>(all.data)[at];
    if (l >= 0 && l < all.classes) return l;
    record_fault(all.fault, Fault::Label, all.op, l, all.classes);
    return all.blank;
  }
  // Whether s may be reached from s - 2: not a blank, and not a repetition.
  TG_DEVICE bool skips(int64_t s) const { return s >= 2 && s % 2 == 1 && label(s) != label(s - 2); }
};

template <class T>
struct Forward {
  Targets targets;
  const T* log_probs;
  compute_t<T>* log_alpha;
  T* loss;
};
template <class T>
TG_KERNEL void ctc_kernel(Forward<T> p) {
  using C = compute_t<T>;
  const Targets& all = p.targets;
  const int64_t width = 2 * all.longest + 1, first = thread_index(), step = block_size();
  for (int64_t i = block_index(); i < all.n; i += grid_size()) {
    const Sample s(all, i);
    C* alpha = p.log_alpha + i * all.steps * width;
    for (int64_t e = first; e < all.steps * width; e += step) alpha[e] = kNothing<C>;
    block_sync();
    const T* probs = p.log_probs + i * all.classes;
    for (int64_t t = 0; t < s.steps; ++t) {
      const T* row = probs + t * all.n * all.classes;
      C* now = alpha + t * width;
      const C* before = now - width;
      for (int64_t k = first; k < s.states(); k += step) {
        const C lp = load_value(row + s.label(k));
        if (t == 0) {
          if (k < 2) now[k] = lp;
        } else {
          now[k] =
              lp + add_logs(before[k], k > 0 ? before[k - 1] : kNothing<C>, s.skips(k) ? before[k - 2] : kNothing<C>);
        }
      }
      block_sync();
    }
    if (first != 0) continue;
    if (s.steps == 0) {
      store_value(p.loss + i, s.length == 0 ? C(0) : -kNothing<C>);
    } else {
      const C* last = alpha + (s.steps - 1) * width;
      store_value(p.loss + i, -add_logs(last[s.states() - 1], s.states() > 1 ? last[s.states() - 2] : kNothing<C>));
    }
  }
}

template <class T>
struct Backward {
  Targets targets;
  const T *grad, *log_probs, *loss;
  const compute_t<T>* log_alpha;
  compute_t<T>*beta, *sums;  // beta: two rows of states for each sample; sums: a row of classes
  bool zero_infinity;
  T* out;
};
template <class T>
TG_KERNEL void ctc_backward_kernel(Backward<T> p) {
  using C = compute_t<T>;
  const Targets& all = p.targets;
  const int64_t width = 2 * all.longest + 1, first = thread_index(), step = block_size();
  for (int64_t i = block_index(); i < all.n; i += grid_size()) {
    const Sample s(all, i);
    const C nll = load_value(p.loss + i), scale = load_value(p.grad + i);
    const bool none = p.zero_infinity && nll == -kNothing<C>;
    const int64_t states = s.states();
    C* sums = p.sums + i * all.classes;
    for (int64_t t = all.steps; t-- > 0;) {
      const int64_t row = (t * all.n + i) * all.classes;
      const T* probs = p.log_probs + row;
      if (t >= s.steps || none) {
        for (int64_t c = first; c < all.classes; c += step) store_value(p.out + row + c, C(0));
        continue;
      }
      C* beta = p.beta + (2 * i + t % 2) * width;
      const C* next = p.beta + (2 * i + 1 - t % 2) * width;
      for (int64_t k = first; k < states; k += step) {
        const C lp = load_value(probs + s.label(k));
        if (t == s.steps - 1)
          beta[k] = k >= states - 2 ? lp : kNothing<C>;
        else
          beta[k] = lp + add_logs(next[k], k + 1 < states ? next[k + 1] : kNothing<C>,
                                  k + 2 < states && s.skips(k + 2) ? next[k + 2] : kNothing<C>);
      }
      for (int64_t c = first; c < all.classes; c += step) sums[c] = kNothing<C>;
      block_sync();
      const C* alpha = p.log_alpha + (i * all.steps + t) * width;
      for (int64_t k = first; k < states; k += step) {
        const int64_t label = s.label(k);
        bool seen = k > 0 && label == all.blank;  // state 0 has the sum of all blanks
        for (int64_t j = 1; j < k && !seen; j += 2) seen = s.label(j) == label;
        if (seen) continue;
        C sum = kNothing<C>;
        for (int64_t j = k; j < states; ++j)
          if (s.label(j) == label) sum = add_logs(sum, alpha[j] + beta[j]);
        sums[label] = sum;
      }
      block_sync();
      for (int64_t c = first; c < all.classes; c += step) {
        const C lp = load_value(probs + c);
        store_value(p.out + row + c, (math::exp(lp) - math::exp(sums[c] + nll - lp)) * scale);
      }
    }
    block_sync();
  }
}

Targets targets_of(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                   const Tensor& target_lengths, int64_t blank, int64_t longest) {
  return {targets.data_ptr(),
          targets.dtype() == DType::int32,
          targets.ndim() == 2 ? targets.size(1) : 0,
          targets.numel(),
          data_of<int64_t>(input_lengths),
          data_of<int64_t>(target_lengths),
          log_probs.size(0),
          log_probs.size(1),
          log_probs.size(2),
          blank,
          longest,
          fault_record(log_probs.device().index),
          "ctc_loss",
          "ctc_loss: Expected input_lengths to have value between 0 and the number of steps",
          "ctc_loss: Expected target_lengths to have value between 0 and the longest",
          "ctc_loss: target_lengths add up to more than the targets"};
}

}  // namespace

void ctc_loss_cuda(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                   const Tensor& target_lengths, int64_t blank, int64_t longest, bool, const Tensor& loss,
                   const Tensor& log_alpha) {
  const Work work(log_probs.device(), {&log_probs, &targets, &input_lengths, &target_lengths, &loss, &log_alpha});
  if (log_probs.size(1) == 0) return;
  dispatch_floating(log_probs.dtype(), [&]<class T>() {
    launch_block(work, &ctc_kernel<T>, grid_for(log_probs.size(1), 1), kBlock, 0,
                 Forward<T>{targets_of(log_probs, targets, input_lengths, target_lengths, blank, longest),
                            data_of<T>(log_probs), target_of<compute_t<T>>(log_alpha), target_of<T>(loss)});
  });
}

void ctc_loss_backward_cuda(const Tensor& grad_output, const Tensor& log_probs, const Tensor& targets,
                            const Tensor& input_lengths, const Tensor& target_lengths, const Tensor& loss,
                            const Tensor& log_alpha, int64_t blank, bool zero_infinity, const Tensor& out) {
  const Work work(log_probs.device(),
                  {&grad_output, &log_probs, &targets, &input_lengths, &target_lengths, &loss, &log_alpha, &out});
  const int64_t n = log_probs.size(1), classes = log_probs.size(2), width = log_alpha.size(2);
  if (out.numel() == 0) return;
  dispatch_floating(log_probs.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Workspace beta(static_cast<size_t>(2 * n * width) * sizeof(C), work),
        sums(static_cast<size_t>(n * classes) * sizeof(C), work);
    launch_block(
        work, &ctc_backward_kernel<T>, grid_for(n, 1), kBlock, 0,
        Backward<T>{targets_of(log_probs, targets, input_lengths, target_lengths, blank, width / 2),
                    data_of<T>(grad_output), data_of<T>(log_probs), data_of<T>(loss), data_of<C>(log_alpha),
                    static_cast<C*>(beta.data()), static_cast<C*>(sums.data()), zero_infinity, target_of<T>(out)});
  });
}

}  // namespace tapegrad::cuda
