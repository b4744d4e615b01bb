// What test/python/nn/test_cpp_layers.py and test/python/optim/test_cpp_optimizers.py compare with Python: hidden tests
// that read and write safetensors files in the folder TG_PEER_DIR. For each case there are
//   NAME.first   (written) the values right after construction, from seed 7
//   NAME.state   (read) the values of Python's module, which are loaded
//   NAME.in      (read) the arguments of forward
//   NAME.out     (written) results, and gradients of their sum, in training from seed 11
//   NAME.repr    (written) how it prints
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "tapegrad/aten/functions.h"
#include "tapegrad/tapegrad.h"

namespace tapegrad::nn {
namespace {

std::string folder() {
  const char* path = std::getenv("TG_PEER_DIR");
  REQUIRE(path);
  return std::string(path) + "/";
}

class Given {
 public:
  explicit Given(const std::string& path) : tensors_(load_tensors(path)) {}
  Tensor operator[](const std::string& name) const {
    for (const auto& [key, value] : tensors_)
      if (key == name) return value;
    return {};
  }

 private:
  NamedTensors tensors_;
};

template <class Holder>
void peer(const std::string& name, const std::function<Holder()>& make,
          const std::function<std::vector<Tensor>(const Holder&, const Given&)>& run) {
  const std::string base = folder() + name;
  default_generator().manual_seed(7);
  const Holder module = make();
  save(*module, base + ".first");
  std::ofstream(base + ".repr") << module;
  load(*module, base + ".state");
  default_generator().manual_seed(11);
  NamedTensors out;
  Tensor total;
  for (const Tensor& t : run(module, Given(base + ".in"))) {
    out.emplace_back(std::to_string(out.size()), t.detach());
    if (!t.is_floating_point()) continue;
    total = total.defined() ? total + t.sum() : t.sum();
  }
  if (total.requires_grad()) total.backward();
  for (const auto& [key, p] : module->named_parameters())
    if (p.grad().defined()) out.emplace_back("grad." + key, p.grad());
  for (const auto& [key, b] : module->named_buffers()) out.emplace_back("buffer." + key, b);
  save_tensors(out, base + ".out");
}

std::vector<Tensor> flat(const std::tuple<Tensor, Tensor>& r) { return {std::get<0>(r), std::get<1>(r)}; }
std::vector<Tensor> flat(const std::tuple<Tensor, State>& r) {
  const auto& [h, c] = std::get<1>(r);
  return {std::get<0>(r), h, c};
}
std::vector<Tensor> known(std::vector<Tensor> tensors) {
  std::erase_if(tensors, [](const Tensor& t) { return !t.defined(); });
  return tensors;
}
std::optional<State> state_in(const Given& in) {
  if (!in["h"].defined()) return {};
  return State{in["h"], in["c"]};
}

// A module of one argument "x".
template <class Holder>
void unary(const std::string& name, const std::function<Holder()>& make) {
  peer<Holder>(name, make, [](const Holder& m, const Given& in) { return std::vector<Tensor>{m(in["x"])}; });
}

}  // namespace

TEST_CASE("recurrent networks for Python", "[.python]") {
  const auto rnn = [](const RNN& m, const Given& in) { return flat(m(in["x"], in["h"])); };
  const auto gru = [](const GRU& m, const Given& in) { return flat(m(in["x"], in["h"])); };
  const auto lstm = [](const LSTM& m, const Given& in) { return flat(m(in["x"], state_in(in))); };
  peer<RNN>("rnn", [] { return RNN(4, 3); }, rnn);
  peer<RNN>("rnn_relu", [] { return RNN(RNNOptions(4, 3).nonlinearity("relu").num_layers(2).bias(false)); }, rnn);
  peer<GRU>("gru", [] { return GRU(GRUOptions(4, 3).num_layers(2).bidirectional(true).dropout(0.5)); }, gru);
  peer<LSTM>("lstm", [] { return LSTM(LSTMOptions(4, 3).num_layers(2).bidirectional(true).batch_first(true)); }, lstm);
  peer<LSTM>("lstm_unbatched", [] { return LSTM(4, 3); }, lstm);
  peer<LSTM>("lstm_proj", [] { return LSTM(LSTMOptions(4, 5).proj_size(2)); }, lstm);
  peer<LSTM>(
      "lstm_packed", [] { return LSTM(LSTMOptions(4, 3).bidirectional(true)); },
      [](const LSTM& m, const Given& in) {
        const PackedSequence packed = utils::pack_padded_sequence(in["x"], in["lengths"], false, false);
        const auto [out, state] = m(packed);
        const auto [padded, lengths] = utils::pad_packed_sequence(out);
        return std::vector<Tensor>{padded, std::get<0>(state), std::get<1>(state), lengths};
      });
  peer<GRU>(
      "gru_packed", [] { return GRU(4, 3); },
      [](const GRU& m, const Given& in) {
        const PackedSequence packed = utils::pack_padded_sequence(in["x"], in["lengths"], true);
        const auto [out, state] = m(packed, in["h"]);
        const auto [padded, lengths] = utils::pad_packed_sequence(out, true, -1, 6);
        return std::vector<Tensor>{padded, state, lengths};
      });
}

TEST_CASE("transformers for Python", "[.python]") {
  const auto attention = [](const MultiheadAttention& m, const Given& in) {
    return known(flat(m(in["q"], in["k"], in["v"], in["padding"], true, in["mask"])));
  };
  const auto self_attention = [](const MultiheadAttention& m, const Given& in) {
    const Tensor x = in["x"];
    return known(flat(m(x, x, x, in["padding"], false, in["mask"])));
  };
  peer<MultiheadAttention>("mha", [] { return MultiheadAttention(8, 2); }, attention);
  peer<MultiheadAttention>(
      "mha_self", [] { return MultiheadAttention(MultiheadAttentionOptions(8, 2).batch_first(true)); }, self_attention);
  peer<MultiheadAttention>(
      "mha_dims",
      [] { return MultiheadAttention(MultiheadAttentionOptions(8, 2).kdim(5).vdim(6).add_bias_kv(true).dropout(0.3)); },
      attention);
  peer<MultiheadAttention>(
      "mha_zero", [] { return MultiheadAttention(MultiheadAttentionOptions(8, 4).add_zero_attn(true).bias(false)); },
      self_attention);

  peer<TransformerEncoderLayer>(
      "encoder_layer", [] { return TransformerEncoderLayer(8, 2, 16, 0.1); },
      [](const TransformerEncoderLayer& m, const Given& in) {
        return std::vector<Tensor>{m(in["x"], in["mask"], in["padding"])};
      });
  peer<TransformerDecoderLayer>(
      "decoder_layer",
      [] {
        return TransformerDecoderLayer(
            TransformerDecoderLayerOptions(8, 2, 16, 0.0).activation("gelu").norm_first(true).batch_first(true));
      },
      [](const TransformerDecoderLayer& m, const Given& in) {
        return std::vector<Tensor>{m(in["x"], in["memory"], in["mask"])};
      });
  peer<TransformerEncoder>(
      "encoder", [] { return TransformerEncoder(TransformerEncoderLayer(8, 2, 16, 0.1), 2, LayerNorm(8)); },
      [](const TransformerEncoder& m, const Given& in) { return std::vector<Tensor>{m(in["x"], in["mask"])}; });
  peer<TransformerDecoder>(
      "decoder", [] { return TransformerDecoder(TransformerDecoderLayer(8, 2, 16, 0.1), 2); },
      [](const TransformerDecoder& m, const Given& in) {
        return std::vector<Tensor>{m(in["x"], in["memory"], in["mask"])};
      });
  peer<Transformer>(
      "transformer", [] { return Transformer(TransformerOptions(8, 2, 2, 1, 16).dropout(0.2).bias(false)); },
      [](const Transformer& m, const Given& in) {
        return std::vector<Tensor>{m(in["src"], in["tgt"], Tensor(), in["mask"], Tensor(), in["padding"])};
      });
}

TEST_CASE("other layers for Python", "[.python]") {
  peer<EmbeddingBag>(
      "embedding_bag", [] { return EmbeddingBag(EmbeddingBagOptions(6, 3).mode("sum").padding_idx(-2)); },
      [](const EmbeddingBag& m, const Given& in) {
        return std::vector<Tensor>{m(in["x"], in["offsets"], in["weights"])};
      });
  peer<MaxUnpool2d>(
      "max_unpool", [] { return MaxUnpool2d(2); },
      [](const MaxUnpool2d& m, const Given& in) {
        const auto [values, indices] = MaxPool2d(2)->forward_with_indices(in["x"]);
        return std::vector<Tensor>{m(values, indices), values, indices};
      });
  peer<FractionalMaxPool2d>(
      "fractional", [] { return FractionalMaxPool2d(FractionalMaxPool2dOptions(2).output_size(3)); },
      [](const FractionalMaxPool2d& m, const Given& in) { return flat(m->forward_with_indices(in["x"])); });
  peer<CTCLoss>(
      "ctc", [] { return CTCLoss(CTCLossOptions().reduction("sum")); },
      [](const CTCLoss& m, const Given& in) {
        return std::vector<Tensor>{m(in["x"], in["targets"], in["lengths"], in["target_lengths"])};
      });
  unary<SyncBatchNorm>("sync_batch_norm", [] { return SyncBatchNorm(3); });
  unary<CrossMapLRN2d>("cross_map", [] { return CrossMapLRN2d(3, 1e-2, 0.5, 2); });
  unary<UpsamplingNearest2d>("nearest", [] { return UpsamplingNearest2d(Shape{5, 7}); });
  unary<UpsamplingBilinear2d>("bilinear", [] { return UpsamplingBilinear2d(std::nullopt, std::vector<double>{2.0}); });
  peer<TripletMarginWithDistanceLoss>(
      "triplet",
      [] { return TripletMarginWithDistanceLoss(TripletMarginWithDistanceLossOptions().swap(true).margin(2)); },
      [](const TripletMarginWithDistanceLoss& m, const Given& in) {
        return std::vector<Tensor>{m(in["a"], in["p"], in["n"])};
      });
  peer<LinearCrossEntropyLoss>(
      "linear_cross_entropy",
      [] { return LinearCrossEntropyLoss(LinearCrossEntropyLossOptions(4, 5).bias(true).label_smoothing(0.1)); },
      [](const LinearCrossEntropyLoss& m, const Given& in) { return std::vector<Tensor>{m(in["x"], in["target"])}; });
  peer<AdaptiveLogSoftmaxWithLoss>(
      "adaptive_softmax", [] { return AdaptiveLogSoftmaxWithLoss(8, 12, std::vector<int64_t>{3, 7}); },
      [](const AdaptiveLogSoftmaxWithLoss& m, const Given& in) {
        const auto [output, loss] = m(in["x"], in["target"]);
        return std::vector<Tensor>{output, loss, m->log_prob(in["x"]), m->predict(in["x"])};
      });
  const auto lazy = [] {
    const Sequential net{LazyConv2d(4, 3, 2),
                         LazyBatchNorm2d(),
                         LazyConvTranspose2d(ConvTranspose2dOptions(0, 6, 2).groups(2)),
                         LazyInstanceNorm2d(InstanceNorm2dOptions(0).affine(true)),
                         Flatten(),
                         LazyLinear(5, false)};
    net(tapegrad::ones({2, 3, 7, 7}));
    return net;
  };
  unary<Sequential>("lazy", lazy);
  unary<Sequential>("lazy_loaded",
                    [] { return Sequential{LazyConv1d(4, 3), LazyBatchNorm1d(), LazyConvTranspose1d(3, 2)}; });
  peer<Sequential>(
      "containers",
      [] {
        ModuleList list{Linear(3, 3), Linear(3, 3), ReLU()};
        const ModuleDict dict({{"first", Linear(3, 2).ptr()}, {"act", Tanh().ptr()}});
        const ParameterList values({tapegrad::ones({2, 3}), tapegrad::zeros({1})});
        const ParameterDict named({{"scale", tapegrad::ones({2})}});
        struct HolderImpl : Module {
          Tensor forward(const Tensor& x) {
            const Tensor y = list->at<LinearImpl>(1).forward(list->at<LinearImpl>(0).forward(x));
            return dict->at<LinearImpl>("first").forward(y) * (*named)["scale"] + (*values)[0].sum();
          }
          ModuleList list{nullptr};
          ModuleDict dict{nullptr};
          ParameterList values{nullptr};
          ParameterDict named{nullptr};
        };
        const auto holder = std::make_shared<HolderImpl>();
        holder->list = holder->register_module("list", list);
        holder->dict = holder->register_module("dict", dict);
        holder->values = holder->register_module("values", values);
        holder->named = holder->register_module("named", named);
        return Sequential({{"holder", UnaryCall(holder)}, {"act", GELU()}});
      },
      [](const Sequential& m, const Given& in) { return std::vector<Tensor>{m(in["x"])}; });
}

TEST_CASE("initialisation and utilities for Python", "[.python]") {
  NamedTensors out;
  const auto add = [&](const char* name, const Tensor& t) { out.emplace_back(name, t); };
  default_generator().manual_seed(5);
  add("orthogonal", init::orthogonal_(tapegrad::empty({3, 5}), 2));
  add("orthogonal_tall", init::orthogonal_(tapegrad::empty({6, 2, 2})));
  add("trunc_normal", init::trunc_normal_(tapegrad::empty({50}), 0.5, 2, -1, 1.5));
  add("sparse", init::sparse_(tapegrad::empty({7, 4}), 0.4));
  add("dirac", init::dirac_(tapegrad::empty({4, 3, 3, 2}), 2));
  add("xavier_normal", init::xavier_normal_(tapegrad::empty({4, 3})));
  add("kaiming_normal", init::kaiming_normal_(tapegrad::empty({4, 3, 2}), 0.1, init::FanMode::out));
  const Given in(folder() + "utilities.in");
  std::vector<Tensor> parameters;
  for (const char* name : {"a", "b"}) {
    const Tensor p = in[name];
    p.set_requires_grad();
    p.set_grad(p.detach() * 3);
    parameters.push_back(p);
  }
  add("vector", utils::parameters_to_vector(parameters).detach());
  add("norm", utils::clip_grad_norm_(parameters, 1.5));
  add("clipped", parameters[0].grad().clone());
  add("norm_inf", utils::clip_grad_norm_(parameters, 0.2, std::numeric_limits<double>::infinity()));
  add("norm_1", utils::get_total_norm(parameters, 1));
  utils::clip_grad_value_(parameters, 0.1);
  add("clamped", parameters[1].grad().clone());
  save_tensors(out, folder() + "utilities.out");
}

}  // namespace tapegrad::nn

namespace tapegrad::optim {
namespace {

// Ten steps of two groups by the gradients of the file, saved after each.
template <class O>
void trajectory(const std::string& name, const std::function<O(std::vector<Tensor>, std::vector<Tensor>)>& make) {
  const nn::Given in(nn::folder() + "trajectory.in");
  const Tensor first = in["first"], second = in["second"];
  first.set_requires_grad();
  second.set_requires_grad();
  O optimizer = make({first}, {second});
  NamedTensors out;
  for (int step = 0; step < 10; ++step) {
    const std::string number = std::to_string(step);
    first.set_grad(in["first." + number]);
    second.set_grad(in["second." + number]);
    optimizer.step();
    out.emplace_back("first." + number, first.detach().clone());
    out.emplace_back("second." + number, second.detach().clone());
  }
  nn::save_tensors(out, nn::folder() + name + ".out");
}

Tensor ones() {
  const Tensor p = tapegrad::ones({1});
  p.set_requires_grad();
  return p;
}

}  // namespace

TEST_CASE("optimizers with groups for Python", "[.python]") {
  using List = std::vector<Tensor>;
#define TG_TRAJECTORY(Name, first, second)                   \
  trajectory<Name>(#Name, [](const List& a, const List& b) { \
    Name optimizer(a, Name##Options first);                  \
    optimizer.add_param_group(b, Name##Options second);      \
    return optimizer;                                        \
  })
#define TG_LIST(...) {__VA_ARGS__}
  TG_TRAJECTORY(SGD, TG_LIST(.lr = 0.1, .momentum = 0.9), TG_LIST(.lr = 0.01, .weight_decay = 0.1));
  TG_TRAJECTORY(Adam, TG_LIST(.lr = 0.1), TG_LIST(.lr = 0.01, .beta1 = 0.8, .amsgrad = true));
  TG_TRAJECTORY(AdamW, TG_LIST(.lr = 0.1), TG_LIST(.lr = 0.01, .weight_decay = 0.3));
  TG_TRAJECTORY(RMSprop, TG_LIST(.lr = 0.1, .centered = true), TG_LIST(.lr = 0.01, .momentum = 0.9));
  TG_TRAJECTORY(Adagrad, TG_LIST(.lr = 0.1), TG_LIST(.lr = 0.01, .lr_decay = 0.1));
  TG_TRAJECTORY(Adadelta, TG_LIST(.lr = 1), TG_LIST(.lr = 0.5, .rho = 0.8));
  TG_TRAJECTORY(Adamax, TG_LIST(.lr = 0.1), TG_LIST(.lr = 0.01, .weight_decay = 0.1));
  TG_TRAJECTORY(NAdam, TG_LIST(.lr = 0.1), TG_LIST(.lr = 0.01, .decoupled_weight_decay = true));
  TG_TRAJECTORY(RAdam, TG_LIST(.lr = 0.1), TG_LIST(.lr = 0.01, .weight_decay = 0.1));
  TG_TRAJECTORY(Rprop, TG_LIST(.lr = 0.1), TG_LIST(.lr = 0.01, .eta_plus = 1.5));
  TG_TRAJECTORY(ASGD, TG_LIST(.lr = 0.1), TG_LIST(.lr = 0.01, .t0 = 3));
}

TEST_CASE("schedules for Python", "[.python]") {
  NamedTensors out;
  const auto follow = [&](const std::string& name, const std::function<void(SGD&, const std::function<void()>&)>& run) {
    SGD sgd({ones()}, {.lr = 0.8, .momentum = 0.5});
    sgd.add_param_group({ones()}, {.lr = 0.2, .momentum = 0.5});
    std::vector<double> seen;
    run(sgd, [&] {
      for (const ParamGroup& group : sgd.param_groups()) {
        seen.push_back(group.lr());
        seen.push_back(group.get("momentum"));
      }
    });
    const Tensor t = tapegrad::empty({static_cast<int64_t>(seen.size())}, DType::float64);
    std::copy(seen.begin(), seen.end(), t.data<double>());
    out.emplace_back(name, t);
  };
  const auto steps = [](LRScheduler& schedule, const std::function<void()>& note) {
    note();
    for (int i = 0; i < 20; ++i) {
      schedule.step();
      note();
    }
  };
#define TG_FOLLOW(name, ...)                                      \
  follow(name, [&](SGD& sgd, const std::function<void()>& note) { \
    __VA_ARGS__;                                                  \
    steps(schedule, note);                                        \
  })
  TG_FOLLOW("lambda", LambdaLR schedule(sgd, [](int64_t e) { return 1.0 / static_cast<double>(e + 1); }));
  TG_FOLLOW("multiplicative", MultiplicativeLR schedule(sgd, [](int64_t e) { return e % 2 ? 0.5 : 1.5; }));
  TG_FOLLOW("step", StepLR schedule(sgd, 6, 0.5));
  TG_FOLLOW("multi_step", MultiStepLR schedule(sgd, {9, 3, 3}, 0.5));
  TG_FOLLOW("constant", ConstantLR schedule(sgd, 0.25, 4));
  TG_FOLLOW("linear", LinearLR schedule(sgd, 0.2, 0.9, 8));
  TG_FOLLOW("exponential", ExponentialLR schedule(sgd, 0.9));
  TG_FOLLOW("polynomial", PolynomialLR schedule(sgd, 15, 2));
  TG_FOLLOW("cosine", CosineAnnealingLR schedule(sgd, 8, 0.1));
  TG_FOLLOW("restarts", CosineAnnealingWarmRestarts schedule(sgd, 3, 2, 0.01));
  TG_FOLLOW("sequential", LinearLR warm(sgd, 0.1, 1, 4); ExponentialLR rest(sgd, 0.9);
            SequentialLR schedule(sgd, {&warm, &rest}, {4}));
  TG_FOLLOW("chained", ConstantLR warm(sgd, 0.1, 4); ExponentialLR rest(sgd, 0.9);
            ChainedScheduler schedule({&warm, &rest}));
  TG_FOLLOW("cyclic",
            CyclicLR schedule(sgd, {0.1, 0.2}, 0.9, {.step_size_up = 4, .step_size_down = 3, .mode = "triangular2"}));
  TG_FOLLOW("cyclic_exp", CyclicLR schedule(sgd, 0.1, 0.9, {.step_size_up = 4, .mode = "exp_range", .gamma = 0.9}));
  TG_FOLLOW("one_cycle", OneCycleLR schedule(sgd, {0.9, 0.3}, 21));
  TG_FOLLOW("one_cycle_three",
            OneCycleLR schedule(sgd, 0.9, 21, {.pct_start = 0.4, .anneal_strategy = "linear", .three_phase = true}));
  follow("plateau", [](SGD& sgd, const std::function<void()>& note) {
    ReduceLROnPlateau schedule(sgd, {.factor = 0.5, .patience = 1, .cooldown = 2, .min_lr = 0.1});
    for (const double measure : {1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9}) {
      schedule.step(measure);
      note();
    }
  });
  nn::save_tensors(out, nn::folder() + "schedules.out");
}

}  // namespace tapegrad::optim
