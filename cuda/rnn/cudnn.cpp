// Recurrent networks by cuDNN: all layers and both directions in one call, forward and back, so that it overlaps
// layers. Sequences of one length and packed ones are one case: our rows are its packed layout. Descriptors are kept
// per sizes and lengths, kMostPlans of them per device. Its standard algorithm has the same bits in every run; with
// backends.cudnn.benchmark, unless reproducible results are required, the persistent one is measured against it.
// Networks that it refuses are computed by our own kernels (aten/rnn/network_library.h).
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/launch.h"
#include "tapegrad/cuda/libraries/plan_cache.h"
#include "tapegrad/cuda/rnn/cudnn_layout.h"
#include "tapegrad/cuda/runtime/per_device.h"

namespace tapegrad::cuda {

namespace cudnn_rnn {
namespace {

using tapegrad::rnn::Cell;
using tapegrad::rnn::Method;
using tapegrad::rnn::Piece;
using tapegrad::rnn::Refused;

constexpr size_t kMostPlans = 512;

std::atomic<const Functions* (*)()> find_functions{nullptr};

const Functions* find() {
  const auto functions = find_functions.load(std::memory_order_acquire);
  return functions == nullptr ? nullptr : functions();
}
const Functions& api() { return *find(); }

void check(int status, const char* call) { cudnn_calls::check(api(), status, call); }

// It said that it does not do this; other failures are raised.
bool is_unsupported(const Refusal& refusal) {
  return category(refusal.status) == kBadParameters || category(refusal.status) == kNotSupported;
}

template <auto kCreate, auto kDestroy>
class Descriptor {
 public:
  Descriptor() { check((api().*kCreate)(&handle_), "cudnnCreate...Descriptor"); }
  ~Descriptor() { (void)(api().*kDestroy)(handle_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator void*() const { return handle_; }

 private:
  void* handle_ = nullptr;
};
using DropoutDescriptor = Descriptor<&Functions::create_dropout, &Functions::destroy_dropout>;
using TensorDescriptor = Descriptor<&Functions::create_tensor, &Functions::destroy_tensor>;
using DataDescriptor = Descriptor<&Functions::create_data, &Functions::destroy_data>;
using NetworkDescriptor = Descriptor<&Functions::create_network, &Functions::destroy_network>;

void set_states(const TensorDescriptor& tensor, const NetworkCall& c, int64_t width) {
  const int n = static_cast<int>(c.batch_sizes[0]), count = static_cast<int>(c.sizes.layers * c.sizes.directions());
  const int sizes[] = {count, n, static_cast<int>(width)}, strides[] = {n * sizes[2], sizes[2], 1};
  check(api().set_tensor(tensor, data_type(c.dtype), 3, sizes, strides), "cudnnSetTensorNdDescriptor");
}

struct Plan {
  NetworkSizes sizes;
  int64_t itemsize;
  DropoutDescriptor no_dropout;
  NetworkDescriptor network;
  DataDescriptor x, y;
  TensorDescriptor h, c;
  size_t weight_bytes = 0, workspace[2] = {}, reserve = 0;  // workspace: by ForwardMode
  std::vector<Run> runs;

  Plan(void* handle, const NetworkCall& call, const PlanConfig& config)
      : sizes(call.sizes), itemsize(static_cast<int64_t>(element_size(call.dtype))) {
    const NetworkSizes& s = sizes;
    const DataType dtype = data_type(call.dtype);
    const auto small = [](int64_t size) { return static_cast<int32_t>(size); };  // accepts() has looked
    check(api().set_dropout(no_dropout, handle, 0, nullptr, 0, 0), "cudnnSetDropoutDescriptor");
    check(api().set_network(network, config.algorithm, cell_mode(s.cell), s.biases ? kDoubleBias : kNoBias,
                            s.bidirectional ? kBothDirections : kOneDirection, kLinearInput, dtype,
                            dtype == kDouble ? kDouble : kFloat, math_type(call.dtype, config.tf32), small(s.input),
                            small(s.hidden), small(s.state), small(s.layers), no_dropout, kUnpadded),
          "cudnnSetRNNDescriptor_v8");
    const std::vector<int> lengths = lengths_of(call.batch_sizes);
    const int n = small(call.batch_sizes[0]), out = small(s.directions() * s.state);
    const auto set_rows = [&](const DataDescriptor& data, int width) {
      check(api().set_data(data, dtype, kPackedLayout, lengths[0], n, width, lengths.data(), nullptr),
            "cudnnSetRNNDataDescriptor");
    };
    set_rows(x, small(s.input));
    set_rows(y, out);
    set_states(h, call, s.state);
    set_states(c, call, s.hidden);
    check(api().weight_bytes(handle, network, &weight_bytes), "cudnnGetRNNWeightSpaceSize");
    check(api().temporary_bytes(handle, network, kInference, x, &workspace[kInference], nullptr),
          "cudnnGetRNNTempSpaceSizes");
    check(api().temporary_bytes(handle, network, kTraining, x, &workspace[kTraining], &reserve),
          "cudnnGetRNNTempSpaceSizes");
  }

  // Where its buffer, of which this is one, has our weights.
  void find_weights(void* handle, const void* buffer) {
    const TensorDescriptor matrix, bias;
    for (const Piece& piece : rnn::pieces_of(sizes)) {
      const bool is_bias = rnn::is_bias(piece.part);
      const int64_t gates = piece.part == rnn::Part::Projection ? 1 : rnn::gate_count(sizes.cell);
      const int64_t count = piece.rows / gates * piece.columns;
      for (int64_t gate = 0; gate < gates; ++gate) {
        void *matrix_at = nullptr, *bias_at = nullptr;
        const int which = first_matrix(piece.part, rnn::gate_count(sizes.cell)) + static_cast<int>(gate);
        check(api().find_weight(handle, network, static_cast<int32_t>(piece.at), weight_bytes, buffer, which, matrix,
                                &matrix_at, bias, &bias_at),
              "cudnnGetRNNWeightParams");
        const void* at = is_bias ? bias_at : matrix_at;
        const int64_t offset = static_cast<const char*>(at) - static_cast<const char*>(buffer);
        // Of another size, or elsewhere: a layout that is not known here.
        if (at == nullptr || numel(is_bias ? bias : matrix) != count || offset < 0 || offset % itemsize != 0 ||
            offset + count * itemsize > static_cast<int64_t>(weight_bytes))
          throw Refusal{kNotSupported, "cudnnGetRNNWeightParams", "another layout of weights"};
        add_run(runs, {piece.offset + gate * count, offset / itemsize, count});
      }
    }
  }
  // Whether its buffer is our vector.
  bool same_layout() const {
    return runs.size() == 1 && runs[0].ours == 0 && runs[0].theirs == 0 &&
           static_cast<int64_t>(weight_bytes) <= runs[0].count * itemsize;
  }
  size_t copied_bytes() const { return same_layout() ? 0 : weight_bytes; }

  void copy_weights(const Stream& stream, const void* ours, void* theirs) const {
    for (const Run& run : runs)
      copy(stream, static_cast<char*>(theirs) + run.theirs * itemsize,
           static_cast<const char*>(ours) + run.ours * itemsize, run.count);
  }
  void copy_back(const Stream& stream, void* ours, const void* theirs) const {
    for (const Run& run : runs)
      copy(stream, static_cast<char*>(ours) + run.ours * itemsize,
           static_cast<const char*>(theirs) + run.theirs * itemsize, run.count);
  }

 private:
  void copy(const Stream& stream, void* to, const void* from, int64_t count) const {
    driver().copy(to, from, static_cast<size_t>(count * itemsize), CopyKind::DeviceToDevice, stream.handle);
  }
  static int64_t numel(const TensorDescriptor& tensor) {
    int dtype = 0, dims = 0, sizes[8] = {}, strides[8] = {};
    check(api().get_tensor(tensor, 8, &dtype, &dims, sizes, strides), "cudnnGetTensorNdDescriptor");
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= sizes[d];
    return n;
  }
};
using SharedPlan = std::shared_ptr<Plan>;

struct Forward {
  const void *x, *hx, *cx, *weights;
  void *y, *hy, *cy, *reserve;
};
struct Backward {
  const void *x, *hx, *cx, *weights, *y, *dy, *dhy, *dcy;
  void *dx, *dhx, *dcx, *dweights, *reserve;  // dweights: null where not wanted
};

// cuDNN on one device. A handle is for one thread at a time; memory is allocated outside of its lock. Streams of the
// library's own take part in a capture until it ends, so work that is captured has a handle of its own.
class Networks {
 public:
  std::optional<Method> choose(const Stream& stream, const NetworkCall& c) {
    PlanConfig config{kStandard, c.dtype == DType::float32 && switched_on(CudnnSwitch::AllowTF32), c.training};
    const bool measured = switched_on(CudnnSwitch::Benchmark) && !switched_on(CudnnSwitch::Deterministic) &&
                          !switched_on(CudnnSwitch::Reproducible) && !captures(stream);
    SharedPlan plan;
    if (measured) {
      config.algorithm = fastest(stream, c, config);
      plan = find_or_make(stream, c, config);
      if (plan == nullptr) config.algorithm = kStandard;
    }
    if (plan == nullptr) plan = find_or_make(stream, c, config);
    if (plan == nullptr) return std::nullopt;
    return Method{config.number(), c.training ? static_cast<int64_t>(plan->reserve) : 0};
  }

  void forward(const Stream& stream, const NetworkCall& c, const PlanConfig& config, size_t reserve, const Forward& f) {
    const SharedPlan plan = require_plan(stream, c, config, reserve);
    run_or_disable(c, config, [&] { forward(stream, *plan, config.training, f); });
  }

  void backward(const Stream& stream, const NetworkCall& c, const PlanConfig& config, size_t reserve,
                const Backward& b) {
    const SharedPlan plan = require_plan(stream, c, config, reserve);
    run_or_disable(c, config, [&] { backward(stream, *plan, b); });
  }

 private:
  static bool captures(const Stream& stream) { return driver().capture_state(stream.handle) != CaptureState::None; }

  // Under the lock.
  void* handle(const Stream& stream) {
    void*& handle = handles_[captures(stream) ? 1 : 0];
    if (handle == nullptr) check(api().create(&handle), "cudnnCreate");
    check(api().set_stream(handle, stream.handle), "cudnnSetStream");
    return handle;
  }

  // Null where cuDNN cannot.
  SharedPlan find_or_make(const Stream& stream, const NetworkCall& c, const PlanConfig& config) {
    const Key key = key_of(c, config);
    {
      const std::lock_guard lock(mutex_);
      if (const SharedPlan* found = plans_.find(key)) return *found;
    }
    SharedPlan plan;
    try {
      plan = make(stream, c, config);
    } catch (const Refusal& refusal) {
      if (!is_unsupported(refusal)) throw;
      plan = nullptr;
    }
    const std::lock_guard lock(mutex_);
    return plans_.put(key, plan);
  }
  SharedPlan make(const Stream& stream, const NetworkCall& c, const PlanConfig& config) {
    SharedPlan plan;
    {
      const std::lock_guard lock(mutex_);
      plan = std::make_shared<Plan>(handle(stream), c, config);
    }
    const Workspace weights(plan->weight_bytes, stream);
    const std::lock_guard lock(mutex_);
    plan->find_weights(handle(stream), weights.data());
    return plan;
  }

  // The plan for what was chosen before. What was kept has its size, or it is not what this plan knows.
  SharedPlan require_plan(const Stream& stream, const NetworkCall& c, const PlanConfig& config, size_t reserve) {
    SharedPlan plan = accepts(c) ? find_or_make(stream, c, config) : nullptr;
    if (plan == nullptr) throw Refused("rnn: cuDNN does not compute this network");
    const size_t expected = config.training ? plan->reserve : 0;
    TG_CHECK(reserve == expected, Runtime, "rnn: cuDNN keeps {} bytes of this network: got {}", expected, reserve);
    return plan;
  }

  // Runs f. If cuDNN refuses only now, the plan is disabled for later calls.
  template <class F>
  void run_or_disable(const NetworkCall& c, const PlanConfig& config, F&& f) {
    try {
      f();
    } catch (const Refusal& refusal) {
      if (!is_unsupported(refusal)) throw;
      const std::lock_guard lock(mutex_);
      plans_.put(key_of(c, config), nullptr);
      throw Refused(fmt::format("rnn: cuDNN does not compute this network: {}: {}", refusal.call, refusal.message));
    }
  }

  void forward(const Stream& stream, const Plan& plan, bool training, const Forward& f) {
    const ForwardMode mode = training ? kTraining : kInference;
    const Workspace workspace(plan.workspace[mode], stream), copied(plan.copied_bytes(), stream);
    const void* weights = f.weights;
    if (!plan.same_layout()) {
      plan.copy_weights(stream, weights, copied.data());
      weights = copied.data();
    }
    const std::lock_guard lock(mutex_);
    check(api().forward(handle(stream), plan.network, mode, nullptr, plan.x, f.x, plan.y, f.y, plan.h, f.hx, f.hy,
                        plan.c, f.cx, f.cy, plan.weight_bytes, weights, workspace.nbytes(), workspace.data(),
                        training ? plan.reserve : 0, f.reserve),
          "cudnnRNNForward");
  }

  void backward(const Stream& stream, const Plan& plan, const Backward& b) {
    const bool same = plan.same_layout(), wanted = b.dweights != nullptr;
    const Workspace workspace(plan.workspace[kTraining], stream), copied(plan.copied_bytes(), stream),
        copied_grads(wanted ? plan.copied_bytes() : 0, stream);
    if (!same) plan.copy_weights(stream, b.weights, copied.data());
    const void* weights = same ? b.weights : copied.data();
    void* dweights = same ? b.dweights : copied_grads.data();
    if (wanted) driver().fill(dweights, 0, plan.weight_bytes, stream.handle);  // it adds
    {
      const std::lock_guard lock(mutex_);
      void* handle = this->handle(stream);
      check(api().backward_data(handle, plan.network, nullptr, plan.y, b.y, b.dy, plan.x, b.dx, plan.h, b.hx, b.dhy,
                                b.dhx, plan.c, b.cx, b.dcy, b.dcx, plan.weight_bytes, weights, workspace.nbytes(),
                                workspace.data(), plan.reserve, b.reserve),
            "cudnnRNNBackwardData_v8");
      if (wanted)
        check(api().backward_weights(handle, plan.network, kAddGradients, nullptr, plan.x, b.x, plan.h, b.hx, plan.y,
                                     b.y, plan.weight_bytes, dweights, workspace.nbytes(), workspace.data(),
                                     plan.reserve, b.reserve),
              "cudnnRNNBackwardWeights_v8");
    }
    if (wanted && !same) plan.copy_back(stream, b.dweights, dweights);
  }

  // The faster algorithm for a forward pass, measured on memory of any values.
  Algorithm fastest(const Stream& stream, const NetworkCall& c, const PlanConfig& like) {
    const Key key = key_of(c, {kStandard, like.tf32, false});
    {
      const std::lock_guard lock(mutex_);
      if (const Algorithm* found = measured_.find(key)) return *found;
    }
    const NetworkSizes& s = c.sizes;
    int64_t rows = 0;
    for (const int64_t size : c.batch_sizes) rows += size;
    const int64_t states = s.layers * s.directions() * c.batch_sizes[0];
    const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements) * element_size(c.dtype); };
    Algorithm best = kStandard;
    std::optional<float> best_time;
    for (const Algorithm algorithm : {kStandard, kPersistStatic}) {
      const SharedPlan plan = find_or_make(stream, c, {algorithm, like.tf32, false});
      if (plan == nullptr) continue;
      const Workspace x(bytes(rows * s.input), stream), y(bytes(rows * s.directions() * s.state), stream),
          h(bytes(states * s.state), stream), cells(bytes(states * s.hidden), stream),
          h_out(bytes(states * s.state), stream), cells_out(bytes(states * s.hidden), stream),
          weights(plan->weight_bytes, stream), reserve(c.training ? plan->reserve : 0, stream);
      const bool lstm = s.cell == Cell::Lstm;
      const Forward f{x.data(), h.data(),     lstm ? cells.data() : nullptr,     weights.data(),
                      y.data(), h_out.data(), lstm ? cells_out.data() : nullptr, reserve.data()};
      try {
        forward(stream, *plan, c.training, f);
        const float time = milliseconds(stream, [&] { forward(stream, *plan, c.training, f); });
        if (!best_time || time < *best_time) {
          best = algorithm;
          best_time = time;
        }
      } catch (const Refusal& refusal) {
        if (!is_unsupported(refusal)) throw;
      }
    }
    const std::lock_guard lock(mutex_);
    return measured_.put(key, best);
  }

  std::mutex mutex_;
  void* handles_[2] = {};
  PlanCache<Key, SharedPlan> plans_{kMostPlans};
  PlanCache<Key, Algorithm> measured_{kMostPlans};
};

std::optional<Method> choose(const NetworkCall& c) {
  if (!switched_on(CudnnSwitch::Enabled) || !accepts(c) || find() == nullptr) return std::nullopt;
  const Work work(c.device);
  try {
    return per_device<Networks>(c.device.index).choose(work, c);
  } catch (const Refusal& refusal) {
    raise(api(), refusal);
  }
}

// What the two rows have in common: the call that was chosen before, and cuDNN's answer to it.
template <class F>
void with_networks(const Tensor& input, const Tensor& hx, const Tensor& cx, IntSpan batch_sizes, int64_t cell,
                   bool biases, int64_t num_layers, bool bidirectional, int64_t method, F&& f) {
  TG_CHECK(find() != nullptr, NotImplemented, "rnn: there is no cuDNN: use rnn_layer");
  TG_CHECK(PlanConfig::valid(method), Runtime, "rnn: cuDNN has no method {}", method);
  const PlanConfig config = PlanConfig::of(method);
  const int64_t state = hx.size(2);
  const NetworkCall call{{static_cast<Cell>(cell), biases, bidirectional, num_layers, input.size(1),
                          cx.defined() ? cx.size(2) : state, state},
                         input.dtype(),
                         input.device(),
                         batch_sizes,
                         config.training};
  try {
    f(per_device<Networks>(input.device().index), call, config);
  } catch (const Refusal& refusal) {
    raise(api(), refusal);
  }
}

void* pointer(const Tensor& t) { return t.defined() && t.numel() > 0 ? t.data_ptr() : nullptr; }

}  // namespace

void use_cudnn(const Functions* (*functions)()) {
  find_functions.store(functions, std::memory_order_release);
  rnn::choose_method.store(functions == nullptr ? nullptr : &choose, std::memory_order_release);
}

}  // namespace cudnn_rnn

void rnn_network_cuda(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& weights,
                      IntSpan batch_sizes, int64_t cell, bool biases, int64_t num_layers, bool bidirectional,
                      int64_t method, int64_t reserve, const Tensor& output, const Tensor& hy, const Tensor& cy,
                      const Tensor& kept) {
  using namespace cudnn_rnn;
  const Work work(input.device(), {&input, &hx, &cx, &weights, &output, &hy, &cy, &kept});
  const Forward f{pointer(input),  pointer(hx), pointer(cx), pointer(weights),
                  pointer(output), pointer(hy), pointer(cy), pointer(kept)};
  with_networks(input, hx, cx, batch_sizes, cell, biases, num_layers, bidirectional, method,
                [&](Networks& networks, const NetworkCall& call, const PlanConfig& config) {
                  networks.forward(work, call, config, static_cast<size_t>(reserve), f);
                });
}

void rnn_network_grad_cuda(const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input,
                           const Tensor& hx, const Tensor& cx, const Tensor& weights, const Tensor& output,
                           const Tensor& kept, IntSpan batch_sizes, int64_t cell, bool biases, int64_t num_layers,
                           bool bidirectional, int64_t method, bool weights_wanted, const Tensor& input_grad,
                           const Tensor& hx_grad, const Tensor& cx_grad, const Tensor& weights_grad) {
  using namespace cudnn_rnn;
  const Work work(input.device(), {&grad_output, &grad_hy, &grad_cy, &input, &hx, &cx, &weights, &output, &kept,
                                   &input_grad, &hx_grad, &cx_grad, &weights_grad});
  const Backward b{pointer(input),   pointer(hx),      pointer(cx),
                   pointer(weights), pointer(output),  pointer(grad_output),
                   pointer(grad_hy), pointer(grad_cy), pointer(input_grad),
                   pointer(hx_grad), pointer(cx_grad), weights_wanted ? pointer(weights_grad) : nullptr,
                   pointer(kept)};
  with_networks(input, hx, cx, batch_sizes, cell, biases, num_layers, bidirectional, method,
                [&](Networks& networks, const NetworkCall& call, const PlanConfig& config) {
                  TG_CHECK(config.training, Runtime, "rnn: what cuDNN computed without a gradient has none: method {}",
                           method);
                  networks.backward(work, call, config, static_cast<size_t>(kept.numel()), b);
                });
}

}  // namespace tapegrad::cuda
