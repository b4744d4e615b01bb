// A library of recurrent networks that a device may have (cuDNN; cuda/rnn/). Networks without dropout between their
// layers are passed to it as a whole; those that it refuses are computed layer by layer. The library of a device type
// registers its function when it is loaded; on the CPU there is none. Any thread.
#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "tapegrad/aten/rnn/layer.h"
#include "tapegrad/c10/error.h"

namespace tapegrad::rnn {

// Sizes of a network. The state has fewer elements than the cells where an LSTM projects it.
struct NetworkSizes {
  Cell cell;
  bool biases, bidirectional;
  int64_t layers, input, hidden, state;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t rows() const { return gate_count(cell) * hidden; }  // of a weight
  bool projects() const { return state != hidden; }
  int64_t input_of(int64_t layer) const { return layer == 0 ? input : directions() * state; }
};

// One weight in the vector of all of them.
enum class Part : uint8_t { OfInput, OfState, Projection, InputBias, StateBias };
inline bool is_bias(Part part) { return part == Part::InputBias || part == Part::StateBias; }
struct Piece {
  int64_t at;  // layer * directions + direction
  Part part;
  int64_t offset, rows, columns;  // columns of a bias: 1
};
// In the order of the vector, which is cuDNN's: matrices of all layers, then biases of all layers.
TG_API std::vector<Piece> pieces_of(const NetworkSizes& sizes);

TG_API Tensor joined_weights(std::span<const LayerWeights> weights);
TG_API std::vector<LayerWeights> separate_weights(const Tensor& all, const NetworkSizes& sizes);

// The description of a call, for which the library is queried before anything is computed.
struct NetworkCall {
  NetworkSizes sizes;
  DType dtype;
  Device device;
  IntSpan batch_sizes;
  bool training;  // a gradient will be wanted
};
// The library's choice of method: an opaque number, and the bytes that it saves for the gradient.
struct Method {
  int64_t number, reserve;
};
using ChooseMethod = std::optional<Method> (*)(const NetworkCall& call);
TG_API extern std::atomic<ChooseMethod> choose_method;  // null: no library

// Thrown if the library cannot compute a call that it had accepted. Nothing has been written.
class TG_API Refused : public Error {
 public:
  explicit Refused(std::string message) : Error(ErrorKind::NotImplemented, std::move(message)) {}
};

// The result by the library; nothing where there is none, where it refuses, or where sizes do not fit each other.
std::optional<LayerResult> by_library(const Tensor& input, const Tensor& hx, const Tensor& cx,
                                      std::span<const LayerWeights> weights, IntSpan batch_sizes, Cell cell,
                                      bool bidirectional);

}  // namespace tapegrad::rnn
