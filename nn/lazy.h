// Layers that take the number of their inputs from the first batch or from a loaded state. Until then their tensors
// have no elements and the option is 0; afterwards they behave and print as the class without Lazy. The tensors stay
// the same objects, so that an optimizer may be created before or after.
//
//   const nn::Sequential net{nn::LazyConv2d(16, 3), nn::ReLU(), nn::Flatten(), nn::LazyLinear(10)};
//   net(tapegrad::rand({1, 3, 28, 28}));
//
// Constructors take the arguments of the layer's constructors, without the number of inputs. One thread at a time.
#pragma once

#include <concepts>

#include "tapegrad/nn/init.h"
#include "tapegrad/nn/layers.h"

namespace tapegrad::nn {

// `Traits` defines which option of a layer is the number of inputs, and how to get that number from an input or a
// state.
template <class Base, class LayerOptions, class Traits>
class LazyImpl : public Base {
 public:
  using Options = LayerOptions;
  // The guard lives until the layer is constructed: no random numbers are drawn for tensors without elements.
  explicit LazyImpl(Options options, const init::SkipGuard& = init::SkipGuard())
      : Base((Traits::number(options, 0), std::move(options))) {}

  Tensor forward(const Tensor& input) {
    if (is_lazy()) {
      grow(Traits::inputs_of(input));
      this->reset_parameters();
    }
    return Base::forward(input);
  }
  bool is_lazy() const { return Traits::number(this->options) == 0; }
  std::string type_name() const override { return (is_lazy() ? "Lazy" : "") + Base::type_name(); }

 protected:
  void before_load(const std::string& prefix, const NamedTensors& state) override {
    for (const auto& [name, tensor] : state)
      for (const char* telling : Traits::kTensors)
        if (is_lazy() && name == prefix + telling && tensor.dim() > Traits::kDim)
          grow(Traits::inputs_in(tensor, this->options));
  }

 private:
  void grow(int64_t inputs) {
    Options wanted = this->options;
    Traits::number(wanted, inputs);
    const init::SkipGuard skip;
    Base grown(wanted);
    for (const auto& tensors : {this->parameters(), this->buffers()})
      for (const Tensor& t : tensors) {
        if (t.is_floating_point()) grown.to(t.dtype());
        grown.to(t.device());
      }
    const std::vector<Tensor> own = this->parameters(), theirs = grown.parameters();
    for (size_t i = 0; i < own.size(); ++i) theirs[i].set_requires_grad(own[i].requires_grad());
    grown.train(this->is_training());
    this->copy_from(grown);
    this->options = wanted;
  }
};

template <class Impl>
class LazyHolder : public ModuleHolder<Impl> {
 public:
  using ModuleHolder<Impl>::ModuleHolder;
  explicit LazyHolder(typename Impl::Options options)
      : ModuleHolder<Impl>(std::make_shared<Impl>(std::move(options))) {}
  template <class... Args>
  requires std::constructible_from<typename Impl::Options, int, Args...>
  explicit LazyHolder(Args&&... args) : LazyHolder(typename Impl::Options(0, std::forward<Args>(args)...)) {}
};

struct LazyLinearTraits {
  static constexpr const char* kTensors[] = {"weight"};
  static constexpr int kDim = 1;
  static int64_t number(const LinearOptions& o) { return o.in_features(); }
  static void number(LinearOptions& o, int64_t n) { o.in_features(n); }
  static int64_t inputs_of(const Tensor& input) { return input.size(-1); }
  static int64_t inputs_in(const Tensor& weight, const LinearOptions&) { return weight.size(1); }
};

template <class Options, int kDimensions, bool kTransposed>
struct LazyConvTraits {
  static constexpr const char* kTensors[] = {"weight"};
  static constexpr int kDim = 1;
  static int64_t number(const Options& o) { return o.in_channels(); }
  static void number(Options& o, int64_t n) { o.in_channels(n); }
  static int64_t inputs_of(const Tensor& input) {
    TG_CHECK(input.dim() == kDimensions + 1 || input.dim() == kDimensions + 2, Runtime,
             "lazy convolution: expected {}D or {}D input: got shape {}", kDimensions + 1, kDimensions + 2,
             format_ints(input.sizes()));
    return input.size(input.dim() - kDimensions - 1);
  }
  static int64_t inputs_in(const Tensor& weight, const Options& o) {
    return kTransposed ? weight.size(0) : weight.size(1) * o.groups();
  }
};

template <class Options>
struct LazyNormTraits {
  static constexpr const char* kTensors[] = {"weight", "running_mean"};  // whichever it has
  static constexpr int kDim = 0;
  static int64_t number(const Options& o) { return o.num_features(); }
  static void number(Options& o, int64_t n) { o.num_features(n); }
  static int64_t inputs_of(const Tensor& input) { return input.size(1); }
  static int64_t inputs_in(const Tensor& tensor, const Options&) { return tensor.size(0); }
};
using LazyLinear = LazyHolder<LazyImpl<LinearImpl, LinearOptions, LazyLinearTraits>>;

#define TG_LAZY_LAYERS(n)                                                                                        \
  using LazyConv##n##d =                                                                                         \
      LazyHolder<LazyImpl<Conv##n##dImpl, Conv##n##dOptions, LazyConvTraits<Conv##n##dOptions, n, false>>>;      \
  using LazyConvTranspose##n##d = LazyHolder<LazyImpl<ConvTranspose##n##dImpl, ConvTranspose##n##dOptions,       \
                                                      LazyConvTraits<ConvTranspose##n##dOptions, n, true>>>;     \
  using LazyBatchNorm##n##d =                                                                                    \
      LazyHolder<LazyImpl<BatchNorm##n##dImpl, BatchNorm##n##dOptions, LazyNormTraits<BatchNorm##n##dOptions>>>; \
  using LazyInstanceNorm##n##d = LazyHolder<                                                                     \
      LazyImpl<InstanceNorm##n##dImpl, InstanceNorm##n##dOptions, LazyNormTraits<InstanceNorm##n##dOptions>>>
TG_LAZY_LAYERS(1);
TG_LAZY_LAYERS(2);
TG_LAZY_LAYERS(3);
#undef TG_LAZY_LAYERS

}  // namespace tapegrad::nn
