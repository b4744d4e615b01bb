// Hand-written layers: those whose arguments, results or parts cannot be expressed by a row of nn/modules.toml.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tapegrad/nn/containers.h"
#include "tapegrad/nn/layers.h"
#include "tapegrad/nn/sequential.h"

namespace tapegrad::nn {

// Upsample with mode "nearest".
class TG_API UpsamplingNearest2dImpl : public UpsampleImpl {
 public:
  explicit UpsamplingNearest2dImpl(std::optional<Shape> size = {}, std::optional<std::vector<double>> scale_factor = {})
      : UpsampleImpl(UpsampleOptions(std::move(size), std::move(scale_factor), "nearest")) {}
  std::string type_name() const override { return "UpsamplingNearest2d"; }
};
TG_MODULE(UpsamplingNearest2d);

// Upsample with mode "bilinear" and aligned corners.
class TG_API UpsamplingBilinear2dImpl : public UpsampleImpl {
 public:
  explicit UpsamplingBilinear2dImpl(std::optional<Shape> size = {},
                                    std::optional<std::vector<double>> scale_factor = {})
      : UpsampleImpl(UpsampleOptions(std::move(size), std::move(scale_factor), "bilinear", true)) {}
  std::string type_name() const override { return "UpsamplingBilinear2d"; }
};
TG_MODULE(UpsamplingBilinear2d);

// Batch normalisation over the batches of all processes. It is batch normalisation of any input of two or more
// dimensions; there is no communication between processes.
using SyncBatchNormOptions = BatchNorm1dOptions;
class TG_API SyncBatchNormImpl : public BatchNorm1dImpl {
 public:
  explicit SyncBatchNormImpl(SyncBatchNormOptions options) : BatchNorm1dImpl(std::move(options)) {}
  explicit SyncBatchNormImpl(int64_t num_features) : SyncBatchNormImpl(SyncBatchNormOptions(num_features)) {}
  Tensor forward(const Tensor& input);
  std::string type_name() const override { return "SyncBatchNorm"; }
};
TG_MODULE(SyncBatchNorm);

class CrossMapLRN2dOptions {
 public:
  explicit CrossMapLRN2dOptions(int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1)
      : size_(size), alpha_(alpha), beta_(beta), k_(k) {}
  TG_OPTION(CrossMapLRN2dOptions, int64_t, size);
  TG_OPTION(CrossMapLRN2dOptions, double, alpha);
  TG_OPTION(CrossMapLRN2dOptions, double, beta);
  TG_OPTION(CrossMapLRN2dOptions, double, k);
};

// Normalisation over neighbouring channels: x / (k + alpha / size sum x^2)^beta (Krizhevsky et al., 2012).
class TG_API CrossMapLRN2dImpl : public Module {
 public:
  explicit CrossMapLRN2dImpl(CrossMapLRN2dOptions given) : options(std::move(given)) {}
  explicit CrossMapLRN2dImpl(int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1)
      : CrossMapLRN2dImpl(CrossMapLRN2dOptions(size, alpha, beta, k)) {}
  Tensor forward(const Tensor& input);  // (N, C, H, W)
  std::string extra_repr() const override;
  CrossMapLRN2dOptions options;
};
TG_MODULE(CrossMapLRN2d);

using DistanceFunction = std::function<Tensor(const Tensor&, const Tensor&)>;

class TripletMarginWithDistanceLossOptions {
 public:
  // Without a function: pairwise_distance.
  explicit TripletMarginWithDistanceLossOptions(DistanceFunction distance_function = {}, double margin = 1,
                                                bool swap = false, std::string reduction = "mean")
      : distance_function_(std::move(distance_function)),
        margin_(margin),
        swap_(swap),
        reduction_(std::move(reduction)) {}
  TG_OPTION(TripletMarginWithDistanceLossOptions, DistanceFunction, distance_function);
  TG_OPTION(TripletMarginWithDistanceLossOptions, double, margin);
  TG_OPTION(TripletMarginWithDistanceLossOptions, bool, swap);
  TG_OPTION(TripletMarginWithDistanceLossOptions, std::string, reduction);
};

// The triplet loss of any distance d: max(0, margin + d(anchor, positive) - d(anchor, negative)).
class TG_API TripletMarginWithDistanceLossImpl : public Module {
 public:
  explicit TripletMarginWithDistanceLossImpl(
      TripletMarginWithDistanceLossOptions options = TripletMarginWithDistanceLossOptions());
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative);
  TripletMarginWithDistanceLossOptions options;
};
TG_MODULE(TripletMarginWithDistanceLoss);

class LinearCrossEntropyLossOptions {
 public:
  explicit LinearCrossEntropyLossOptions(int64_t in_features, int64_t num_classes,
                                         std::vector<int64_t> out_features = {}, bool bias = false,
                                         std::string reduction = "mean", Tensor weight = {},
                                         std::optional<int64_t> ignore_index = {}, double label_smoothing = 0) {
    std::tie(in_features_, num_classes_, out_features_, bias_, reduction_, weight_, ignore_index_, label_smoothing_) =
        std::forward_as_tuple(in_features, num_classes, std::move(out_features), bias, std::move(reduction),
                              std::move(weight), ignore_index, label_smoothing);
  }
  TG_OPTION(LinearCrossEntropyLossOptions, int64_t, in_features);
  TG_OPTION(LinearCrossEntropyLossOptions, int64_t, num_classes);
  TG_OPTION(LinearCrossEntropyLossOptions, std::vector<int64_t>, out_features);  // further dimensions of the loss
  TG_OPTION(LinearCrossEntropyLossOptions, bool, bias);
  TG_OPTION(LinearCrossEntropyLossOptions, std::string, reduction);
  TG_OPTION(LinearCrossEntropyLossOptions, Tensor, weight);  // of each class
  TG_OPTION(LinearCrossEntropyLossOptions, std::optional<int64_t>, ignore_index);
  TG_OPTION(LinearCrossEntropyLossOptions, double, label_smoothing);
};

// Cross entropy of a linear layer's result.
class TG_API LinearCrossEntropyLossImpl : public Module {
 public:
  explicit LinearCrossEntropyLossImpl(LinearCrossEntropyLossOptions options);
  explicit LinearCrossEntropyLossImpl(int64_t in_features, int64_t num_classes)
      : LinearCrossEntropyLossImpl(LinearCrossEntropyLossOptions(in_features, num_classes)) {}
  Tensor forward(const Tensor& input, const Tensor& target);
  std::string extra_repr() const override;
  LinearCrossEntropyLossOptions options;
  Tensor weight;
  Linear linear;
};
TG_MODULE(LinearCrossEntropyLoss);

class AdaptiveLogSoftmaxWithLossOptions {
 public:
  explicit AdaptiveLogSoftmaxWithLossOptions(int64_t in_features, int64_t n_classes, std::vector<int64_t> cutoffs,
                                             double div_value = 4, bool head_bias = false) {
    std::tie(in_features_, n_classes_, cutoffs_, div_value_, head_bias_) =
        std::forward_as_tuple(in_features, n_classes, std::move(cutoffs), div_value, head_bias);
  }
  TG_OPTION(AdaptiveLogSoftmaxWithLossOptions, int64_t, in_features);
  TG_OPTION(AdaptiveLogSoftmaxWithLossOptions, int64_t, n_classes);
  TG_OPTION(AdaptiveLogSoftmaxWithLossOptions, std::vector<int64_t>, cutoffs);
  TG_OPTION(AdaptiveLogSoftmaxWithLossOptions, double, div_value);
  TG_OPTION(AdaptiveLogSoftmaxWithLossOptions, bool, head_bias);
};

// Adaptive softmax: many classes in clusters by frequency (Grave et al., 2017).
class TG_API AdaptiveLogSoftmaxWithLossImpl : public Module {
 public:
  struct Result {
    Tensor output, loss;  // the logarithm of each target's probability, and their negative mean
  };

  explicit AdaptiveLogSoftmaxWithLossImpl(AdaptiveLogSoftmaxWithLossOptions options);
  explicit AdaptiveLogSoftmaxWithLossImpl(int64_t in_features, int64_t n_classes, std::vector<int64_t> cutoffs)
      : AdaptiveLogSoftmaxWithLossImpl(AdaptiveLogSoftmaxWithLossOptions(in_features, n_classes, std::move(cutoffs))) {}
  void reset_parameters();
  Result forward(const Tensor& input, const Tensor& target);  // (N, in_features) and (N), or without N
  Tensor log_prob(const Tensor& input);                       // of all classes, (N, n_classes)
  Tensor predict(const Tensor& input);                        // the class of the largest probability

  AdaptiveLogSoftmaxWithLossOptions options;
  Linear head{nullptr};
  ModuleList tail;

 private:
  int64_t shortlist() const { return options.cutoffs().front(); }
  Tensor cluster(size_t i, const Tensor& input) const { return tail->at<SequentialImpl>(i).forward(input); }
};
TG_MODULE(AdaptiveLogSoftmaxWithLoss);

}  // namespace tapegrad::nn
