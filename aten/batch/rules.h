// Rules of operators that more than one dimension of samples goes through at once: normalisation, indexing, recurrent
// layers, losses of labels; on batched tensors (raw: the tape of their level is not asked). As products.h.
#pragma once

#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::batch {

// Normalisation (norms.cpp): samples become channels, of which each has its own statistics.
TG_API std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_train(const Tensor& input, const Tensor& weight,
                                                                   const Tensor& bias, double eps);
TG_API std::tuple<Tensor, Tensor, Tensor> batch_norm_train_grad(const Tensor& output, const Tensor& input,
                                                                const Tensor& weight, const Tensor& mean,
                                                                const Tensor& invstd, double eps);
TG_API Tensor batch_norm_eval(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                              const Tensor& var, double eps);
TG_API std::tuple<Tensor, Tensor, Tensor> group_norm(const Tensor& input, int64_t samples, int64_t channels,
                                                     int64_t groups, const Tensor& weight, const Tensor& bias,
                                                     double eps, bool center);
TG_API std::tuple<Tensor, Tensor, Tensor> group_norm_grad(const Tensor& output, const Tensor& input, int64_t samples,
                                                          int64_t channels, int64_t groups, const Tensor& weight,
                                                          const Tensor& mean, const Tensor& rstd, double eps,
                                                          bool center);

// Indexing by tensors (indexing.cpp): the number of the sample is one more index.
TG_API Tensor index_tensor(const Tensor& input, TensorSpan indices);
TG_API Tensor index_put(const Tensor& input, TensorSpan indices, const Tensor& values, bool accumulate);
TG_API Tensor index_add(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source,
                        const Scalar& alpha);
TG_API Tensor index_copy(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source);
TG_API Tensor embedding_backward(const Tensor& grad_output, const Tensor& indices, int64_t num_weights,
                                 int64_t padding_idx, bool scale_grad_by_freq);

// Recurrent layers (recurrent.cpp): with common weights samples are more sequences; else once per sample.
TG_API std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> rnn_layer(const Tensor& input, const Tensor& hx,
                                                                    const Tensor& cx, const Tensor& w_ih,
                                                                    const Tensor& w_hh, const Tensor& b_ih,
                                                                    const Tensor& b_hh, const Tensor& w_hr,
                                                                    IntSpan batch_sizes, int64_t cell, bool reverse);
TG_API std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> rnn_layer_grad(
    const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input, const Tensor& hx,
    const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& w_hr, const Tensor& output,
    const Tensor& gates, const Tensor& cells, IntSpan batch_sizes, int64_t cell, bool reverse, bool input_wanted,
    bool weights_wanted);

// Losses of class labels (losses.cpp): all rows at once, summed up per sample.
TG_API std::tuple<Tensor, Tensor> nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight,
                                           int64_t reduction, int64_t ignore_index);
TG_API Tensor nll_loss_backward(const Tensor& grad_output, const Tensor& target, const Tensor& weight,
                                const Tensor& total_weight, IntSpan sizes, int64_t reduction, int64_t ignore_index);
TG_API std::tuple<Tensor, Tensor, Tensor> cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                                                        int64_t reduction, int64_t ignore_index);
TG_API Tensor cross_entropy_backward(const Tensor& grad_output, const Tensor& input, const Tensor& target,
                                     const Tensor& weight, const Tensor& log_normaliser, const Tensor& total_weight,
                                     int64_t reduction, int64_t ignore_index);

}  // namespace tapegrad::batch
