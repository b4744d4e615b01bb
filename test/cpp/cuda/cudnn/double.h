// A cuDNN of host code, to be told what the real one is told: descriptors that remember their attributes and complain
// about what is missing, engines as a test wants them, convolutions by plain loops over the described sizes and
// strides, and graphs of several steps (steps.h).
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "cuda/cudnn/calls_double.h"
#include "cuda/cudnn/steps.h"
#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

namespace cudnn_double {

using namespace tapegrad::cuda::cudnn_graph;

struct Engine {
  std::vector<int> notes;
  int64_t workspace = 0;
  int build_status = kSuccess, execute_status = kSuccess;
  bool fallback = false;  // known to the fallback heuristics only
};

struct State {
  std::vector<Engine> engines{{}};
  std::set<Object*> live;
  std::vector<std::unique_ptr<Object>> gone;
  int handles = 0, heuristics = 0;
  tapegrad::cuda::StreamHandle stream = nullptr;
  std::vector<int> executed;  // engines
  std::vector<size_t> steps;  // of graphs of several: how many
  std::vector<int64_t> workspaces;
  int graph_status = kSuccess;
  size_t version = 92801;
  size_t live_of(int type) const {
    size_t n = 0;
    for (const Object* o : live) n += o->type == type;
    return n;
  }
};
inline State& state() {
  static auto& it = *new State;
  return it;
}

inline size_t bytes_of(int type) {
  for (const int eight : {kTypeInt64, kTypePointer, kTypeHandle, kTypeDescriptor, kTypeDouble})
    if (type == eight) return 8;
  return type == kTypeBoolean ? 1 : 4;
}

inline int type_of(int attribute) {
  static const std::map<int, std::vector<int>> attributes_of{
      {kTypeDataType,
       {kConvolutionComputeType, kTensorDataType, kPointwiseComputeType, kMatmulComputeType, kReductionComputeType}},
      {kTypeBoolean, {kTensorVirtual, kTensorByValue}},
      {kTypePointwiseMode, {kPointwiseMode}},
      {kTypeReduceMode, {kReductionMode}},
      {kTypeConvolutionMode, {kConvolutionMode}},
      {kTypeHeuristicMode, {kHeuristicsMode}},
      {kTypeHandle, {kPlanHandle, kGraphHandle}},
      {kTypeDescriptor, {kHeuristicsGraph, kPlanEngineConfig, kGraphOperations}},
      {kTypePointer, {kPackPointers, kPackWorkspace}}};
  for (const auto& [type, attributes] : attributes_of)
    for (const int one : attributes)
      if (one == attribute) return type;
  if (attribute >= 700 && attribute < 718) return attribute % 6 == 4 || attribute % 6 == 5 ? -1 : kTypeDescriptor;
  for (const auto& [first, last] : {std::pair(750, 759), {1520, 1524}, {1610, 1613}, {2200, 2202}})
    if (attribute >= first && attribute < last) return kTypeDescriptor;
  return kTypeInt64;
}

inline const std::vector<int>& required(int type) {
  static const std::map<int, std::vector<int>> all{
      {kTensor, {kTensorDataType, kTensorSizes, kTensorStrides, kTensorId, kTensorAlignment}},
      {kConvolution,
       {kConvolutionComputeType, kConvolutionMode, kConvolutionSpatialDims, kConvolutionDilations, kConvolutionStrides,
        kConvolutionPaddingBefore, kConvolutionPaddingBehind}},
      {kOperationForward, {kForwardX, kForwardW, kForwardY, kForwardConvolution}},
      {kOperationInputGrad, {kInputGradX, kInputGradW, kInputGradY, kInputGradConvolution}},
      {kOperationWeightGrad, {kWeightGradX, kWeightGradW, kWeightGradY, kWeightGradConvolution}},
      {kPointwise, {kPointwiseMode, kPointwiseComputeType}},
      {kOperationPointwise, {kPointwiseOf, kPointwiseX, kPointwiseY}},
      {kMatmul, {kMatmulComputeType}},
      {kOperationMatmul, {kMatmulA, kMatmulB, kMatmulC, kMatmulOf}},
      {kReduction, {kReductionMode, kReductionComputeType}},
      {kOperationReduction, {kReductionX, kReductionY, kReductionOf}},
      {kOperationReshape, {kReshapeX, kReshapeY}},
      {kOperationGraph, {kGraphOperations}},
      {kHeuristics, {kHeuristicsGraph, kHeuristicsMode}},
      {kExecutionPlan, {kPlanHandle, kPlanEngineConfig}},
      {kVariantPack, {kPackIds, kPackPointers, kPackWorkspace}}};
  return all.at(type);
}

inline int create(void** handle) {
  may_be_first("cudnnCreate");
  ++state().handles;
  *handle = &state();
  return kSuccess;
}
inline int set_stream(void* handle, void* stream) {
  state().stream = static_cast<tapegrad::cuda::StreamHandle>(stream);
  return handle == &state() ? kSuccess : kBadParameters;
}
inline size_t version() { return state().version; }
inline int create_descriptor(int type, void** out) {
  auto* o = new Object{type, false, {}, {}, -1};
  state().live.insert(o);
  *out = o;
  return kSuccess;
}
inline int destroy_descriptor(void* p) {
  auto* o = static_cast<Object*>(p);
  if (state().live.erase(o) != 1) throw std::logic_error("a descriptor is destroyed twice");
  state().gone.emplace_back(o);  // what was made of it goes on, as with cuDNN
  return kSuccess;
}
inline int set(void* p, int attribute, int type, int64_t count, const void* values) {
  auto& o = *static_cast<Object*>(p);
  if (o.finalized) return kBadParameters;
  if (type == kTypeFloat || type == kTypeDouble) {
    float narrow;
    double wide;
    std::memcpy(type == kTypeFloat ? static_cast<void*>(&narrow) : &wide, values, bytes_of(type));
    o.factors[attribute] = type == kTypeFloat ? narrow : wide;
    return type_of(attribute) == -1 && count == 1 ? kSuccess : kBadParameters;
  }
  if (type != type_of(attribute)) return kBadParameters;
  auto& to = o.numbers[attribute];
  to.assign(static_cast<size_t>(count), 0);
  for (size_t i = 0; i < to.size(); ++i)
    std::memcpy(&to[i], static_cast<const char*>(values) + i * bytes_of(type), bytes_of(type));
  if (type == kTypeDescriptor)
    for (int64_t other : to)
      if (!state().live.contains(&object(other)) || !object(other).finalized) return kBadParameters;
  return kSuccess;
}

inline int finalize(void* p) {
  may_be_first("cudnnBackendFinalize");
  auto& o = *static_cast<Object*>(p);
  for (int attribute : required(o.type))
    if (!o.numbers.contains(attribute)) return kBadParameters;
  if (o.type == kOperationGraph && state().graph_status != kSuccess) return state().graph_status;
  if (o.type == kExecutionPlan) {
    const Engine& engine = state().engines.at(static_cast<size_t>(of(o, kPlanEngineConfig).engine));
    if (engine.build_status != kSuccess) return engine.build_status;
  }
  if (o.type == kHeuristics) ++state().heuristics;
  o.finalized = true;
  return kSuccess;
}

inline int get(void* p, int attribute, int, int64_t most, int64_t* count, void* values) {
  auto& o = *static_cast<Object*>(p);
  const auto& engines = state().engines;
  if (attribute == kHeuristicsResults) {
    if (!o.finalized) return kBadParameters;
    *count = 0;
    for (size_t i = 0; i < engines.size(); ++i) {
      if (engines[i].fallback != (o.numbers.at(kHeuristicsMode)[0] == kHeuristicFallback)) continue;
      if (*count < most) {
        Object& config = *static_cast<Object**>(values)[*count];
        config.engine = static_cast<int>(i);
        config.numbers[kHeuristicsGraph] = o.numbers.at(kHeuristicsGraph);
        config.finalized = true;
      }
      ++*count;
    }
  } else if (attribute == kEngineConfigEngine) {
    (*static_cast<Object**>(values))->engine = o.engine;
    *count = 1;
  } else if (attribute == kEngineNumericalNote) {
    const auto& notes = engines.at(static_cast<size_t>(o.engine)).notes;
    *count = static_cast<int64_t>(notes.size());
    std::ranges::copy(notes, static_cast<int*>(values));
  } else if (attribute == kPlanWorkspace) {
    std::memcpy(values, &engines.at(static_cast<size_t>(of(o, kPlanEngineConfig).engine)).workspace, 8);
    *count = 1;
  } else {
    return kBadParameters;
  }
  return kSuccess;
}

// One of the three products; doubles and floats, up to three dimensions.
template <class T>
void convolve(Object& operation, const std::map<int64_t, T*>& data) {
  const bool forward = operation.type == kOperationForward, weight_grad = operation.type == kOperationWeightGrad;
  const int first = forward ? kForwardAlpha : weight_grad ? kWeightGradAlpha : kInputGradAlpha;
  Object &how = of(operation, first + 2), &w = of(operation, first + 3), &x = of(operation, first + 4),
         &y = of(operation, first + 5);
  if (operation.factors.at(first) != 1 || operation.factors.at(first + 1) != 0) throw std::logic_error("factors");
  struct View {
    std::vector<int64_t> sizes, strides;
    T* data;
    explicit View(Object& o, const std::map<int64_t, T*>& from)
        : sizes(o.numbers.at(kTensorSizes)),
          strides(o.numbers.at(kTensorStrides)),
          data(from.at(o.numbers.at(kTensorId)[0])) {}
    T& at(int64_t a, int64_t b, const int64_t* c) const {
      T* p = data + a * strides[0] + b * strides[1];
      for (size_t d = 2; d < sizes.size(); ++d) p += c[d - 2] * strides[d];
      return *p;
    }
    int64_t plane() const {
      int64_t n = 1;
      for (size_t d = 2; d < sizes.size(); ++d) n *= sizes[d];
      return n;
    }
    void point(int64_t i, int64_t* c) const {
      for (size_t d = sizes.size(); d-- > 2; i /= sizes[d]) c[d - 2] = i % sizes[d];
    }
    void clear() const {
      int64_t c[3];
      for (int64_t a = 0; a < sizes[0]; ++a)
        for (int64_t b = 0; b < sizes[1]; ++b)
          for (int64_t i = 0; i < plane(); ++i) point(i, c), at(a, b, c) = 0;
    }
  };
  const View in(x, data), weight(w, data), out(y, data);
  (forward ? out : weight_grad ? weight : in).clear();
  const auto& stride = how.numbers.at(kConvolutionStrides);
  const auto& dilation = how.numbers.at(kConvolutionDilations);
  const auto& before = how.numbers.at(kConvolutionPaddingBefore);
  const auto& behind = how.numbers.at(kConvolutionPaddingBehind);
  const size_t dims = in.sizes.size() - 2;
  if (how.numbers.at(kConvolutionSpatialDims)[0] != static_cast<int64_t>(dims) || dims < 2)
    throw std::logic_error("dimensions");
  for (size_t d = 0; d < dims; ++d)
    if ((in.sizes[d + 2] + before[d] + behind[d] - dilation[d] * (weight.sizes[d + 2] - 1) - 1) / stride[d] + 1 !=
        out.sizes[d + 2])
      throw std::logic_error("the output has another size");
  const int64_t groups = in.sizes[1] / weight.sizes[1], each = weight.sizes[0] / groups;
  int64_t o[3], k[3], i[3];
  for (int64_t n = 0; n < out.sizes[0]; ++n)
    for (int64_t oc = 0; oc < weight.sizes[0]; ++oc)
      for (int64_t ic = 0; ic < weight.sizes[1]; ++ic)
        for (int64_t p = 0; p < out.plane(); ++p)
          for (int64_t q = 0; q < weight.plane(); ++q) {
            out.point(p, o);
            weight.point(q, k);
            bool inside = true;
            for (size_t d = 0; d < dims; ++d) {
              i[d] = o[d] * stride[d] + k[d] * dilation[d] - before[d];
              inside = inside && i[d] >= 0 && i[d] < in.sizes[d + 2];
            }
            if (!inside) continue;
            T &yy = out.at(n, oc, o), &ww = weight.at(oc, ic, k), &xx = in.at(n, oc / each * weight.sizes[1] + ic, i);
            if (forward)
              yy += ww * xx;
            else if (weight_grad)
              ww += yy * xx;
            else
              xx += yy * ww;
          }
}

inline int execute(void* handle, void* plan, void* pack) {
  may_be_first("cudnnBackendExecute");
  if (handle != &state()) return kBadParameters;
  auto& o = *static_cast<Object*>(plan);
  auto& given = *static_cast<Object*>(pack);
  Object& config = of(o, kPlanEngineConfig);
  const Engine& engine = state().engines.at(static_cast<size_t>(config.engine));
  state().executed.push_back(config.engine);
  state().workspaces.push_back(given.numbers.at(kPackWorkspace)[0]);
  if (engine.execute_status != kSuccess) return engine.execute_status;
  tapegrad::cuda::Driver& driver = tapegrad::cuda::driver();
  if (driver.capture_state(state().stream) != tapegrad::cuda::CaptureState::None) return kSuccess;  // would be recorded
  const tapegrad::cuda::simulated::HostAccess access(state().stream);
  const auto& operations = of(config, kHeuristicsGraph).numbers.at(kGraphOperations);
  const auto& ids = given.numbers.at(kPackIds);
  const auto& pointers = given.numbers.at(kPackPointers);
  Object& operation = object(operations[0]);
  if (operation.type != kOperationForward && operation.type != kOperationInputGrad &&
      operation.type != kOperationWeightGrad) {
    state().steps.push_back(operations.size());
    std::map<int64_t, void*> data;
    for (size_t i = 0; i < ids.size(); ++i) data[ids[i]] = reinterpret_cast<void*>(pointers[i]);
    compute_steps(operations, data);
    return kSuccess;
  }
  const auto run = [&]<class T>() {
    std::map<int64_t, T*> data;
    for (size_t i = 0; i < ids.size(); ++i) data[ids[i]] = reinterpret_cast<T*>(pointers[i]);
    convolve<T>(operation, data);
  };
  const int first = operation.type == kOperationForward     ? kForwardW
                    : operation.type == kOperationInputGrad ? kInputGradW
                                                            : kWeightGradW;
  const int64_t type = of(operation, first).numbers.at(kTensorDataType)[0];
  if (type == kDouble)
    run.template operator()<double>();
  else
    run.template operator()<float>();
  return kSuccess;
}

inline const Functions* functions() {
  static const Functions all{{create, set_stream, error_string, last_error},
                             version,
                             create_descriptor,
                             destroy_descriptor,
                             set,
                             get,
                             finalize,
                             execute};
  return &all;
}

// Switches and engines for the length of a test.
struct Setup {
  explicit Setup(std::vector<Engine> engines = {{}}) {
    state().engines = std::move(engines);
    state().graph_status = kSuccess;
    state().executed.clear();
    state().workspaces.clear();
    use_cudnn(&functions);
  }
  ~Setup() {
    use_cudnn(nullptr);
    reset_switches();
    state().version = State().version;
  }
};

}  // namespace cudnn_double
