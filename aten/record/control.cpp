#include "tapegrad/aten/record/control.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/recording.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::record {

BodyRunner (*make_body_runner)(std::shared_ptr<const Program> body) = nullptr;

namespace {

using Control = Program::Control;

// A step that is recorded keeps it, so what it needs of the operation is its own.
struct ControlFlow final : Nested {
  ControlFlow(const Program::Operation& o, std::span<const ListValue> lists, std::vector<int64_t> s)
      : control(o.control), bodies(o.bodies), runners(o.bodies.size()), sizes(std::move(s)) {
    for (const ListValue& list : lists) counts.push_back(list.tensors.size());
  }

  std::vector<Tensor> run(TensorSpan inputs) override {
    const TensorSpan first = inputs.subspan(0, counts[0]), second = inputs.subspan(counts[0], counts[1]),
                     third = inputs.subspan(counts[0] + counts[1], counts[2]);
    if (control == Control::Cond) return own(truth(first[0]) ? call(0, second) : call(1, third));
    std::vector<Tensor> carried(first.begin(), first.end());
    WorkCount count;
    const auto with = [&](TensorSpan more) {
      std::vector<Tensor> all = carried;
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    while (truth(call(0, with(second))[0])) {
      carried = call(1, with(third));
      count(1 << 10);  // a turn calls a kernel at least
    }
    return own(std::move(carried));
  }

  // Results are tensors of their own, whichever body they come of.
  static std::vector<Tensor> own(std::vector<Tensor> results) {
    for (Tensor& t : results)
      if (is_shared(t)) t = tapegrad::clone(t);
    return results;
  }

  static bool truth(const Tensor& t) {
    TG_CHECK(t.numel() == 1, Runtime, "program: Expected pred to be bool or single-element tensor, but got {}",
             format_ints(t.sizes()));
    return t.item().to<bool>();
  }

  std::vector<Tensor> call(size_t body, TensorSpan inputs) {
    if (grad_enabled() || !sizes.empty() || make_body_runner == nullptr || has_recorder())
      return bodies[body]->run(inputs, sizes);
    if (!runners[body]) runners[body] = make_body_runner(bodies[body]);
    return runners[body](inputs);
  }

  Control control;
  std::vector<std::shared_ptr<Program>> bodies;
  std::vector<BodyRunner> runners;
  std::vector<int64_t> sizes;
  std::vector<size_t> counts;
};

}  // namespace

std::vector<Tensor> run_control(const Program::Operation& o, std::span<const ListValue> lists,
                                std::vector<int64_t> sizes) {
  std::vector<Tensor> inputs;
  for (const ListValue& list : lists) inputs.insert(inputs.end(), list.tensors.begin(), list.tensors.end());
  std::vector<const void*> key;
  for (const auto& body : o.bodies) key.push_back(body.get());
  return nested_call(std::string(o.id()), std::move(key), inputs,
                     std::make_unique<ControlFlow>(o, lists, std::move(sizes)));
}

}  // namespace tapegrad::record
