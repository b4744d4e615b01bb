// Attention by cuDNN's fused engines: softmax(query key^T scale) value without storing the scores, and its gradient.
// The graphs are those that the engines support (NVIDIA, "cuDNN Graph API: fused flash attention fprop" and "bprop"):
// products, pointwise steps and reductions. Saved between the two is the logarithm of each row's sum of exponentials,
// as by our own kernels, so that either may compute the gradient.
//
// The engines that need little memory accumulate the query's gradient in the order in which blocks finish. The graph
// described here computes that sum by one product over the gradients of all scores, which are stored in a workspace of
// 2 bytes each: the same bits in every run. Large gradients are computed a few matrices at a time.
#include <atomic>
#include <limits>

#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/cuda/attention/cudnn_layout.h"
#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {

namespace cudnn_graph {
namespace {

enum Id : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOutput,
  kLogsumexp,
  kScale,
  kHidden,
  kGradOutput,
  kQueryGrad,
  kKeyGrad,
  kValueGrad,
  kDelta,
  kUnscaled,
  kBias,
  kKept,
  kKeptScale
};

// What the numbers of a graph are; cuDNN reads them while it is called.
struct Numbers {
  explicit Numbers(const AttentionForward& a)
      : scale(static_cast<float>(a.scale)), kept(static_cast<float>(a.kept.scale)) {}
  // The output that delta is made of comes without dropout's scale.
  float scale, kept, unscaled = 1, hidden = -std::numeric_limits<float>::infinity();
};

// The operations of a graph, on tensors (batch, heads, rows, columns).
class Operations {
 public:
  Operations(Graph& graph, const AttentionForward& a) : graph_(graph), a_(a), type_(data_type(a.dtype)) {
    if (!a.kept.defined()) return;
    kept_ = graph.tensor(type_, of_kept(a.kept, a.sizes), kKept, 16);
    kept_scale_ = number(kKeptScale);
  }

  Part rows(const AttentionRows& t, int64_t heads, int64_t rows, int64_t columns, int64_t id) {
    return graph_.tensor(type_, of_rows(t, a_.sizes.batch, heads, rows, columns), id, alignment(t.data));
  }
  Part columns(const AttentionRows& t, int64_t heads, int64_t rows, int64_t columns, int64_t id) {
    return graph_.tensor(type_, transposed(of_rows(t, a_.sizes.batch, heads, rows, columns)), id, alignment(t.data));
  }
  // A dense one that is written.
  Part result(const void* data, int64_t heads, int64_t rows, int64_t columns, int64_t id) {
    return graph_.tensor(type_, dense(a_.sizes.batch, heads, rows, columns), id, alignment(data));
  }
  Part row_numbers(int64_t id) { return graph_.tensor(kFloat, row_layout(), id, row_alignment(a_.sizes)); }
  Part bias() { return graph_.tensor(data_type(bias_dtype(a_.dtype)), of_bias(a_.bias, a_.sizes.keys), kBias, 16); }
  Part number(int64_t id) { return graph_.number(kFloat, 4, id); }

  Layout score_layout() const { return dense(a_.sizes.batch, a_.sizes.heads, a_.sizes.rows, a_.sizes.keys); }
  Layout row_layout() const { return dense(a_.sizes.batch, a_.sizes.heads, a_.sizes.rows, 1); }
  Part scores(DataType type = kFloat) { return graph_.between(type, score_layout()); }
  Part per_row() { return graph_.between(kFloat, row_layout()); }
  DataType type() const { return type_; }

  Part matmul(Part a, Part b, Part to) {
    Descriptor how(kMatmul);
    how.set(kMatmulComputeType, kTypeDataType, kFloat);
    Descriptor operation(kOperationMatmul);
    operation.set(kMatmulA, a);
    operation.set(kMatmulB, b);
    operation.set(kMatmulC, to);
    operation.set(kMatmulOf, graph_.keep(std::move(how)));
    graph_.operation(std::move(operation));
    return to;
  }
  // With one, two or three operands; the third chooses between the others.
  Part pointwise(PointwiseMode mode, Part x, Part b, Part to, DataType compute = kFloat, int64_t axis = -1,
                 Part choice = {}) {
    Descriptor how(kPointwise);
    how.set(kPointwiseMode, kTypePointwiseMode, mode);
    how.set(kPointwiseComputeType, kTypeDataType, compute);
    if (axis >= 0) how.set(kPointwiseAxis, kTypeInt64, axis);
    Descriptor operation(kOperationPointwise);
    operation.set(kPointwiseOf, graph_.keep(std::move(how)));
    operation.set(kPointwiseX, x);
    if (b.handle != nullptr) operation.set(kPointwiseB, b);
    if (choice.handle != nullptr) operation.set(kPointwiseT, choice);
    operation.set(kPointwiseY, to);
    graph_.operation(std::move(operation));
    return to;
  }
  Part reduce(ReduceMode mode, Part x, Part to) {
    Descriptor how(kReduction);
    how.set(kReductionMode, kTypeReduceMode, mode);
    how.set(kReductionComputeType, kTypeDataType, kFloat);
    Descriptor operation(kOperationReduction);
    operation.set(kReductionOf, graph_.keep(std::move(how)));
    operation.set(kReductionX, x);
    operation.set(kReductionY, to);
    graph_.operation(std::move(operation));
    return to;
  }
  Part reshape(Part x, Part to) {
    Descriptor operation(kOperationReshape);
    operation.set(kReshapeX, x);
    operation.set(kReshapeY, to);
    graph_.operation(std::move(operation));
    return to;
  }

  // Dropout: times one or zero, and then by a number.
  Part kept(Part values) { return a_.kept.defined() ? pointwise(kMultiply, values, kept_, scores()) : values; }
  Part kept_scaled(Part values, DataType type = kFloat) {
    return a_.kept.defined() ? pointwise(kMultiply, values, kept_scale_, scores(type)) : values;
  }

  // Scores with what lies right of the diagonal hidden.
  Part causal(Part scores_in) {
    const Layout layout = score_layout();
    const Part row = pointwise(kIndex, scores_in, {}, graph_.between(kInt32, layout), kFloat, 2);
    const Part column = pointwise(kIndex, scores_in, {}, graph_.between(kInt32, layout), kFloat, 3);
    const Part seen = pointwise(kGreaterEqual, row, column, graph_.between(kBoolean, layout), kBoolean);
    return pointwise(kSelect, scores_in, number(kHidden), scores(), kFloat, -1, seen);
  }
  // query key^T scale and what is added to it, hidden where it has to be; `less`, if any, is taken off before that.
  Part masked_scores(Part query, Part key_columns, Part scale, Part less = {}) {
    Part s = matmul(query, key_columns, scores());
    s = pointwise(kMultiply, s, scale, scores());
    if (a_.bias.defined()) s = pointwise(kAdd, s, bias(), scores());
    if (less.handle != nullptr) s = pointwise(kSubtract, s, less, scores());
    return a_.causal ? causal(s) : s;
  }

 private:
  Graph& graph_;
  const AttentionForward& a_;
  DataType type_;
  Part kept_, kept_scale_;
};

AttentionRows dense_rows(const void* data, int64_t heads, int64_t rows, int64_t columns) {
  return {data, heads * rows * columns, rows * columns, columns};
}

}  // namespace

void describe_attention(Graph& graph, const AttentionForward& a) {
  const attention::Sizes& z = a.sizes;
  Operations ops(graph, a);
  const Part q = ops.rows(a.query, z.heads, z.rows, z.width, kQuery);
  const Part k = ops.columns(a.key, z.shared, z.keys, z.width, kKey);
  const Part v = ops.rows(a.value, z.shared, z.keys, z.value_width, kValue);
  const Part s = ops.masked_scores(q, k, ops.number(kScale));
  const Part top = ops.reduce(kReduceMax, s, ops.per_row());
  const Part exponential = ops.pointwise(kExp, ops.pointwise(kSubtract, s, top, ops.scores()), {}, ops.scores());
  const Part sum = ops.reduce(kReduceSum, exponential, ops.per_row());
  ops.pointwise(kAdd, top, ops.pointwise(kLog, sum, {}, ops.per_row()), ops.row_numbers(kLogsumexp));
  const DataType divided = a.kept.defined() ? kFloat : ops.type();
  const Part weights = ops.pointwise(kDivide, exponential, sum, ops.scores(divided));
  ops.matmul(ops.kept_scaled(ops.kept(weights), ops.type()), v,
             ops.result(a.output, z.heads, z.rows, z.value_width, kOutput));
}

void describe_attention_grad(Graph& graph, const AttentionBackward& b) {
  const AttentionForward& a = b.forward;
  const attention::Sizes& z = a.sizes;
  Operations ops(graph, a);
  const Part q = ops.rows(a.query, z.heads, z.rows, z.width, kQuery);
  const Part k = ops.columns(a.key, z.shared, z.keys, z.width, kKey);
  const Part v = ops.columns(a.value, z.shared, z.keys, z.value_width, kValue);
  const Part o =
      ops.rows(dense_rows(a.output, z.heads, z.rows, z.value_width), z.heads, z.rows, z.value_width, kOutput);
  const Part g = ops.rows(b.grad_output, z.heads, z.rows, z.value_width, kGradOutput);
  const Part scale = ops.number(kScale);
  const Layout keys_by_rows = transposed(ops.score_layout());

  const Part products =
      ops.pointwise(kMultiply, g, o, graph.between(kFloat, dense(z.batch, z.heads, z.rows, z.value_width)));
  const Part delta = ops.pointwise(kMultiply, ops.reduce(kReduceSum, products, ops.per_row()), ops.number(kUnscaled),
                                   ops.row_numbers(kDelta));

  const Part s = ops.masked_scores(q, k, scale, ops.row_numbers(kLogsumexp));
  const Part weights = ops.pointwise(kExp, s, {}, ops.scores());

  // Into the heads of key and value: those of the query that share one are added.
  const auto gather = [&](Part left, Part right, const void* data, int64_t width, int64_t id) {
    const Part to = ops.result(data, z.shared, z.keys, width, id);
    if (z.heads == z.shared) {
      ops.matmul(left, right, to);
      return;
    }
    const Part each = graph.between(ops.type(), dense(z.batch, z.heads, z.keys, width));
    ops.reduce(kReduceSum, ops.matmul(left, right, each), to);
  };
  gather(ops.reshape(ops.kept_scaled(ops.kept(weights)), graph.between(ops.type(), keys_by_rows)), g, b.value_grad,
         z.value_width, kValueGrad);

  Part slopes = ops.kept(ops.matmul(g, v, ops.scores()));
  slopes = ops.pointwise(kSubtract, slopes, delta, ops.scores());
  slopes = ops.kept_scaled(ops.pointwise(kMultiply, slopes, weights, ops.scores()));
  slopes = ops.pointwise(kMultiply, slopes, scale, ops.scores());
  gather(ops.reshape(slopes, graph.between(ops.type(), keys_by_rows)), q, b.key_grad, z.width, kKeyGrad);

  const Part key_rows = ops.reshape(k, graph.between(ops.type(), of_rows(a.key, z.batch, z.shared, z.keys, z.width)));
  ops.matmul(slopes, key_rows, ops.result(b.query_grad, z.heads, z.rows, z.width, kQueryGrad));
}

namespace {

void bind_inputs(Task& task, const AttentionForward& a, const Numbers& numbers) {
  task.bind(kQuery, a.query.data);
  task.bind(kKey, a.key.data);
  task.bind(kValue, a.value.data);
  task.bind(kOutput, a.output);
  task.bind(kLogsumexp, a.logsumexp);
  task.bind(kScale, &numbers.scale);
  if (a.causal) task.bind(kHidden, &numbers.hidden);
  if (a.bias.defined()) task.bind(kBias, a.bias.data);
  if (!a.kept.defined()) return;
  task.bind(kKept, a.kept.data);
  task.bind(kKeptScale, &numbers.kept);
}

int major_of(int device) {
  static std::atomic<int> known[64];
  if (device >= 64) return driver().properties(device).major;
  int major = known[device].load(std::memory_order_relaxed);
  if (major == 0) known[device].store(major = driver().properties(device).major, std::memory_order_relaxed);
  return major;
}

bool on() { return cudnn_switch(CudnnSwitch::Attention) != 0 && available(); }

constexpr Choice kReproducible{.measured = false, .deterministic = true, .tf32 = false, .limit = 0};

bool run_forward(const Stream& stream, const AttentionForward& a) {
  const Numbers numbers(a);
  Task task{.key = key_of(a), .dtype = a.dtype, .choice = kReproducible, .describe = [&a](Graph& graph) {
              describe_attention(graph, a);
            }};
  bind_inputs(task, a, numbers);
  return run(stream, task);
}

bool run_backward(const Stream& stream, const AttentionBackward& b) {
  const AttentionForward& a = b.forward;
  const Numbers numbers(a);
  Task task{.key = key_of(b), .dtype = a.dtype, .choice = kReproducible, .describe = [&b](Graph& graph) {
              describe_attention_grad(graph, b);
            }};
  bind_inputs(task, a, numbers);
  task.bind(kGradOutput, b.grad_output.data);
  task.bind(kQueryGrad, b.query_grad);
  task.bind(kKeyGrad, b.key_grad);
  task.bind(kValueGrad, b.value_grad);
  task.bind(kDelta, b.delta);
  task.bind(kUnscaled, &numbers.unscaled);
  return run(stream, task);
}

}  // namespace

}  // namespace cudnn_graph

bool library_takes_attention(int device, const AttentionForward& a, bool backward) {
  using namespace cudnn_graph;
  return takes(a, backward) && on() && takes(major_of(device), version(), a.sizes, backward);
}

bool library_attention(const Stream& stream, const AttentionForward& a) {
  using namespace cudnn_graph;
  return library_takes_attention(stream.device, a, false) && readable(a) && run_forward(stream, a);
}

bool library_attention_grad(const Stream& stream, const AttentionBackward& b) {
  using namespace cudnn_graph;
  const AttentionForward& a = b.forward;
  if (!library_takes_attention(stream.device, a, true) || !readable(b)) return false;
  const Portion most = portion_of(a.sizes);
  for (int64_t batch = 0; batch < a.sizes.batch; batch += most.batch)
    for (int64_t shared = 0; shared < a.sizes.shared; shared += most.shared)
      if (!run_backward(stream, part_of(b, batch, shared, most))) return false;
  return true;
}

}  // namespace tapegrad::cuda
