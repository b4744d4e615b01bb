// tapegrad._C._Recorder, _Recording, _Watch and _Replays: what the package tapegrad.record is made of.
//
//   recorder = _Recorder(args, kwargs)       records this thread's calls from here on
//   recording = recorder.finish(result)      ends it; recording.reason says why it cannot be replayed, or ""
//   recording.difference(earlier)            what is not the same in both, or ""
//   replays.add(recording, watch)            keeps it as a plan
//   replays.run(args, kwargs)                replays the plan that fits, or returns NotImplemented
#include "tapegrad/aten/record/step.h"

#include <list>

#include "tapegrad/autograd/call_site.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/record/tree.h"
#include "tapegrad/bindings/record/watch.h"

namespace tapegrad::python {

namespace {

using record::Recorder, record::Recording, record::Step;

std::vector<Tensor> unwrapped(const std::vector<PyObject*>& objects) {
  std::vector<Tensor> tensors;
  tensors.reserve(objects.size());
  for (PyObject* o : objects) tensors.push_back(unwrap(o));
  return tensors;
}

// Of a result whose graph the step itself has used up.
struct RecordedBackward final : autograd::Node {
  const char* name() const override { return "RecordedBackward"; }
  autograd::GradList apply(autograd::GradList) override {
    TG_THROW(Runtime,
             "backward: Trying to backward through the graph a second time: it belongs to a recorded step, whose own "
             "backward() has used it up");
  }
};

// What outside of the arguments decides what operators do.
struct Settings {
  uint32_t modes = tapegrad::modes() & kModeNoGrad;
  DType dtype = default_dtype();
  bool operator==(const Settings&) const = default;
};

struct RecordingObject {
  std::unique_ptr<Recording> recording;
  std::string reason;
  Tree arguments, result;
  Settings settings;
};

struct RecorderObject {
  std::unique_ptr<Recorder> recorder;
  Tree arguments;
  std::vector<PyRef> feeds;
  Settings settings;
};

struct Plan {
  Plan(RecordingObject from, std::shared_ptr<Watch> watched)
      : step(std::move(from.recording)),
        arguments(std::move(from.arguments)),
        result(std::move(from.result)),
        watch(std::move(watched)),
        settings(from.settings) {}
  Step step;
  Tree arguments, result;
  std::shared_ptr<Watch> watch;
  Settings settings;
  int64_t replays = 0, next_audit = 16;
};

constexpr size_t kMostPlans = 16;

struct Replays {
  std::list<Plan> plans;  // the one that was used last comes first
  std::string reason;     // of the last call that was not replayed
};

PyTypeObject *recorder_type = nullptr, *recording_type = nullptr, *watch_type = nullptr, *replays_type = nullptr;

// --- _Recorder ---

PyObject* recorder_new(PyTypeObject* type, PyObject* args, PyObject*) {
  TG_PY_TRY
  RecorderObject made;
  std::vector<PyObject*> feeds;
  made.arguments = Tree::of(args, feeds);
  for (PyObject* o : feeds) made.feeds.push_back(PyRef::borrow(o));
  const std::vector<Tensor> tensors = unwrapped(feeds);
  PyRef object(box<RecorderObject>(type, std::move(made)));
  unbox<RecorderObject>(object.get()).recorder = std::make_unique<Recorder>(TensorSpan(tensors));
  return object.release();
  TG_PY_CATCH
}

PyObject* recorder_finish(PyObject* self, PyObject* value) {
  TG_PY_TRY
  auto& own_recorder = unbox<RecorderObject>(self);
  TG_CHECK(own_recorder.recorder, Runtime, "finish: the recording has ended");
  const std::unique_ptr<Recorder> recorder = std::move(own_recorder.recorder);
  std::vector<PyObject*> known, outputs;
  for (const PyRef& o : own_recorder.feeds) known.push_back(o.get());
  RecordingObject made;
  made.result = Tree::of(value, outputs, &known);
  made.arguments = std::move(own_recorder.arguments);
  made.settings = own_recorder.settings;
  const std::vector<Tensor> tensors = unwrapped(outputs);
  std::vector<const void*> nodes;
  for (const Tensor& t : tensors) nodes.push_back(t.requires_grad() ? t.grad_fn().get() : nullptr);
  made.recording = recorder->finish(tensors, nodes);
  made.reason = made.recording->reason;
  return box<RecordingObject>(recording_type, std::move(made));
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

PyObject* recorder_stop(PyObject* self, PyObject*) {
  unbox<RecorderObject>(self).recorder.reset();
  Py_RETURN_NONE;
}

PyMethodDef recorder_methods[] = {
    {"finish", recorder_finish, METH_O, "Ends the recording of a step that has returned this."},
    {"refuse", recorder_refuse, METH_O, "Notes why the step cannot be replayed; the first reason counts."},
    {"stop", recorder_stop, METH_NOARGS, "Ends the recording without a result."},
    {}};

// --- _Recording ---

RecordingObject& recording_of(PyObject* o) {
  TG_CHECK(PyObject_TypeCheck(o, recording_type), Type, "expected a recording, not {}", Py_TYPE(o)->tp_name);
  auto& made = unbox<RecordingObject>(o);
  TG_CHECK(made.recording, Runtime, "this recording has become a plan");
  return made;
}

std::string difference_of(RecordingObject& now, const Recording& earlier, const Tree& arguments, const Tree& result) {
  if (std::string what = now.recording->compare(earlier); !what.empty()) return what;
  if (!(arguments == now.arguments)) return "other arguments";
  return result == now.result ? "" : "it returned another value that is no tensor";
}

PyObject* recording_difference(PyObject* self, PyObject* other) {
  TG_PY_TRY
  RecordingObject &now = recording_of(self), &earlier = recording_of(other);
  const std::string what = difference_of(now, *earlier.recording, earlier.arguments, earlier.result);
  return PyUnicode_FromStringAndSize(what.data(), static_cast<Py_ssize_t>(what.size()));
  TG_PY_CATCH
}

PyObject* recording_same_arguments(PyObject* self, PyObject* other) {
  TG_PY_TRY
  const RecordingObject &a = recording_of(self), &b = recording_of(other);
  return PyBool_FromLong(a.settings == b.settings && a.arguments == b.arguments && a.recording->feeds == b.recording->feeds);
  TG_PY_CATCH
}

PyObject* recording_objects(PyObject* self, PyObject*) {
  TG_PY_TRY
  PyRef list = own(PyList_New(0));
  recording_of(self).arguments.for_objects([&](PyObject* o) { check_status(PyList_Append(list.get(), o)); });
  return list.release();
  TG_PY_CATCH
}

PyObject* recording_reason(PyObject* self, void*) {
  const std::string& reason = unbox<RecordingObject>(self).reason;
  return PyUnicode_FromStringAndSize(reason.data(), static_cast<Py_ssize_t>(reason.size()));
}

PyMethodDef recording_methods[] = {
    {"difference", recording_difference, METH_O, "What is not the same as in an earlier recording, or an empty text."},
    {"same_arguments", recording_same_arguments, METH_O, "Whether both have arguments of one shape."},
    {"objects", recording_objects, METH_NOARGS, "The arguments that are told apart by identity."},
    {}};
PyGetSetDef recording_properties[] = {
    {"reason", recording_reason, nullptr, "Why it cannot be replayed, or an empty text.", nullptr}, {}};

// --- _Watch ---

PyObject* watch_new(PyTypeObject* type, PyObject* args, PyObject*) {
  TG_PY_TRY
  PyObject* lists[5];
  if (!PyArg_ParseTuple(args, "O!O!O!O!O!:_Watch", &PyList_Type, &lists[0], &PyList_Type, &lists[1], &PyList_Type,
                        &lists[2], &PyList_Type, &lists[3], &PyList_Type, &lists[4]))
    return nullptr;
  return box<std::shared_ptr<Watch>>(type, std::make_shared<Watch>(lists[0], lists[1], lists[2], lists[3], lists[4]));
  TG_PY_CATCH
}

PyObject* watch_changed(PyObject* self, PyObject*) {
  TG_PY_TRY
  const std::string what = unbox<std::shared_ptr<Watch>>(self)->changed();
  return PyUnicode_FromStringAndSize(what.data(), static_cast<Py_ssize_t>(what.size()));
  TG_PY_CATCH
}

PyObject* watch_holds(PyObject* self, PyObject* recording) {
  TG_PY_TRY
  for (const record::Slot& slot : recording_of(recording).recording->slots)
    if (slot.kind == record::Slot::Kind::Feed && unbox<std::shared_ptr<Watch>>(self)->holds(slot.fed)) Py_RETURN_TRUE;
  Py_RETURN_FALSE;
  TG_PY_CATCH
}

PyObject* watch_size(PyObject* self, void*) { return PyLong_FromSize_t(unbox<std::shared_ptr<Watch>>(self)->size()); }

PyMethodDef watch_methods[] = {
    {"changed", watch_changed, METH_NOARGS, "What has changed, or an empty text."},
    {"holds", watch_holds, METH_O, "Whether an argument of the recording shares memory with a tensor that is watched."},
    {}};
PyGetSetDef watch_properties[] = {{"size", watch_size, nullptr, "How many objects are watched.", nullptr}, {}};

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

// Whether the plan replays this call; else why not, which is empty where only the arguments are others.
bool fits(Plan& plan, PyObject* args, std::vector<PyObject*>& objects, std::vector<Tensor>& feeds, std::string& why) {
  objects.clear();
  why.clear();
  if (!(plan.settings == Settings{}) || !plan.arguments.matches(args, objects)) return false;
  feeds = unwrapped(objects);
  if (!plan.step.fits(feeds)) return false;
  if (const char* refusal = plan.step.refuses()) {
    why = refusal;
    return false;
  }
  return true;
}

PyObject* replay(Plan& plan, const std::vector<PyObject*>& objects, const std::vector<Tensor>& feeds) {
  struct Leave {
    Step& step;
    ~Leave() { step.leave(); }
  } leave{plan.step};
  std::vector<Tensor> results;
  {
    const GilRelease released;
    results = plan.step.replay(feeds);
  }
  std::vector<PyRef> wrapped;
  wrapped.reserve(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    Tensor& t = results[i];
    const record::Output& out = plan.step.recording().outputs[i];
    if (out.needs_grad && !out.same.defined()) {
      auto node = make_intrusive<RecordedBackward>();
      node->outputs.emplace_back(t);
      autograd::ensure_meta(t).grad_fn = std::move(node);
      t.impl()->set_needs_grad(true);
    }
    wrapped.push_back(own(wrap(std::move(t))));
  }
  ++plan.replays;
  return plan.result.build(wrapped, objects).release();
}

// run((args, kwargs))
PyObject* replays_run(PyObject* self, PyObject* args) {
  TG_PY_TRY
  auto& replays = unbox<Replays>(self);
  if (modes() & ~uint32_t{kModeNoGrad}) return miss(replays, "a mode is on");
  std::vector<PyObject*> objects;
  std::vector<Tensor> feeds;
  std::string why, first;
  for (auto plan = replays.plans.begin(); plan != replays.plans.end(); ++plan) {
    if (!fits(*plan, args, objects, feeds, why)) {
      if (!why.empty() && first.empty()) first = why;
      continue;
    }
    if (std::string what = plan->watch->changed(); !what.empty()) {
      replays.plans.erase(plan);
      return miss(replays, what + " has changed");
    }
    if (plan->replays + 2 >= plan->next_audit) {
      plan->next_audit *= 2;
      return miss(replays, "audit");
    }
    if (!plan->step.claim()) return miss(replays, "busy");
    replays.plans.splice(replays.plans.begin(), replays.plans, plan);
    return replay(*plan, objects, feeds);
  }
  return miss(replays, std::move(first));
  TG_PY_CATCH
}

// add(recording, watch)
PyObject* replays_add(PyObject* self, PyObject* args) {
  TG_PY_TRY
  PyObject *recording, *watch;
  if (!PyArg_ParseTuple(args, "O!O!:add", recording_type, &recording, watch_type, &watch)) return nullptr;
  auto& replays = unbox<Replays>(self);
  replays.plans.emplace_front(std::move(recording_of(recording)), unbox<std::shared_ptr<Watch>>(watch));
  if (replays.plans.size() > kMostPlans) replays.plans.pop_back();
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// audit(recording): whether the plan of these arguments made the same calls; drops it otherwise.
PyObject* replays_audit(PyObject* self, PyObject* object) {
  TG_PY_TRY
  auto& replays = unbox<Replays>(self);
  RecordingObject& now = recording_of(object);
  for (auto plan = replays.plans.begin(); plan != replays.plans.end(); ++plan) {
    if (!(plan->settings == now.settings && plan->arguments == now.arguments &&
          plan->step.recording().feeds == now.recording->feeds))
      continue;
    std::string what =
        now.reason.empty() ? difference_of(now, plan->step.recording(), plan->arguments, plan->result) : now.reason;
    if (!what.empty()) replays.plans.erase(plan);
    return PyUnicode_FromStringAndSize(what.data(), static_cast<Py_ssize_t>(what.size()));
  }
  return PyUnicode_FromString("");
  TG_PY_CATCH
}

PyObject* replays_scribble(PyObject* self, PyObject*) {
  for (Plan& plan : unbox<Replays>(self).plans) plan.step.scribble(0x5B);
  Py_RETURN_NONE;
}

PyObject* replays_clear(PyObject* self, PyObject*) {
  unbox<Replays>(self).plans.clear();
  Py_RETURN_NONE;
}

// plans(): of each its calls, bytes of temporaries, replays.
PyObject* replays_plans(PyObject* self, PyObject*) {
  TG_PY_TRY
  const auto& plans = unbox<Replays>(self).plans;
  auto at = plans.begin();
  return new_list(plans.size(),
                  [&](size_t) {
                    const Plan& plan = *at++;
                    return Py_BuildValue("(nnL)", static_cast<Py_ssize_t>(plan.step.recording().calls.size()),
                                         static_cast<Py_ssize_t>(plan.step.planned_bytes()),
                                         static_cast<long long>(plan.replays));
                  })
      .release();
  TG_PY_CATCH
}

PyObject* replays_reason(PyObject* self, void*) {
  const std::string& reason = unbox<Replays>(self).reason;
  return PyUnicode_FromStringAndSize(reason.data(), static_cast<Py_ssize_t>(reason.size()));
}

int replays_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  for (const Plan& plan : unbox<Replays>(self).plans) {
    if (int r = plan.arguments.traverse(visit, arg)) return r;
    if (int r = plan.result.traverse(visit, arg)) return r;
    // One watch may belong to several plans; each object is visited once for each of its references.
    if (plan.watch.use_count() == 1)
      if (int r = plan.watch->traverse(visit, arg)) return r;
  }
  return 0;
}
int replays_drop(PyObject* self) {
  unbox<Replays>(self).plans.clear();
  return 0;
}
void replays_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  dealloc_boxed<Replays>(self);
}

PyMethodDef replays_methods[] = {
    {"run", replays_run, METH_O, "Replays the call with (args, kwargs), or returns NotImplemented."},
    {"add", replays_add, METH_VARARGS, "Keeps a recording as a plan, which is used while the watch sees no change."},
    {"audit", replays_audit, METH_O,
     "Compares a recording with the plan of its arguments, which goes where they differ."},
    {"clear", replays_clear, METH_NOARGS, "Forgets all plans."},
    {"scribble", replays_scribble, METH_NOARGS, "Overwrites the memory of all temporaries: for tests."},
    {"plans", replays_plans, METH_NOARGS, "Calls, bytes and replays of each plan."},
    {}};
PyGetSetDef replays_properties[] = {{"reason", replays_reason, nullptr, "Why the last call was not replayed.", nullptr},
                                    {}};

}  // namespace

bool init_record(PyObject* module) {
  record::describe_line = [] { return autograd::at_site(autograd::current_site()); };
  recorder_type = add_type(
      module, "tapegrad._C._Recorder", sizeof(Boxed<RecorderObject>), 0,
      {{Py_tp_new, recorder_new}, {Py_tp_dealloc, dealloc_boxed<RecorderObject>}, {Py_tp_methods, recorder_methods}});
  recording_type =
      add_type(module, "tapegrad._C._Recording", sizeof(Boxed<RecordingObject>), Py_TPFLAGS_DISALLOW_INSTANTIATION,
               {{Py_tp_dealloc, dealloc_boxed<RecordingObject>},
                {Py_tp_methods, recording_methods},
                {Py_tp_getset, recording_properties}});
  watch_type = add_type(module, "tapegrad._C._Watch", sizeof(Boxed<std::shared_ptr<Watch>>), 0,
                        {{Py_tp_new, watch_new},
                         {Py_tp_dealloc, dealloc_boxed<std::shared_ptr<Watch>>},
                         {Py_tp_methods, watch_methods},
                         {Py_tp_getset, watch_properties}});
  replays_type = add_type(module, "tapegrad._C._Replays", sizeof(Boxed<Replays>), Py_TPFLAGS_HAVE_GC,
                          {{Py_tp_new, replays_new},
                           {Py_tp_dealloc, replays_dealloc},
                           {Py_tp_traverse, replays_traverse},
                           {Py_tp_clear, replays_drop},
                           {Py_tp_methods, replays_methods},
                           {Py_tp_getset, replays_properties}});
  return recorder_type && recording_type && watch_type && replays_type;
}

}  // namespace tapegrad::python
