// tapegrad._C._Recorder, _Recording, _Watch and _Replays: what the package tapegrad.record is made of.
//
//   recorder = _Recorder(args, kwargs)       records this thread's calls from here on
//   recording = recorder.finish(result)      ends it; recording.reason says why it cannot be replayed, or ""
//   recording.difference(earlier)            what is not the same in both, or ""
//   replays.add(recording, watch)            keeps it as a plan
//   replays.run(args, kwargs)                replays the plan that fits, or returns NotImplemented
#include "tapegrad/bindings/record/plans.h"

#include <algorithm>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/autograd/engine/accumulate.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/autograd/profiler/call_site.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/arguments/override.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/record/nested.h"
#include "tapegrad/bindings/record/places.h"
#include "tapegrad/bindings/record/reads.h"

namespace tapegrad::python {

PyTypeObject* replays_type = nullptr;

std::vector<Tensor> unwrapped(const std::vector<PyObject*>& objects) {
  std::vector<Tensor> tensors;
  tensors.reserve(objects.size());
  for (PyObject* o : objects) tensors.push_back(unwrap(o));
  return tensors;
}

namespace {

// Of a result whose graph the step itself has used up.
struct RecordedBackward final : autograd::Node {
  const char* name() const override { return "RecordedBackward"; }
  autograd::GradList apply(autograd::GradList) override {
    TG_THROW(Runtime,
             "backward: Trying to backward through the graph a second time: it belongs to a recorded step, whose own "
             "backward() has used it up");
  }
};

PyTypeObject *recorder_type = nullptr, *recording_type = nullptr;

bool has_hooks(const Recording& recording);

// --- the tape's nodes of a forward pass ---

// Gradients of all outputs, contiguous: as they are recorded, and as each replay has them.
std::vector<Tensor> complete(const autograd::Node& node, autograd::GradList& grads) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < grads.size(); ++i) {
    const autograd::OutputMeta& out = node.outputs[i];
    const Tensor& g = grads[i];
    all.push_back(!g.defined()        ? raw::zeros(out.sizes, out.dtype, out.device)
                  : g.is_contiguous() ? g
                                      : raw::contiguous(g));
  }
  return all;
}

// As PyTorch's compile refuses it.
void refuse_create_graph() {
  TG_CHECK(!grad_enabled(), Runtime,
           "backward: a recorded forward pass (compile) does not support double backward: got create_graph=True\n"
           "call the function without compile(), or within compiler.set_stance(\"force_eager\")");
}

autograd::GradList listed(std::vector<Tensor> tensors) {
  autograd::GradList list;
  for (Tensor& t : tensors) list.emplace_back(std::move(t));
  return list;
}

void add_leaves(autograd::Node& node, const std::vector<Tensor>& leaves) {
  for (const Tensor& leaf : leaves) node.edges.emplace_back(autograd::Edge{autograd::accumulator_of(leaf), 0});
}

// Of a recorded forward pass: the backward pass of the function itself runs here, and is recorded.
struct RecordingBackward final : autograd::Node {
  explicit RecordingBackward(std::shared_ptr<TwoParts> p) : parts(std::move(p)) {}
  ~RecordingBackward() override { drop_contents(); }  // which is not called where a graph goes as a whole
  const char* name() const override { return "RecordedBackward"; }
  autograd::GradList apply(autograd::GradList grads) override {
    TG_CHECK(!parts->outputs.empty(), Runtime, "backward: Trying to backward through the graph a second time");
    std::vector<Tensor> given = complete(*this, grads);
    refuse_create_graph();
    const bool keeps = autograd::keeps_graph();
    std::unique_ptr<Recorder> recorder = std::move(parts->recorder);
    if (recorder && record::active()) recorder->refuse("its backward pass is part of another recorded step");
    const bool records = recorder && recorder->reason().empty();
    if (records) recorder->resume(given);
    std::vector<Tensor> result =
        autograd::grad(parts->outputs, parts->leaves, given, keeps, /*create_graph=*/false, /*allow_unused=*/true);
    if (!keeps) parts->outputs.clear();
    if (recorder) {
      std::vector<Tensor> defined;
      for (const Tensor& t : result) {
        if (!t.defined()) recorder->refuse("a parameter of it gets no gradient");
        if (t.defined()) defined.push_back(t);
      }
      const std::vector<const void*> nodes(defined.size(), nullptr);
      std::unique_ptr<Recording> done = recorder->finish(records ? TensorSpan(defined) : TensorSpan(), nodes);
      const std::lock_guard held(parts->lock);
      parts->done = std::move(done);
    }
    return listed(std::move(result));
  }
  void release_saved() noexcept override { parts->outputs.clear(); }
  void drop_contents() noexcept override {
    const std::lock_guard held(parts->lock);
    parts->outputs.clear();
    parts->recorder.reset();
  }
  std::shared_ptr<TwoParts> parts;
};

// Of a replayed one. It holds the plan, which nobody else replays until this node has run or is gone.
struct ReplayBackward final : autograd::Node {
  explicit ReplayBackward(std::shared_ptr<Plan> p) : plan(std::move(p)) {}
  ~ReplayBackward() override { drop_plan(); }
  const char* name() const override { return "RecordedBackward"; }
  autograd::GradList apply(autograd::GradList grads) override {
    TG_CHECK(plan, Runtime, "backward: Trying to backward through the graph a second time");
    refuse_create_graph();
    const std::vector<Tensor> given = complete(*this, grads);
    const bool keeps = autograd::keeps_graph();
    std::vector<Tensor> result = plan->step.replay_second(given, keeps);
    if (!keeps) drop_plan();
    return listed(std::move(result));
  }
  void release_saved() noexcept override {}
  void drop_contents() noexcept override { drop_plan(); }
  void drop_plan() noexcept;
  std::shared_ptr<Plan> plan;
};

// --- _Recorder ---

PyObject* recorder_new(PyTypeObject* type, PyObject* args, PyObject*) {
  TG_PY_TRY
  RecorderObject made;
  std::vector<PyObject*> feeds;
  made.arguments = Tree::of(args, feeds);
  for (PyObject* o : feeds) made.feeds.push_back(PyRef::borrow(o));
  const std::vector<Tensor> tensors = unwrapped(feeds);
  PyRef object(box<RecorderObject>(type, std::move(made)));
  auto& o = unbox<RecorderObject>(object.get());
  o.recorder = std::make_unique<Recorder>(TensorSpan(tensors), /*follows_values=*/true);
  return object.release();
  TG_PY_CATCH
}

// follow_sizes(): before the step begins.
PyObject* recorder_follow_sizes(PyObject* self, PyObject*) {
  TG_PY_TRY
  auto& o = unbox<RecorderObject>(self);
  std::vector<Tensor> tensors;
  for (const PyRef& feed : o.feeds) tensors.push_back(unwrap(feed.get()));
  o.trace = std::make_unique<record::NativeTrace>(tensors, *o.recorder);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// finish(result, reads): see Tree::of.
PyObject* recorder_finish(PyObject* self, PyObject* args) {
  TG_PY_TRY
  PyObject *value, *reads;
  if (!PyArg_ParseTuple(args, "OO!:finish", &value, &PyList_Type, &reads)) return nullptr;
  auto& own_recorder = unbox<RecorderObject>(self);
  TG_CHECK(own_recorder.recorder, Runtime, "finish: the recording has ended");
  const std::unique_ptr<Recorder> recorder = std::move(own_recorder.recorder);
  const std::unique_ptr<record::NativeTrace> trace = std::move(own_recorder.trace);
  std::vector<PyObject*> known, outputs;
  for (const PyRef& o : own_recorder.feeds) known.push_back(o.get());
  RecordingObject made;
  Tree::Results results{known, *recorder, reads};
  made.result = Tree::of(value, outputs, &results);
  made.arguments = std::move(own_recorder.arguments);
  made.settings = own_recorder.settings;
  made.audited = own_recorder.audited;
  const std::vector<Tensor> tensors = unwrapped(outputs);
  check_status(PyList_SetSlice(reads, 0, PyList_GET_SIZE(reads), nullptr));  // copies for numbers that are no results
  std::vector<const void*> nodes;
  for (const Tensor& t : tensors) nodes.push_back(t.requires_grad() ? t.grad_fn().get() : nullptr);
  refuse_other_geometry(*recorder, own_recorder.feeds);
  if (trace) made.native = trace->finish(tensors), made.sizes = trace->reason();
  made.recording = recorder->finish(tensors, nodes);
  if (made.recording->reason.empty() && has_hooks(*made.recording)) made.recording->reason = "a parameter has a hook";
  made.reason = made.recording->reason;
  if (made.native && !made.recording->path.empty()) {
    made.native.reset();
    made.sizes = "it goes on by a value (" + made.recording->read + ")";
  }
  return box<RecordingObject>(recording_type, std::move(made));
  TG_PY_CATCH
}

}  // namespace

std::vector<Tensor> leaves_of(const std::vector<Tensor>& outputs, uint64_t first_node, Recorder& recorder) {
  std::vector<Tensor> leaves;
  std::unordered_set<const autograd::Node*> seen;
  std::vector<autograd::Node*> waiting;
  auto add = [&](autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) waiting.push_back(node);
  };
  for (const Tensor& t : outputs)
    if (t.requires_grad()) add(t.grad_fn().get());
  while (!waiting.empty()) {
    autograd::Node* node = waiting.back();
    waiting.pop_back();
    if (node->is_accumulator) {
      leaves.push_back(static_cast<autograd::AccumulateGrad*>(node)->variable);
      continue;
    }
    if (node->sequence <= first_node) recorder.refuse("it uses a tensor whose history begins outside of it");
    if (node->hooks) recorder.refuse("a hook is on the tape of it");
    for (const autograd::Edge& e : node->edges) add(e.node.get());
  }
  return leaves;
}

namespace {

// split(result): ends the recording of a forward pass and returns the result for the caller, whose backward pass is
// recorded when it comes: take() then gives the recording.
PyObject* recorder_split(PyObject* self, PyObject* value) {
  TG_PY_TRY
  auto& o = unbox<RecorderObject>(self);
  TG_CHECK(o.recorder, Runtime, "split: the recording has ended");
  std::vector<PyObject*> known, objects;
  for (const PyRef& feed : o.feeds) known.push_back(feed.get());
  Tree::Results results{known, *o.recorder};
  o.result = Tree::of(value, objects, &results);
  auto parts = std::make_shared<TwoParts>();
  std::vector<Tensor> outputs = unwrapped(objects);
  refuse_other_geometry(*o.recorder, o.feeds);
  if (o.trace) o.native = o.trace->finish(outputs), o.sizes = o.trace->reason();
  o.trace.reset();
  o.recorder->pause(outputs);
  for (const Tensor& t : outputs)
    if (t.requires_grad()) parts->outputs.push_back(t);
  for (const Tensor& t : outputs)
    if (t.requires_grad() && t.is_leaf()) o.recorder->refuse("a result is a parameter");
  parts->leaves = leaves_of(outputs, o.first_node, *o.recorder);
  if (!o.recorder->reason().empty() || parts->outputs.empty()) {
    o.recorder->refuse("no result of it needs a gradient");
    auto recorder = std::move(o.recorder);
    parts->done = recorder->finish({}, {});
    o.parts = std::move(parts);
    return Py_NewRef(value);
  }
  parts->recorder = std::move(o.recorder);
  o.parts = parts;
  auto node = make_intrusive<RecordingBackward>(parts);
  add_leaves(*node, parts->leaves);
  std::vector<PyRef> outer;
  for (const Tensor& t : outputs) {
    if (!t.requires_grad()) {
      outer.push_back(own(wrap(t)));
      continue;
    }
    Tensor made = t.detach();
    autograd::set_history(made, intrusive_ptr<autograd::Node>(node));
    outer.push_back(own(wrap(std::move(made))));
  }
  return o.result.build(outer, known).release();
  TG_PY_CATCH
}

// take(): the recording whose backward pass has run, None where it may still come, and False where it cannot any more.
PyObject* recorder_take(PyObject* self, PyObject*) {
  TG_PY_TRY
  auto& o = unbox<RecorderObject>(self);
  if (!o.parts) Py_RETURN_NONE;
  RecordingObject made;
  {
    const std::lock_guard held(o.parts->lock);
    made.recording = std::move(o.parts->done);
  }
  if (!made.recording) return Py_NewRef(o.parts.use_count() == 1 ? Py_False : Py_None);  // its node is gone
  made.reason = made.recording->reason;
  made.arguments = std::move(o.arguments);
  made.result = std::move(o.result);
  made.settings = o.settings;
  made.leaves = o.parts->leaves;
  made.native = std::move(o.native);
  made.sizes = std::move(o.sizes);
  made.audited = o.audited;
  return box<RecordingObject>(recording_type, std::move(made));
  TG_PY_CATCH
}

PyObject* recorder_objects(PyObject* self, PyObject*) {
  TG_PY_TRY
  PyRef list = own(PyList_New(0));
  unbox<RecorderObject>(self).arguments.for_objects([&](PyObject* o) { check_status(PyList_Append(list.get(), o)); });
  return list.release();
  TG_PY_CATCH
}

PyObject* recorder_refuse(PyObject* self, PyObject* text) {
  TG_PY_TRY
  const char* reason = PyUnicode_AsUTF8(text);
  if (reason == nullptr) throw_python_error();
  if (auto& recorder = unbox<RecorderObject>(self).recorder) recorder->refuse(reason);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// stop(sizes, reader): all at once, so that Ctrl-C comes before or after it.
PyObject* recorder_stop(PyObject* self, PyObject* args) {
  TG_PY_TRY
  PyObject *sizes, *former;
  if (!PyArg_ParseTuple(args, "O!O:stop", sizes_type, &sizes, &former)) return nullptr;
  auto& o = unbox<RecorderObject>(self);
  o.trace.reset();
  o.recorder.reset();
  unbox<Places>(sizes).end(sizes);
  exchange_reader(former == Py_None ? PyRef() : PyRef::borrow(former));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

int recorder_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const auto& o = unbox<RecorderObject>(self);
  for (const PyRef& feed : o.feeds) Py_VISIT(feed.get());
  if (int r = o.arguments.traverse(visit, arg)) return r;
  return o.result.traverse(visit, arg);
}
int recorder_drop(PyObject* self) {
  auto& o = unbox<RecorderObject>(self);
  o.feeds.clear();
  o.arguments = Tree();
  o.result = Tree();
  return 0;
}

PyObject* recorder_is_like(PyObject* self, PyObject* recording);

PyObject* recorder_audits(PyObject* self, PyObject* replays) {
  TG_PY_TRY
  TG_CHECK(PyObject_TypeCheck(replays, replays_type), Type, "audits: expected replays");
  unbox<RecorderObject>(self).audited = std::exchange(unbox<Replays>(replays).audited, {});
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyMethodDef recorder_methods[] = {
    {"follow_sizes", recorder_follow_sizes, METH_NOARGS, "Writes down, too, what makes plans for other sizes."},
    {"is_like", recorder_is_like, METH_O, "Whether its arguments have the shape of those of a recording."},
    {"finish", recorder_finish, METH_VARARGS, "Ends the recording of a step that has returned this."},
    {"audits", recorder_audits, METH_O, "It is of the call that run() has just named an audit."},
    {"objects", recorder_objects, METH_NOARGS, "The arguments that are told apart by identity."},
    {"split", recorder_split, METH_O, "Ends the recording of a forward pass; returns its result for the caller."},
    {"take", recorder_take, METH_NOARGS, "The recording of both passes, once the backward pass has run; else None."},
    {"refuse", recorder_refuse, METH_O, "Notes why the step cannot be replayed; the first reason counts."},
    {"stop", recorder_stop, METH_VARARGS, "Ends the recording, if it has not ended, and what came with it."},
    {}};

// --- _Recording ---

}  // namespace

RecordingObject& recording_of(PyObject* o) {
  TG_CHECK(PyObject_TypeCheck(o, recording_type), Type, "expected a recording, not {}", Py_TYPE(o)->tp_name);
  auto& made = unbox<RecordingObject>(o);
  TG_CHECK(made.recording, Runtime, "this recording has become a plan");
  return made;
}

namespace {

PyObject* recorder_is_like(PyObject* self, PyObject* recording) {
  TG_PY_TRY
  const auto& o = unbox<RecorderObject>(self);
  const RecordingObject& earlier = recording_of(recording);
  const auto& before = earlier.recording->feeds;
  const bool parts = earlier.recording->two_parts;
  const size_t n = parts ? earlier.recording->first_feeds : before.size();
  return PyBool_FromLong(o.recorder && o.settings == earlier.settings && o.arguments == earlier.arguments &&
                         std::ranges::equal(o.recorder->feeds(), std::span(before).first(n)));
  TG_PY_CATCH
}

// Of a recording or a plan.
template <class Earlier>
std::string difference_of(RecordingObject& now, const Recording& recording, const Earlier& earlier) {
  if (std::string what = now.recording->compare(recording); !what.empty()) return what;
  if (!(earlier.arguments == now.arguments)) return "other arguments";
  auto same = [](const Tensor& a, const Tensor& b) { return a.is_same(b); };
  if (!std::equal(now.leaves.begin(), now.leaves.end(), earlier.leaves.begin(), earlier.leaves.end(), same))
    return "other tensors need a gradient";
  return earlier.result == now.result ? "" : "it returned another value that is no tensor";
}

PyObject* recording_difference(PyObject* self, PyObject* other) {
  TG_PY_TRY
  RecordingObject &now = recording_of(self), &earlier = recording_of(other);
  const std::string what = difference_of(now, *earlier.recording, earlier);
  return rows::to_python(what);
  TG_PY_CATCH
}

PyObject* recording_same_arguments(PyObject* self, PyObject* other) {
  TG_PY_TRY
  const RecordingObject &a = recording_of(self), &b = recording_of(other);
  return PyBool_FromLong(a.settings == b.settings && a.arguments == b.arguments &&
                         a.recording->feeds == b.recording->feeds && a.recording->path == b.recording->path);
  TG_PY_CATCH
}

PyObject* recording_reason(PyObject* self, void*) {
  const std::string& reason = unbox<RecordingObject>(self).reason;
  return rows::to_python(reason);
}

int recording_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const auto& o = unbox<RecordingObject>(self);
  if (o.recording)
    if (int r = traverse_nested(*o.recording, visit, arg)) return r;
  if (int r = o.arguments.traverse(visit, arg)) return r;
  return o.result.traverse(visit, arg);
}
int recording_drop(PyObject* self) {
  auto& o = unbox<RecordingObject>(self);
  o.recording.reset();
  o.arguments = Tree();
  o.result = Tree();
  return 0;
}

PyMethodDef recording_methods[] = {
    {"difference", recording_difference, METH_O, "What is not the same as in an earlier recording, or an empty text."},
    {"same_arguments", recording_same_arguments, METH_O, "Whether both have arguments of one shape."},
    {}};
PyObject* recording_read(PyObject* self, void*) {
  const std::string read = recording_of(self).recording->read;
  return rows::to_python(read);
}
PyGetSetDef recording_properties[] = {
    {"reason", recording_reason, nullptr, "Why it cannot be replayed, or an empty text.", nullptr},
    {"read", recording_read, nullptr, "The last value that it went on by, with its line, or an empty text.", nullptr},
    {}};

void ReplayBackward::drop_plan() noexcept {
  if (!plan) return;
  plan->step.end();
  plan->step.leave();
  with_gil_while_it_lasts([this] { plan.reset(); });  // it may be the last one
}

// --- _Replays ---

PyObject* replays_new(PyTypeObject* type, PyObject*, PyObject*) {
  TG_PY_TRY
  return box<Replays>(type, {});
  TG_PY_CATCH
}

PyObject* miss(Replays& replays, std::string reason) {
  replays.reason = std::move(reason);
  return Py_NewRef(Py_NotImplemented);
}

// Whether the plan goes the way that is known so far of a call.
bool goes(const Plan& plan, const std::vector<record::Condition>& way) {
  const auto& path = plan.step.recording().path;
  return path.size() >= way.size() && std::equal(way.begin(), way.end(), path.begin());
}

bool fits(const Plan& plan, PyObject* args, std::vector<PyObject*>& objects, std::vector<Tensor>& feeds) {
  objects.clear();
  if (!(plan.settings == Settings{}) || !plan.arguments.matches(args, objects)) return false;
  feeds.clear();
  for (PyObject* o : objects) feeds.push_back(unwrap(o));
  return plan.step.fits(feeds);
}

// Hooks of the leaves whose gradients the step sets: a replay would not call them.
bool has_hooks(const Recording& recording) {
  for (const Tensor& leaf : recording.leaves)
    if (const autograd::AutogradMeta* m = autograd::meta(leaf);
        m && m->hooks && !(m->hooks->grad.empty() && m->hooks->post_accumulate.empty()))
      return true;
  return false;
}
bool has_hooks(const Plan& plan) { return has_hooks(plan.step.recording()); }

struct Leave {
  Step& step;
  bool wanted = true;
  ~Leave() {
    if (wanted) step.leave();
  }
};

// The arguments of a call, borrowed, and as tensors: in the memory of the call before, unless that is in use.
struct Given {
  explicit Given(Replays& r) : objects(std::move(r.objects)), feeds(std::move(r.feeds)), replays(r) {}
  ~Given() {
    objects.clear();
    feeds.clear();
    replays.objects = std::move(objects);
    replays.feeds = std::move(feeds);
  }
  std::vector<PyObject*> objects;
  std::vector<Tensor> feeds;
  Replays& replays;
};

// None where it goes on in another way than it was recorded: `way` is what is known of it then.
std::optional<PyRef> replay(Plan& plan, const std::vector<PyObject*>& objects, const std::vector<Tensor>& feeds,
                            std::vector<record::Condition>& way, Leave& leave) {
  const record::Recording& recording = plan.step.recording();
  std::vector<Tensor> results;
  {
    std::optional<ComputeRelease> released;
    if (!plan.step.is_short()) released.emplace();
    std::optional<Step::Diverged> diverged;
    results = plan.step.replay(feeds, &diverged);
    if (diverged) {
      way.assign(recording.path.begin(), recording.path.begin() + static_cast<ptrdiff_t>(diverged->guard) + 1);
      way.back().found = std::move(diverged->found);
      return std::nullopt;
    }
  }
  std::vector<PyRef> wrapped;
  wrapped.reserve(results.size());
  intrusive_ptr<ReplayBackward> second;
  if (recording.two_parts) {
    second = make_intrusive<ReplayBackward>(plan.shared_from_this());
    leave.wanted = false;  // the node does
    add_leaves(*second, plan.leaves);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    Tensor& t = results[i];
    const record::Output& out = recording.outputs[i];
    if (out.needs_grad && !out.same.defined()) {
      intrusive_ptr<autograd::Node> node = second;
      if (!node) node = make_intrusive<RecordedBackward>();
      autograd::set_history(t, std::move(node));
    }
    wrapped.push_back(own(wrap(std::move(t))));
  }
  ++plan.replays;
  return plan.result.build(wrapped, objects);
}

void drop(Replays& replays, const std::shared_ptr<Plan>& plan) {
  replays.plans.remove(plan);
  replays.natives.remove_if([&](const auto& native) { return native->watch == plan->watch; });
}

}  // namespace

// run((args, kwargs))
PyObject* run_replays(PyObject* self, PyObject* args) {
  TG_PY_TRY
  auto& replays = unbox<Replays>(self);
  replays.sizes.clear();
  if ((modes() & ~uint32_t{kModeNoGrad}) != 0 || autograd::anomaly_enabled() || (override_modes != 0 && mode_is_on()))
    return miss(replays, "a mode is on");
  if (is_captured()) return miss(replays, "a mode is on");  // by the program, in a graph of its own
  Given given(replays);
  auto& [objects, feeds, _] = given;
  std::vector<record::Condition> way;
  size_t diverged = 0;
  bool added = false;
  std::string aside;
  for (auto at = replays.plans.begin();;) {
    if (at == replays.plans.end()) {
      if (added || !way.empty()) break;
      replays.reason.clear();
      if (!add_for_sizes(replays, args)) {
        if (replays.reason == kOtherSizes && aside.empty()) return Py_NewRef(Py_NotImplemented);
        break;
      }
      added = true;
      at = replays.plans.begin();
    }
    const std::shared_ptr<Plan> plan = *at++;
    if (!goes(*plan, way) || !fits(*plan, args, objects, feeds)) continue;
    // Comparing may run code of the program, and so change the list: `at` is not used behind it.
    const char* gone = plan->step.changed();
    std::string what = gone ? gone : plan->watch->changed();
    if (!what.empty()) {
      at =
          gone || !put_aside(*plan) ? replays.plans.end() : std::find(replays.plans.begin(), replays.plans.end(), plan);
      if (at == replays.plans.end()) {
        drop(replays, plan);
        return miss(replays, what + " has changed");
      }
      ++at;
      aside = std::move(what);
      continue;
    }
    if (const char* refusal = plan->step.refuses()) return miss(replays, refusal);
    if (has_hooks(*plan)) return miss(replays, "a parameter has a hook");
    if (plan->replays + 2 >= plan->next_audit) {
      plan->next_audit *= 2;
      replays.audited = plan;
      return miss(replays, "audit");
    }
    if (!plan->step.claim()) return miss(replays, "busy");
    Leave leave{plan->step};
    if (plan->step.prepare()) return miss(replays, "news");
    std::optional<PyRef> made = replay(*plan, objects, feeds, way, leave);
    if (!made) {
      if (++diverged > kMostPlans) return miss(replays, "");  // another thread changes the values
      at = replays.plans.begin();
      continue;
    }
    ++replays.count;
    if (plan->for_sizes && plan->replays > 1) replays.unused = replays.without = 0;
    plan->aside = false;
    // Bodies of control flow may have used this object meanwhile.
    if (replays.plans.empty() || replays.plans.front() != plan)
      if (const auto found = std::find(replays.plans.begin(), replays.plans.end(), plan); found != replays.plans.end())
        replays.plans.splice(replays.plans.begin(), replays.plans, found);
    return made->release();
  }
  return miss(replays, aside.empty() ? "" : aside + " has changed");
  TG_PY_CATCH
}

namespace {

// check((args, kwargs)): whether a plan could be replayed now; as run() finds out, and nothing more.
PyObject* replays_check(PyObject* self, PyObject* args) {
  TG_PY_TRY
  std::vector<PyObject*> objects;
  std::vector<Tensor> feeds;
  const auto plans = unbox<Replays>(self).plans;
  return PyBool_FromLong(std::ranges::any_of(plans, [&](const auto& plan) {
    return fits(*plan, args, objects, feeds) && !plan->step.changed() && plan->watch->changed().empty() &&
           !plan->step.refuses() && !has_hooks(*plan);
  }));
  TG_PY_CATCH
}

// add(recording, watch, bytes, share, graphs): with a budget where one of them is not 0. Returns what memory() says of
// it.
PyObject* replays_add(PyObject* self, PyObject* args) {
  TG_PY_TRY
  PyObject *recording, *watch;
  Py_ssize_t bytes = 0;
  record::Budget budget;
  int graphs = 1;
  if (!PyArg_ParseTuple(args, "O!O!|ndp:add", recording_type, &recording, watch_type, &watch, &bytes, &budget.share,
                        &graphs))
    return nullptr;
  budget.bytes = static_cast<size_t>(bytes);
  auto& replays = unbox<Replays>(self);
  RecordingObject& made = recording_of(recording);
  std::unique_ptr<record::NativeStep> native = std::move(made.native);
  std::string sizes = std::move(made.sizes);
  add_plan(replays, std::make_shared<Plan>(std::move(made), unbox<std::shared_ptr<Watch>>(watch), budget, graphs != 0));
  keep_native(replays, replays.plans.front(), std::move(native), std::move(sizes), budget, graphs != 0);
  return memory_of(*replays.plans.front());
  TG_PY_CATCH
}

// audit(recording): whether the plan that run() has named makes the same calls; drops it otherwise.
PyObject* replays_audit(PyObject* self, PyObject* object) {
  TG_PY_TRY
  auto& replays = unbox<Replays>(self);
  RecordingObject& now = recording_of(object);
  const std::shared_ptr<Plan> plan = now.audited.lock();
  std::string what;
  if (plan && plan->settings == now.settings && plan->arguments == now.arguments &&
      plan->step.recording().feeds == now.recording->feeds && plan->step.recording().path == now.recording->path)
    what = now.reason.empty() ? difference_of(now, plan->step.recording(), *plan) : now.reason;
  if (!what.empty()) drop(replays, plan);
  return rows::to_python(what);
  TG_PY_CATCH
}

PyObject* replays_scribble(PyObject* self, PyObject*) {
  for (const auto& plan : unbox<Replays>(self).plans)
    if (plan->step.claim()) {
      plan->step.scribble(0x5B);
      plan->step.leave();
    }
  Py_RETURN_NONE;
}

PyObject* replays_clear(PyObject* self, PyObject*) {
  unbox<Replays>(self).natives.clear();
  unbox<Replays>(self).plans.clear();
  Py_RETURN_NONE;
}

PyObject* replays_reason(PyObject* self, void*) {
  const std::string& reason = unbox<Replays>(self).reason;
  return rows::to_python(reason);
}

PyObject* replays_sizes(PyObject* self, void*) {
  const std::string& reason = unbox<Replays>(self).sizes;
  return rows::to_python(reason);
}

PyObject* replays_made(PyObject* self, void*) { return PyLong_FromLongLong(unbox<Replays>(self).made); }

PyObject* replays_count(PyObject* self, void*) { return PyLong_FromLongLong(unbox<Replays>(self).count); }

int replays_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const auto& replays = unbox<Replays>(self);
  std::unordered_map<Watch*, long> watches;  // how often each is named here
  for (const auto& native : replays.natives) {
    ++watches[native->watch.get()];
    if (int r = native->arguments.traverse(visit, arg)) return r;
    if (int r = native->result.traverse(visit, arg)) return r;
  }
  for (const auto& each : replays.plans) {
    const Plan& plan = *each;
    if (each.use_count() > 1) continue;  // a node of the tape has it, too
    ++watches[plan.watch.get()];
    if (int r = traverse_nested(plan.step.recording(), visit, arg)) return r;
    if (int r = plan.arguments.traverse(visit, arg)) return r;
    if (int r = plan.result.traverse(visit, arg)) return r;
  }
  // One watch may belong to several plans, and to others; each object is visited once for each of its references.
  auto whole = [&](const std::shared_ptr<Watch>& watch) {
    const auto found = watches.find(watch.get());
    const bool all = found != watches.end() && watch.use_count() == found->second;
    if (all) watches.erase(found);
    return all;
  };
  for (const auto& native : replays.natives)
    if (whole(native->watch))
      if (int r = native->watch->traverse(visit, arg)) return r;
  for (const auto& plan : replays.plans)
    if (whole(plan->watch))
      if (int r = plan->watch->traverse(visit, arg)) return r;
  return 0;
}
int replays_drop(PyObject* self) {
  unbox<Replays>(self).natives.clear();
  unbox<Replays>(self).plans.clear();
  return 0;
}

PyMethodDef replays_methods[] = {
    {"run", run_replays, METH_O, "Replays the call with (args, kwargs), or returns NotImplemented."},
    {"add", replays_add, METH_VARARGS,
     "Keeps a recording as a plan within a budget, used while the watch sees no change."},
    {"audit", replays_audit, METH_O,
     "Compares a recording with the plan of its arguments, which goes where they differ."},
    {"clear", replays_clear, METH_NOARGS, "Forgets all plans."},
    {"scribble", replays_scribble, METH_NOARGS, "Overwrites the memory of all temporaries: for tests."},
    {"plans", plans_of, METH_NOARGS, "Calls, bytes and replays of each plan."},
    {"check", replays_check, METH_O, "Whether a plan fits (args, kwargs) and nothing that it counts on has changed."},
    {"memory", memory_of_plans, METH_NOARGS, "Bytes of each plan, and what its budget costs."},
    {}};
PyGetSetDef replays_properties[] = {
    {"reason", replays_reason, nullptr, "Why the last call was not replayed.", nullptr},
    {"sizes", replays_sizes, nullptr, "Why the sizes of the last call needed a recording, or an empty text.", nullptr},
    {"made", replays_made, nullptr, "How many plans were made for further sizes, without a recording.", nullptr},
    {"count", replays_count, nullptr, "How many calls were replayed, by plans that are gone, too.", nullptr},
    {}};

}  // namespace

bool init_record(PyObject* module) {
  record::describe_line = [] { return autograd::at_site(autograd::current_site()); };
  recorder_type = add_type(module, "tapegrad._C._Recorder", sizeof(Boxed<RecorderObject>), Py_TPFLAGS_HAVE_GC,
                           {{Py_tp_new, recorder_new},
                            {Py_tp_dealloc, dealloc_tracked<RecorderObject>},
                            {Py_tp_traverse, recorder_traverse},
                            {Py_tp_clear, recorder_drop},
                            {Py_tp_methods, recorder_methods}});
  recording_type = add_type(module, "tapegrad._C._Recording", sizeof(Boxed<RecordingObject>),
                            Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
                            {{Py_tp_dealloc, dealloc_tracked<RecordingObject>},
                             {Py_tp_traverse, recording_traverse},
                             {Py_tp_clear, recording_drop},
                             {Py_tp_methods, recording_methods},
                             {Py_tp_getset, recording_properties}});
  replays_type = add_type(module, "tapegrad._C._Replays", sizeof(Boxed<Replays>), Py_TPFLAGS_HAVE_GC,
                          {{Py_tp_new, replays_new},
                           {Py_tp_dealloc, dealloc_tracked<Replays>},
                           {Py_tp_traverse, replays_traverse},
                           {Py_tp_clear, replays_drop},
                           {Py_tp_methods, replays_methods},
                           {Py_tp_getset, replays_properties}});
  return recorder_type && recording_type && replays_type && init_watch(module) && init_called(module);
}

}  // namespace tapegrad::python
