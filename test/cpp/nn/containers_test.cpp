#include "tapegrad/nn/containers.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "tapegrad/aten/functions.h"
#include "tapegrad/tapegrad.h"

namespace tapegrad::nn {

TEST_CASE("containers of modules give their parts", "[nn]") {
  ModuleList list(Linear(2, 2), ReLU());
  list->extend(*list);
  CHECK(list->size() == 4);
  CHECK(list->at<LinearImpl>(2).options.in_features() == 2);
  CHECK_THROWS_AS(list->at<LinearImpl>(1), Error);
  CHECK_THROWS_AS((*list)[4], Error);
  CHECK(list->parameters().size() == 2);  // the same module twice
  ModuleDict dict({{"a", Linear(2, 2).ptr()}});
  CHECK(dict->contains("a"));
  CHECK(dict->keys() == std::vector<std::string>{"a"});
  CHECK_THROWS_AS(dict->insert("a", ReLU()), Error);
  CHECK_THROWS_AS((*dict)["b"], Error);
  const Sequential named({{"first", Linear(2, 3)}, {"second", ReLU()}});
  CHECK(named->state_dict()[0].first == "first.weight");
  const Sequential longer(Linear(1, 2));
  longer->extend(*named);
  CHECK(longer(tapegrad::ones({1, 1})).sizes() == IntSpan{1, 3});
}

TEST_CASE("containers of parameters give them and print", "[nn]") {
  const ParameterList list({tapegrad::ones({2, 3}), tapegrad::ones({1})});
  list->push_back(tapegrad::ones({1}), false);
  CHECK((*list)[0].requires_grad());
  CHECK_FALSE((*list)[2].requires_grad());
  CHECK_THROWS_AS((*list)[3], Error);
  CHECK_THROWS_AS(list->push_back(Tensor()), Error);
  std::ostringstream text;
  text << list;
  CHECK(text.str().starts_with("ParameterList(\n    (0): Parameter containing: [tapegrad.float32 of size 2x3]\n"));
  const ParameterDict dict({{"a", tapegrad::ones({2})}});
  CHECK((*dict)["a"].sizes() == IntSpan{2});
  CHECK_THROWS_AS((*dict)["b"], Error);
  CHECK(dict->state_dict()[0].first == "a");
}

TEST_CASE("weights that are put in later are not initialised", "[nn]") {
  const uint64_t before = default_generator().offset();
  {
    const init::SkipGuard skip;
    const Linear linear(100, 100);
  }
  CHECK(default_generator().offset() == before);
  const Linear linear(2, 2);
  CHECK(default_generator().offset() > before);
}

TEST_CASE("vectors go into parameters", "[nn]") {
  const Linear linear(2, 3);
  const std::vector<Tensor> parameters = linear->parameters();
  utils::vector_to_parameters(tapegrad::arange(9).to(DType::float32), parameters);
  CHECK(linear->bias.select(0, 2).item<float>() == 8);
  CHECK(tapegrad::equal(utils::parameters_to_vector(parameters), tapegrad::arange(9).to(DType::float32)));
  CHECK_THROWS_AS(utils::vector_to_parameters(tapegrad::ones({8}), parameters), Error);
  CHECK_THROWS_AS(utils::get_total_norm(std::vector{tapegrad::full({1}, INFINITY)}, 2, true), Error);
}

}  // namespace tapegrad::nn
