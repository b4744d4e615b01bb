#include "tapegrad/autograd/engine/engine_graph.h"

#include "tapegrad/aten/functions_create.h"
#include "tapegrad/c10/memory/available_memory.h"

namespace tapegrad::autograd {

namespace detail {
constinit thread_local ReleaseSink* release_sink __attribute__((tls_model("initial-exec"))) = nullptr;
}

void NodeMap::clear() {
  size_ = 0;
  if (entries_.size() > 1u << 16) *this = NodeMap();  // an exceptional graph: give the memory back
  if (++stamp_ == 0) {
    entries_.assign(entries_.size(), {});
    stamp_ = 1;
  }
}

void NodeMap::grow() {
  std::vector<Entry> old = std::move(entries_);
  size_t capacity = std::max<size_t>(64, 2 * old.size());
  entries_.assign(capacity, {});
  shift_ = 64 - __builtin_ctzll(capacity);
  uint32_t old_stamp = std::exchange(stamp_, 1);
  for (const Entry& e : old) {
    if (e.stamp != old_stamp) continue;
    size_t i = slot_of(e.node);
    while (entries_[i].stamp == stamp_) i = (i + 1) & (capacity - 1);
    entries_[i] = {e.node, stamp_, e.task};
  }
}

uint32_t NodeMap::find_or_insert(const Node* node, uint32_t fresh) {
  if (2 * (size_ + 1) > entries_.size()) grow();
  size_t i = slot_of(node);
  for (; entries_[i].stamp == stamp_; i = (i + 1) & (entries_.size() - 1))
    if (entries_[i].node == node) return entries_[i].task;
  entries_[i] = {node, stamp_, fresh};
  ++size_;
  return fresh;
}

uint32_t NodeMap::find(const Node* node) const noexcept {
  if (entries_.empty()) return kAbsent;
  for (size_t i = slot_of(node); entries_[i].stamp == stamp_; i = (i + 1) & (entries_.size() - 1))
    if (entries_[i].node == node) return entries_[i].task;
  return kAbsent;
}

uint32_t Graph::task_of(Node* node) {
  auto fresh = static_cast<uint32_t>(tasks.size());
  uint32_t task = map.find_or_insert(node, fresh);
  if (task == fresh) tasks.push_back({.node = node});
  return task;
}

void Graph::explore() {
  size_t num_grads = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {  // grows while it is walked
    Node& node = *tasks[i].node;
    tasks[i].first_grad = static_cast<uint32_t>(num_grads);
    tasks[i].first_target = static_cast<uint32_t>(targets.size());
    num_grads += node.outputs.size();
    for (const Edge& e : node.edges) {
      if (!e.defined()) continue;
      uint32_t target = task_of(e.node.get());
      targets.push_back(target);
      ++tasks[target].waiting;
    }
  }
  grads.resize(num_grads);
}

// Walks the edges backwards from what is wanted.
void Graph::mark_needed() {
  size_t n = tasks.size();
  std::vector<uint32_t> first(n + 1), sources(targets.size());
  for (uint32_t t : targets) ++first[t];
  for (size_t i = 1; i <= n; ++i) first[i] += first[i - 1];
  for (size_t i = n; i-- > 0;) {
    size_t end = i + 1 < n ? tasks[i + 1].first_target : targets.size();
    for (size_t k = tasks[i].first_target; k < end; ++k) sources[--first[targets[k]]] = static_cast<uint32_t>(i);
  }
  std::vector<uint32_t> pending;
  for (size_t i = 0; i < n; ++i) {
    tasks[i].needed = tasks[i].captured || tasks[i].run;
    if (tasks[i].needed) pending.push_back(static_cast<uint32_t>(i));
  }
  while (!pending.empty()) {
    uint32_t task = pending.back();
    pending.pop_back();
    for (size_t k = first[task]; k < (task + 1 < n ? first[task + 1] : sources.size()); ++k) {
      Task& source = tasks[sources[k]];
      if (!source.needed) pending.push_back(sources[k]);
      source.needed = source.run = true;
    }
  }
}

void Graph::clear() noexcept {
  constexpr size_t kKeep = 1u << 16;
  auto empty = [](auto& list) {
    list.clear();
    if (list.capacity() > kKeep) list.shrink_to_fit();
  };
  empty(tasks);
  empty(targets);
  empty(grads);
  empty(ready);
  released.clear();
  map.clear();
}

namespace {
struct SpareGraphs {
  std::vector<std::unique_ptr<Graph>> graphs;
  size_t in_use = 0;
};
SpareGraphs& spare_graphs() {
  static thread_local SpareGraphs spare;
  return spare;
}
}  // namespace

GraphScope::GraphScope() {
  require_thread_memory<SpareGraphs>();
  SpareGraphs& spare = spare_graphs();
  if (spare.graphs.empty()) {
    // A place for it in the list comes first: giving it back allocates nothing.
    if (spare.graphs.capacity() <= spare.in_use) spare.graphs.reserve(2 * spare.in_use + 4);
    graph_ = std::make_unique<Graph>();
    graph_->map.clear();
  } else {
    graph_ = std::move(spare.graphs.back());
    spare.graphs.pop_back();
  }
  ++spare.in_use;
}

GraphScope::~GraphScope() {
  graph_->clear();
  SpareGraphs& spare = spare_graphs();
  --spare.in_use;
  spare.graphs.push_back(std::move(graph_));
}

}  // namespace tapegrad::autograd
