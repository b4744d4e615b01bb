// Graphs of operations for cuDNN: the descriptors of what is computed, and their execution by engines that cuDNN's
// heuristics propose. Convolutions (conv/cudnn.cpp) and attention (attention/cudnn.cpp) describe their graphs; handles,
// the choice of engines, plans and workspaces are here. The library is opened by libraries/cudnn.cpp; tests replace it
// by a double.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <functional>
#include <utility>
#include <vector>

#include "tapegrad/cuda/cudnn/api.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda::cudnn_graph {

// Whether cuDNN is available and backends.cudnn.enabled is set.
TG_API bool available();
// Its version, such as 91300 for 9.13.0; only if it is available.
TG_API int version();

// A descriptor that belongs to a graph.
struct Part {
  void* handle = nullptr;
};

class TG_API Descriptor {
 public:
  explicit Descriptor(DescriptorType type);
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Descriptor();
  void* handle() const { return handle_; }

  void set(Attribute attribute, AttributeType type, int64_t count, const void* values);
  template <class T>
  void set(Attribute attribute, AttributeType type, const T& value) {
    set(attribute, type, 1, &value);
  }
  void set(Attribute attribute, Part other) { set(attribute, kTypeDescriptor, other.handle); }
  void set(Attribute attribute, const Descriptor& other) { set(attribute, Part{other.handle_}); }
  void finalize();
  int64_t get(Attribute attribute, AttributeType type, int64_t most, void* values) const;

 private:
  void* handle_ = nullptr;
};

inline constexpr int kMostDims = 5;
struct Layout {
  int dims = 0;
  int64_t sizes[kMostDims] = {}, strides[kMostDims] = {};
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= sizes[d];
    return n;
  }
};

// The largest power of two up to 16 that divides an address.
inline int64_t alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return int64_t{1} << (address == 0 ? 4 : std::min(4, std::countr_zero(address)));
}

// Operations on tensors, which are in memory (with an id, by which they are given their address), numbers of the host
// (with an id, too), or only between two operations.
class TG_API Graph {
 public:
  Part tensor(DataType type, const Layout& layout, int64_t id, int64_t alignment);
  Part number(DataType type, int dims, int64_t id);
  Part between(DataType type, const Layout& layout);
  // Finalizes a descriptor and keeps it.
  Part keep(Descriptor part);
  void operation(Descriptor part) { operations_.push_back(keep(std::move(part)).handle); }
  // Without a handle, the heuristics need a description of a device.
  Descriptor finish(void* handle) const;

 private:
  Part add(DataType type, const Layout& layout, int64_t id, int64_t alignment, Attribute property);

  std::vector<Descriptor> parts_;
  std::vector<void*> operations_;
  int64_t next_id_ = 1000;
};

// How engines are chosen: whether they may be measured, must give the same bits in every run, may round float32 to
// TF32, may transform. Part of the plans' key, so that a changed setting leads to a new choice.
struct Choice {
  bool measured, deterministic, tf32;
  int limit;        // of those that are measured; 0: all
  bool fft = true;  // transforms may be used
  auto operator<=>(const Choice&) const = default;
};

// The other part of the key: sizes, strides, alignments.
using Key = std::array<int64_t, 40>;

inline constexpr int kMostTensors = 16;

// A computation.
struct Task {
  Key key;
  DType dtype;
  Choice choice;
  std::function<void(Graph&)> describe;
  // The addresses of the tensors; scalars on the host are read before `run` returns.
  int count = 0;
  int64_t ids[kMostTensors] = {};
  const void* pointers[kMostTensors] = {};
  void bind(int64_t id, const void* pointer) {
    ids[count] = id;
    pointers[count++] = pointer;
  }
};

// Queues the task on the stream, whose device must be current. False if cuDNN cannot compute it; the outputs are then
// unspecified. Raises if a call of the library fails. Chosen plans are cached, 512 per device.
TG_API bool run(const Stream& stream, const Task& task);

// Engine configurations for a finished graph that satisfy `choice`, the best first. `device`: the description of a
// device, for a graph without a handle. Raises Refusal.
TG_API std::vector<Descriptor> configurations(const Descriptor& graph, DType dtype, const Choice& choice,
                                              const Descriptor* device = nullptr);
// The plan for one of them, and the bytes of its workspace. Raises Refusal.
TG_API Descriptor plan_of(const Descriptor& configuration, void* handle, const Descriptor* device, int64_t& workspace);

}  // namespace tapegrad::cuda::cudnn_graph
