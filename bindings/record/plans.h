// What recordings and plans of a Python function are, beside what aten/record knows of them.
#pragma once

#include <list>
#include <mutex>

#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/aten/record/step.h"
#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/bindings/interpreter/type_object.h"
#include "tapegrad/bindings/record/tree.h"
#include "tapegrad/bindings/record/watch.h"

namespace tapegrad::python {

using record::Recorder, record::Recording, record::Step;

// What outside of the arguments decides what operators do.
struct Settings {
  uint32_t modes = tapegrad::modes() & kModeNoGrad;
  DType dtype = default_dtype();
  bool operator==(const Settings&) const = default;
};

struct Plan;

struct RecordingObject {
  std::unique_ptr<Recording> recording;
  std::string reason;
  Tree arguments, result;
  Settings settings;
  std::vector<Tensor> leaves;
  std::unique_ptr<record::NativeStep> native;  // none: other sizes are recorded, because of
  std::string sizes;
  std::weak_ptr<Plan> audited;  // by it
};

// A forward pass whose backward pass may come: what its node on the tape and the recorder object share.
struct TwoParts {
  std::unique_ptr<Recorder> recorder;
  std::vector<Tensor> outputs;  // with the tape of the function itself
  std::vector<Tensor> leaves;   // the inputs of the node
  std::mutex lock;
  std::unique_ptr<Recording> done;
};

struct RecorderObject {
  std::unique_ptr<Recorder> recorder;
  Tree arguments, result;
  std::vector<PyRef> feeds;
  Settings settings;
  uint64_t first_node = autograd::detail::node_sequence;
  std::shared_ptr<TwoParts> parts;
  std::unique_ptr<record::NativeTrace> trace;
  std::unique_ptr<record::NativeStep> native;
  std::string sizes;
  std::weak_ptr<Plan> audited;
};

struct Plan : std::enable_shared_from_this<Plan> {
  Plan(RecordingObject from, std::shared_ptr<Watch> watched, record::Budget budget, bool graphs)
      : step(std::move(from.recording), budget, graphs),
        arguments(std::move(from.arguments)),
        result(std::move(from.result)),
        watch(std::move(watched)),
        leaves(std::move(from.leaves)),
        settings(from.settings) {}
  Step step;
  Tree arguments, result;
  std::shared_ptr<Watch> watch;
  std::vector<Tensor> leaves;  // of two parts: the inputs of the node
  Settings settings;
  int64_t replays = 0, next_audit = 16;
  bool aside = false;      // values that it has read are others now
  bool for_sizes = false;  // made without a recording
};

// What makes plans for further sizes of the arguments of a plan that was recorded.
struct NativePlan {
  std::unique_ptr<record::NativeStep> step;  // none: there are none, because of
  std::string refusal;
  std::weak_ptr<Plan> recorded;  // until it was found that the step gives that one's recording
  std::vector<record::FeedGeometry> feeds;
  Tree arguments, result;
  std::shared_ptr<Watch> watch;
  std::vector<Tensor> leaves;
  std::vector<record::DrawnFrom> generators;
  std::vector<Tensor> given_back;  // of each result: the tensor that it is in each call, or undefined
  Settings settings;
  record::Budget budget;
  bool graphs = true, two_parts = false, checked = false;
};

constexpr size_t kMostPlans = 16;
// Plans that wait until values are again what they were; on a device each keeps its memory.
constexpr size_t kMostAside = 3, kMostAsideOnDevice = 1;
// Plans for other sizes in a row that were dropped as they were made, for one call; from then on one is made for each
// so many calls that need one.
constexpr int64_t kMostUnused = 32, kSeldom = 16;
constexpr const char* kOtherSizes = "its arguments have other sizes in each call";

struct Replays {
  std::list<std::shared_ptr<Plan>> plans;  // the one that was used last comes first
  std::list<std::shared_ptr<NativePlan>> natives;
  std::weak_ptr<Plan> audited;     // of the last call, which runs eagerly for that
  std::string reason;              // of the last call that was not replayed
  std::string sizes;               // why other sizes than the recorded ones need a recording
  int64_t made = 0;                // plans that were made without one,
  int64_t unused = 0;              // of them those in a row that served one call,
  int64_t without = 0;             // and the calls since that ran eagerly for that
  int64_t count = 0;               // of all replays
  std::vector<PyObject*> objects;  // no more than memory for the next call,
  std::vector<Tensor> feeds;       // both empty
};

// For Python's collector: a recorded function, what it watches and what holds the function form circles.
template <class T>
void dealloc_tracked(PyObject* self) {
  PyObject_GC_UnTrack(self);
  dealloc_boxed<T>(self);
}
// Of a tapegrad._C._Recording that has not become a plan.
RecordingObject& recording_of(PyObject* object);

// The leaves that the graph of these tensors ends in. Refuses what began before the recording.
std::vector<Tensor> leaves_of(const std::vector<Tensor>& outputs, uint64_t first_node, Recorder& recorder);
std::vector<Tensor> unwrapped(const std::vector<PyObject*>& objects);
// A replay does not change what an argument looks like (t_, resize_): steps that do are refused.
void refuse_other_geometry(Recorder& recorder, const std::vector<PyRef>& feeds);

extern PyTypeObject* replays_type;  // tapegrad._C._Replays
// _Replays.run((args, kwargs)): the result of a replay, or NotImplemented.
PyObject* run_replays(PyObject* replays, PyObject* call);
bool init_called(PyObject* module);

// Whether the program captures what this thread does in a graph of a device.
bool is_captured();
// Puts it first, and drops the last ones of too many.
void add_plan(Replays& replays, std::shared_ptr<Plan> plan);
// Of a plan whose watch has found a change: whether it may be used another time. Its memory is free until then.
bool put_aside(Plan& plan);
// Bytes of a plan, what its budget costs, and its graphs: a dictionary.
PyObject* memory_of(const Plan& plan);
// _Replays.memory(): that of each plan; _Replays.plans(): (calls, bytes of temporaries, replays) of each.
PyObject* memory_of_plans(PyObject* replays, PyObject*);
PyObject* plans_of(PyObject* replays, PyObject*);

// Keeps what makes plans for other sizes than those of a plan that was just added.
void keep_native(Replays& replays, const std::shared_ptr<Plan>& plan, std::unique_ptr<record::NativeStep> step,
                 std::string refusal, record::Budget budget, bool graphs);
// Makes a plan for arguments that no plan fits, and puts it first; false where there is none: `replays.sizes` says why.
bool add_for_sizes(Replays& replays, PyObject* args);

}  // namespace tapegrad::python
