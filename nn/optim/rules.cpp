#include "tapegrad/nn/optim/fused.h"

#include <array>

namespace tapegrad::nn {
namespace {

template <class R>
constexpr Rule describe(int index) {
  static_assert(std::size(R::options) <= kMaxOptions && R::kScalars <= kMaxScalars);
  return {R::kName, index, R::options, {R::scalars, R::kScalars}, &R::states, &R::template prepare<double>};
}

template <class... R>
constexpr auto describe_all(R*...) {
  int index = 0;
  return std::array<Rule, sizeof...(R)>{describe<R>(index++)...};
}

}  // namespace

std::span<const Rule> optimizer_rules() {
  using namespace rules;
#define TG_RULE(name) , static_cast<name*>(nullptr)
  static const auto all = [](std::nullptr_t, auto*... r) {
    return describe_all(r...);
  }(nullptr TG_OPTIM_RULES(TG_RULE));
#undef TG_RULE
  return all;
}

const Rule& optimizer_rule(std::string_view name) {
  for (const Rule& rule : optimizer_rules())
    if (name == rule.name) return rule;
  TG_THROW(Value, "optimizer: no rule of this name: '{}'", name);
}

}  // namespace tapegrad::nn
