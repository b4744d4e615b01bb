// Plans for sizes that were not recorded: the native step of a plan (aten/record/native_step.h) runs dry with them.
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/autograd/profiler/call_site.h"
#include "tapegrad/bindings/record/plans.h"
#include "tapegrad/c10/threads/uninterrupted.h"

namespace tapegrad::python {

namespace {

constexpr size_t kMostNatives = 4;

// What the step does for these arguments; its reason says why nothing.
RecordingObject run_dry(const NativePlan& native, TensorSpan feeds) {
  RecordingObject made;
  made.settings = native.settings;
  const uint64_t first_node = autograd::detail::node_sequence;
  // Until it is undone no code of the program runs, not in another thread either: recorded_backward.h keeps the GIL.
  const Uninterrupted uninterrupted;
  const record::DryRun dry(native.step->leaves, native.generators);
  Recorder recorder(feeds);
  std::vector<Tensor> outputs = native.step->run(feeds);
  if (!native.two_parts) {
    std::vector<const void*> nodes;
    for (const Tensor& t : outputs) nodes.push_back(t.requires_grad() ? t.grad_fn().get() : nullptr);
    made.recording = recorder.finish(outputs, nodes);
  } else {
    recorder.pause(outputs);
    std::vector<Tensor> roots, given, result;
    for (const Tensor& t : outputs)
      if (t.requires_grad()) roots.push_back(t);
    made.leaves = leaves_of(roots, first_node, recorder);
    for (const Tensor& t : roots) given.push_back(empty_tensor(t.sizes(), t.dtype()));
    recorder.resume(given);
    result = autograd::grad(roots, made.leaves, given, /*retain_graph=*/false, /*create_graph=*/false,
                            /*allow_unused=*/true);
    roots.clear();
    for (const Tensor& t : result)
      if (!t.defined()) recorder.refuse("a parameter of it gets no gradient");
    if (recorder.reason().empty()) made.recording = recorder.finish(result, std::vector<const void*>(result.size()));
  }
  made.reason = made.recording ? made.recording->reason : recorder.reason();
  return made;
}

// Arguments like those that were recorded.
std::vector<Tensor> tensors_like(const std::vector<record::FeedGeometry>& feeds, bool two_parts, size_t first) {
  std::vector<Tensor> made;
  for (size_t i = 0; i < (two_parts ? first : feeds.size()); ++i) {
    const record::FeedGeometry& f = feeds[i];
    const auto bytes = static_cast<size_t>(f.end - f.offset);
    made.emplace_back(make_intrusive<TensorImpl>(allocate_storage(bytes, Device()), f.dtype, f.sizes, f.strides, 0));
  }
  return made;
}

// Whether dry runs give what Python gave: the same calls for the same sizes. Else why not.
std::string check(NativePlan& native) {
  const std::shared_ptr<Plan> plan = native.recorded.lock();
  if (!plan && native.checked) return native.refusal;  // by another thread, meanwhile
  if (!plan) return "the plan that it belongs to is gone";
  const Recording& recorded = plan->step.recording();
  const std::vector<Tensor> feeds = tensors_like(recorded.feeds, recorded.two_parts, recorded.first_feeds);
  RecordingObject now = run_dry(native, feeds);
  std::string what = now.reason.empty() ? now.recording->compare(recorded) : now.reason;
  auto same = [](const Tensor& a, const Tensor& b) { return a.is_same(b); };
  if (what.empty() &&
      !std::equal(now.leaves.begin(), now.leaves.end(), native.leaves.begin(), native.leaves.end(), same))
    what = "other tensors need a gradient";
  return what;
}

// Whether the arguments differ from those that were recorded by nothing but their sizes.
bool may_fit(const NativePlan& native, TensorSpan feeds) {
  if (feeds.size() > native.feeds.size()) return false;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Tensor& t = feeds[i];
    if (!t.is_cpu() || t.is_sparse() || t.is_batched() || t.dtype() != native.feeds[i].dtype ||
        static_cast<size_t>(t.ndim()) != native.feeds[i].sizes.size() || t.requires_grad() || t.impl()->is_inference())
      return false;
  }
  return true;
}

// A text in one line.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

void refuse_other_geometry(Recorder& recorder, const std::vector<PyRef>& feeds) {
  const auto& before = recorder.feeds();
  for (size_t i = 0; i < std::min(feeds.size(), before.size()); ++i) {
    const Tensor& t = unwrap(feeds[i].get());
    if ((t.is_cpu() || t.is_cuda()) && !t.is_sparse() &&
        (t.sizes() != IntSpan(before[i].sizes) || t.impl()->strides() != IntSpan(before[i].strides)))
      recorder.refuse("an argument has other sizes or strides after it");
  }
}

void keep_native(Replays& replays, const std::shared_ptr<Plan>& plan, std::unique_ptr<record::NativeStep> step,
                 std::string refusal, record::Budget budget, bool graphs) {
  if (!step && refusal.empty()) return;  // nothing was written down
  const Recording& r = plan->step.recording();
  auto native = std::make_shared<NativePlan>();
  native->step = std::move(step);
  native->refusal = std::move(refusal);
  native->recorded = plan;
  native->feeds = r.feeds;
  native->arguments = plan->arguments.copy();
  native->result = plan->result.copy();
  native->watch = plan->watch;
  native->leaves = plan->leaves;
  native->generators = r.generators;
  for (const record::Output& out : r.outputs) native->given_back.push_back(out.same);
  native->settings = plan->settings;
  native->budget = budget;
  native->graphs = graphs;
  native->two_parts = r.two_parts;
  if (native->two_parts) native->feeds.resize(r.first_feeds);
  replays.natives.push_front(std::move(native));
  if (replays.natives.size() > kMostNatives) replays.natives.pop_back();
}

bool add_for_sizes(Replays& replays, PyObject* args) {
  // Other threads may change the list while a backward pass runs dry.
  const std::vector<std::shared_ptr<NativePlan>> natives(replays.natives.begin(), replays.natives.end());
  for (const std::shared_ptr<NativePlan>& native : natives) {
    std::vector<PyObject*> objects;
    if (!(native->settings == Settings{}) || !native->arguments.matches(args, objects)) continue;
    const std::vector<Tensor> feeds = unwrapped(objects);
    if (!may_fit(*native, feeds)) continue;
    std::string& why = replays.sizes;
    if (!native->refusal.empty()) {
      why = native->refusal;
      continue;
    }
    // Comparing may run code of the program, and so change the list.
    if (!native->watch->changed().empty()) {
      if (native->watch->only_values_changed()) continue;
      replays.natives.remove(native);
      return false;
    }
    // A plan costs more than an eager call.
    if (replays.unused >= kMostUnused && ++replays.without % kSeldom != 0) {
      why.clear();
      replays.reason = kOtherSizes;
      return false;
    }
    try {
      if (!native->checked) {
        native->refusal = check(*native);
        native->checked = true;
        native->recorded.reset();
        if (!native->refusal.empty()) {
          why = native->refusal;
          continue;
        }
      }
      RecordingObject made = run_dry(*native, feeds);
      if (made.reason.empty() && made.recording->outputs.size() != native->given_back.size())
        made.reason = "it gives other results";
      if (!made.reason.empty()) {
        why = made.reason;
        continue;
      }
      for (size_t i = 0; i < made.recording->outputs.size(); ++i) {
        Tensor& same = made.recording->outputs[i].same;
        const Tensor& known = native->given_back[i];
        if (!known.defined() || !same.defined() || !known.is_same(same))
          same.reset();  // a view, made anew in each call
      }
      made.arguments = native->arguments.copy();
      made.result = native->result.copy();
      auto plan = std::make_shared<Plan>(std::move(made), native->watch, native->budget, native->graphs);
      if (!plan->step.fits(feeds)) continue;  // no replay would be like the first one
      plan->for_sizes = true;
      add_plan(replays, std::move(plan));
      ++replays.made;
      why.clear();
      return true;
    } catch (const Error& e) {  // what a call raises is raised again where the program makes it
      // Where memory lacks now it may be there another time.
      if (e.kind() == ErrorKind::OutOfMemory) {
        why.clear();
        continue;
      }
      why = first_line(e.what());
      if (!native->checked) native->refusal = why, native->checked = true;
    } catch (const std::bad_alloc&) {
      why.clear();
    }
  }
  return false;
}

}  // namespace tapegrad::python
