// Support code of the generated layers (nn/*.toml): forward passes that a row cannot express, and the text of options.
// The generator reads the names of the functions here, which rows may call.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/nn/options.h"
#include "tapegrad/nn/state.h"

namespace tapegrad::nn {

// The sizes of a parameter from integers and lists of them.
inline void append_sizes(DimVector& sizes, int64_t n) { sizes.push_back(n); }
inline void append_sizes(DimVector& sizes, IntSpan list) {
  for (int64_t n : list) sizes.push_back(n);
}
template <class... Parts>
DimVector make_shape(const Parts&... parts) {
  DimVector sizes;
  (append_sizes(sizes, parts), ...);
  return sizes;
}

// Values as Python prints them.
inline std::string shown(int64_t value) { return std::to_string(value); }
inline std::string shown(bool value) { return value ? "True" : "False"; }
inline std::string shown(const std::string& value) { return value; }
std::string shown(double value);
std::string shown(IntSpan values);
template <size_t N>
std::string shown(const IntArray<N>& values) {
  return shown(IntSpan(values));
}
template <size_t N>
std::string shown(const Padding<N>& padding) {
  return padding.named() ? padding.mode() : shown(IntSpan(padding.sizes()));
}
inline std::string shown(const Shape& shape) { return shown(IntSpan(shape)); }
std::string shown(const std::vector<double>& values);
template <class T>
std::string shown(const std::optional<T>& value) {
  return value ? shown(*value) : "None";
}
template <class T>
std::string quoted(const T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    return "'" + value + "'";
  else
    return shown(value);
}
std::string joined(const std::vector<std::string>& parts);

template <size_t N>
bool any_nonzero(const IntArray<N>& values) {
  return !(values == IntArray<N>(0));
}
template <size_t N>
bool any_nonzero(const Padding<N>& padding) {
  return padding.named() || any_nonzero(padding.sizes());
}
template <size_t N>
bool any_not_one(const IntArray<N>& values) {
  return !(values == IntArray<N>(1));
}

Tensor scalar_int64(int64_t value);
// Converts an index that counts from the end to one from the front.
std::optional<int64_t> row_from_front(std::optional<int64_t> row, int64_t rows);
void zero_row_(const Tensor& weight, std::optional<int64_t> row);
void reset_running_stats(const Tensor& mean, const Tensor& var, const Tensor& batches);

// The dimension that softmax layers without one take, as PyTorch's.
int64_t softmax_dim(std::optional<int64_t> dim, int64_t ndim);

void check_conv_options(IntSpan stride, const std::string& padding, const std::string& padding_mode);
template <size_t N>
void check_conv(const Padding<N>& padding, const IntArray<N>& stride, const std::string& padding_mode) {
  check_conv_options(stride, padding.mode(), padding_mode);
}
// `padding` is absent for "same" and "valid", which are in `named` then.
Tensor conv_any(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
                const std::string& named, IntSpan dilation, int64_t groups, const std::string& padding_mode);
template <size_t N>
Tensor conv_forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const IntArray<N>& stride,
                    const Padding<N>& padding, const IntArray<N>& dilation, int64_t groups,
                    const std::string& padding_mode) {
  return conv_any(input, weight, bias, stride, padding.sizes(), padding.mode(), dilation, groups, padding_mode);
}
// The output_padding that gives the wanted spatial size, or the given one where no size is wanted.
DimVector output_padding_for(const Tensor& input, IntSpan wanted, IntSpan stride, IntSpan padding, IntSpan kernel_size,
                             IntSpan dilation);
template <size_t N>
DimVector transposed_output_padding(const Tensor& input, OptionalInts wanted, const IntArray<N>& stride,
                                    const IntArray<N>& padding, const IntArray<N>& kernel_size,
                                    const IntArray<N>& dilation, const IntArray<N>& output_padding) {
  if (!wanted) return DimVector(IntSpan(output_padding));
  return output_padding_for(input, *wanted, stride, padding, kernel_size, dilation);
}

Tensor batch_norm_any(int dimensions, const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                      const Tensor& var, const Tensor& batches, bool training, bool track,
                      std::optional<double> momentum, double eps);
template <int kDimensions>
Tensor batch_norm_forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                          const Tensor& var, const Tensor& batches, bool training, bool track,
                          std::optional<double> momentum, double eps) {
  return batch_norm_any(kDimensions, input, weight, bias, mean, var, batches, training, track, momentum, eps);
}
Tensor instance_norm_any(int dimensions, const Tensor& input, const Tensor& weight, const Tensor& bias,
                         const Tensor& mean, const Tensor& var, bool use_input, double momentum, double eps);
template <int kDimensions>
Tensor instance_norm_forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                             const Tensor& var, bool use_input, double momentum, double eps) {
  return instance_norm_any(kDimensions, input, weight, bias, mean, var, use_input, momentum, eps);
}

// One step of a recurrent cell: inputs without a batch dimension get one, an absent state is zero.
using Cell = Tensor (*)(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                        const Tensor& b_ih, const Tensor& b_hh);
Tensor cell_forward(Cell cell, const Tensor& input, const Tensor& hx, int64_t hidden_size, const Tensor& w_ih,
                    const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh);
State lstm_cell_forward(const Tensor& input, const std::optional<State>& hx, int64_t hidden_size, const Tensor& w_ih,
                        const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh);

}  // namespace tapegrad::nn
