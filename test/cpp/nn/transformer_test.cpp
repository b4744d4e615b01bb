#include "tapegrad/nn/layers/transformer.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "nn/training.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/tapegrad.h"

namespace tapegrad::nn {
namespace {

// Says for each step the token two steps before.
struct CopierImpl : Module {
  Embedding tokens = register_module("tokens", Embedding(6, 16));
  Embedding places = register_module("places", Embedding(8, 16));
  TransformerEncoder encoder = register_module(
      "encoder",
      TransformerEncoder(
          TransformerEncoderLayer(TransformerEncoderLayerOptions(16, 2, 32, 0.0).batch_first(true).norm_first(true)), 2,
          LayerNorm(16)));
  Linear head = register_module("head", Linear(16, 6));
  Tensor forward(const Tensor& x) {
    const Tensor mask = Transformer::generate_square_subsequent_mask(x.size(1));
    return head(encoder(tokens(x) + places(tapegrad::arange(x.size(1))), mask));
  }
};
TG_MODULE(Copier);

}  // namespace

TEST_CASE("a small transformer learns to copy", "[nn]") {
  default_generator().manual_seed(0);
  const Copier model;
  optim::AdamW optimizer(model->parameters(), {.lr = 0.01});
  const auto loss_of = [&] {
    const Tensor x = tapegrad::randint(6, {16, 8});
    const Tensor guesses = model(x).narrow(1, 2, 6).reshape({-1, 6});
    return cross_entropy(guesses, x.narrow(1, 0, 6).reshape({-1}));
  };
  const auto [first, last] = test::train(optimizer, 120, loss_of, [] {});
  CHECK(first > 1.5);
  CHECK(last < 0.5);
}

TEST_CASE("the causal mask is found, and gives the same as the hint", "[nn]") {
  const TransformerEncoder encoder(TransformerEncoderLayer(8, 2, 16, 0.0), 2);
  encoder->eval();
  const Tensor x = tapegrad::rand({5, 2, 8}), mask = Transformer::generate_square_subsequent_mask(5);
  const Tensor found = encoder(x, mask), said = encoder(x, mask, Tensor(), true);
  const Tensor as_numbers = encoder(x, mask, Tensor(), false);
  CHECK(tapegrad::equal(found, said));
  CHECK(tapegrad::allclose(found, as_numbers, 1e-5, 1e-6));
  CHECK_FALSE(tapegrad::allclose(found, encoder(x)));
}

TEST_CASE("stacks hold copies that draw no numbers", "[nn]") {
  default_generator().manual_seed(1);
  const TransformerEncoderLayer layer(8, 2, 16);
  const uint64_t before = default_generator().offset();
  layer->linear1->weight.set_requires_grad(false);
  layer->eval();
  const TransformerEncoder encoder(layer, 3);
  CHECK(default_generator().offset() == before);
  auto& copy = encoder->layers->at<TransformerEncoderLayerImpl>(2);
  CHECK(tapegrad::equal(copy.linear2->weight, layer->linear2->weight));
  CHECK_FALSE(copy.linear2->weight.is_same(layer->linear2->weight));
  CHECK_FALSE(copy.linear1->weight.requires_grad());
  CHECK_FALSE(copy.self_attn->is_training());
  CHECK_THROWS_AS(encoder->copy_from(*layer), Error);
}

TEST_CASE("attention checks what it is given", "[nn]") {
  CHECK_THROWS_AS(MultiheadAttention(7, 2), Error);
  CHECK_THROWS_AS(TransformerEncoderLayer(8, 2, 16, 0.1, "tanh"), Error);
  const MultiheadAttention attention(8, 2);
  const Tensor x = tapegrad::rand({3, 2, 8});
  CHECK_THROWS_AS(attention(x, tapegrad::rand({3, 8}), x), Error);
  CHECK_THROWS_AS(attention(x, x, tapegrad::rand({4, 2, 8})), Error);
  CHECK_THROWS_AS(attention(x, x, x, tapegrad::zeros({2, 4})), Error);
  CHECK_THROWS_AS(attention(x, x, x, Tensor(), true, tapegrad::zeros({3, 4})), Error);
  CHECK_THROWS_AS(attention(x, x, x, Tensor(), true, tapegrad::zeros({3, 3}, DType::int64)), Error);
  CHECK_THROWS_AS(attention(x, x, x, Tensor(), true, Tensor(), true, true), Error);
  CHECK_THROWS_AS(attention(tapegrad::rand({3, 2, 6}), x, x), Error);
  const Transformer transformer(TransformerOptions(8, 2, 1, 1, 16));
  CHECK_THROWS_AS(transformer(x, tapegrad::rand({3, 3, 8})), Error);
  CHECK_THROWS_AS(transformer(x, tapegrad::rand({3, 2, 7})), Error);
}

TEST_CASE("a function may be the activation, and parts may be given", "[nn]") {
  const TransformerEncoder encoder(
      TransformerEncoderLayer(8, 2, 16, 0.0, [](const Tensor& x) { return tapegrad::tanh(x); }), 1, RMSNorm(8));
  const Transformer transformer(TransformerOptions(8, 2, 1, 1, 16, 0.0).custom_encoder(encoder));
  CHECK(transformer->encoder.ptr() == encoder.ptr());
  CHECK(transformer(tapegrad::rand({3, 2, 8}), tapegrad::rand({4, 2, 8})).sizes() == IntSpan{4, 2, 8});
  std::ostringstream text;
  text << TransformerEncoder(TransformerEncoderLayer(4, 2, 8), 2);
  CHECK(text.str().starts_with(
      "TransformerEncoder(\n  (layers): ModuleList(\n    (0-1): 2 x TransformerEncoderLayer(\n"));
}

}  // namespace tapegrad::nn
