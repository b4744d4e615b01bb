#include "tapegrad/cuda/cudnn/graph.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "tapegrad/cuda/libraries/plan_cache.h"
#include "tapegrad/cuda/memory/storage.h"

namespace tapegrad::cuda::cudnn_graph {
namespace {

constexpr size_t kMostPlans = 512;
constexpr int64_t kMostWorkspace = int64_t{1} << 30;

std::atomic<const Functions* (*)()> find_functions{nullptr};

const Functions& api() { return *find_functions.load(std::memory_order_acquire)(); }

void check(int status, const char* call) { cudnn_calls::check(api(), status, call); }

// Whether an engine satisfies the requirements: float32 in float32 unless TF32 is allowed, sums never in 16 bits, a
// fixed order of summation.
bool fits(const Descriptor& config, DType dtype, const Choice& choice) {
  const Descriptor engine(kEngine);
  void* into = engine.handle();
  (void)config.get(kEngineConfigEngine, kTypeDescriptor, 1, &into);
  int notes[kMostNotes] = {};
  const int64_t count = engine.get(kEngineNumericalNote, kTypeNumericalNote, kMostNotes, notes);
  for (int64_t i = 0; i < count; ++i) {
    if (notes[i] == kNoteReducedPrecisionReduction || notes[i] == kNoteDownConvertInputs) return false;
    if (notes[i] == kNoteNondeterministic && choice.deterministic) return false;
    if (notes[i] == kNoteFft && !choice.fft) return false;
    if (notes[i] == kNoteTensorCore && dtype == DType::float32 && !choice.tf32) return false;
  }
  return true;
}

void add_configurations(std::vector<Descriptor>& to, const Descriptor& graph, HeuristicMode mode, DType dtype,
                        const Choice& choice, const Descriptor* device) {
  Descriptor heuristics(kHeuristics);
  heuristics.set(kHeuristicsGraph, graph);
  heuristics.set(kHeuristicsMode, kTypeHeuristicMode, mode);
  if (device != nullptr) heuristics.set(kHeuristicsDevice, *device);
  heuristics.finalize();
  const int64_t most = heuristics.get(kHeuristicsResults, kTypeDescriptor, 0, nullptr);
  std::vector<Descriptor> all;
  std::vector<void*> handles;
  for (int64_t i = 0; i < most; ++i) handles.push_back(all.emplace_back(kEngineConfig).handle());
  if (most == 0) return;
  const int64_t count = heuristics.get(kHeuristicsResults, kTypeDescriptor, most, handles.data());
  for (int64_t i = 0; i < std::min(count, most); ++i)
    if (fits(all[static_cast<size_t>(i)], dtype, choice)) to.push_back(std::move(all[static_cast<size_t>(i)]));
}

// Ways to compute a graph, the best first; empty where cuDNN cannot.
struct Candidates {
  Graph parts;
  std::optional<Descriptor> graph;
  std::vector<Descriptor> configurations;
};

struct Plan {
  Descriptor configuration, descriptor;
  int64_t workspace;
  bool captured = false;  // by some graph, which needs it as long as the graph lives
};
using SharedPlan = std::shared_ptr<Plan>;

// cuDNN on one device. A handle is for one thread at a time; memory is allocated outside of its lock.
class OnDevice {
 public:
  // The current device must be this object's.
  OnDevice() { check(api().create(&handle_), "cudnnCreate"); }

  bool run(const Stream& stream, const Task& task) {
    const bool capturing = driver().capture_state(stream.handle) != CaptureState::None;
    Choice choice = task.choice;
    choice.measured = choice.measured && !capturing;  // which waits
    if (!choice.measured) choice.limit = 0;
    const auto key = std::pair(choice, task.key);
    std::optional<SharedPlan> plan = find(key);
    if (!plan) {
      plan = choose(stream, task, choice);  // computes it, too
      const std::lock_guard lock(mutex_);
      plans_.put(key, *plan);
    } else if (*plan != nullptr) {
      execute(stream, task, **plan);
    }
    if (*plan != nullptr && capturing) keep(*plan);
    return *plan != nullptr;
  }

 private:
  using PlanKey = std::pair<Choice, Key>;

  std::optional<SharedPlan> find(const PlanKey& key) {
    const std::lock_guard lock(mutex_);
    const SharedPlan* plan = plans_.find(key);
    return plan == nullptr ? std::nullopt : std::optional(*plan);
  }

  Candidates candidates(const Task& task, const Choice& choice) {
    const std::lock_guard lock(mutex_);
    Candidates out;
    try {
      task.describe(out.parts);
      out.graph.emplace(out.parts.finish(handle_));
      out.configurations = configurations(*out.graph, task.dtype, choice);
    } catch (const Refusal& refusal) {
      if (!refusal.is_recoverable() || category(refusal.status) == kInternal) throw;
    }
    return out;
  }

  // Null where the engine cannot do it after all.
  SharedPlan build(Descriptor configuration) {
    const std::lock_guard lock(mutex_);
    try {
      int64_t workspace = 0;
      Descriptor plan = plan_of(configuration, handle_, nullptr, workspace);
      if (workspace > kMostWorkspace) return nullptr;
      return std::make_shared<Plan>(Plan{std::move(configuration), std::move(plan), workspace});
    } catch (const Refusal& refusal) {
      if (!refusal.is_recoverable()) throw;
      return nullptr;
    }
  }

  void execute(const Stream& stream, const Task& task, const Plan& plan) {
    const Workspace workspace(static_cast<size_t>(plan.workspace), stream);
    const std::lock_guard lock(mutex_);
    const RelaxedCapture relaxed;  // once for all of these calls
    check(api().set_stream(handle_, stream.handle), "cudnnSetStream");
    Descriptor pack(kVariantPack);
    pack.set(kPackIds, kTypeInt64, task.count, task.ids);
    pack.set(kPackPointers, kTypePointer, task.count, task.pointers);
    pack.set(kPackWorkspace, kTypePointer, workspace.data());
    pack.finalize();
    check(api().execute(handle_, plan.descriptor.handle(), pack.handle()), "cudnnBackendExecute");
  }
  // False if the engine reports only now that it is not supported.
  bool try_execute(const Stream& stream, const Task& task, const Plan& plan) {
    try {
      execute(stream, task, plan);
      return true;
    } catch (const Refusal& refusal) {
      if (!refusal.is_recoverable()) throw;
      return false;
    }
  }

  // The plan for a task, which has been computed with it; null where cuDNN has none.
  SharedPlan choose(const Stream& stream, const Task& task, const Choice& choice) {
    SharedPlan best;
    float best_time = 0;
    int tried = 0;
    Candidates all = candidates(task, choice);
    for (Descriptor& configuration : all.configurations) {
      SharedPlan plan = build(std::move(configuration));
      if (plan == nullptr || !try_execute(stream, task, *plan)) continue;
      if (!choice.measured) return plan;
      const float time = milliseconds(stream, [&] { execute(stream, task, *plan); });
      if (best == nullptr || time < best_time) {
        best = std::move(plan);
        best_time = time;
      }
      if (++tried == choice.limit) break;
    }
    // The last one that was measured has written the result, and not every engine has the same bits.
    if (best != nullptr) execute(stream, task, *best);
    return best;
  }

  // A graph refers to the plan's kernels for as long as it is replayed, whatever becomes of the cache.
  void keep(const SharedPlan& plan) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(plan->captured, true)) captured_.push_back(plan);
  }

  std::mutex mutex_;
  void* handle_ = nullptr;
  PlanCache<PlanKey, SharedPlan> plans_{kMostPlans};
  std::vector<SharedPlan> captured_;
};

OnDevice& on_device(int device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, OnDevice>;
  const std::lock_guard lock(mutex);
  return all[device];
}

}  // namespace

void use_cudnn(const Functions* (*functions)()) { find_functions.store(functions, std::memory_order_release); }

bool available() {
  const auto find = find_functions.load(std::memory_order_acquire);
  return find != nullptr && switched_on(CudnnSwitch::Enabled) && find() != nullptr;
}

int version() { return static_cast<int>(api().version()); }

Descriptor::Descriptor(DescriptorType type) {
  check(api().create_descriptor(type, &handle_), "cudnnBackendCreateDescriptor");
}
Descriptor::~Descriptor() {
  if (handle_ != nullptr) (void)api().destroy_descriptor(handle_);
}
void Descriptor::set(Attribute attribute, AttributeType type, int64_t count, const void* values) {
  check(api().set(handle_, attribute, type, count, values), "cudnnBackendSetAttribute");
}
void Descriptor::finalize() { check(api().finalize(handle_), "cudnnBackendFinalize"); }
int64_t Descriptor::get(Attribute attribute, AttributeType type, int64_t most, void* values) const {
  int64_t count = 0;
  check(api().get(handle_, attribute, type, most, &count, values), "cudnnBackendGetAttribute");
  return count;
}

Part Graph::keep(Descriptor part) {
  part.finalize();
  return {parts_.emplace_back(std::move(part)).handle()};
}

Part Graph::add(DataType type, const Layout& layout, int64_t id, int64_t alignment, Attribute property) {
  Descriptor out(kTensor);
  out.set(kTensorDataType, kTypeDataType, type);
  out.set(kTensorSizes, kTypeInt64, layout.dims, layout.sizes);
  out.set(kTensorStrides, kTypeInt64, layout.dims, layout.strides);
  out.set(kTensorId, kTypeInt64, id);
  out.set(kTensorAlignment, kTypeInt64, alignment);
  if (property != kTensorId) out.set(property, kTypeBoolean, true);
  return keep(std::move(out));
}
Part Graph::tensor(DataType type, const Layout& layout, int64_t id, int64_t alignment) {
  return add(type, layout, id, alignment, kTensorId);
}
Part Graph::number(DataType type, int dims, int64_t id) {
  Layout layout{dims};
  for (int d = 0; d < dims; ++d) layout.sizes[d] = layout.strides[d] = 1;
  return add(type, layout, id, 16, kTensorByValue);
}
Part Graph::between(DataType type, const Layout& layout) { return add(type, layout, next_id_++, 16, kTensorVirtual); }

Descriptor Graph::finish(void* handle) const {
  Descriptor graph(kOperationGraph);
  if (handle != nullptr) graph.set(kGraphHandle, kTypeHandle, handle);
  graph.set(kGraphOperations, kTypeDescriptor, static_cast<int64_t>(operations_.size()), operations_.data());
  graph.finalize();
  return graph;
}

std::vector<Descriptor> configurations(const Descriptor& graph, DType dtype, const Choice& choice,
                                       const Descriptor* device) {
  std::vector<Descriptor> all;
  for (const HeuristicMode mode : {kHeuristicA, kHeuristicFallback}) {
    try {
      add_configurations(all, graph, mode, dtype, choice, device);
    } catch (const Refusal& refusal) {  // a mode may not know a graph that the other does
      if (!refusal.is_recoverable()) throw;
    }
  }
  return all;
}

Descriptor plan_of(const Descriptor& configuration, void* handle, const Descriptor* device, int64_t& workspace) {
  Descriptor plan(kExecutionPlan);
  if (handle != nullptr) plan.set(kPlanHandle, kTypeHandle, handle);
  if (device != nullptr) plan.set(kPlanDevice, *device);
  plan.set(kPlanEngineConfig, configuration);
  plan.finalize();
  (void)plan.get(kPlanWorkspace, kTypeInt64, 1, &workspace);
  return plan;
}

bool run(const Stream& stream, const Task& task) {
  try {
    return on_device(stream.device).run(stream, task);
  } catch (const Refusal& refusal) {
    raise(api(), refusal);
  }
}

}  // namespace tapegrad::cuda::cudnn_graph
