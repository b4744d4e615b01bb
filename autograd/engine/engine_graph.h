// The graph as seen by one run of the engine: a task per node reached from the roots, found in one breadth-first pass.
// Memory is kept per thread and reused by the next run; nothing in here owns nodes (the roots do).
#pragma once

#include "tapegrad/autograd/engine/accumulate.h"
#include "tapegrad/autograd/engine/release_sink.h"

namespace tapegrad::autograd {

struct Task {
  Node* node;
  uint32_t waiting = 0;       // gradients still to come
  uint32_t first_grad = 0;    // in Graph::grads: the gradients of the node's outputs
  uint32_t first_target = 0;  // in Graph::targets: the tasks of the node's defined edges
  bool needed = true;         // a wanted input is reachable from this node
  bool run = true;            // its gradient formula is to be run
  bool captured = false;      // the caller wants a gradient that arrives here
};

// Maps nodes to tasks by open addressing. Entries carry a stamp: clearing the map only changes the current stamp.
class NodeMap {
 public:
  void clear();
  // The node's task, or `fresh` after entering it.
  uint32_t find_or_insert(const Node* node, uint32_t fresh);
  static constexpr uint32_t kAbsent = ~uint32_t{0};
  uint32_t find(const Node* node) const noexcept;

 private:
  struct Entry {
    const Node* node;
    uint32_t stamp;
    uint32_t task;
  };
  size_t slot_of(const Node* node) const noexcept {
    return (reinterpret_cast<uintptr_t>(node) >> 4) * 0x9e3779b97f4a7c15u >> shift_;
  }
  void grow();

  std::vector<Entry> entries_;
  size_t size_ = 0;
  int shift_ = 64;
  uint32_t stamp_ = 0;
};

struct Graph {
  struct Ready {
    uint64_t sequence;
    uint32_t task;
    bool operator<(const Ready& o) const noexcept { return sequence < o.sequence; }
  };

  std::vector<Task> tasks;
  std::vector<uint32_t> targets;
  std::vector<Tensor> grads;
  std::vector<Ready> ready;  // a heap, newest on top
  NodeMap map;
  detail::ReleaseSink released;

  void add_root(Node* node) { task_of(node); }
  // Follows the edges from the roots and counts what each node waits for.
  void explore();
  // Marks as needed only the tasks that lead to a captured one (or are to run themselves, as marked before).
  void mark_needed();
  void clear() noexcept;

 private:
  uint32_t task_of(Node* node);
};

// A graph of this thread for a scope; nested runs get another one.
class GraphScope {
 public:
  GraphScope();
  ~GraphScope();
  Graph& operator*() const noexcept { return *graph_; }

 private:
  std::unique_ptr<Graph> graph_;
};

}  // namespace tapegrad::autograd
