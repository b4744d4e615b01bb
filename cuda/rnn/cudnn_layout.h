// The parameters of cuDNN's recurrent networks: whether cuDNN is used at all, its configuration, the lengths of the
// sequences, and the layout of the weights. Pure functions of numbers.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <vector>

#include "tapegrad/aten/rnn/network_library.h"
#include "tapegrad/cuda/rnn/cudnn_api.h"

namespace tapegrad::cuda::cudnn_rnn {

using tapegrad::rnn::NetworkCall;
using tapegrad::rnn::NetworkSizes;

// The configuration of a network's plan. The tape saves it, because the memory that cuDNN saves for the gradient
// depends on it. It is encoded as an integer argument of the row, so the number may be any and must be validated.
struct PlanConfig {
  Algorithm algorithm = kStandard;
  bool tf32 = false, training = false;

  int64_t number() const { return algorithm | (tf32 ? 2 : 0) | (training ? 4 : 0); }
  static bool valid(int64_t number) { return number >= 0 && number < 8; }
  static PlanConfig of(int64_t number) {
    return {(number & 1) != 0 ? kPersistStatic : kStandard, (number & 2) != 0, (number & 4) != 0};
  }
};

// Whether cuDNN is used: it supports floating dtypes, and its kernels use 32-bit indices.
inline bool accepts(const NetworkCall& c) {
  if (c.dtype != DType::float16 && c.dtype != DType::bfloat16 && c.dtype != DType::float32 && c.dtype != DType::float64)
    return false;
  const NetworkSizes& s = c.sizes;
  int64_t rows = 0;
  for (const int64_t size : c.batch_sizes) rows += size;
  const int64_t n = c.batch_sizes.empty() ? 0 : c.batch_sizes[0];
  if (rows == 0 || n == 0 || s.input == 0 || s.hidden == 0 || s.state == 0 || s.layers == 0) return false;
  const auto narrow = [](int64_t a, int64_t b, int64_t c) {
    return a <= INT32_MAX && b <= INT32_MAX && c <= INT32_MAX && a * b <= INT32_MAX && a * b * c <= INT32_MAX;
  };
  return narrow(rows, s.input, 1) && narrow(rows, s.rows(), s.directions()) && narrow(s.rows(), s.input, 1) &&
         narrow(s.rows(), s.state, s.directions()) && narrow(s.layers * s.directions(), n, s.hidden);
}

inline CellMode cell_mode(rnn::Cell cell) {
  switch (cell) {
    case rnn::Cell::Tanh:
      return kTanhCell;
    case rnn::Cell::Relu:
      return kReluCell;
    case rnn::Cell::Lstm:
      return kLstmCell;
    default:
      return kGruCell;
  }
}

inline MathType math_type(DType dtype, bool tf32) {
  if (dtype == DType::float16 || dtype == DType::bfloat16) return kTensorOpMath;
  return dtype == DType::float32 && !tf32 ? kFmaMath : kDefaultMath;
}

// The number of steps of each sequence, from the number of sequences in each step.
inline std::vector<int> lengths_of(IntSpan batch_sizes) {
  std::vector<int> lengths(static_cast<size_t>(batch_sizes[0]));
  int64_t done = batch_sizes[0];  // the lengths of later sequences are set
  for (size_t step = 1; step <= batch_sizes.size(); ++step) {
    const int64_t left = step < batch_sizes.size() ? batch_sizes[step] : 0;
    while (done > left) lengths[static_cast<size_t>(--done)] = static_cast<int>(step);
  }
  return lengths;
}

// A run of elements of the weights: its offsets in tapegrad's vector and in cuDNN's.
struct Run {
  int64_t ours, theirs, count;
  bool operator==(const Run&) const = default;
};
// Appends a run, or extends the last one if this one continues it in both.
inline void add_run(std::vector<Run>& runs, const Run& run) {
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.ours + last.count == run.ours && last.theirs + last.count == run.theirs) {
      last.count += run.count;
      return;
    }
  }
  runs.push_back(run);
}

// cuDNN counts a layer's matrices by gates, first those of the input, then those of the state, then the projection; a
// matrix and its bias have one number. The gates' order is ours: LSTM input, forget, cell, output; GRU reset, update,
// new (NVIDIA, cuDNN API reference, cudnnGetRNNWeightParams and cudnnRNNMode_t).
inline int first_matrix(rnn::Part part, int64_t gates) {
  switch (part) {
    case rnn::Part::OfInput:
    case rnn::Part::InputBias:
      return 0;
    case rnn::Part::OfState:
    case rnn::Part::StateBias:
      return static_cast<int>(gates);
    default:
      return static_cast<int>(2 * gates);
  }
}

// The key of the descriptors. Its configuration excludes `training`, on which they do not depend.
struct Key {
  std::vector<int64_t> numbers;
  auto operator<=>(const Key&) const = default;
};
inline Key key_of(const NetworkCall& c, const PlanConfig& config) {
  const NetworkSizes& s = c.sizes;
  Key key{{static_cast<int64_t>(s.cell), s.biases, s.bidirectional, s.layers, s.input, s.hidden, s.state,
           static_cast<int64_t>(c.dtype), PlanConfig{config.algorithm, config.tf32, false}.number()}};
  key.numbers.insert(key.numbers.end(), c.batch_sizes.begin(), c.batch_sizes.end());
  return key;
}

}  // namespace tapegrad::cuda::cudnn_rnn
