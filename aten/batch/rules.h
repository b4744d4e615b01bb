// Batching rules of normalisation, indexing, searching, solvers, recurrent layers and losses of labels: each runs once
// for all samples, by mapping the dimension of samples to a dimension that the operator already has. Raw, as in
// products.h: nothing is recorded on the tape of their level.
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

TG_API Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index);
TG_API Tensor index_fill(const Tensor& input, int64_t dim, const Tensor& index, const Operand& value);
TG_API Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx, bool scale_grad_by_freq,
                        bool sparse);
TG_API Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                            const Tensor& per_sample_weights, bool mean, int64_t padding_idx, bool scale_grad_by_freq,
                            bool sparse);
TG_API Tensor take(const Tensor& input, const Tensor& index);
TG_API Tensor put(const Tensor& input, const Tensor& index, const Tensor& source, bool accumulate);

// Searching and counting (search.cpp): in rows, one for each sample.
TG_API Tensor searchsorted(const Tensor& sequence, const Operand& input, bool out_int32, bool right,
                           std::optional<std::string_view> side, const Tensor& sorter);
TG_API Tensor bucketize(const Operand& input, const Tensor& boundaries, bool out_int32, bool right);
TG_API Tensor isin(const Operand& elements, const Operand& test_elements, bool assume_unique, bool invert);
TG_API Tensor bincount(const Tensor& input, const Tensor& weights, int64_t minlength);
TG_API Tensor repeat_indices(const Tensor& repeats, std::optional<int64_t> output_size);
TG_API Tensor masked_scatter(const Tensor& input, const Tensor& mask, const Tensor& source);
TG_API Tensor median_all(const Tensor& input, bool ignore_nan);

// Copies in another order (products.cpp).
TG_API Tensor roll(const Tensor& input, IntSpan shifts, IntSpan dims);
TG_API Tensor repeat(const Tensor& input, IntSpan repeats);

// Solvers (solvers.cpp): samples are one more dimension of the batch.
TG_API std::tuple<Tensor, Tensor, Tensor, Tensor> linalg_solve_ex(const Tensor& A, const Tensor& B);
TG_API Tensor lu_solve(const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint);
TG_API Tensor ldl_solve(const Tensor& LD, const Tensor& pivots, const Tensor& B, bool hermitian);
TG_API Tensor solve_triangular(const Tensor& A, const Tensor& B, bool upper, bool unitriangular);
TG_API std::tuple<Tensor, Tensor, Tensor> lstsq(const Tensor& A, const Tensor& B, double rcond,
                                                std::string_view driver);
TG_API Tensor pinv(const Tensor& A, const Tensor& atol, const Tensor& rtol, bool hermitian);

// Recurrent layers (recurrent.cpp): with shared weights samples become further sequences; else once per sample.
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
TG_API std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                                           const Tensor& target_lengths, int64_t blank, int64_t longest,
                                           bool zero_infinity);
TG_API Tensor ctc_loss_backward(const Tensor& grad_output, const Tensor& log_probs, const Tensor& targets,
                                const Tensor& input_lengths, const Tensor& target_lengths, const Tensor& loss,
                                const Tensor& log_alpha, int64_t blank, bool zero_infinity);

}  // namespace tapegrad::batch
