// Connectionist temporal classification: checks, and the public functions.
#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_loss.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_loss.h"
#include "tapegrad/aten/loss/reduction.h"
#include "tapegrad/aten/record/recorder.h"

namespace tapegrad {

std::array<TensorSpec, 2> ctc_loss_shape(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                                         const Tensor& target_lengths, int64_t blank, int64_t longest, bool) {
  TG_CHECK(log_probs.is_floating_point(), Runtime, "ctc_loss: expected floating log_probs: got {}", log_probs.dtype());
  TG_CHECK(log_probs.ndim() == 3, Runtime, "ctc_loss: expected log_probs (T, N, C) or (T, C): got {}",
           format_ints(log_probs.sizes()));
  TG_CHECK(targets.dtype() == DType::int64 || targets.dtype() == DType::int32, Runtime,
           "ctc_loss: expected targets of dtype int64 or int32: got {}", targets.dtype());
  TG_CHECK(blank >= 0 && blank < log_probs.size(2), Runtime,
           "ctc_loss: blank must be in label range: got {} of {} classes", blank, log_probs.size(2));
  const int64_t n = log_probs.size(1);
  TG_CHECK(input_lengths.ndim() == 1 && input_lengths.size(0) == n, Runtime,
           "ctc_loss: input_lengths must be of size batch_size {}: got {}", n, format_ints(input_lengths.sizes()));
  TG_CHECK(target_lengths.ndim() == 1 && target_lengths.size(0) == n, Runtime,
           "ctc_loss: target_lengths must be of size batch_size {}: got {}", n, format_ints(target_lengths.sizes()));
  TG_CHECK(input_lengths.dtype() == DType::int64 && target_lengths.dtype() == DType::int64, Runtime,
           "ctc_loss: expected lengths of dtype int64: got {} and {}", input_lengths.dtype(), target_lengths.dtype());
  TG_CHECK(targets.ndim() == 1 || (targets.ndim() == 2 && targets.size(0) == n), Runtime,
           "ctc_loss: expected targets ({}, S) or one after the other: got {}", n, format_ints(targets.sizes()));
  TG_CHECK(longest >= 0, Runtime, "ctc_loss: expected a longest target: got {}", longest);
  DimVector alpha{n, log_probs.size(0), 2 * longest + 1};
  checked_numel(alpha, "ctc_loss");
  return {TensorSpec{{n}, log_probs.dtype(), log_probs.device(), {}},
          TensorSpec{alpha, compute_dtype(log_probs.dtype()), log_probs.device(), {}}};
}

TensorSpec ctc_loss_backward_shape(const Tensor& grad_output, const Tensor& log_probs, const Tensor& targets,
                                   const Tensor& input_lengths, const Tensor& target_lengths, const Tensor& loss,
                                   const Tensor& log_alpha, int64_t blank, bool) {
  TG_CHECK(log_alpha.ndim() == 3 && log_alpha.dtype() == compute_dtype(log_probs.dtype()) && log_alpha.size(2) % 2 == 1,
           Runtime, "ctc_loss: unexpected forward variables {} {}", log_alpha.dtype(), format_ints(log_alpha.sizes()));
  const auto specs =
      ctc_loss_shape(log_probs, targets, input_lengths, target_lengths, blank, log_alpha.size(2) / 2, false);
  TG_CHECK(IntSpan(specs[1].sizes) == log_alpha.sizes() && loss.sizes() == IntSpan(specs[0].sizes) &&
               loss.dtype() == log_probs.dtype() && grad_output.sizes() == loss.sizes() &&
               grad_output.dtype() == log_probs.dtype(),
           Runtime, "ctc_loss: gradient {} and loss {} do not fit", format_ints(grad_output.sizes()),
           format_ints(loss.sizes()));
  return {DimVector(log_probs.sizes()), log_probs.dtype(), log_probs.device(), {}};
}

namespace composite {
namespace {

Tensor lengths(const Tensor& t, const char* name) {
  TG_CHECK(t.defined() && is_integral(t.dtype()), Runtime, "ctc_loss: {} must be integral: got {}", name,
           t.defined() ? dtype_name(t.dtype()) : "None");
  return t.dtype() == DType::int64 ? t : raw::to(t, DType::int64);
}

}  // namespace

Tensor ctc_loss_tensors(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                        const Tensor& target_lengths, int64_t blank, std::string_view reduction, bool zero_infinity) {
  const Reduction r = parse_reduction(reduction, "ctc_loss");
  const bool single = log_probs.ndim() == 2;
  const auto batched = [&](const Tensor& t) { return t.ndim() == 0 ? unsqueeze(t, 0) : t; };
  const Tensor in = batched(lengths(input_lengths, "input_lengths"));
  const Tensor wanted = batched(lengths(target_lengths, "target_lengths"));
  // How long the longest target is decides the size of the forward variables.
  int64_t longest = targets.ndim() > 0 ? targets.size(-1) : 0;
  if (!wanted.is_meta()) {
    record::note_host_read("ctc_loss");
    longest = 0;
    Tensor all = wanted;  // of the samples of every vmap
    while (all.is_batched()) all = batch::impl_of(all).physical();
    const Tensor dense = contiguous(to(all, std::nullopt, Device()));
    for (int64_t i = 0; i < dense.numel(); ++i) longest = std::max(longest, dense.data<int64_t>()[i]);
    TG_CHECK(targets.ndim() > 0 && longest <= targets.size(-1), Runtime,
             "ctc_loss: a target of length {} does not fit targets of sizes {}", longest, format_ints(targets.sizes()));
  }
  const Tensor probs = single ? unsqueeze(log_probs, 1) : log_probs;
  // Lengths, and labels, may be given on the host beside probabilities on a device.
  const auto there = [&](const Tensor& t) {
    return t.is_cpu() && probs.is_cuda() ? to(t, std::nullopt, probs.device()) : t;
  };
  const Tensor wanted_there = there(wanted);
  Tensor loss = std::get<0>(_ctc_loss(probs, there(targets), there(in), wanted_there, blank, longest, zero_infinity));
  if (zero_infinity) loss = masked_fill(loss, eq(loss, std::numeric_limits<double>::infinity()), 0);
  if (r == Reduction::Mean) return mean(div(loss, to(clamp_min(wanted_there, 1), loss.dtype())));
  if (r == Reduction::Sum) return sum(loss);
  return single ? squeeze(loss, IntSpan({0})) : loss;
}

Tensor ctc_loss_lists(const Tensor& log_probs, const Tensor& targets, IntSpan input_lengths, IntSpan target_lengths,
                      int64_t blank, std::string_view reduction, bool zero_infinity) {
  const auto as_tensor = [](IntSpan values) {
    const Tensor t = empty_tensor({static_cast<int64_t>(values.size())}, DType::int64);
    std::copy(values.begin(), values.end(), t.data<int64_t>());
    return t;
  };
  return ctc_loss_tensors(log_probs, targets, as_tensor(input_lengths), as_tensor(target_lengths), blank, reduction,
                          zero_infinity);
}

}  // namespace composite
}  // namespace tapegrad
