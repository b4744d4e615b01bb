#include "tapegrad/nn/record.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/control.h"
#include "tapegrad/aten/record/step.h"
#include "tapegrad/nn/files/program_file.h"

namespace tapegrad {

namespace {

// Plans for other sizes than those that were used last are forgotten.
constexpr size_t kMostPlans = 64;

// An input as programs were recorded with: dense, at the start of its memory.
Tensor plain(const Tensor& t) {
  const bool is = t.is_contiguous() && t.storage_offset() == 0 && !t.requires_grad();
  return is ? t : raw::clone(t.detach(), MemoryFormat::Contiguous);
}

// Bodies of control flow are served as programs are.
[[maybe_unused]] const bool serves_bodies = (record::make_body_runner =
                                                 [](std::shared_ptr<const record::Program> body) -> record::BodyRunner {
  return [record = Record(std::move(body))](TensorSpan inputs) { return record.run(inputs); };
},
                                             true);

}  // namespace

struct Record::State {
  explicit State(std::shared_ptr<const record::Program> p) : program(std::move(p)) { weights_changed(); }
  std::shared_ptr<const record::Program> program;
  std::mutex lock;
  std::vector<Storage> weights;                   // of the constants, when the plans were made
  uint64_t generation = 0;                        // how often they were exchanged
  std::list<std::unique_ptr<record::Step>> free;  // nobody runs them; the one that was used last comes first
  size_t out = 0;                                 // that somebody runs
  std::atomic<bool> eager{false};                 // it cannot be replayed

  // A plan that is out; none where there is none for these inputs.
  struct Taken {
    std::unique_ptr<record::Step> step;
    uint64_t generation;
  };
  // Constants may have been given other memory (`.data = `, `.to()`).
  bool weights_changed() {
    bool changed = false;
    size_t n = 0;
    for (const auto& v : program->values) {
      if (!v.constant.defined()) continue;
      const Storage& now = v.constant.impl()->storage();
      if (n == weights.size()) weights.emplace_back();
      if (weights[n] != now) weights[n] = now, changed = true;
      ++n;
    }
    return changed;
  }
  Taken take(TensorSpan inputs) {
    const std::lock_guard held(lock);
    if (weights_changed()) {
      free.clear();
      ++generation;
    }
    free.remove_if([](const auto& step) { return step->changed(); });
    const auto found = std::find_if(free.begin(), free.end(), [&](const auto& step) { return step->fits(inputs); });
    Taken taken{nullptr, generation};
    if (found == free.end()) return taken;
    taken.step = std::move(*found);
    free.erase(found);
    ++out;
    return taken;
  }
  void add(Taken taken) {
    if (taken.generation != generation) return;
    free.push_front(std::move(taken.step));
    if (free.size() + out > kMostPlans) free.pop_back();
  }
};

Record::Record(std::shared_ptr<const record::Program> program) : state_(std::make_shared<State>(std::move(program))) {}

Record Record::load(const std::string& path) { return Record(nn::load_program(path).program); }

std::vector<Tensor> Record::run(TensorSpan given) const {
  State& state = *state_;
  const record::Program& program = *state.program;
  program.check(given);
  const NoGradGuard no_grad;
  std::vector<Tensor> inputs;
  for (const Tensor& t : given) inputs.push_back(plain(t));
  // Tools that look at operators see them, and a caller that records itself records their kernels.
  if (state.eager || (modes() & ~uint32_t{kModeGradMask}) != 0) return program.run(inputs);
  State::Taken taken = state.take(inputs);
  if (taken.step) {
    struct Return {
      State& state;
      State::Taken& taken;
      ~Return() {
        const std::lock_guard held(state.lock);
        --state.out;
        state.add(std::move(taken));
      }
    } back{state, taken};
    taken.step->prepare();
    return taken.step->replay(inputs);
  }
  record::Recorder recorder(inputs);
  std::vector<Tensor> results = program.run(inputs);
  const std::vector<const void*> nodes(results.size(), nullptr);
  std::unique_ptr<record::Recording> recording = recorder.finish(results, nodes);
  if (!recording->reason.empty()) {
    state.eager = true;
    return results;
  }
  // Views of inputs and weights are made anew in each call.
  for (record::Output& out : recording->outputs) out.same.reset();
  taken.step = std::make_unique<record::Step>(std::move(recording));
  const std::lock_guard held(state.lock);
  state.add(std::move(taken));
  return results;
}

std::vector<Record::Input> Record::inputs() const {
  std::vector<Input> all;
  for (int v : program().inputs) {
    const record::Program::ValueInfo& info = program().values[static_cast<size_t>(v)];
    all.push_back({info.name, info.dtype, {info.sizes.begin(), info.sizes.end()}});
  }
  return all;
}
std::vector<std::string> Record::outputs() const {
  std::vector<std::string> names;
  for (int v : program().outputs) names.push_back(program().values[static_cast<size_t>(v)].name);
  return names;
}
const record::Program& Record::program() const noexcept { return *state_->program; }
size_t Record::num_plans() const {
  const std::lock_guard held(state_->lock);
  return state_->free.size() + state_->out;
}

}  // namespace tapegrad
