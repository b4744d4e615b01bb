#include "tapegrad/autograd/engine/engine.h"

#include <algorithm>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_sort.h"
#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/aten/tensor_kind.h"
#include "tapegrad/autograd/engine/engine_graph.h"
#include "tapegrad/autograd/profiler/profiler.h"
#include "tapegrad/c10/memory/available_memory.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/threads/stack.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::autograd {

namespace {

struct ThreadState {
  uint32_t depth;
  int64_t pass;  // the number of the outermost backward pass
  Node* node;
  bool keeps_graph;
  bool accumulates;
};
constinit thread_local ThreadState thread_state = {0, 0, nullptr, false, false};

std::vector<std::function<void()>>& callbacks_of_thread() {
  static thread_local std::vector<std::function<void()>> callbacks;
  return callbacks;
}

std::atomic<int> runs{0};  // of all threads
std::atomic<int64_t> last_pass{0};

std::atomic<bool> anomaly{false};
std::atomic<bool> anomaly_nan{true};

// A gradient that the caller wants returned.
struct Capture {
  uint32_t task;
  uint32_t output;
  uint32_t result;
};

// --- gradients that arrive ---

// As PyTorch's, they are also called where no gradient came, for the other outputs of a node.
TG_COLD void run_tensor_hooks(const std::vector<NodeHooks::TensorHook>& list, GradList& grads) {
  auto hooks = list;  // a hook may remove itself
  for (auto& h : hooks) {
    Tensor& grad = grads[h.output];
    if (Tensor replaced = h.hook(grad); replaced.defined()) grad = std::move(replaced);
  }
}

TG_COLD void run_leaf_hooks(const AccumulateGrad& node, GradList& grads) {
  const LeafHooks* leaf = meta(node.variable)->hooks.get();
  if (!leaf || leaf->grad.empty()) return;
  auto hooks = leaf->grad;
  for (auto& [id, hook] : hooks)
    if (Tensor replaced = hook(grads[0]); replaced.defined()) grads[0] = std::move(replaced);
}

bool any_defined(const GradList& grads) noexcept {
  for (const Tensor& g : grads)
    if (g.defined()) return true;
  return false;
}

// --- anomaly mode ---

template <class T>
bool any_nan(const T* p, int64_t n) noexcept {
  T total = 0;  // times zero: infinities become NaN, too, but then every element is checked
  for (int64_t i = 0; i < n; ++i) total += p[i] * T(0);
  if (total == 0) return false;
  return std::any_of(p, p + n, [](T x) { return x != x; });
}

bool has_nan(const Tensor& t) {
  const int64_t n = t.numel();
  if (const TensorKind* kind = kind_of(t)) return has_nan(kind->values(t));
  if (!is_differentiable(t.dtype()) || t.is_meta() || n == 0) return false;
  if (n <= 256 && t.is_cpu() && t.is_contiguous()) {  // shorter than the call of an operator
    if (t.dtype() == DType::float32) return any_nan(t.data<float>(), n);
    if (t.dtype() == DType::float64) return any_nan(t.data<double>(), n);
  }
  NoGradGuard no_grad;
  // A sum is cheap and cannot hide a NaN; only if it is NaN (or contains infinities) is every element checked.
  Scalar total = raw::sum(t, {}, false, {}).item();
  complex128_t z = total.to<complex128_t>();
  if (z.real() == z.real() && z.imag() == z.imag()) return false;
  return raw::any(raw::ne(t, t), {}, false).item().to<bool>();
}

TG_COLD void check_nan(const Node& node, const GradList& result) {
  for (size_t i = 0; i < result.size(); ++i) {
    if (!result[i].defined() || !has_nan(result[i])) continue;
    TG_THROW(Runtime, "{}: Function '{}' returned nan values in its {}th output{}", operator_of(node), node.name(), i,
             node.site ? ": the forward call is" + at_site(node.site) : "");
  }
}

// --- the loop ---

class Run {
 public:
  // some: the gradients of some inputs are asked for, and not of all
  Run(Graph& graph, const BackwardOptions& options, bool some)
      : graph_(graph),
        some_(some),
        reuse_(!options.create_graph),
        keep_(options.retain_graph || options.create_graph),
        nan_checks_(anomaly.load(std::memory_order_relaxed) && anomaly_nan.load(std::memory_order_relaxed)) {}

  void add(uint32_t task, uint32_t output, Tensor&& grad) {
    add_gradient(graph_.grads[graph_.tasks[task].first_grad + output], std::move(grad), reuse_);
  }

  void make_ready(uint32_t task) {
    const Node& node = *graph_.tasks[task].node;
    graph_.ready.push_back({node.is_accumulator ? ~uint64_t{0} : node.sequence, task});
    std::push_heap(graph_.ready.begin(), graph_.ready.end());
  }

  void run(std::span<const Capture> captures, std::vector<Tensor>& results) {
    for (uint32_t count = 1; !graph_.ready.empty(); ++count) {
      if (count % 256 == 0) check_interrupt();
      uint32_t task = graph_.ready.front().task;
      std::pop_heap(graph_.ready.begin(), graph_.ready.end());
      graph_.ready.pop_back();
      step(task, captures, results);
    }
  }

 private:
  void step(uint32_t task, std::span<const Capture> captures, std::vector<Tensor>& results) {
    const Task t = graph_.tasks[task];
    Node& node = *t.node;
    GradList grads;
    for (size_t i = 0; i < node.outputs.size(); ++i) grads.push_back(std::move(graph_.grads[t.first_grad + i]));
    const bool some = any_defined(grads);
    detail::fixed_site.site = node.site;
    thread_state.node = &node;
    thread_state.keeps_graph = keep_;

    profiler::Scope scope;
    if (TG_UNLIKELY(modes() & kModeProfile))
      scope.open(profiler::Kind::Engine, node.name(), static_cast<int64_t>(node.sequence));
    if (node.is_accumulator) run_leaf_hooks(static_cast<AccumulateGrad&>(node), grads);
    if (TG_UNLIKELY(node.hooks != nullptr)) {
      run_tensor_hooks(node.hooks->tensor, grads);
      run_tensor_hooks(node.hooks->retain, grads);
    }
    if (t.captured)
      for (const Capture& c : captures)
        if (c.task == task) results[c.result] = grads[c.output];
    if (!t.run) return;

    const WantedScope wanted(some_ ? wanted_edges(t) : detail::WantedEdges{nullptr, 0});
    GradList result = some || node.hooks != nullptr || node.runs_without_grads ? call(node, std::move(grads))
                                                                               : GradList(node.edges.size());
    if (!keep_) release(node);
    if (node.is_accumulator) return;
    route(t, result);
  }

  struct WantedScope {
    explicit WantedScope(detail::WantedEdges now) noexcept : saved(std::exchange(detail::wanted_edges, now)) {}
    ~WantedScope() { detail::wanted_edges = saved; }
    detail::WantedEdges saved;
  };

  detail::WantedEdges wanted_edges(const Task& t) const noexcept {
    const Node& node = *t.node;
    uint64_t edges = ~uint64_t{0};
    size_t k = t.first_target;
    for (size_t i = 0; i < std::min<size_t>(node.edges.size(), 64); ++i)
      if (node.edges[i].defined() && !graph_.tasks[graph_.targets[k++]].needed) edges &= ~(uint64_t{1} << i);
    return {&node, edges};
  }

  static GradList apply(Node& node, GradList&& grads) {
    if (!any_defined(grads) && !node.runs_without_grads) return GradList(node.edges.size());  // its hooks have run
    record::note_node_ran(&node);
    if (TG_LIKELY(!(modes() & kModeProfile))) return node.apply(std::move(grads));
    profiler::Scope scope(profiler::Kind::Node, node.name(), static_cast<int64_t>(node.sequence), profiler::kNone);
    return node.apply(std::move(grads));
  }

  GradList call(Node& node, GradList&& grads) {
    if (TG_LIKELY(node.hooks == nullptr)) {
      GradList result = apply(node, std::move(grads));
      if (TG_UNLIKELY(nan_checks_)) check_nan(node, result);
      return result;
    }
    auto pre = node.hooks->pre;
    for (auto& [id, hook] : pre) hook(grads);
    GradList arrived = node.hooks->post.empty() ? GradList() : grads;
    GradList result = apply(node, std::move(grads));
    if (TG_UNLIKELY(nan_checks_)) check_nan(node, result);
    auto post = node.hooks->post;
    for (auto& [id, hook] : post) hook(result, arrived);
    return result;
  }

  void release(Node& node) noexcept {
    if (node.is_accumulator) return;
    {
      SpinGuard guard(node.locked);
      auto* outer = std::exchange(detail::release_sink, &graph_.released);
      node.release_saved();
      detail::release_sink = outer;
    }
    graph_.released.clear();
  }

  void route(const Task& t, GradList& result) {
    Node& node = *t.node;
    TG_CHECK(result.size() == node.edges.size(), Runtime,
             "{}: Function {} returned an incorrect number of gradients (expected {}, got {})", operator_of(node),
             node.name(), node.edges.size(), result.size());
    size_t k = t.first_target;
    for (size_t i = 0; i < result.size(); ++i) {
      const Edge& edge = node.edges[i];
      if (!edge.defined()) continue;
      uint32_t index = graph_.targets[k++];
      Task& target = graph_.tasks[index];
      if (result[i].defined() && target.needed) {
        const OutputMeta& expected = edge.node->outputs[edge.input];
        if (TG_UNLIKELY(!expected.matches(result[i]))) result[i] = conform(std::move(result[i]), expected, node, i);
        add_gradient(graph_.grads[target.first_grad + edge.input], std::move(result[i]), reuse_);
      }
      if (--target.waiting == 0 && target.needed) make_ready(index);
    }
  }

  Graph& graph_;
  const bool some_;
  const bool reuse_;
  const bool keep_;
  const bool nan_checks_;
};

// The gradient that a root starts with.
Tensor root_gradient(const Tensor& root, const Tensor* given, size_t i) {
  if (given && given->defined()) {
    TG_CHECK(given->sizes() == root.sizes(), Runtime,
             "backward: Mismatch in shape: grad_output[{}] has a shape of {} and output[{}] has a shape of {}", i,
             format_ints(given->sizes()), i, format_ints(root.sizes()));
    TG_CHECK(given->is_complex() == root.is_complex(), Runtime,
             "backward: For complex Tensors, both grad_output and output are required to have the same dtype: "
             "Mismatch in dtype: grad_output[{}] has a dtype of {} and output[{}] has a dtype of {}",
             i, given->dtype(), i, root.dtype());
    return *given;
  }
  TG_CHECK(root.numel() == 1, Runtime, "backward: grad can be implicitly created only for scalar outputs: got sizes {}",
           format_ints(root.sizes()));
  TG_CHECK(is_floating_point(root.dtype()), Runtime,
           "backward: grad can be implicitly created only for real scalar outputs but got {}", root.dtype());
  Tensor one = empty_tensor(root.sizes(), root.dtype(), root.device());
  raw::fill_(one, Scalar(1.0));
  return one;
}

struct ThreadScope {
  ThreadScope() : saved(thread_state) {
    require_thread_memory<ThreadScope>();
    callbacks_of_thread();
    if (++thread_state.depth == 1) thread_state.pass = last_pass.fetch_add(1, std::memory_order_relaxed) + 1;
    runs.fetch_add(1, std::memory_order_relaxed);
  }
  ~ThreadScope() {
    runs.fetch_sub(1, std::memory_order_release);
    thread_state = saved;
    if (saved.depth == 0 && !callbacks_of_thread().empty()) callbacks_of_thread().clear();
  }
  ThreadState saved;
};

void run_callbacks() {
  auto& callbacks = callbacks_of_thread();
  for (size_t i = 0; i < callbacks.size(); ++i) {  // one may queue another
    auto callback = std::move(callbacks[i]);
    callback();
  }
  callbacks.clear();
}

}  // namespace

std::vector<Tensor> run_backward(TensorSpan roots, TensorSpan grads, TensorSpan inputs,
                                 const BackwardOptions& options) {
  check_stack("backward");
  TG_CHECK(grads.empty() || grads.size() == roots.size(), Runtime, "backward: got {} tensors and {} gradients",
           roots.size(), grads.size());
  InlineVector<Edge, 2> root_edges;
  GradList root_grads;
  for (size_t i = 0; i < roots.size(); ++i) {
    TG_CHECK(roots[i].defined() && needs_grad(roots[i]), Runtime,
             "backward: element {} of tensors does not require grad and does not have a grad_fn\n"
             "call requires_grad_() on what it is computed from, and compute it outside no_grad()",
             i);
    root_edges.push_back(edge_of(roots[i]));
    root_grads.push_back(root_gradient(roots[i], grads.empty() ? nullptr : &grads[i], i));
  }

  if (options.accumulate && options.create_graph)
    warn(
        "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient, "
        "which stays in memory until the collector runs: use autograd.grad when creating the graph, or reset the .grad "
        "of the parameters to None after use");

  GraphScope scope;
  Graph& graph = *scope;
  for (const Edge& e : root_edges) graph.add_root(e.node.get());
  graph.explore();

  std::vector<Capture> captures;
  std::vector<Tensor> results(options.accumulate ? 0 : inputs.size());
  if (!inputs.empty()) {
    for (Task& t : graph.tasks) t.run = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TG_CHECK(inputs[i].defined() && needs_grad(inputs[i]), Runtime,
               "grad: One of the differentiated Tensors does not require grad: the one at index {}", i);
      if (options.accumulate) inputs[i].retain_grad();
      Edge e = edge_of(inputs[i]);
      uint32_t task = graph.map.find(e.node.get());
      if (task == NodeMap::kAbsent) continue;
      if (options.accumulate) {
        graph.tasks[task].run = true;
      } else {
        graph.tasks[task].captured = true;
        captures.push_back({task, e.input, static_cast<uint32_t>(i)});
      }
    }
    graph.mark_needed();
  }

  {
    ThreadScope thread;
    thread_state.accumulates = options.accumulate;
    SiteGuard site(0);
    const uint32_t no_grad = kModeNoGrad;
    ModeGuard mode(options.create_graph ? 0 : no_grad, options.create_graph ? no_grad : 0);
    Run run(graph, options, !inputs.empty());
    for (size_t i = 0; i < root_edges.size(); ++i) {
      const Edge& e = root_edges[i];
      const OutputMeta& expected = e.node->outputs[e.input];
      Tensor grad = std::move(root_grads[i]);
      if (!expected.matches(grad)) grad = conform(std::move(grad), expected, *e.node, e.input);
      run.add(graph.map.find(e.node.get()), e.input, std::move(grad));
    }
    uint32_t num_roots = 0;  // roots are the first tasks, each once
    for (const Edge& e : root_edges) num_roots = std::max(num_roots, graph.map.find(e.node.get()) + 1);
    for (uint32_t task = 0; task < num_roots; ++task)
      if (graph.tasks[task].waiting == 0 && graph.tasks[task].needed) run.make_ready(task);
    run.run(captures, results);
    if (thread.saved.depth == 0 && !callbacks_of_thread().empty()) run_callbacks();
  }

  if (!options.accumulate && !options.allow_unused)
    for (size_t i = 0; i < results.size(); ++i)
      TG_CHECK(results[i].defined(), Runtime,
               "grad: One of the differentiated Tensors appears to not have been used in the graph: the one "
               "at index "
               "{}\nSet allow_unused=True if this is the desired behavior",
               i);
  return results;
}

std::vector<Tensor> grad(TensorSpan outputs, TensorSpan inputs, TensorSpan grad_outputs, bool retain_graph,
                         bool create_graph, bool allow_unused) {
  TG_CHECK(!inputs.empty(), Runtime, "grad: `inputs` argument to `grad()` cannot be empty");
  return run_backward(outputs, grad_outputs, inputs,
                      {.retain_graph = retain_graph || create_graph,
                       .create_graph = create_graph,
                       .accumulate = false,
                       .allow_unused = allow_unused});
}

bool backward_running() noexcept { return runs.load(std::memory_order_acquire) != 0; }
bool in_backward() noexcept { return thread_state.depth > 0; }
int64_t current_pass() noexcept { return in_backward() ? thread_state.pass : -1; }
Node* current_node() noexcept { return thread_state.node; }
bool accumulating() noexcept { return thread_state.accumulates; }
bool keeps_graph() noexcept { return thread_state.keeps_graph; }

void queue_callback(std::function<void()> callback) {
  TG_CHECK(in_backward(), Runtime, "queue_callback: final callbacks can only be installed during backward pass");
  callbacks_of_thread().push_back(std::move(callback));
}

void set_anomaly(bool enabled, bool check) noexcept {
  anomaly.store(enabled, std::memory_order_relaxed);
  anomaly_nan.store(check, std::memory_order_relaxed);
}
bool anomaly_enabled() noexcept { return anomaly.load(std::memory_order_relaxed); }
bool anomaly_check_nan() noexcept { return anomaly_nan.load(std::memory_order_relaxed); }

}  // namespace tapegrad::autograd
