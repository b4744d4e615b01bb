#include "tapegrad/aten/batch/part.h"
#include "tapegrad/aten/batch/rules.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_loss.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad::batch {
namespace {

enum Reduction : int64_t { kNone, kMean, kSum };

using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// Per sample: the sum of the weights of the labels that count. `target` has samples in front.
Tensor total_weights(const Tensor& target, const Tensor& weight, DType dtype, int64_t ignore_index) {
  const Tensor counts = tapegrad::ne(target, Scalar(ignore_index));
  Tensor each = tapegrad::to(counts, dtype);
  if (weight.defined()) {
    const Tensor known = tapegrad::to(tapegrad::where(counts, target, Operand(Scalar(0))), DType::int64);
    each = tapegrad::mul(
        each, tapegrad::reshape(tapegrad::index_select(weight, 0, tapegrad::reshape(known, {-1})), target.sizes()));
  }
  return tapegrad::sum(tapegrad::reshape(each, {target.size(0), -1}), IntSpan{1});
}

// (samples, ...) of losses without reduction, reduced.
Tensor reduced(const Tensor& losses, const Tensor& totals, int64_t reduction) {
  if (reduction == kNone) return losses;
  const Tensor sums = tapegrad::sum(tapegrad::reshape(losses, {losses.size(0), -1}), IntSpan{1});
  return reduction == kMean ? tapegrad::div(sums, totals) : sums;
}

// A gradient for every row of all samples, for the operator without reduction.
Tensor row_gradients(const Part& grad, const Part& total, int64_t n, int64_t reduction, IntSpan target_sizes) {
  Tensor each = grad.led(n);
  if (reduction != kNone) {
    each = tapegrad::reshape(each, {n});
    if (reduction == kMean) each = tapegrad::div(each, tapegrad::reshape(total.led(n), {n}));
    DimVector ones(target_sizes.size() + 1, 1);
    ones[0] = n;
    each = tapegrad::expand(tapegrad::reshape(each, ones), led_by(n, target_sizes));
  }
  return Part{each, true}.folded(n, 0);
}

}  // namespace

Two nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t reduction, int64_t ignore_index) {
  const auto [here, n, x, y, w] = samples_of("nll_loss", input, target, weight);
  return all_at_level<Two>(here, [&] {
    if (w.has_dim || x.ndim() < 2 || y.ndim() < 1)
      return each_sample<Two>(n, {x, y, w}, [&](const std::vector<Tensor>& a) {
        return _nll_loss(a[0], a[1], a[2], reduction, ignore_index);
      });
    const Tensor losses =
        unfolded(std::get<0>(_nll_loss(x.folded(n, 0), y.folded(n, 0), w.t, kNone, ignore_index)), n, 0);
    const Tensor totals = total_weights(y.led(n), w.t, x.t.dtype(), ignore_index);
    return Two(reduced(losses, totals, reduction), totals);
  });
}

Tensor nll_loss_backward(const Tensor& grad_output, const Tensor& target, const Tensor& weight,
                         const Tensor& total_weight, IntSpan sizes, int64_t reduction, int64_t ignore_index) {
  const auto [here, n, g, y, w, t] = parts_of(grad_output, target, weight, total_weight);
  return std::get<0>(all_at_level<std::tuple<Tensor>>(here, [&] {
    if (w.has_dim)
      return each_sample<std::tuple<Tensor>>(n, {g, y, w, t}, [&](const std::vector<Tensor>& a) {
        return std::tuple(_nll_loss_backward(a[0], a[1], a[2], a[3], sizes, reduction, ignore_index));
      });
    DimVector all(sizes), one(sizes);
    all[0] *= n;
    one.erase(1);
    return std::tuple(
        unfolded(_nll_loss_backward(row_gradients(g, t, n, reduction, one), y.folded(n, 0), w.t,
                                    tapegrad::select(tapegrad::reshape(t.led(n), {n}), 0, 0), all, kNone, ignore_index),
                 n, 0));
  }));
}

Three cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t reduction,
                    int64_t ignore_index) {
  const auto [here, n, x, y, w] = samples_of("cross_entropy", input, target, weight);
  return all_at_level<Three>(here, [&] {
    if (w.has_dim || x.ndim() != 2 || y.ndim() != 1)
      return each_sample<Three>(n, {x, y, w}, [&](const std::vector<Tensor>& a) {
        return _cross_entropy(a[0], a[1], a[2], reduction, ignore_index);
      });
    auto [losses, log_normaliser, total] = _cross_entropy(x.folded(n, 0), y.folded(n, 0), w.t, kNone, ignore_index);
    const Tensor totals = total_weights(y.led(n), w.t, x.t.dtype(), ignore_index);
    return Three(reduced(unfolded(losses, n, 0), totals, reduction), unfolded(log_normaliser, n, 0), totals);
  });
}

Tensor cross_entropy_backward(const Tensor& grad_output, const Tensor& input, const Tensor& target,
                              const Tensor& weight, const Tensor& log_normaliser, const Tensor& total_weight,
                              int64_t reduction, int64_t ignore_index) {
  const auto [here, n, g, x, y, w, l, t] = parts_of(grad_output, input, target, weight, log_normaliser, total_weight);
  return std::get<0>(all_at_level<std::tuple<Tensor>>(here, [&] {
    if (w.has_dim)
      return each_sample<std::tuple<Tensor>>(n, {g, x, y, w, l, t}, [&](const std::vector<Tensor>& a) {
        return std::tuple(_cross_entropy_backward(a[0], a[1], a[2], a[3], a[4], a[5], reduction, ignore_index));
      });
    const DimVector rows{x.t.size(x.has_dim ? 1 : 0)};
    return std::tuple(
        unfolded(_cross_entropy_backward(row_gradients(g, t, n, reduction, rows), x.folded(n, 0), y.folded(n, 0), w.t,
                                         l.folded(n, 0), tapegrad::select(tapegrad::reshape(t.led(n), {n}), 0, 0),
                                         kNone, ignore_index),
                 n, 0));
  }));
}

namespace {

// Targets as (sequences of all samples, S); nothing where they are several sequences of a sample, one after the other.
Tensor ctc_targets(const Part& targets, int64_t n, int64_t sequences) {
  if (targets.ndim() == 2) return targets.folded(n, 0);
  return sequences == 1 && targets.ndim() == 1 ? targets.led(n) : Tensor();
}

}  // namespace

Two ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
             int64_t blank, int64_t longest, bool zero_infinity) {
  const auto [here, n, x, y, steps, lengths] =
      samples_of("ctc_loss", log_probs, targets, input_lengths, target_lengths);
  return all_at_level<Two>(here, [&] {
    const Tensor all =
        x.ndim() == 3 && steps.ndim() == 1 && lengths.ndim() == 1 ? ctc_targets(y, n, log_probs.size(1)) : Tensor();
    if (!all.defined())
      return each_sample<Two>(n, {x, y, steps, lengths}, [&](const std::vector<Tensor>& a) {
        return _ctc_loss(a[0], a[1], a[2], a[3], blank, longest, zero_infinity);
      });
    auto [loss, log_alpha] =
        _ctc_loss(x.folded(n, 1), all, steps.folded(n, 0), lengths.folded(n, 0), blank, longest, zero_infinity);
    return Two(unfolded(loss, n, 0), unfolded(log_alpha, n, 0));
  });
}

Tensor ctc_loss_backward(const Tensor& grad_output, const Tensor& log_probs, const Tensor& targets,
                         const Tensor& input_lengths, const Tensor& target_lengths, const Tensor& loss,
                         const Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  const auto [here, n, p] =
      list_of_parts({&grad_output, &log_probs, &targets, &input_lengths, &target_lengths, &loss, &log_alpha});
  return std::get<0>(all_at_level<std::tuple<Tensor>>(here, [&] {
    const Tensor all = ctc_targets(p[2], n, log_probs.size(1));
    if (!all.defined())
      return each_sample<std::tuple<Tensor>>(n, p, [&](const std::vector<Tensor>& a) {
        return std::tuple(_ctc_loss_backward(a[0], a[1], a[2], a[3], a[4], a[5], a[6], blank, zero_infinity));
      });
    const auto rows = [&](size_t i) { return p[i].folded(n, 0); };
    return std::tuple(unfolded(
        _ctc_loss_backward(rows(0), p[1].folded(n, 1), all, rows(3), rows(4), rows(5), rows(6), blank, zero_infinity),
        n, 1));
  }));
}

}  // namespace tapegrad::batch
