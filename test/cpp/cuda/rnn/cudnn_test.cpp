// Recurrent networks by cuDNN, with a double in its place: what it is told, what becomes of what it refuses, and what
// is kept.
#include <catch2/catch.hpp>
#include <random>

#include "cuda/rnn/cudnn_networks_double.h"
#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/random/default_generators.h"
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/rnn/cudnn_layout.h"
#include "tapegrad/tapegrad.h"

using namespace tapegrad;
using namespace tapegrad::cuda;
using namespace tapegrad::cuda::cudnn_rnn;
using cudnn_networks_double::Places;
using cudnn_networks_double::state;
using tapegrad::rnn::Cell;

namespace {

// Switches and the double for the length of a test.
struct Setup {
  Setup() {
    REQUIRE(tapegrad_cuda_init() > 0);
    cudnn_networks_double::State fresh;
    fresh.live = state().live;
    fresh.handles = state().handles;
    state() = std::move(fresh);
    use_cudnn(&cudnn_networks_double::functions);
  }
  ~Setup() {
    use_cudnn(nullptr);
    cudnn_double::reset_switches();
  }
};

struct Net {
  Cell cell;
  int64_t layers;
  bool bidirectional, biases;
  int64_t input, hidden, state;
  int64_t directions() const { return bidirectional ? 2 : 1; }
  bool lstm() const { return cell == Cell::Lstm; }
};

const Device kHost, kCard(DeviceType::CUDA, 0);

Tensor moved(const Tensor& t, Device device, DType dtype) {
  const Tensor narrow = to(t, dtype);
  if (device == kHost) return narrow;
  const Tensor copy = empty_tensor(TensorSpec{DimVector(t.sizes()), dtype, device, {}});
  copy.copy_(narrow);
  return copy;
}
Tensor home(const Tensor& t) {
  const Tensor copy = empty_tensor(t.sizes(), t.dtype());
  copy.copy_(t);
  return to(copy, DType::float64);
}

// Operands on the host in float64, of a size that makes no gate flat.
struct Inputs {
  Net net;
  DimVector batch_sizes;
  Tensor x, hx, cx;
  std::vector<Tensor> params;

  Inputs(const Net& of, DimVector sizes, unsigned seed = 1) : net(of), batch_sizes(std::move(sizes)) {
    std::mt19937 random(seed);
    const auto make = [&](DimVector shape) {
      const Tensor t = empty_tensor(shape, DType::float64);
      for (int64_t i = 0; i < t.numel(); ++i)
        static_cast<double*>(t.data_ptr())[i] = static_cast<double>(random() % 2001) / 1000 - 1;
      return t;
    };
    int64_t rows = 0;
    for (const int64_t size : batch_sizes) rows += size;
    const int64_t count = net.layers * net.directions(), n = batch_sizes[0], gates = rnn::gate_count(net.cell);
    x = make({rows, net.input});
    hx = make({count, n, net.state});
    if (net.lstm()) cx = make({count, n, net.hidden});
    for (int64_t at = 0; at < count; ++at) {
      const int64_t in = at < net.directions() ? net.input : net.directions() * net.state;
      params.push_back(make({gates * net.hidden, in}));
      params.push_back(make({gates * net.hidden, net.state}));
      if (net.biases) {
        params.push_back(make({gates * net.hidden}));
        params.push_back(make({gates * net.hidden}));
      }
      if (net.state != net.hidden) params.push_back(make({net.state, net.hidden}));
    }
  }

  std::vector<Tensor> leaves(Device device, DType dtype, bool grad = true) const {
    std::vector<Tensor> all{x, hx};
    if (net.lstm()) all.push_back(cx);
    all.insert(all.end(), params.begin(), params.end());
    for (Tensor& t : all) {
      t = moved(t, device, dtype);
      if (grad) t.set_requires_grad();
    }
    return all;
  }
};

// output, hy and cy.
std::vector<Tensor> compute(const Inputs& in, const std::vector<Tensor>& leaves, double dropout = 0) {
  const Net& net = in.net;
  const Tensor sizes = empty_tensor(DimVector{static_cast<int64_t>(in.batch_sizes.size())}, DType::int64);
  std::copy(in.batch_sizes.begin(), in.batch_sizes.end(), static_cast<int64_t*>(sizes.data_ptr()));
  const TensorSpan states(leaves.data() + 1, net.lstm() ? 2 : 1);
  const TensorSpan params(leaves.data() + 1 + states.size(), leaves.size() - 1 - states.size());
  const auto pair = [](auto r) { return std::vector<Tensor>{std::get<0>(r), std::get<1>(r)}; };
  const auto with = [&](auto&& f) {
    return pair(f(leaves[0], sizes, leaves[1], params, net.biases, net.layers, dropout, true, net.bidirectional));
  };
  if (net.lstm()) {
    auto r = _lstm_data(leaves[0], sizes, states, params, net.biases, net.layers, dropout, true, net.bidirectional);
    return {std::get<0>(r), std::get<1>(r), std::get<2>(r)};
  }
  return net.cell == Cell::Gru ? with(_gru_data) : net.cell == Cell::Tanh ? with(_rnn_tanh_data) : with(_rnn_relu_data);
}

std::vector<Tensor> seeds_of(const std::vector<Tensor>& outputs) {
  std::vector<Tensor> seeds;
  for (const Tensor& out : outputs) {
    const Tensor seed = empty_tensor(out.sizes(), DType::float64);
    for (int64_t i = 0; i < seed.numel(); ++i)
      static_cast<double*>(seed.data_ptr())[i] = static_cast<double>((i * 7 + 3) % 11) / 5 - 1;
    seeds.push_back(moved(seed, out.device(), out.dtype()));
  }
  return seeds;
}

// Results and the gradients of everything, on the host in float64.
std::vector<Tensor> all_of(const Inputs& in, Device device, DType dtype, double dropout = 0) {
  const std::vector<Tensor> leaves = in.leaves(device, dtype), outputs = compute(in, leaves, dropout);
  std::vector<Tensor> result(outputs), grads = autograd::grad(outputs, leaves, seeds_of(outputs));
  result.insert(result.end(), grads.begin(), grads.end());
  for (Tensor& t : result) t = home(t.detach());
  return result;
}

double difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].sizes() == b[i].sizes());
    for (int64_t j = 0; j < a[i].numel(); ++j) {
      const double x = static_cast<double*>(a[i].data_ptr())[j], y = static_cast<double*>(b[i].data_ptr())[j];
      const double d = std::abs(x - y) / (1 + std::abs(y));
      most = d <= most ? most : d;  // keeps NaN
    }
  }
  return most;
}

const std::vector<Net> kNets{{Cell::Lstm, 1, false, true, 3, 4, 4}, {Cell::Lstm, 2, true, true, 5, 3, 3},
                             {Cell::Lstm, 2, true, true, 3, 5, 2},  {Cell::Lstm, 1, false, false, 2, 3, 2},
                             {Cell::Gru, 1, false, true, 4, 3, 3},  {Cell::Gru, 3, true, false, 2, 2, 2},
                             {Cell::Tanh, 2, true, true, 3, 4, 4},  {Cell::Relu, 2, false, true, 1, 1, 1},
                             {Cell::Relu, 1, true, false, 3, 5, 5}};
const std::vector<DimVector> kBatches{{2, 2, 2}, {1}, {4, 3, 3, 1}, {3, 2, 0}};

}  // namespace

TEST_CASE("Lengths of sequences come from the sizes of steps", "[cuda]") {
  CHECK(lengths_of(DimVector{3, 3, 3}) == std::vector<int>{3, 3, 3});
  CHECK(lengths_of(DimVector{4, 3, 3, 1}) == std::vector<int>{4, 3, 3, 1});
  CHECK(lengths_of(DimVector{2, 1, 0, 0}) == std::vector<int>{2, 1});
  CHECK(lengths_of(DimVector{1}) == std::vector<int>{1});
}

TEST_CASE("Weights that lie next to each other in both places are one run", "[cuda]") {
  std::vector<Run> runs;
  for (const Run& run : {Run{0, 0, 4}, {4, 4, 2}, {6, 8, 1}, {7, 9, 3}, {12, 12, 1}}) add_run(runs, run);
  CHECK(runs == std::vector<Run>{{0, 0, 6}, {6, 8, 4}, {12, 12, 1}});
}

TEST_CASE("Every size, length, dtype and configuration makes another key", "[cuda]") {
  std::set<Key> keys;
  size_t n = 0;
  const DimVector even{2, 2}, more{2, 2, 2}, falling{2, 1};
  const rnn::NetworkSizes plain{Cell::Lstm, true, false, 2, 4, 4, 4};
  std::vector<rnn::NetworkSizes> all(8, plain);
  all[1].cell = Cell::Gru;
  all[2].biases = false;
  all[3].bidirectional = true;
  all[4].layers = 3;
  all[5].input = 5;
  all[6].hidden = 5;
  all[7].state = 3;
  for (const rnn::NetworkSizes& sizes : all)
    for (const IntSpan batch : {IntSpan(even), IntSpan(more), IntSpan(falling)})
      for (const DType dtype : {DType::float32, DType::float16})
        for (const Algorithm algorithm : {kStandard, kPersistStatic})
          for (const bool tf32 : {false, true}) {
            const rnn::NetworkCall call{sizes, dtype, kCard, batch, true};
            keys.insert(key_of(call, {algorithm, tf32, false})), ++n;
            CHECK(key_of(call, {algorithm, tf32, true}) == key_of(call, {algorithm, tf32, false}));
          }
  CHECK(keys.size() == n);
  for (int64_t number = 0; number < 8; ++number) CHECK(PlanConfig::of(number).number() == number);
}

TEST_CASE("Networks by cuDNN are what the layers compute, and so are their gradients", "[cuda]") {
  const Setup setup;
  for (const Places places : {Places::Dense, Places::Scattered})
    for (const Net& net : kNets)
      for (const DimVector& batch : kBatches) {
        // Other sizes for the other places, for which there are no plans yet.
        Net sized = net;
        if (places == Places::Scattered) sized.input += 7;
        CAPTURE(&net - kNets.data(), &batch - kBatches.data(), static_cast<int>(places));
        state().places = places;
        const Inputs in(sized, batch);
        const int before = state().forwards;
        const std::vector<Tensor> host = all_of(in, kHost, DType::float64);
        for (int again = 0; again < 2; ++again) CHECK(difference(all_of(in, kCard, DType::float64), host) < 1e-12);
        CHECK(difference(all_of(in, kCard, DType::float32), host) < 1e-4);
        CHECK(state().forwards == before + 3);  // all layers and directions in one call each
      }
  CHECK((state().backwards == state().forwards && state().weight_grads == state().forwards));
}

TEST_CASE("cuDNN adds up 16 bits in float32, and takes float32 as TF32 where it is allowed", "[cuda]") {
  const Setup setup;
  const Inputs in({Cell::Gru, 2, true, true, 4, 3, 3}, {3, 2});
  const std::vector<Tensor> host = all_of(in, kHost, DType::float64);
  struct Expected {
    DType dtype;
    bool tf32;
    int type, precision, math;
    double close;
  };
  for (const Expected& e : {Expected{DType::float16, false, kHalf, kFloat, kTensorOpMath, 0.02},
                            {DType::bfloat16, false, kBfloat16, kFloat, kTensorOpMath, 0.2},
                            {DType::float32, false, kFloat, kFloat, kFmaMath, 1e-4},
                            {DType::float32, true, kFloat, kFloat, kDefaultMath, 1e-4},
                            {DType::float64, true, kDouble, kDouble, kDefaultMath, 1e-12}}) {
    CAPTURE(e.dtype, e.tf32);
    set_cudnn_switch(CudnnSwitch::AllowTF32, e.tf32);
    CHECK(difference(all_of(in, kCard, e.dtype), host) < e.close);
    const auto& used = state().used.back();
    CHECK((used.dtype == e.type && used.precision == e.precision && used.math == e.math));
    CHECK((used.algorithm == kStandard && used.cell == kGruCell && used.bias == kDoubleBias && used.layers == 2));
    CHECK((used.direction == kBothDirections && used.input == 4 && used.hidden == 3 && used.projected == 3));
  }
}

TEST_CASE("Where no gradient is wanted, cuDNN keeps nothing", "[cuda]") {
  const Setup setup;
  const Inputs in(kNets[1], {3, 2});
  std::vector<Tensor> host = compute(in, in.leaves(kHost, DType::float64, false));
  const auto run = [&](bool grad) {
    std::vector<Tensor> out = compute(in, in.leaves(kCard, DType::float64, grad));
    for (Tensor& t : out) t = home(t.detach());
    return out;
  };
  CHECK(difference(run(false), host) < 1e-12);
  {
    const NoGradGuard guard;
    CHECK(difference(run(true), host) < 1e-12);
  }
  CHECK(difference(run(true), host) < 1e-12);
  CHECK(state().modes == std::vector<int>{kInference, kInference, kTraining});
}

TEST_CASE("Inputs of any strides, batch first, and no initial gradient for some results", "[cuda]") {
  const Setup setup;
  const Inputs in({Cell::Lstm, 2, true, true, 3, 4, 4}, {2, 2, 2, 2, 2});
  const auto run = [&](Device device) {
    std::vector<Tensor> leaves = in.leaves(device, DType::float64);
    const Tensor x = transpose(transpose(reshape(leaves[0], {2, 3, 5}), 0, 2), 1, 2);  // (5, 2, 3)
    const Tensor h[] = {flip(flip(leaves[1], {0}), {0}), transpose(contiguous(transpose(leaves[2], 1, 2)), 1, 2)};
    const TensorSpan params(leaves.data() + 3, leaves.size() - 3);
    auto [out, hy, cy] = _lstm_input(transpose(x, 0, 1), TensorSpan(h, 2), params, true, 2, 0.0, true, true, true);
    const Tensor loss = sum(mul(out, out));  // nothing of the states
    std::vector<Tensor> result{out, hy, cy}, grads = autograd::grad(TensorSpan(&loss, 1), leaves);
    result.insert(result.end(), grads.begin(), grads.end());
    for (Tensor& t : result) t = home(contiguous(t.detach()));
    return result;
  };
  CHECK(difference(run(kCard), run(kHost)) < 1e-12);
  CHECK(state().forwards == 1);
}

TEST_CASE("What cuDNN kept serves a graph that stays for several backward passes", "[cuda]") {
  const Setup setup;
  const Inputs in(kNets[1], {3, 3, 1});
  const std::vector<Tensor> leaves = in.leaves(kCard, DType::float64), outputs = compute(in, leaves);
  const std::vector<Tensor> seeds = seeds_of(outputs);
  const auto grads = [&](bool retain) {
    std::vector<Tensor> g = autograd::grad(outputs, leaves, seeds, retain);
    for (Tensor& t : g) t = home(t);
    return g;
  };
  const std::vector<Tensor> first = grads(true);
  CHECK(difference(grads(true), first) == 0);
  CHECK(difference(grads(false), first) == 0);
  CHECK(state().backwards == 3);
}

TEST_CASE("Second derivatives of a network go by its layers", "[cuda]") {
  const Setup setup;
  for (const Net& net : {kNets[2], kNets[4], kNets[6]}) {
    const Inputs in(net, {3, 2, 1});
    const auto run = [&](Device device) {
      const std::vector<Tensor> leaves = in.leaves(device, DType::float64), outputs = compute(in, leaves);
      const std::vector<Tensor> first = autograd::grad(outputs, leaves, seeds_of(outputs), true, true);
      std::vector<Tensor> second = autograd::grad(first, leaves, seeds_of(first), false, false, true);
      std::vector<Tensor> all;
      for (const std::vector<Tensor>& part : {first, second})
        for (const Tensor& t : part) all.push_back(t.defined() ? home(t.detach()) : Tensor());
      std::erase_if(all, [](const Tensor& t) { return !t.defined(); });
      return all;
    };
    CHECK(difference(run(kCard), run(kHost)) < 1e-11);
  }
  CHECK((state().forwards == 3 && state().backwards == 0));
}

TEST_CASE("Gradients for several seeds at once go by the layers", "[cuda]") {
  const Setup setup;
  const Inputs in(kNets[1], {3, 2});
  const auto run = [&](Device device) {
    const std::vector<Tensor> leaves = in.leaves(device, DType::float64), outputs = compute(in, leaves);
    const int level = batch::enter(2, batch::Randomness::Error);
    std::vector<Tensor> seeds;
    for (const Tensor& seed : seeds_of(outputs)) {
      const Tensor both[] = {seed, mul(seed, seed)};
      seeds.push_back(batch::wrap(stack(both, 0), level, true));
    }
    std::vector<Tensor> grads = autograd::grad(outputs, leaves, seeds);
    for (Tensor& t : grads) t = batch::impl_of(t).physical();
    batch::leave(level);
    for (Tensor& t : grads) t = home(contiguous(t));
    return grads;
  };
  CHECK(difference(run(kCard), run(kHost)) < 1e-12);
  CHECK((state().forwards == 1 && state().backwards == 0));
}

TEST_CASE("With dropout between them, layers are networks of their own and draw what they draw without cuDNN",
          "[cuda]") {
  const Setup setup;
  const Inputs in({Cell::Lstm, 3, true, true, 3, 2, 2}, {3, 2});
  manual_seed_all(5);
  const std::vector<Tensor> host = all_of(in, kHost, DType::float64, 0.4);
  manual_seed_all(5);
  CHECK(difference(all_of(in, kCard, DType::float64, 0.4), host) < 1e-12);
  CHECK((state().forwards == 3 && state().backwards == 3));
  CHECK((state().used[0].layers == 1 && state().used[0].direction == kBothDirections));
}

TEST_CASE("What cuDNN refuses, or is not asked, is done by the layers' own kernels", "[cuda]") {
  const Setup setup;
  const auto same = [](const Inputs& in) {
    return difference(all_of(in, kCard, DType::float64), all_of(in, kHost, DType::float64)) < 1e-12;
  };
  static int64_t size = 30;  // another one each time, for which there is no plan
  const auto fresh = [&] { return Inputs({Cell::Lstm, 2, true, true, ++size, 2, 2}, {3, 2}); };

  SECTION("the network") {
    const Inputs in = fresh();
    for (const int status : {kNotSupported, kBadParameters + 3}) {
      state().network_status = status;
      const int asked = state().asked;
      CHECK(same(in));
      CHECK(same(in));
      CHECK(state().asked == asked + (status == kNotSupported ? 1 : 0));  // remembered
    }
    CHECK(state().forwards == 0);
  }
  SECTION("the forward pass") {
    const Inputs in = fresh();
    state().forward_status = kNotSupported + 7;
    CHECK(same(in));
    CHECK((state().forwards == 1 && state().backwards == 0));
    state().forward_status = kSuccess;
    CHECK(same(in));
    CHECK(state().forwards == 1);  // remembered
  }
  SECTION("a backward pass") {
    state().data_status = kNotSupported;
    CHECK(same(fresh()));
    state().data_status = kSuccess;
    state().weights_status = kNotSupported;
    CHECK(same(fresh()));
    CHECK((state().forwards == 2 && state().backwards == 2 && state().weight_grads == 1));
  }
  SECTION("switched off, or not there") {
    set_cudnn_switch(CudnnSwitch::Enabled, 0);
    CHECK(same(fresh()));
    set_cudnn_switch(CudnnSwitch::Enabled, 1);
    use_cudnn(&cudnn_networks_double::no_functions);
    CHECK(same(fresh()));
    CHECK(state().asked == 0);
  }
  SECTION("nothing to compute") {
    CHECK(same(Inputs({Cell::Gru, 1, true, true, 3, 0, 0}, {2, 1})));
    CHECK(same(Inputs({Cell::Lstm, 2, false, true, 3, 2, 2}, {0, 0})));
    CHECK(same(Inputs({Cell::Tanh, 1, false, true, 0, 2, 2}, {2, 2})));
    CHECK(state().asked == 0);
  }
  SECTION("after the forward pass was its own") {
    const Inputs in = fresh();
    const std::vector<Tensor> host = all_of(in, kHost, DType::float64);
    const std::vector<Tensor> leaves = in.leaves(kCard, DType::float64), outputs = compute(in, leaves);
    set_cudnn_switch(CudnnSwitch::Enabled, 0);  // what was kept is cuDNN's
    set_cudnn_switch(CudnnSwitch::AllowTF32, 1);
    std::vector<Tensor> grads = autograd::grad(outputs, leaves, seeds_of(outputs));
    for (Tensor& t : grads) t = home(t);
    CHECK(difference(grads, {host.begin() + 3, host.end()}) < 1e-12);
    CHECK(state().backwards == 1);
  }
}

TEST_CASE("Failures of cuDNN are raised in its words", "[cuda]") {
  const Setup setup;
  int64_t size = 60;
  const auto run = [&] { all_of(Inputs({Cell::Gru, 1, false, true, ++size, 2, 2}, {2, 2}), kCard, DType::float32); };
  state().network_status = kInternal;
  CHECK_THROWS_WITH(run(), Catch::Contains("cuda: cudnnSetRNNDescriptor_v8: OTHER: why it was"));
  state().network_status = kSuccess;
  state().forward_status = kExecutionFailed;
  CHECK_THROWS_WITH(run(), Catch::Contains("cuda: cudnnRNNForward: EXECUTION_FAILED: why it was"));
  state().forward_status = kSuccess;
  state().data_status = kExecutionFailed;
  CHECK_THROWS_WITH(run(), Catch::Contains("cudnnRNNBackwardData_v8"));
  state().data_status = kSuccess;
  state().weights_status = kDeviceAllocationFailed;
  CHECK_THROWS_WITH(run(), Catch::Contains("cudnnRNNBackwardWeights_v8: out of memory"));
}

TEST_CASE("Wrong operands are named as without cuDNN", "[cuda]") {
  const Setup setup;
  const Inputs in(kNets[0], {2, 1});
  const auto message = [&](Device device, DType dtype, size_t which, const Tensor& wrong) {
    std::vector<Tensor> leaves = in.leaves(device, DType::float64, false);
    leaves[which] = moved(wrong, device, dtype);
    try {
      compute(in, leaves);
      return std::string("none");
    } catch (const Error& e) {
      return e.message();
    }
  };
  int right = 0;
  for (size_t which = 0; which < 7; ++which)
    for (const Tensor& wrong : {zeros({2, 3}), zeros({1, 2, 9}), zeros({1, 2, 4}), zeros({16}), zeros({16, 3})})
      for (const DType dtype : {DType::float64, DType::float32}) {
        CAPTURE(which, wrong.ndim(), dtype);
        const std::string found = message(kCard, dtype, which, wrong);
        CHECK(found == message(kHost, dtype, which, wrong));
        right += found == "none";
      }
  CHECK((right == 5 && state().forwards == right));  // the two states, the input's weight and the biases
}

TEST_CASE("The row refuses what its library did not choose", "[cuda]") {
  const Setup setup;
  const Inputs in(kNets[0], {2, 1});
  const std::vector<Tensor> leaves = in.leaves(kCard, DType::float64, false);
  std::vector<Tensor> flat;
  for (const Tensor& t : {leaves[3], leaves[4], leaves[5], leaves[6]}) flat.push_back(reshape(t, {t.numel()}));
  const Tensor weights = cat(flat, 0);
  const auto forward = [&](int64_t layers, int64_t method, int64_t reserve, const Tensor& w) {
    return _rnn_network(leaves[0], leaves[1], leaves[2], w, in.batch_sizes, 2, true, layers, false, method, reserve);
  };
  CHECK_THROWS_WITH(forward(1, 8, 0, weights), "rnn: cuDNN has no method 8");
  CHECK_THROWS_WITH(forward(1, -1, 0, weights), "rnn: cuDNN has no method -1");
  CHECK_THROWS_WITH(forward(1, 0, 5, weights), "rnn: cuDNN keeps 0 bytes of this network: got 5");
  CHECK_THROWS_WITH(forward(1, 4, 5, weights), Catch::Contains("bytes of this network: got 5"));
  CHECK_THROWS_WITH(forward(1, 0, -1, weights), "rnn: expected a number of bytes to keep: got -1");
  CHECK_THROWS_WITH(forward(int64_t{1} << 60, 0, 0, weights),
                    Catch::Contains("expected a state of 1152921504606846976"));
  CHECK_THROWS_WITH(forward(1, 0, 0, narrow(weights, 0, 1, 100)),
                    "rnn: expected the weights as one vector of 144 elements: got [100]");
  CHECK_THROWS_WITH(_rnn_network(home(leaves[0]), home(leaves[1]), home(leaves[2]), home(weights), in.batch_sizes, 2,
                                 true, 1, false, 0, 0),
                    "rnn: the CPU has no library of recurrent networks: use rnn_layer");
  auto [y, hy, cy, kept] = forward(1, 0, 0, weights);
  CHECK_THROWS_WITH(_rnn_network_grad(y, hy, cy, leaves[0], leaves[1], leaves[2], weights, y, kept, in.batch_sizes, 2,
                                      true, 1, false, 0, true),
                    "rnn: what cuDNN computed without a gradient has none: method 0");
  use_cudnn(&cudnn_networks_double::no_functions);
  CHECK_THROWS_WITH(forward(1, 0, 0, weights), "rnn: there is no cuDNN: use rnn_layer");
  CHECK(state().forwards == 1);
}

TEST_CASE("At most 512 descriptions of networks are kept per device", "[cuda]") {
  const Setup setup;
  for (int64_t steps = 1; steps <= 600; ++steps) {
    const rnn::NetworkSizes sizes{Cell::Tanh, true, false, 1, 1, 1, 1};
    const DimVector batch(static_cast<size_t>(steps), 1);
    REQUIRE(rnn::choose_method.load()({sizes, DType::float32, kCard, batch, true}));
  }
  CHECK(state().live.size() <= 512 * 6);  // dropout, network, rows of input and output, two states
  const int asked = state().asked;
  const DimVector last(600, 1), first(1, 1);
  const rnn::NetworkSizes sizes{Cell::Tanh, true, false, 1, 1, 1, 1};
  REQUIRE(rnn::choose_method.load()({sizes, DType::float32, kCard, last, false}));
  CHECK(state().asked == asked);
  REQUIRE(rnn::choose_method.load()({sizes, DType::float32, kCard, first, false}));
  CHECK(state().asked == asked + 1);
}

TEST_CASE("A network that is captured has a handle of its own, and nothing is measured", "[cuda]") {
  const Setup setup;
  set_cudnn_switch(CudnnSwitch::Benchmark, 1);
  const Inputs in({Cell::Lstm, 2, false, true, 91, 2, 2}, {2, 2});
  const std::vector<Tensor> leaves = in.leaves(kCard, DType::float32);
  const Stream stream = stream_from_pool(0);
  const StreamGuard guard(stream);
  set_cudnn_switch(CudnnSwitch::Enabled, 0);
  const std::vector<Tensor> seeds = seeds_of(compute(in, leaves));
  set_cudnn_switch(CudnnSwitch::Enabled, 1);
  DeviceInterface& card = *device_interface(DeviceType::CUDA);
  const int64_t queue = static_cast<int64_t>(reinterpret_cast<uintptr_t>(stream.handle));
  const DeviceValue pool = card.call("new_pool", {}), zero = int64_t{0};
  card.call("pool_retain", {zero, pool});
  card.call("begin_capture", {zero, queue, pool, "global"});
  {
    const std::vector<Tensor> outputs = compute(in, leaves);
    (void)autograd::grad(outputs, leaves, seeds);
  }
  card.call("destroy_graph",
            {card.call("end_capture", {zero, queue, pool}), zero});  // raises where something has waited
  card.call("pool_release", {zero, pool});
  CHECK((state().forwards == 1 && state().backwards == 1 && state().weight_grads == 1));
  const void* const captured = state().handles_used[0];
  CHECK((state().handles_used[1] == captured && state().handles_used[2] == captured));
  set_cudnn_switch(CudnnSwitch::Benchmark, 0);
  (void)compute(in, leaves);
  CHECK(state().handles_used.back() != captured);
}

TEST_CASE("The persistent algorithm is measured for those who ask, unless results must be reproducible", "[cuda]") {
  const Setup setup;
  set_cudnn_switch(CudnnSwitch::Benchmark, 1);
  int64_t size = 120;
  const auto run = [&] {
    state().used.clear();
    const Inputs in({Cell::Lstm, 1, false, true, ++size, 2, 2}, {2, 2});
    CHECK(difference(all_of(in, kCard, DType::float64), all_of(in, kHost, DType::float64)) < 1e-11);
    std::vector<int> algorithms;
    for (const auto& network : state().used) algorithms.push_back(network.algorithm);
    return algorithms;
  };
  std::vector<int> used = run();
  REQUIRE(used.size() == 2 * 4 + 1);  // each once and three times, then the faster one
  CHECK((used[3] == kStandard && used[4] == kPersistStatic && used[7] == kPersistStatic));
  --size;
  CHECK(run() == std::vector<int>{used.back()});  // kept
  state().refused_algorithms = {kPersistStatic};
  CHECK(run() == std::vector<int>(5, kStandard));
  state().refused_algorithms = {};
  for (const CudnnSwitch reproducible : {CudnnSwitch::Deterministic, CudnnSwitch::Reproducible}) {
    set_cudnn_switch(reproducible, 1);
    CHECK(run() == std::vector<int>{kStandard});
    set_cudnn_switch(reproducible, 0);
  }
}
