#include "tapegrad/nn/layers/layer_support.h"

#include <algorithm>

#include "tapegrad/aten/functions_conv.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_norm.h"
#include "tapegrad/aten/functions_pad.h"
#include "tapegrad/aten/functions_rnn.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::nn {

std::string shown(double value) {
  std::string text = fmt::format("{}", value);
  const bool whole = text.find_first_not_of("-0123456789") == std::string::npos;
  return whole ? text + ".0" : text;
}

std::string shown(IntSpan values) {
  std::string text = "(";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + (values.size() == 1 ? ",)" : ")");
}

std::string shown(const std::vector<double>& values) {
  if (values.size() == 1) return shown(values[0]);
  std::string text = "(";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + shown(values[i]);
  return text + ")";
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

Tensor scalar_int64(int64_t value) { return tapegrad::full(IntSpan(), value, DType::int64); }

std::optional<int64_t> row_from_front(std::optional<int64_t> row, int64_t rows) {
  return row && *row < 0 ? *row + rows : row;
}

void zero_row_(const Tensor& weight, std::optional<int64_t> row) {
  if (!row) return;
  const NoGradGuard no_grad;
  weight.select(0, *row).fill_(0);
}

void reset_running_stats(const Tensor& mean, const Tensor& var, const Tensor& batches) {
  if (!mean.defined()) return;
  mean.zero_();
  var.fill_(1);
  batches.zero_();
}

int64_t softmax_dim(std::optional<int64_t> dim, int64_t ndim) {
  return dim ? *dim : ndim == 0 || ndim == 1 || ndim == 3 ? 0 : 1;
}

void check_conv_options(IntSpan stride, const std::string& padding, const std::string& padding_mode) {
  TG_CHECK(padding != "same" || std::all_of(stride.begin(), stride.end(), [](int64_t s) { return s == 1; }), Value,
           "convolution: padding \"same\" is not supported for strided convolutions: stride {}", format_ints(stride));
  TG_CHECK(
      padding_mode == "zeros" || padding_mode == "reflect" || padding_mode == "replicate" || padding_mode == "circular",
      Value, "convolution: padding_mode must be one of zeros, reflect, replicate, circular: got \"{}\"", padding_mode);
}

namespace {

Tensor conv(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
            IntSpan dilation, int64_t groups) {
  switch (stride.size()) {
    case 1:
      return tapegrad::conv1d(input, weight, bias, stride, padding, dilation, groups);
    case 2:
      return tapegrad::conv2d(input, weight, bias, stride, padding, dilation, groups);
    default:
      return tapegrad::conv3d(input, weight, bias, stride, padding, dilation, groups);
  }
}

}  // namespace

Tensor conv_any(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
                const std::string& named, IntSpan dilation, int64_t groups, const std::string& padding_mode) {
  if (named.empty() && padding_mode == "zeros") return conv(input, weight, bias, stride, padding, dilation, groups);
  // (before, after) of each dimension from the last backwards, as pad wants it.
  DimVector around;
  bool even = true;
  for (size_t i = stride.size(); i-- > 0;) {
    int64_t before = padding[i], after = padding[i];
    if (named == "same") {
      const int64_t total = dilation[i] * (weight.size(static_cast<int64_t>(i) + 2) - 1);
      before = total / 2;
      after = total - before;
    }
    even = even && before == after;
    around.push_back(before);
    around.push_back(after);
  }
  if (padding_mode == "zeros" && even) {  // the kernel itself can pad so
    DimVector both;
    for (size_t i = stride.size(); i-- > 0;) both.push_back(around[2 * i]);
    return conv(input, weight, bias, stride, both, dilation, groups);
  }
  const Tensor padded = tapegrad::pad(input, around, padding_mode == "zeros" ? "constant" : padding_mode);
  return conv(padded, weight, bias, stride, DimVector(stride.size(), 0), dilation, groups);
}

DimVector output_padding_for(const Tensor& input, IntSpan wanted, IntSpan stride, IntSpan padding, IntSpan kernel_size,
                             IntSpan dilation) {
  const size_t n = stride.size();
  if (wanted.size() == static_cast<size_t>(input.dim())) wanted = IntSpan(wanted.last(n));
  TG_CHECK(wanted.size() == n, Value, "convolution: output_size must have {} or {} elements: got {}", n, input.dim(),
           wanted.size());
  DimVector result;
  for (size_t d = 0; d < n; ++d) {
    const int64_t in = input.size(input.dim() - static_cast<int64_t>(n - d));
    const int64_t least = (in - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel_size[d] - 1) + 1;
    TG_CHECK(least <= wanted[d] && wanted[d] < least + stride[d], Value,
             "convolution: requested an output size of {}, but dimension {} can be {} to {}", format_ints(wanted), d,
             least, least + stride[d] - 1);
    result.push_back(wanted[d] - least);
  }
  return result;
}

Tensor batch_norm_any(int dimensions, const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                      const Tensor& var, const Tensor& batches, bool training, bool track,
                      std::optional<double> momentum, double eps) {
  TG_CHECK(input.dim() == dimensions + 2 || (dimensions == 1 && input.dim() == 2), Value,
           "batch_norm: expected {}D input: got {}D", dimensions == 1 ? "2D or 3" : std::to_string(dimensions + 2),
           input.dim());
  if (!training)
    return tapegrad::batch_norm(input, mean, var, weight, bias, !mean.defined(), momentum.value_or(0), eps);
  if (!track) return tapegrad::batch_norm(input, {}, {}, weight, bias, true, momentum.value_or(0), eps);
  batches.add_(1);
  const double weight_of_batch = momentum ? *momentum : 1.0 / static_cast<double>(batches.item<int64_t>());
  return tapegrad::batch_norm(input, mean, var, weight, bias, true, weight_of_batch, eps);
}

Tensor instance_norm_any(int dimensions, const Tensor& input, const Tensor& weight, const Tensor& bias,
                         const Tensor& mean, const Tensor& var, bool use_input, double momentum, double eps) {
  TG_CHECK(input.dim() == dimensions + 1 || input.dim() == dimensions + 2, Value,
           "instance_norm: expected {}D or {}D input: got {}D", dimensions + 1, dimensions + 2, input.dim());
  if (input.dim() == dimensions + 2)
    return tapegrad::instance_norm(input, mean, var, weight, bias, use_input, momentum, eps);
  return tapegrad::instance_norm(input.unsqueeze(0), mean, var, weight, bias, use_input, momentum, eps)
      .squeeze(IntSpan{0});
}

namespace {

void check_cell_input(const Tensor& input) {
  TG_CHECK(input.dim() == 1 || input.dim() == 2, Value, "recurrent cell: expected input to be 1D or 2D: got {}D",
           input.dim());
}

Tensor zero_state(const Tensor& batch, int64_t hidden_size) {
  return tapegrad::zeros({batch.size(0), hidden_size}, batch.dtype(), batch.device());
}

}  // namespace

Tensor cell_forward(Cell cell, const Tensor& input, const Tensor& hx, int64_t hidden_size, const Tensor& w_ih,
                    const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh) {
  check_cell_input(input);
  const bool batched = input.dim() == 2;
  const Tensor x = batched ? input : input.unsqueeze(0);
  const Tensor h = !hx.defined() ? zero_state(x, hidden_size) : batched ? hx : hx.unsqueeze(0);
  const Tensor result = cell(x, h, w_ih, w_hh, b_ih, b_hh);
  return batched ? result : result.select(0, 0);
}

State lstm_cell_forward(const Tensor& input, const std::optional<State>& hx, int64_t hidden_size, const Tensor& w_ih,
                        const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh) {
  check_cell_input(input);
  const bool batched = input.dim() == 2;
  const Tensor x = batched ? input : input.unsqueeze(0);
  std::vector<Tensor> state;
  if (hx) {
    const auto& [h, c] = *hx;
    state = {batched ? h : h.unsqueeze(0), batched ? c : c.unsqueeze(0)};
  } else {
    state.assign(2, zero_state(x, hidden_size));
  }
  const auto [h, c] = tapegrad::lstm_cell(x, state, w_ih, w_hh, b_ih, b_hh);
  if (batched) return {h, c};
  return {h.select(0, 0), c.select(0, 0)};
}

}  // namespace tapegrad::nn
