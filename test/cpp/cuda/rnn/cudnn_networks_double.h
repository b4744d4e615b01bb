// A cuDNN of host code for recurrent networks, to be told what the real one is told: descriptors that complain about
// what does not fit, weights where a test wants them, and networks by plain formulas in double, a sequence at a time.
#pragma once

#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/cudnn/calls_double.h"
#include "cuda/rnn/plain_network.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/c10/tensor/half.h"
#include "tapegrad/cuda/rnn/cudnn_api.h"
#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

namespace cudnn_networks_double {

using namespace tapegrad::cuda::cudnn_rnn;
using cudnn_double::error_string, cudnn_double::last_error, cudnn_double::may_be_first;

struct Dropout {
  float rate = -1;
};
struct Shape {
  int dtype = -1;
  std::vector<int> sizes, strides;
};
struct Rows {
  int dtype = -1, steps = 0, width = 0;
  std::vector<int> lengths;
};
struct Network {
  int algorithm, cell, bias, direction, dtype, precision, math, input, hidden, projected, layers;
  int64_t directions() const { return direction == kBothDirections ? 2 : 1; }
};

// Where the weights lie: as in PyTorch's vector, or scattered, to be copied one by one.
enum class Places { Dense, Scattered };

struct State {
  Places places = Places::Dense;
  int network_status = kSuccess, forward_status = kSuccess, data_status = kSuccess, weights_status = kSuccess;
  std::set<int> refused_algorithms;
  std::set<const void*> live;  // descriptors
  int handles = 0, asked = 0, forwards = 0, backwards = 0, weight_grads = 0;
  std::vector<Network> used;  // by forward passes
  std::vector<int> modes;     // of forward passes
  std::vector<const void*> handles_used;
  tapegrad::cuda::StreamHandle stream = nullptr;
};
inline State& state() {
  static auto& it = *new State;
  return it;
}

inline void need(bool condition, const char* what) {
  if (!condition) throw std::logic_error(std::string("cuDNN's double: ") + what);
}

template <class T>
int create_descriptor(void** out) {
  auto* made = new T{};
  state().live.insert(made);
  *out = made;
  return kSuccess;
}
template <class T>
int destroy_descriptor(void* p) {
  need(state().live.erase(p) == 1, "a descriptor is destroyed twice");
  delete static_cast<T*>(p);
  return kSuccess;
}

// Two handles can be told apart.
inline char handle_tags[64];
inline int create(void** handle) {
  may_be_first("cudnnCreate");
  *handle = &handle_tags[state().handles++];
  return kSuccess;
}
inline bool is_handle(void* handle) { return handle >= handle_tags && handle < handle_tags + state().handles; }
inline int set_stream(void* handle, void* stream) {
  state().stream = static_cast<tapegrad::cuda::StreamHandle>(stream);
  return is_handle(handle) ? kSuccess : kBadParameters;
}

inline int set_dropout(void* d, void* handle, float rate, void* states, size_t bytes, unsigned long long) {
  need(is_handle(handle) && states == nullptr && bytes == 0, "dropout");
  static_cast<Dropout*>(d)->rate = rate;
  return kSuccess;
}
inline int set_tensor(void* t, int dtype, int dims, const int* sizes, const int* strides) {
  *static_cast<Shape*>(t) = {dtype, {sizes, sizes + dims}, {strides, strides + dims}};
  return kSuccess;
}
inline int get_tensor(void* t, int most, int* dtype, int* dims, int* sizes, int* strides) {
  const Shape& s = *static_cast<Shape*>(t);
  *dtype = s.dtype;
  *dims = static_cast<int>(s.sizes.size());
  need(*dims <= most, "dimensions");
  std::copy(s.sizes.begin(), s.sizes.end(), sizes);
  std::copy(s.strides.begin(), s.strides.end(), strides);
  return kSuccess;
}
inline int set_data(void* d, int dtype, int layout, int steps, int sequences, int width, const int* lengths,
                    void* padding) {
  need(layout == kPackedLayout && padding == nullptr && width > 0 && sequences > 0, "rows");
  need(lengths[0] == steps && lengths[sequences - 1] > 0, "lengths");
  for (int i = 1; i < sequences; ++i) need(lengths[i] <= lengths[i - 1], "lengths must fall");
  *static_cast<Rows*>(d) = {dtype, steps, width, {lengths, lengths + sequences}};
  return kSuccess;
}
inline int set_network(void* n, int algorithm, int cell, int bias, int direction, int input, int dtype, int precision,
                       int math, int32_t input_size, int32_t hidden, int32_t projected, int32_t layers, void* dropout,
                       uint32_t flags) {
  ++state().asked;
  need(static_cast<Dropout*>(dropout)->rate == 0 && input == kLinearInput && flags == kUnpadded, "options");
  need(cell == kLstmCell || projected == hidden, "only an LSTM projects");
  if (state().network_status != kSuccess) return state().network_status;
  if (state().refused_algorithms.contains(algorithm)) return kNotSupported;
  *static_cast<Network*>(n) = {algorithm, cell,       bias,   direction, dtype, precision,
                               math,      input_size, hidden, projected, layers};
  return kSuccess;
}

inline plain_network::Sizes sizes_of(const Network& n) {
  const int cells[] = {plain_network::kRelu, plain_network::kTanh, plain_network::kLstm, plain_network::kGru};
  return {cells[n.cell], n.bias == kDoubleBias, n.directions(), n.layers, n.input, n.hidden, n.projected};
}
inline size_t bytes_of(int dtype) { return dtype == kDouble ? 8 : dtype == kFloat ? 4 : 2; }

// The first element of a matrix or bias, of the network that has `total` of them in all.
inline int64_t place(const plain_network::Sizes& s, int64_t dense, bool bias, int64_t number) {
  if (state().places == Places::Dense) return dense;
  const int64_t matrices = s.matrix_elements(), biases = s.bias_elements();
  return 2 * number + (bias ? dense - matrices : dense + biases + 200 * s.layers);  // biases first, and gaps
}
inline int64_t total_elements(const plain_network::Sizes& s) {
  const int64_t dense = s.matrix_elements() + s.bias_elements();
  return state().places == Places::Dense ? dense : dense + 600 * s.layers;
}

inline int weight_bytes(void* handle, void* network, size_t* bytes) {
  const Network& n = *static_cast<Network*>(network);
  need(is_handle(handle), "handle");
  *bytes = static_cast<size_t>(total_elements(sizes_of(n))) * bytes_of(n.dtype);
  return kSuccess;
}
inline int find_weight(void* handle, void* network, int32_t at, size_t bytes, const void* weights, int32_t which,
                       void* matrix, void** matrix_at, void* bias, void** bias_at) {
  may_be_first("cudnnGetRNNWeightParams");
  const Network& n = *static_cast<Network*>(network);
  const plain_network::Sizes s = sizes_of(n);
  size_t expected = 0;
  weight_bytes(handle, network, &expected);
  need(weights != nullptr && bytes == expected && matrix != nullptr && bias != nullptr, "weights");
  need(at >= 0 && at < s.layers * s.directions && which >= 0 && which <= 2 * s.gates(), "which weight");
  const auto address = [&](int64_t element) {
    return static_cast<void*>(static_cast<char*>(const_cast<void*>(weights)) +
                              static_cast<size_t>(element) * bytes_of(n.dtype));
  };
  const plain_network::Place m = s.matrix(at, which), b = s.bias(at, which);
  const auto set = [&](void* shape, int64_t rows, int64_t columns) {
    const int sizes[] = {1, static_cast<int>(rows), static_cast<int>(columns)};
    const int strides[] = {sizes[1] * sizes[2], sizes[2], 1};
    set_tensor(shape, n.dtype, 3, sizes, strides);
  };
  *matrix_at = m.rows == 0 ? nullptr : address(place(s, m.offset, false, at * 9 + which));
  *bias_at = b.rows == 0 ? nullptr : address(place(s, b.offset, true, at * 9 + which));
  set(matrix, m.rows, m.columns);
  set(bias, b.rows, 1);
  return kSuccess;
}

// What is kept: the input in double, whether it went through backward_data, then the gradients of the weights.
inline int64_t rows_of(const Rows& x) {
  int64_t rows = 0;
  for (int length : x.lengths) rows += length;
  return rows;
}
inline int temporary_bytes(void* handle, void* network, int mode, void* x, size_t* workspace, size_t* reserve) {
  need(is_handle(handle), "handle");
  const plain_network::Sizes s = sizes_of(*static_cast<Network*>(network));
  *workspace = mode == kTraining ? 48 : 16;
  if (mode == kTraining)
    *reserve = 8 * static_cast<size_t>(1 + rows_of(*static_cast<Rows*>(x)) * s.input + s.matrix_elements() +
                                       s.bias_elements());
  else
    need(reserve == nullptr, "no reserve");
  return kSuccess;
}

inline std::vector<double> load(const void* p, int64_t count, int dtype) {
  std::vector<double> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    switch (dtype) {
      case kDouble:
        out[i] = static_cast<const double*>(p)[i];
        break;
      case kFloat:
        out[i] = static_cast<const float*>(p)[i];
        break;
      case kHalf:
        out[i] = static_cast<float>(static_cast<const tapegrad::Half*>(p)[i]);
        break;
      default:
        out[i] = static_cast<float>(static_cast<const tapegrad::BFloat16*>(p)[i]);
    }
  }
  return out;
}
inline void store(void* p, const std::vector<double>& values, int dtype) {
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case kDouble:
        static_cast<double*>(p)[i] = values[i];
        break;
      case kFloat:
        static_cast<float*>(p)[i] = static_cast<float>(values[i]);
        break;
      case kHalf:
        static_cast<tapegrad::Half*>(p)[i] = tapegrad::Half(static_cast<float>(values[i]));
        break;
      default:
        static_cast<tapegrad::BFloat16*>(p)[i] = tapegrad::BFloat16(static_cast<float>(values[i]));
    }
  }
}

// The weights as one vector, and back.
template <class F>
void each_weight(const plain_network::Sizes& s, F&& f) {  // f(element of the vector, element of the buffer, count)
  for (int64_t at = 0; at < s.layers * s.directions; ++at)
    for (int which = 0; which <= 2 * s.gates(); ++which) {
      const plain_network::Place m = s.matrix(at, which), b = s.bias(at, which);
      if (m.rows > 0) f(m.offset, place(s, m.offset, false, at * 9 + which), m.rows * m.columns);
      if (b.rows > 0) f(b.offset, place(s, b.offset, true, at * 9 + which), b.rows);
    }
}
inline std::vector<double> load_weights(const plain_network::Sizes& s, const void* p, int dtype) {
  std::vector<double> out(static_cast<size_t>(s.matrix_elements() + s.bias_elements()));
  const std::vector<double> all = load(p, total_elements(s), dtype);
  each_weight(
      s, [&](int64_t to, int64_t from, int64_t count) { std::copy_n(all.begin() + from, count, out.begin() + to); });
  return out;
}

struct Task {
  Network network;
  plain_network::Sizes sizes;
  std::vector<int> lengths;
  int64_t rows, states;
  int dtype;
  bool recorded = false;  // by a capture; computes nothing
  std::optional<tapegrad::cuda::simulated::HostAccess> access;

  Task(void* handle, void* n, const int32_t* device_lengths, void* x, void* y, void* h, void* c, size_t bytes,
       const void* weights, size_t workspace_bytes, const void* workspace, int mode)
      : network(*static_cast<Network*>(n)),
        sizes(sizes_of(network)),
        lengths(static_cast<Rows*>(x)->lengths),
        rows(rows_of(*static_cast<Rows*>(x))),
        states(sizes.layers * sizes.directions * static_cast<int64_t>(lengths.size())),
        dtype(network.dtype) {
    const Rows &in = *static_cast<Rows*>(x), &out = *static_cast<Rows*>(y);
    const Shape &hs = *static_cast<Shape*>(h), &cs = *static_cast<Shape*>(c);
    state().handles_used.push_back(handle);
    size_t expected = 0, least_bytes = 0, ignored = 0;
    weight_bytes(handle, n, &expected);
    temporary_bytes(handle, n, mode, x, &least_bytes, mode == kTraining ? &ignored : nullptr);
    need(device_lengths == nullptr, "lengths on the device are not read since 8.9");
    need(in.dtype == dtype && out.dtype == dtype && hs.dtype == dtype, "dtypes");
    need(in.width == sizes.input && out.width == sizes.directions * sizes.state && out.lengths == in.lengths, "widths");
    const int n0 = static_cast<int>(sizes.layers * sizes.directions), n1 = static_cast<int>(lengths.size());
    const auto packed = [&](const Shape& s, int64_t width) {
      const int w = static_cast<int>(width);
      return s.sizes == std::vector<int>{n0, n1, w} && s.strides == std::vector<int>{n1 * w, w, 1};
    };
    need(packed(hs, sizes.state) && (network.cell != kLstmCell || packed(cs, sizes.hidden)), "states");
    need(bytes == expected && weights != nullptr, "weights");
    need(workspace_bytes >= least_bytes && workspace != nullptr, "workspace");
    tapegrad::cuda::Driver& driver = tapegrad::cuda::driver();
    recorded = driver.capture_state(state().stream) != tapegrad::cuda::CaptureState::None;
    if (!recorded) access.emplace(state().stream);
  }
  bool lstm() const { return network.cell == kLstmCell; }
};

inline int forward(void* handle, void* network, int mode, const int32_t* device_lengths, void* x_data, const void* x,
                   void* y_data, void* y, void* h, const void* hx, void* hy, void* c, const void* cx, void* cy,
                   size_t bytes, const void* weights, size_t workspace_bytes, void* workspace, size_t reserve_bytes,
                   void* reserve) {
  may_be_first("cudnnRNNForward");
  const Task t(handle, network, device_lengths, x_data, y_data, h, c, bytes, weights, workspace_bytes, workspace, mode);
  ++state().forwards;
  state().used.push_back(t.network);
  state().modes.push_back(mode);
  if (state().forward_status != kSuccess) return state().forward_status;
  need((cx != nullptr) == t.lstm() && (cy != nullptr) == t.lstm(), "states of cells");
  size_t ignored = 0, kept = 0;
  if (mode == kTraining) temporary_bytes(handle, network, mode, x_data, &ignored, &kept);
  need(reserve_bytes == kept && (mode == kTraining) == (reserve != nullptr), "reserve");
  if (t.recorded) return kSuccess;
  plain_network::Values v(t.sizes, t.lengths);
  v.x = load(x, t.rows * t.sizes.input, t.dtype);
  v.weights = load_weights(t.sizes, weights, t.dtype);
  v.hx = load(hx, t.states * t.sizes.state, t.dtype);
  if (t.lstm()) v.cx = load(cx, t.states * t.sizes.hidden, t.dtype);
  v.forward();
  store(y, v.y, t.dtype);
  store(hy, v.hy, t.dtype);
  if (t.lstm()) store(cy, v.cy, t.dtype);
  if (mode == kTraining) {
    auto* kept_values = static_cast<double*>(reserve);
    kept_values[0] = 1;
    std::copy(v.x.begin(), v.x.end(), kept_values + 1);
  }
  return kSuccess;
}

inline int backward_data(void* handle, void* network, const int32_t* device_lengths, void* y_data, const void* y,
                         const void* dy, void* x_data, void* dx, void* h, const void* hx, const void* dhy, void* dhx,
                         void* c, const void* cx, const void* dcy, void* dcx, size_t bytes, const void* weights,
                         size_t workspace_bytes, void* workspace, size_t, void* reserve) {
  may_be_first("cudnnRNNBackwardData_v8");
  const Task t(handle, network, device_lengths, x_data, y_data, h, c, bytes, weights, workspace_bytes, workspace,
               kTraining);
  ++state().backwards;
  if (state().data_status != kSuccess) return state().data_status;
  need(y != nullptr && dy != nullptr && dx != nullptr && dhy != nullptr && dhx != nullptr, "gradients");
  need((dcy != nullptr) == t.lstm() && (dcx != nullptr) == t.lstm(), "gradients of cells");
  if (t.recorded) return kSuccess;
  auto* kept = static_cast<double*>(reserve);
  need(kept[0] == 1, "what was kept is used once");
  plain_network::Values v(t.sizes, t.lengths);
  v.x.assign(kept + 1, kept + 1 + t.rows * t.sizes.input);
  v.weights = load_weights(t.sizes, weights, t.dtype);
  v.hx = load(hx, t.states * t.sizes.state, t.dtype);
  if (t.lstm()) v.cx = load(cx, t.states * t.sizes.hidden, t.dtype);
  v.forward();
  v.backward(load(dy, static_cast<int64_t>(v.y.size()), t.dtype), load(dhy, t.states * t.sizes.state, t.dtype),
             t.lstm() ? load(dcy, t.states * t.sizes.hidden, t.dtype) : std::vector<double>());
  store(dx, v.dx, t.dtype);
  store(dhx, v.dhx, t.dtype);
  if (t.lstm()) store(dcx, v.dcx, t.dtype);
  kept[0] = 2;
  std::copy(v.dweights.begin(), v.dweights.end(), kept + 1 + v.x.size());
  return kSuccess;
}

inline int backward_weights(void* handle, void* network, int mode, const int32_t* device_lengths, void* x_data,
                            const void* x, void* h, const void* hx, void* y_data, const void* y, size_t bytes,
                            void* dweights, size_t workspace_bytes, void* workspace, size_t, void* reserve) {
  may_be_first("cudnnRNNBackwardWeights_v8");
  Shape cells = *static_cast<Shape*>(h);
  const auto* n = static_cast<Network*>(network);
  cells.sizes[2] = n->hidden;
  cells.strides = {cells.sizes[1] * n->hidden, n->hidden, 1};
  const Task t(handle, network, device_lengths, x_data, y_data, h, &cells, bytes, dweights, workspace_bytes, workspace,
               kTraining);
  ++state().weight_grads;
  if (state().weights_status != kSuccess) return state().weights_status;
  need(mode == kAddGradients && hx != nullptr && y != nullptr, "weights' gradient");
  if (t.recorded) return kSuccess;
  auto* kept = static_cast<double*>(reserve);
  const int64_t inputs = t.rows * t.sizes.input;
  need(kept[0] == 2, "first the data's gradient");
  need(std::vector<double>(kept + 1, kept + 1 + inputs) == load(x, inputs, t.dtype), "the input of the forward pass");
  std::vector<double> all = load(dweights, total_elements(t.sizes), t.dtype);
  each_weight(t.sizes, [&](int64_t from, int64_t to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      need(all[static_cast<size_t>(to + i)] == 0, "the gradient is added to zeros");
      all[static_cast<size_t>(to + i)] += kept[1 + inputs + from + i];
    }
  });
  store(dweights, all, t.dtype);
  return kSuccess;
}

inline const Functions* functions() {
  static const Functions all{{create, set_stream, error_string, last_error},
                             create_descriptor<Dropout>,
                             destroy_descriptor<Dropout>,
                             set_dropout,
                             create_descriptor<Shape>,
                             destroy_descriptor<Shape>,
                             set_tensor,
                             get_tensor,
                             create_descriptor<Rows>,
                             destroy_descriptor<Rows>,
                             set_data,
                             create_descriptor<Network>,
                             destroy_descriptor<Network>,
                             set_network,
                             weight_bytes,
                             find_weight,
                             temporary_bytes,
                             forward,
                             backward_data,
                             backward_weights};
  return &all;
}
inline const Functions* no_functions() { return nullptr; }

}  // namespace cudnn_networks_double
