// Sequences of different lengths: padded, and packed step by step as the recurrent networks (nn/layers/recurrent.h)
// take them. Tensors are (L, N, *), or (N, L, *) with batch_first. Plain functions; threads as for the tensors.
#pragma once

#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::nn::utils {

// Sequences without padding: `data` holds the first elements of all sequences, then all second ones and so on, longest
// sequence first; `batch_sizes` (int64, on the CPU) says how many there are of each. `sorted_indices` is the order in
// which the sequences were taken, `unsorted_indices` the way back; both undefined where they were sorted already.
struct TG_API PackedSequence {
  Tensor data, batch_sizes, sorted_indices, unsorted_indices;

  PackedSequence() = default;
  PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices = {}, Tensor unsorted_indices = {});
  PackedSequence to(Device device) const;
  PackedSequence to(DType dtype) const;
};

// The permutation that undoes the given one; undefined for none.
TG_API Tensor invert_permutation(const Tensor& permutation);

// Packs padded sequences of the given lengths. With enforce_sorted the lengths must not increase; else the sequences
// are sorted, and pad_packed_sequence returns them in their original order. Raises Runtime for lengths that do not fit.
TG_API PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths, bool batch_first = false,
                                           bool enforce_sorted = true);
TG_API PackedSequence pack_padded_sequence(const Tensor& input, const std::vector<int64_t>& lengths,
                                           bool batch_first = false, bool enforce_sorted = true);
// The reverse: the padded sequences and their lengths.
TG_API std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, bool batch_first = false,
                                                      double padding_value = 0,
                                                      std::optional<int64_t> total_length = {});
// Stacks sequences (L_i, *), padded to the longest at the "right" or "left".
TG_API Tensor pad_sequence(TensorSpan sequences, bool batch_first = false, double padding_value = 0,
                           std::string_view padding_side = "right");
TG_API std::vector<Tensor> unpad_sequence(const Tensor& padded, const Tensor& lengths, bool batch_first = false);
TG_API PackedSequence pack_sequence(TensorSpan sequences, bool enforce_sorted = true);
TG_API std::vector<Tensor> unpack_sequence(const PackedSequence& sequence);

}  // namespace tapegrad::nn::utils
