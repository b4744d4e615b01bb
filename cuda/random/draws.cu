#include "tapegrad/cuda/random/draws.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tapegrad/c10/random/default_generators.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {

namespace {

// A generator that a graph draws from.
struct Source {
  GeneratorPtr generator;
  PhiloxState before;  // its state when the capture first drew from it
  uint64_t calls = 0;  // of one replay
  Tensor memory;       // a PhiloxState of the device: where the current replay began
};
using Sources = std::vector<Source>;

struct Capture {
  StreamHandle stream;
  Sources sources;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<uint64_t, Capture> captures;                            // by their ids
  std::unordered_map<const void*, std::shared_ptr<const Sources>> recorded;  // by graph, and by what is launched
};
Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}
std::atomic<int> num_captures{0};

struct Begin {
  PhiloxState* at;
  PhiloxState state;
  TG_DEVICE void operator()(int64_t) const { *at = state; }
};

PhiloxState* address(const Source& source) { return target_of<PhiloxState>(source.memory); }

// The place of a capture's numbers, where this generator is known. With the lock held.
Source* find(uint64_t id, const Generator* generator) {
  for (Source& source : registry().captures[id].sources)
    if (source.generator.get() == generator) return &source;
  return nullptr;
}

std::shared_ptr<const Sources> sources_of(const void* handle) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto it = r.recorded.find(handle);
  return it == r.recorded.end() ? nullptr : it->second;
}

}  // namespace

DrawState draw_state(const PhiloxState& state, const GeneratorPtr& given, Device device) {
  if (TG_LIKELY(num_captures.load(std::memory_order_relaxed) == 0)) return {state};
  const uint64_t id = driver().capture_id(current_stream(device.index).handle);
  const GeneratorPtr& generator = given ? given : default_generator_of(device);
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  if (r.captures.count(id) == 0) return {state};  // none, or another library's
  Source* source = find(id, generator.get());
  if (source == nullptr) {
    lock.unlock();  // running out of memory runs Python's collector, which may destroy graphs
    Source made{generator, state, 0, {}};
    {
      // Written before the graph runs, so it is not of the graph's pool, where kernels that come before this call may
      // have had a workspace.
      const StreamGuard outside(default_stream(device.index));
      made.memory = empty_tensor({int64_t{sizeof(PhiloxState)}}, DType::uint8, device);
    }
    lock.lock();
    source = find(id, generator.get());
    if (source == nullptr) source = &r.captures[id].sources.emplace_back(std::move(made));
  }
  TG_CHECK(state.seed == source->before.seed && state.offset >= source->before.offset, Runtime,
           "random numbers in a CUDA graph: the generator was seeded, or set back, during the capture\n"
           "seed it before the capture or before replay()");
  return {{0, state.offset - source->before.offset}, address(*source)};
}

void begin_draws(Stream stream) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.captures.insert_or_assign(driver().capture_id(stream.handle), Capture{stream.handle, {}});
  num_captures.store(static_cast<int>(r.captures.size()), std::memory_order_relaxed);
}

void end_draws(Stream stream, GraphHandle graph) {
  Registry& r = registry();
  Capture ended{};  // outlives the lock: what it holds may be memory
  std::lock_guard lock(r.mutex);
  for (auto it = r.captures.begin(); it != r.captures.end(); ++it)
    if (it->second.stream == stream.handle) {
      ended = std::move(it->second);
      r.captures.erase(it);
      break;
    }
  num_captures.store(static_cast<int>(r.captures.size()), std::memory_order_relaxed);
  for (Source& source : ended.sources) {
    const uint64_t now = source.generator->offset();
    source.calls = now - source.before.offset;
    if (source.generator->initial_seed() == source.before.seed && now >= source.before.offset)
      source.generator->set_offset(source.before.offset);
  }
  if (graph != nullptr && !ended.sources.empty())
    r.recorded[graph] = std::make_shared<const Sources>(std::move(ended.sources));
}

void instantiate_draws(GraphHandle graph, GraphExecHandle exec) {
  if (auto sources = sources_of(graph)) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    r.recorded[exec] = std::move(sources);
  }
}

void launch_draws(GraphExecHandle exec, Stream stream) {
  const auto sources = sources_of(exec);
  if (sources == nullptr) return;
  for (const Source& source : *sources) {
    note_use(*source.memory.impl()->storage(), stream);
    for_elements(stream, 1, Begin{address(source), source.generator->next(source.calls, source.calls)});
  }
}

void forget_draws(const void* handle) noexcept {
  Registry& r = registry();
  std::shared_ptr<const Sources> dropped;
  std::lock_guard lock(r.mutex);
  const auto it = r.recorded.find(handle);
  if (it == r.recorded.end()) return;
  dropped = std::move(it->second);
  r.recorded.erase(it);
}

}  // namespace tapegrad::cuda
