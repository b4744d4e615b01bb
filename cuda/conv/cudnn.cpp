// Convolutions by cuDNN's graph interface. A convolution is a graph of one operation; the library's heuristics give
// configurations of engines for it, best first, from which those are taken out that would round operands or sum in
// another order each time, where that was not asked for. The first that works is kept per shape, kMostPlans of them
// per device; with backends.cudnn.benchmark it is the one that was fastest. The same plan has the same bits in every
// run, so results are reproducible unless algorithms are measured.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tapegrad/c10/cudnn_switches.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/conv/cudnn_api.h"
#include "tapegrad/cuda/conv/cudnn_layout.h"
#include "tapegrad/cuda/libraries/plan_cache.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/runtime/event.h"

namespace tapegrad::cuda {

std::atomic<ConvolutionLibrary> convolution_library{nullptr};

namespace cudnn_graph {
namespace {

constexpr size_t kMostPlans = 512;
constexpr int64_t kMostWorkspace = int64_t{1} << 30;
constexpr int kTimedRuns = 3;
constexpr int64_t kIds[3] = {'x', 'w', 'y'};

std::atomic<const Functions* (*)()> find_functions{nullptr};

const Functions& api() { return *find_functions.load(std::memory_order_acquire)(); }

// A call that cuDNN did not do. What it means is decided by whoever asked for a plan.
struct Refusal {
  int status;
  const char* call;
  std::string message;
  // Not about the library (1000) or the device (5000): another engine, or our own kernel, may do it.
  bool about_this_one() const { return category(status) >= kBadParameters && category(status) < kExecutionFailed; }
};

void check(int status, const char* call) {
  if (TG_LIKELY(status == kSuccess)) return;
  char message[512] = "";
  api().last_error(message, sizeof(message));
  throw Refusal{status, call, message};
}

[[noreturn]] void raise(const Refusal& refusal) {
  TG_CHECK(refusal.status != kDeviceAllocationFailed, OutOfMemory, "cuda: {}: out of memory", refusal.call);
  TG_THROW(Runtime, "cuda: {}: {}{}{} (backends.cudnn.enabled = False goes without it)", refusal.call,
           api().error_string(refusal.status), refusal.message.empty() ? "" : ": ", refusal.message);
}

class Descriptor {
 public:
  explicit Descriptor(DescriptorType type) {
    check(api().create_descriptor(type, &handle_), "cudnnBackendCreateDescriptor");
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Descriptor() {
    if (handle_ != nullptr) (void)api().destroy_descriptor(handle_);
  }
  void* handle() const { return handle_; }

  void set(Attribute attribute, AttributeType type, int64_t count, const void* values) {
    check(api().set(handle_, attribute, type, count, values), "cudnnBackendSetAttribute");
  }
  template <class T>
  void set(Attribute attribute, AttributeType type, const T& value) {
    set(attribute, type, 1, &value);
  }
  void set(Attribute attribute, const Descriptor& other) { set(attribute, kTypeDescriptor, other.handle_); }
  void finalize() { check(api().finalize(handle_), "cudnnBackendFinalize"); }

  int64_t get(Attribute attribute, AttributeType type, int64_t most, void* values) const {
    int64_t count = 0;
    check(api().get(handle_, attribute, type, most, &count, values), "cudnnBackendGetAttribute");
    return count;
  }

 private:
  void* handle_ = nullptr;
};

// What its constructor allocates is not for a graph that some stream captures.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)api().exchange_capture_mode(&mode_); }
  ~RelaxedCapture() { (void)api().exchange_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_ = 2;  // relaxed
};

DataType data_type(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return kHalf;
    case DType::bfloat16:
      return kBfloat16;
    case DType::float64:
      return kDouble;
    default:
      return kFloat;
  }
}

Descriptor tensor(const Convolution& c, Wanted part, int64_t id, const void* data) {
  const Layout layout = layout_of(c.sizes, part, c.channels_last);
  Descriptor out(kTensor);
  out.set(kTensorDataType, kTypeDataType, data_type(c.dtype));
  out.set(kTensorSizes, kTypeInt64, layout.dims, layout.sizes);
  out.set(kTensorStrides, kTypeInt64, layout.dims, layout.strides);
  out.set(kTensorId, kTypeInt64, id);
  out.set(kTensorAlignment, kTypeInt64, alignment(data));
  out.finalize();
  return out;
}

// The parameters; sums are kept in float64 for float64 and in float32 otherwise. How many groups there are, cuDNN sees
// from the channels of input and weight.
Descriptor parameters(const Convolution& c) {
  const conv::Geometry& g = c.sizes;
  const int64_t dims = spatial_dims(g);
  int64_t dilation[3], stride[3], before[3], behind[3];
  for (int d = 0; d < dims; ++d) {
    const int at = geometry_dim(g, d);
    dilation[d] = g.dilation[at];
    stride[d] = g.stride[at];
    before[d] = g.pad[at];
    (void)padding_behind(g, at, behind[d]);  // accepts() has looked
  }
  Descriptor out(kConvolution);
  out.set(kConvolutionComputeType, kTypeDataType, c.dtype == DType::float64 ? kDouble : kFloat);
  out.set(kConvolutionMode, kTypeConvolutionMode, kCrossCorrelation);
  out.set(kConvolutionSpatialDims, kTypeInt64, dims);
  out.set(kConvolutionDilations, kTypeInt64, dims, dilation);
  out.set(kConvolutionStrides, kTypeInt64, dims, stride);
  out.set(kConvolutionPaddingBefore, kTypeInt64, dims, before);
  out.set(kConvolutionPaddingBehind, kTypeInt64, dims, behind);
  out.finalize();
  return out;
}

struct OperationAttributes {
  DescriptorType type;
  Attribute x, w, y, convolution, alpha, beta;
};
constexpr OperationAttributes kOperations[] = {
    {kOperationForward, kForwardX, kForwardW, kForwardY, kForwardConvolution, kForwardAlpha, kForwardBeta},
    {kOperationInputGrad, kInputGradX, kInputGradW, kInputGradY, kInputGradConvolution, kInputGradAlpha,
     kInputGradBeta},
    {kOperationWeightGrad, kWeightGradX, kWeightGradW, kWeightGradY, kWeightGradConvolution, kWeightGradAlpha,
     kWeightGradBeta}};

// The graph of one operation, and all that it was made from.
struct Graph {
  Descriptor x, w, y, of, operation, graph{kOperationGraph};

  Graph(void* handle, const Convolution& c)
      : x(tensor(c, Wanted::Input, kIds[0], c.x)),
        w(tensor(c, Wanted::Weight, kIds[1], c.w)),
        y(tensor(c, Wanted::Output, kIds[2], c.y)),
        of(parameters(c)),
        operation(kOperations[static_cast<int>(c.wanted)].type) {
    const OperationAttributes& at = kOperations[static_cast<int>(c.wanted)];
    operation.set(at.x, x);
    operation.set(at.w, w);
    operation.set(at.y, y);
    operation.set(at.convolution, of);
    if (c.dtype == DType::float64) {
      operation.set(at.alpha, kTypeDouble, 1.0);
      operation.set(at.beta, kTypeDouble, 0.0);
    } else {
      operation.set(at.alpha, kTypeFloat, 1.0f);
      operation.set(at.beta, kTypeFloat, 0.0f);
    }
    operation.finalize();
    graph.set(kGraphHandle, kTypeHandle, handle);
    graph.set(kGraphOperations, operation);
    graph.finalize();
  }
};

// Whether an engine computes what was asked for: float32 in float32 unless TF32 may be, sums never in 16 bits, the
// same order each time.
bool fits(const Descriptor& config, DType dtype, const Choice& choice) {
  const Descriptor engine(kEngine);
  void* into = engine.handle();
  (void)config.get(kEngineConfigEngine, kTypeDescriptor, 1, &into);
  int notes[kMostNotes] = {};
  const int64_t count = engine.get(kEngineNumericalNote, kTypeNumericalNote, kMostNotes, notes);
  for (int64_t i = 0; i < count; ++i) {
    if (notes[i] == kNoteReducedPrecisionReduction || notes[i] == kNoteDownConvertInputs) return false;
    if (notes[i] == kNoteNondeterministic && choice.deterministic) return false;
    if (notes[i] == kNoteTensorCore && dtype == DType::float32 && !choice.tf32) return false;
  }
  return true;
}

void add_configurations(std::vector<Descriptor>& to, const Descriptor& graph, HeuristicMode mode, DType dtype,
                        const Choice& choice) {
  Descriptor heuristics(kHeuristics);
  heuristics.set(kHeuristicsGraph, graph);
  heuristics.set(kHeuristicsMode, kTypeHeuristicMode, mode);
  heuristics.finalize();
  const int64_t most = heuristics.get(kHeuristicsResults, kTypeDescriptor, 0, nullptr);
  std::vector<Descriptor> all;
  std::vector<void*> handles;
  for (int64_t i = 0; i < most; ++i) handles.push_back(all.emplace_back(kEngineConfig).handle());
  if (most == 0) return;
  const int64_t count = heuristics.get(kHeuristicsResults, kTypeDescriptor, most, handles.data());
  for (int64_t i = 0; i < std::min(count, most); ++i)
    if (fits(all[i], dtype, choice)) to.push_back(std::move(all[i]));
}

// Ways to compute a graph, the best first; empty where cuDNN cannot.
struct Candidates {
  std::optional<Graph> graph;
  std::vector<Descriptor> configurations;
};

struct Plan {
  Descriptor configuration, descriptor{kExecutionPlan};
  explicit Plan(Descriptor of) : configuration(std::move(of)) {}
  int64_t workspace = 0;
  bool captured = false;  // by some graph, which needs it as long as the graph lives
};
using SharedPlan = std::shared_ptr<Plan>;

// cuDNN on one device. A handle is for one thread at a time; memory is allocated outside of its lock.
class Convolutions {
 public:
  // The current device is the one that this object is for.
  Convolutions() {
    const RelaxedCapture relaxed;
    check(api().create(&handle_), "cudnnCreate");
  }

  bool run(const Stream& stream, const Convolution& c, Choice choice) {
    const bool capturing = driver().capture_state(stream.handle) != CaptureState::None;
    choice.measured = choice.measured && !capturing;  // which waits
    const Key key = key_of(c, choice);
    std::optional<SharedPlan> plan = find(key);
    if (!plan) {
      plan = choose(stream, c, choice);  // computes it, too
      const std::lock_guard lock(mutex_);
      plans_.put(key, *plan);
    } else if (*plan != nullptr) {
      execute(stream, c, **plan);
    }
    if (*plan != nullptr && capturing) keep(*plan);
    return *plan != nullptr;
  }

 private:
  std::optional<SharedPlan> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const SharedPlan* plan = plans_.find(key);
    return plan == nullptr ? std::nullopt : std::optional(*plan);
  }

  Candidates candidates(const Convolution& c, const Choice& choice) {
    const std::lock_guard lock(mutex_);
    const RelaxedCapture relaxed;
    Candidates out;
    try {
      out.graph.emplace(handle_, c);
      for (const HeuristicMode mode : {kHeuristicA, kHeuristicFallback}) {
        try {
          add_configurations(out.configurations, out.graph->graph, mode, c.dtype, choice);
        } catch (const Refusal& refusal) {  // a mode may not know a graph that the other does
          if (!refusal.about_this_one()) throw;
        }
      }
    } catch (const Refusal& refusal) {
      if (!refusal.about_this_one() || category(refusal.status) == kInternal) throw;
    }
    return out;
  }

  // Null where the engine cannot do it after all.
  SharedPlan build(Descriptor configuration) {
    const std::lock_guard lock(mutex_);
    const RelaxedCapture relaxed;
    try {
      auto plan = std::make_shared<Plan>(std::move(configuration));
      plan->descriptor.set(kPlanHandle, kTypeHandle, handle_);
      plan->descriptor.set(kPlanEngineConfig, plan->configuration);
      plan->descriptor.finalize();
      (void)plan->descriptor.get(kPlanWorkspace, kTypeInt64, 1, &plan->workspace);
      return plan->workspace > kMostWorkspace ? nullptr : plan;
    } catch (const Refusal& refusal) {
      if (!refusal.about_this_one()) throw;
      return nullptr;
    }
  }

  void execute(const Stream& stream, const Convolution& c, const Plan& plan) {
    const Workspace workspace(static_cast<size_t>(plan.workspace), stream);
    const void* const pointers[3] = {c.x, c.w, c.y};
    const std::lock_guard lock(mutex_);
    check(api().set_stream(handle_, stream.handle), "cudnnSetStream");
    Descriptor pack(kVariantPack);
    pack.set(kPackIds, kTypeInt64, 3, kIds);
    pack.set(kPackPointers, kTypePointer, 3, pointers);
    pack.set(kPackWorkspace, kTypePointer, workspace.data());
    pack.finalize();
    check(api().execute(handle_, plan.descriptor.handle(), pack.handle()), "cudnnBackendExecute");
  }
  // False where the engine says only now that it cannot.
  bool try_execute(const Stream& stream, const Convolution& c, const Plan& plan) {
    try {
      execute(stream, c, plan);
      return true;
    } catch (const Refusal& refusal) {
      if (!refusal.about_this_one()) throw;
      return false;
    }
  }

  // The plan for a convolution, which has been computed with it; null where cuDNN has none.
  SharedPlan choose(const Stream& stream, const Convolution& c, const Choice& choice) {
    SharedPlan best;
    float best_time = 0;
    int tried = 0;
    Candidates all = candidates(c, choice);
    for (Descriptor& configuration : all.configurations) {
      SharedPlan plan = build(std::move(configuration));
      if (plan == nullptr || !try_execute(stream, c, *plan)) continue;
      if (!choice.measured) return plan;
      const float time = milliseconds(stream, c, *plan);
      if (best == nullptr || time < best_time) {
        best = std::move(plan);
        best_time = time;
      }
      if (++tried == choice.limit) break;
    }
    // The last one that was measured has written the result, and not every engine has the same bits.
    if (best != nullptr) execute(stream, c, *best);
    return best;
  }

  float milliseconds(const Stream& stream, const Convolution& c, const Plan& plan) {
    Event start(kEventTiming), end(kEventTiming);
    start.record(stream);
    for (int i = 0; i < kTimedRuns; ++i) execute(stream, c, plan);
    end.record(stream);
    driver().synchronize_event(end.handle());
    return start.elapsed_ms(end);
  }

  // A graph refers to the plan's kernels for as long as it is replayed, whatever becomes of the cache.
  void keep(const SharedPlan& plan) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(plan->captured, true)) captured_.push_back(plan);
  }

  std::mutex mutex_;
  void* handle_ = nullptr;
  PlanCache<Key, SharedPlan> plans_{kMostPlans};
  std::vector<SharedPlan> captured_;
};

Convolutions& convolutions_of(int device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, Convolutions>;
  const std::lock_guard lock(mutex);
  return all[device];
}

bool switched_on(CudnnSwitch which) { return cudnn_switch(which) != 0; }

bool cudnn_convolution(const Stream& stream, const Convolution& c) {
  if (!switched_on(CudnnSwitch::Enabled) || !accepts(c)) return false;
  if (find_functions.load(std::memory_order_acquire)() == nullptr) return false;
  Choice choice;
  choice.measured = switched_on(CudnnSwitch::Benchmark);
  choice.limit = cudnn_switch(CudnnSwitch::BenchmarkLimit);
  choice.deterministic =
      !choice.measured || switched_on(CudnnSwitch::Deterministic) || switched_on(CudnnSwitch::Reproducible);
  choice.tf32 = c.dtype == DType::float32 && switched_on(CudnnSwitch::AllowTF32);
  try {
    return convolutions_of(stream.device).run(stream, c, choice);
  } catch (const Refusal& refusal) {
    raise(refusal);
  }
}

}  // namespace

void use_cudnn(const Functions* (*functions)()) {
  find_functions.store(functions, std::memory_order_release);
  convolution_library.store(functions == nullptr ? nullptr : &cudnn_convolution, std::memory_order_release);
}

}  // namespace cudnn_graph
}  // namespace tapegrad::cuda
