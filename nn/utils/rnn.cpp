#include "tapegrad/nn/utils/rnn.h"

#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_sort.h"
#include "tapegrad/aten/record/recorder.h"

#include <algorithm>

namespace tapegrad::nn::utils {
namespace {

std::vector<int64_t> listed(const Tensor& t) {
  record::note_host_read("pack_padded_sequence");
  const Tensor values = t.contiguous();
  const auto* data = values.data<int64_t>();
  return {data, data + values.numel()};
}

// Flat positions (step, sequence) that packed data holds, in its order.
Tensor places(const Tensor& batch_sizes, int64_t sequences) {
  const Tensor there = tapegrad::arange(sequences).unsqueeze(0) < batch_sizes.unsqueeze(1);
  return tapegrad::nonzero(there.reshape({-1})).squeeze(IntSpan{1});
}

DimVector joined(std::initializer_list<int64_t> first, IntSpan rest) {
  DimVector sizes{IntSpan(first)};
  for (int64_t n : rest) sizes.push_back(n);
  return sizes;
}

IntSpan behind(IntSpan sizes, size_t n) { return IntSpan(sizes.subspan(n)); }

}  // namespace

PackedSequence::PackedSequence(Tensor data_, Tensor batch_sizes_, Tensor sorted_indices_, Tensor unsorted_indices_)
    : data(std::move(data_)),
      batch_sizes(std::move(batch_sizes_)),
      sorted_indices(std::move(sorted_indices_)),
      unsorted_indices(std::move(unsorted_indices_)) {
  TG_CHECK(data.defined() && batch_sizes.defined(), Value, "PackedSequence: data or batch_sizes is undefined");
  TG_CHECK(batch_sizes.is_cpu(), Value, "PackedSequence: batch_sizes should always be on the CPU: got {}",
           batch_sizes.device());
  if (!unsorted_indices.defined()) unsorted_indices = invert_permutation(sorted_indices);
}

PackedSequence PackedSequence::to(Device device) const {
  const auto moved = [&](const Tensor& t) { return t.defined() ? t.to({}, device) : t; };
  return {moved(data), batch_sizes, moved(sorted_indices), moved(unsorted_indices)};
}
PackedSequence PackedSequence::to(DType dtype) const {
  return {data.to(dtype), batch_sizes, sorted_indices, unsorted_indices};
}

Tensor invert_permutation(const Tensor& permutation) {
  if (!permutation.defined()) return {};
  const Tensor result = tapegrad::empty_like(permutation);
  tapegrad::scatter_(result, 0, permutation, tapegrad::arange(permutation.numel(), DType::int64, permutation.device()));
  return result;
}

PackedSequence pack_padded_sequence(const Tensor& given, const Tensor& given_lengths, bool batch_first,
                                    bool enforce_sorted) {
  TG_CHECK(given_lengths.is_cpu(), Runtime, "pack_padded_sequence: lengths should be on the CPU: got {}",
           given_lengths.device());
  TG_CHECK(given.dim() >= 2 && given_lengths.dim() == 1, Runtime,
           "pack_padded_sequence: expected an input of 2 dimensions at least and lengths of one: got {} and {}",
           format_ints(given.sizes()), format_ints(given_lengths.sizes()));
  Tensor input = given, lengths = given_lengths.to(DType::int64), sorted_indices;
  if (!enforce_sorted) {
    std::tie(lengths, sorted_indices) = tapegrad::sort(lengths, -1, true);
    sorted_indices = sorted_indices.to({}, input.device());
    const int64_t batch = input.size(batch_first ? 0 : 1);
    TG_CHECK(lengths.numel() == batch, Runtime,
             "pack_padded_sequence: expected as many lengths as sequences: got {} and {}", lengths.numel(), batch);
    input = input.index_select(batch_first ? 0 : 1, sorted_indices);
  }
  if (batch_first) input = input.transpose(0, 1);
  const std::vector<int64_t> list = listed(lengths);
  TG_CHECK(!list.empty() && input.numel() > 0, Runtime, "pack_padded_sequence: cannot pack empty tensors");
  const int64_t n = input.size(1), steps = list.front();
  TG_CHECK(static_cast<int64_t>(list.size()) == n, Runtime,
           "pack_padded_sequence: expected as many lengths as sequences: got {} and {}", list.size(), n);
  TG_CHECK(*std::min_element(list.begin(), list.end()) > 0, Runtime,
           "pack_padded_sequence: all lengths have to be greater than 0: got {}", format_ints(list));
  TG_CHECK(
      std::is_sorted(list.rbegin(), list.rend()), Runtime,
      "pack_padded_sequence: lengths must be sorted in decreasing order: got {}\nhint: enforce_sorted = false sorts "
      "the sequences",
      format_ints(list));
  TG_CHECK(steps <= input.size(0), Runtime, "pack_padded_sequence: expected lengths of at most {} steps: got {}",
           input.size(0), steps);
  const Tensor batch_sizes = (tapegrad::arange(steps).unsqueeze(1) < lengths.unsqueeze(0)).sum(IntSpan{1});
  const Tensor flat = input.narrow(0, 0, steps).reshape(joined({steps * n}, behind(input.sizes(), 2)));
  const Tensor data = list.back() == steps ? flat : flat.index_select(0, places(batch_sizes, n).to({}, input.device()));
  return {data, batch_sizes, sorted_indices};
}

PackedSequence pack_padded_sequence(const Tensor& input, const std::vector<int64_t>& lengths, bool batch_first,
                                    bool enforce_sorted) {
  const Tensor made = tapegrad::empty({static_cast<int64_t>(lengths.size())}, DType::int64);
  std::copy(lengths.begin(), lengths.end(), made.data<int64_t>());
  return pack_padded_sequence(input, made, batch_first, enforce_sorted);
}

std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, bool batch_first, double padding_value,
                                               std::optional<int64_t> total_length) {
  const Tensor& data = sequence.data;
  const int64_t steps = sequence.batch_sizes.size(0), longest = total_length.value_or(steps);
  TG_CHECK(
      longest >= steps, Value,
      "pad_packed_sequence: expected total_length to be at least the length of the longest sequence: got {} and {}",
      longest, steps);
  const int64_t n = sequence.batch_sizes.select(0, 0).item<int64_t>();
  Tensor lengths = (tapegrad::arange(n).unsqueeze(1) < sequence.batch_sizes.unsqueeze(0)).sum(IntSpan{1});
  const IntSpan rest = behind(data.sizes(), 1);
  Tensor padded = data;
  if (n * longest != data.size(0))
    padded = tapegrad::full(joined({longest * n}, rest), padding_value, data.dtype(), data.device())
                 .index_copy(0, places(sequence.batch_sizes, n).to({}, data.device()), data);
  padded = padded.reshape(joined({longest, n}, rest));
  if (batch_first) padded = padded.transpose(0, 1);
  if (const Tensor& back = sequence.unsorted_indices; back.defined()) {
    padded = padded.index_select(batch_first ? 0 : 1, back);
    lengths = lengths.index_select(0, back.to({}, Device()));
  }
  return {padded, lengths};
}

Tensor pad_sequence(TensorSpan sequences, bool batch_first, double padding_value, std::string_view padding_side) {
  TG_CHECK(!sequences.empty(), Runtime, "pad_sequence: received an empty list of sequences");
  TG_CHECK(padding_side == "right" || padding_side == "left", Runtime,
           "pad_sequence: expected padding_side to be left or right: got {}", padding_side);
  int64_t longest = 0;
  for (const Tensor& s : sequences) {
    TG_CHECK(s.dim() > 0, Runtime, "pad_sequence: expected sequences of 1 dimension at least");
    longest = std::max(longest, s.size(0));
  }
  const auto count = static_cast<int64_t>(sequences.size());
  const IntSpan rest = behind(sequences[0].sizes(), 1);
  const Tensor out = tapegrad::full(batch_first ? joined({count, longest}, rest) : joined({longest, count}, rest),
                                    padding_value, sequences[0].dtype(), sequences[0].device());
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& s = sequences[static_cast<size_t>(i)];
    const int64_t n = s.size(0), from = padding_side == "right" ? 0 : longest - n;
    out.select(batch_first ? 0 : 1, i).narrow(0, from, n).copy_(s);
  }
  return out;
}

std::vector<Tensor> unpad_sequence(const Tensor& padded, const Tensor& lengths, bool batch_first) {
  const Tensor rows = batch_first ? padded : padded.transpose(0, 1);
  const std::vector<int64_t> list = listed(lengths.to(DType::int64));
  TG_CHECK(static_cast<int64_t>(list.size()) == rows.size(0), Value,
           "unpad_sequence: expected as many lengths as sequences: got {} and {}", list.size(), rows.size(0));
  std::vector<Tensor> result;
  for (size_t i = 0; i < list.size(); ++i)
    result.push_back(rows.select(0, static_cast<int64_t>(i)).narrow(0, 0, list[i]));
  return result;
}

PackedSequence pack_sequence(TensorSpan sequences, bool enforce_sorted) {
  std::vector<int64_t> lengths;
  for (const Tensor& s : sequences) lengths.push_back(s.size(0));
  return pack_padded_sequence(pad_sequence(sequences), lengths, false, enforce_sorted);
}

std::vector<Tensor> unpack_sequence(const PackedSequence& sequence) {
  const auto [padded, lengths] = pad_packed_sequence(sequence, true);
  return unpad_sequence(padded, lengths, true);
}

}  // namespace tapegrad::nn::utils
