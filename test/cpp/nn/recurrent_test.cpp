#include "tapegrad/nn/layers/recurrent.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "nn/training.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/tapegrad.h"

namespace tapegrad::nn {
namespace {

// Sequences of +1 and -1; the target of each step is the sign of the sum so far.
std::pair<Tensor, Tensor> sums(int64_t steps, int64_t batch) {
  const Tensor x = (tapegrad::rand({steps, batch, 1}) > 0.5).to(DType::float32) * 2 - 1;
  return {x, (x.cumsum(0) > 0).to(DType::float32)};
}

struct TaggerImpl : nn::Module {
  nn::Embedding words = register_module("words", nn::Embedding(7, 8));
  nn::LSTM lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(8, 16).num_layers(2).batch_first(true)));
  nn::Linear head = register_module("head", nn::Linear(16, 3));
  Tensor forward(const Tensor& x) {
    const auto [out, state] = lstm(words(x));
    return head(out);
  }
};
TG_MODULE(Tagger);

}  // namespace

TEST_CASE("groups of parameters and a cycle train a tagger, as in docs/cpp.md", "[nn]") {
  default_generator().manual_seed(0);
  const Tagger model;
  optim::AdamW optimizer(model->words->parameters(), {.lr = 1e-2});
  optimizer.add_param_group(model->lstm->parameters(), {.lr = 1e-2, .weight_decay = 0.1});
  optimizer.add_param_group(model->head->parameters(), {.lr = 1e-1});
  optim::OneCycleLR schedule(optimizer, {1e-2, 1e-2, 1e-1}, 60);
  bool begun = false;
  const auto loss_of = [&] {
    if (std::exchange(begun, true)) schedule.step();  // after each step of the optimizer
    const Tensor x = randint(7, {16, 6});
    return cross_entropy(model(x).reshape({-1, 3}), x.remainder(3).reshape({-1}));
  };
  const auto [first, last] =
      test::train(optimizer, 60, loss_of, [&] { nn::utils::clip_grad_norm_(model->parameters(), 1); });
  CHECK(first > 1);
  CHECK(last < 0.1);
}

TEST_CASE("a small LSTM learns to count", "[nn]") {
  default_generator().manual_seed(0);
  const LSTM lstm(LSTMOptions(1, 12));
  const Linear head(12, 1);
  std::vector<Tensor> parameters = lstm->parameters();
  for (const Tensor& p : head->parameters()) parameters.push_back(p);
  optim::Adam optimizer(parameters, {.lr = 0.03});
  const auto loss_of = [&] {
    const auto [x, y] = sums(8, 32);
    const auto [out, state] = lstm(x);
    return binary_cross_entropy_with_logits(head(out), y);
  };
  const auto [first, last] = test::train(optimizer, 80, loss_of, [&] { utils::clip_grad_norm_(parameters, 1); });
  CHECK(first > 0.6);
  CHECK(last < 0.3);
}

TEST_CASE("recurrent networks check what they are given", "[nn]") {
  CHECK_THROWS_AS(LSTM(0, 3), Error);
  CHECK_THROWS_AS(LSTM(LSTMOptions(4, 3).proj_size(3)), Error);
  CHECK_THROWS_AS(GRU(GRUOptions(4, 3).dropout(2)), Error);
  CHECK_THROWS_AS(RNN(RNNOptions(4, 3).nonlinearity("sigmoid")), Error);
  const GRU gru(4, 3);
  CHECK_THROWS_AS(gru(tapegrad::ones({5, 2, 3})), Error);
  CHECK_THROWS_AS(gru(tapegrad::ones({4})), Error);
  CHECK_THROWS_AS(gru(tapegrad::ones({5, 2, 4}, DType::float64)), Error);
  CHECK_THROWS_AS(gru(tapegrad::ones({5, 2, 4}), tapegrad::ones({1, 3, 3})), Error);
  CHECK_THROWS_AS(gru(tapegrad::ones({5, 2, 4}), tapegrad::ones({2, 3})), Error);
}

TEST_CASE("a recurrent network moves and prints", "[nn]") {
  const LSTM lstm(LSTMOptions(4, 5, 2).dropout(0.25).proj_size(2));
  std::ostringstream text;
  text << lstm;
  CHECK(text.str() == "LSTM(4, 5, proj_size=2, num_layers=2, dropout=0.25)");
  CHECK(lstm->all_weights()[1].back() == "weight_hr_l1");
  lstm->to(DType::float64);
  const auto [out, state] = lstm(tapegrad::ones({3, 2, 4}, DType::float64));
  CHECK(out.dtype() == DType::float64);
  CHECK(std::get<0>(state).sizes() == IntSpan{2, 2, 2});
  CHECK(std::get<1>(state).sizes() == IntSpan{2, 2, 5});
}

TEST_CASE("packing is undone", "[nn]") {
  const std::vector<Tensor> sequences{tapegrad::rand({2, 3}), tapegrad::rand({4, 3}), tapegrad::rand({1, 3})};
  const PackedSequence packed = utils::pack_sequence(sequences, false);
  CHECK(packed.data.sizes() == IntSpan{7, 3});
  const std::vector<Tensor> back = utils::unpack_sequence(packed);
  for (size_t i = 0; i < 3; ++i) CHECK(tapegrad::equal(back[i], sequences[i]));
  const Tensor padded = utils::pad_sequence(sequences, true, -1, "left");
  CHECK(padded.select(0, 2).select(0, 0).select(0, 0).item<float>() == -1);
  CHECK_THROWS_AS(utils::pack_sequence(sequences), Error);  // not sorted
  CHECK_THROWS_AS(utils::pack_padded_sequence(padded, {4, 4}, true), Error);
  CHECK_THROWS_AS(utils::pack_padded_sequence(padded, {5, 4, 1}, true), Error);
  CHECK_THROWS_AS(utils::pack_padded_sequence(padded, {4, 4, 0}, true), Error);
  CHECK_THROWS_AS(utils::pad_packed_sequence(packed, false, 0, 3), Error);
}

}  // namespace tapegrad::nn
