#include "tapegrad/nn/layers/handwritten_layers.h"

#include <algorithm>
#include <cmath>

#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_loss.h"
#include "tapegrad/aten/functions_pad.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_softmax.h"
#include "tapegrad/nn/layers/layer_support.h"

namespace tapegrad::nn {

Tensor SyncBatchNormImpl::forward(const Tensor& input) {
  TG_CHECK(input.dim() >= 2, Value, "SyncBatchNorm: expected at least 2D input: got {}D", input.dim());
  const int dimensions = static_cast<int>(input.dim()) - 2;
  return batch_norm_any(std::max(dimensions, 1), input, weight, bias, running_mean, running_var, num_batches_tracked,
                        is_training(), options.track_running_stats(), options.momentum(), options.eps());
}

Tensor CrossMapLRN2dImpl::forward(const Tensor& input) {
  TG_CHECK(input.dim() == 4, Value, "CrossMapLRN2d: expected 4D input: got {}D", input.dim());
  const int64_t before = (options.size() - 1) / 2, channels = input.size(1);
  const Tensor squares = tapegrad::pad(input.square().unsqueeze(1), {0, 0, 0, 0, before, before});
  Tensor sums = squares.narrow(2, 0, channels);
  for (int64_t i = 1; i < 2 * before + 1; ++i) sums = sums + squares.narrow(2, i, channels);
  sums = sums.squeeze(IntSpan{1});
  if (channels > before + 1) {  // as in PyTorch, whose running sum keeps the first channel to the end
    const Tensor first = input.narrow(1, 0, 1).square().expand({-1, channels - before - 1, -1, -1});
    sums = sums + tapegrad::pad(first, {0, 0, 0, 0, before + 1, 0});
  }
  return input / (sums * (options.alpha() / static_cast<double>(options.size())) + options.k()).pow(options.beta());
}

std::string CrossMapLRN2dImpl::extra_repr() const {
  return shown(options.size()) + ", alpha=" + shown(options.alpha()) + ", beta=" + shown(options.beta()) +
         ", k=" + shown(options.k());
}

TripletMarginWithDistanceLossImpl::TripletMarginWithDistanceLossImpl(TripletMarginWithDistanceLossOptions given)
    : options(std::move(given)) {
  const std::string& reduction = options.reduction();
  TG_CHECK(options.margin() > 0, Value, "TripletMarginWithDistanceLoss: expected margin to be greater than 0: got {}",
           options.margin());
  TG_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none", Value,
           "TripletMarginWithDistanceLoss: {} is not a valid value for reduction", reduction);
  if (!options.distance_function())
    options.distance_function([](const Tensor& a, const Tensor& b) { return tapegrad::pairwise_distance(a, b); });
}

Tensor TripletMarginWithDistanceLossImpl::forward(const Tensor& anchor, const Tensor& positive,
                                                  const Tensor& negative) {
  TG_CHECK(anchor.dim() == positive.dim() && anchor.dim() == negative.dim(), Runtime,
           "TripletMarginWithDistanceLoss: anchor, positive and negative are expected to have the same number of "
           "dimensions: got {}, {} and {}",
           anchor.dim(), positive.dim(), negative.dim());
  const DistanceFunction& distance = options.distance_function();
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (options.swap()) far = tapegrad::minimum(far, distance(positive, negative));
  const Tensor loss = tapegrad::clamp_min(near + options.margin() - far, 0);
  return options.reduction() == "none" ? loss : options.reduction() == "sum" ? loss.sum() : loss.mean();
}

namespace {

int64_t outputs_of(const LinearCrossEntropyLossOptions& o) {
  int64_t n = o.num_classes();
  for (int64_t size : IntSpan(o.out_features())) n *= size;
  return n;
}

}  // namespace

LinearCrossEntropyLossImpl::LinearCrossEntropyLossImpl(LinearCrossEntropyLossOptions given)
    : options(std::move(given)),
      weight(register_buffer("weight", options.weight())),
      linear(register_module("linear", Linear(options.in_features(), outputs_of(options), options.bias()))) {
  TG_CHECK(!weight.defined() || weight.sizes() == (IntSpan{options.num_classes()}), Runtime,
           "LinearCrossEntropyLoss: expected weight of shape [{}]: got {}", options.num_classes(),
           format_ints(weight.sizes()));
  TG_CHECK(options.label_smoothing() >= 0 && options.label_smoothing() <= 1, Runtime,
           "LinearCrossEntropyLoss: expected label_smoothing to be in the range [0, 1]: got {}",
           options.label_smoothing());
}

Tensor LinearCrossEntropyLossImpl::forward(const Tensor& input, const Tensor& target) {
  TG_CHECK(input.dim() == 1 || input.dim() == 2, Runtime,
           "LinearCrossEntropyLoss: expected input with dimensionality 1 or 2: got {}", input.dim());
  const bool batched = input.dim() == 2;
  TG_CHECK(batched || options.out_features().size() == 0, Runtime,
           "LinearCrossEntropyLoss: a loss of several dimensions requires batched input");
  DimVector shape = batched ? make_shape(input.size(0), options.num_classes(), IntSpan(options.out_features()))
                            : make_shape(options.num_classes());
  TG_CHECK(!options.ignore_index() || target.sizes() != IntSpan(shape), Runtime,
           "LinearCrossEntropyLoss: ignore_index cannot be specified when target contains probabilities");
  return tapegrad::cross_entropy(linear(input).reshape(shape), target, weight, {},
                                 options.ignore_index().value_or(-100), {}, options.reduction(),
                                 options.label_smoothing());
}

std::string LinearCrossEntropyLossImpl::extra_repr() const {
  return "in_features=" + shown(options.in_features()) + ", num_classes=" + shown(options.num_classes()) +
         ", out_features=" + shown(IntSpan(options.out_features())) + ", bias=" + shown(options.bias()) +
         ", reduction=" + options.reduction() + ", ignore_index=" + shown(options.ignore_index()) +
         ", label_smoothing=" + shown(options.label_smoothing()) + ", options=None";
}

AdaptiveLogSoftmaxWithLossImpl::AdaptiveLogSoftmaxWithLossImpl(AdaptiveLogSoftmaxWithLossOptions given)
    : options(std::move(given)) {
  std::vector<int64_t> cuts = options.cutoffs();
  const int64_t classes = options.n_classes(), features = options.in_features();
  const bool rising = std::adjacent_find(cuts.begin(), cuts.end(), std::greater_equal<>()) == cuts.end();
  TG_CHECK(!cuts.empty() && rising && cuts.front() > 0 && cuts.back() <= classes - 1, Value,
           "AdaptiveLogSoftmaxWithLoss: cutoffs should be unique, positive integers in increasing order, less than "
           "n_classes, which is {}: got {}",
           classes, format_ints(cuts));
  cuts.push_back(classes);
  options.cutoffs(cuts);
  const auto clusters = static_cast<int64_t>(cuts.size()) - 1;
  head = register_module("head", Linear(features, shortlist() + clusters, options.head_bias()));
  register_module("tail", tail);
  for (int64_t i = 0; i < clusters; ++i) {
    const auto at = static_cast<size_t>(i);
    const double divisor = std::pow(options.div_value(), static_cast<double>(i + 1));
    const auto width = static_cast<int64_t>(std::floor(static_cast<double>(features) / divisor));
    const Linear down(features, width, false);  // in this order: they draw random numbers
    tail->push_back(Sequential(down, Linear(width, cuts[at + 1] - cuts[at], false)));
  }
}

void AdaptiveLogSoftmaxWithLossImpl::reset_parameters() {
  head->reset_parameters();
  for (size_t i = 0; i < tail->size(); ++i)
    for (const auto& part : (*tail)[i]->named_children()) part_as<LinearImpl>(*part.second).reset_parameters();
}

AdaptiveLogSoftmaxWithLossImpl::Result AdaptiveLogSoftmaxWithLossImpl::forward(const Tensor& input_,
                                                                               const Tensor& target_) {
  const int64_t dims = target_.dim();
  TG_CHECK(dims <= 1, Runtime, "AdaptiveLogSoftmaxWithLoss: expected a 0D or 1D target: got {}D", dims);
  TG_CHECK(input_.dim() == dims + 1 && (dims == 0 || input_.size(0) == target_.size(0)), Runtime,
           "AdaptiveLogSoftmaxWithLoss: input and target do not go together: shapes {} and {}",
           format_ints(input_.sizes()), format_ints(target_.sizes()));
  const Tensor input = dims ? input_ : input_.unsqueeze(0), target = dims ? target_ : target_.unsqueeze(0);
  if (target.numel() > 0) {
    const int64_t low = target.min().item<int64_t>(), high = target.max().item<int64_t>();
    TG_CHECK(low >= 0 && high < options.n_classes(), Runtime,
             "AdaptiveLogSoftmaxWithLoss: target values should be in [0, {}]: found values from {} to {}",
             options.n_classes() - 1, low, high);
  }
  const std::vector<int64_t>& cuts = options.cutoffs();
  const Tensor in_head = target.clone();
  Tensor within = tapegrad::zeros({target.size(0)}, input.dtype(), input.device());
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Tensor rows = ((target >= cuts[i]) & (target < cuts[i + 1])).nonzero().squeeze(IntSpan{1});
    if (rows.numel() == 0) continue;
    const Tensor log_probs = tapegrad::log_softmax(cluster(i, input.index_select(0, rows)), 1);
    const Tensor places = (target.index_select(0, rows) - cuts[i]).unsqueeze(1);
    within = within.index_copy(0, rows, log_probs.gather(1, places).squeeze(IntSpan{1}));
    in_head.index_fill_(0, rows, shortlist() + static_cast<int64_t>(i));
  }
  const Tensor scores = tapegrad::log_softmax(head(input), 1);
  const Tensor output = within + scores.gather(1, in_head.unsqueeze(1)).squeeze(IntSpan{1});
  return {dims ? output : output.squeeze(IntSpan{0}), (-output).mean()};
}

Tensor AdaptiveLogSoftmaxWithLossImpl::log_prob(const Tensor& input) {
  const Tensor scores = tapegrad::log_softmax(head(input), 1);
  std::vector<Tensor> parts{scores.narrow(1, 0, shortlist())};
  for (size_t i = 0; i < tail->size(); ++i)
    parts.push_back(tapegrad::log_softmax(cluster(i, input), 1) +
                    scores.narrow(1, shortlist() + static_cast<int64_t>(i), 1));
  return tapegrad::cat(parts, 1);
}

Tensor AdaptiveLogSoftmaxWithLossImpl::predict(const Tensor& input) {
  const Tensor output = head(input).argmax(1);
  const Tensor rows = (output >= shortlist()).nonzero().squeeze(IntSpan{1});
  if (rows.numel() == 0) return output;
  return output.index_copy(0, rows, log_prob(input.index_select(0, rows)).argmax(1));
}

}  // namespace tapegrad::nn
