// Groups and works, as tapegrad.distributed uses them: checks of types and names are done in Python, sizes and dtypes
// in C++.
#include "tapegrad/bindings/arguments/method.h"

#include <structmember.h>

#include "tapegrad/bindings/distributed/objects.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/distributed/meeting.h"

namespace tapegrad::python {

namespace {

using distributed::Group;
using distributed::Milliseconds;
using distributed::Work;

PyTypeObject* group_type = nullptr;
PyTypeObject* work_type = nullptr;

struct PyGroup {
  PyObject_HEAD std::shared_ptr<distributed::Watch> watch;
  std::unique_ptr<Group> group;
  PyObject* weak_references;
};
using PyWork = Boxed<std::shared_ptr<Work>>;

PyGroup& object_of(PyObject* o) { return *reinterpret_cast<PyGroup*>(o); }
Group& group_of(PyObject* o) { return *object_of(o).group; }

// --- works ---

bool work_wait(PyWork& w, Or<int64_t{-1}> limit) {
  const std::shared_ptr<Work> work = w.value;  // another thread may drop the object meanwhile
  return work->wait(limit < 0 ? std::nullopt : std::optional(Milliseconds(limit)));
}

PyObject* work_exception(PyWork& w) {
  const std::exception_ptr failed = w.value->exception();
  if (!failed) Py_RETURN_NONE;
  try {
    std::rethrow_exception(failed);
  } catch (...) {
    translate_exception();
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

// Called once, on the thread that ends the call.
struct Callback {
  PyObject* f;
  explicit Callback(PyObject* o) : f(Py_NewRef(o)) {}
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
  ~Callback() {
    with_gil_while_it_lasts([this] { Py_DECREF(f); });
  }
  void operator()() const {
    with_gil_while_it_lasts([this] {
      PyRef result(PyObject_CallNoArgs(f));
      if (!result) PyErr_WriteUnraisable(f);
    });
  }
};

void work_then(PyWork& w, PyObject* f) {
  TG_CHECK(PyCallable_Check(f), Type, "then: the callback must be callable: got {}", Py_TYPE(f)->tp_name);
  auto callback = std::make_shared<Callback>(f);
  w.value->then([callback] { (*callback)(); });
}

PyMethodDef work_methods[] = {
    method<"wait", work_wait>(),
    method<"is_completed", [](PyWork& w) { return w.value->is_completed(); }>(),
    method<"source", [](PyWork& w) { return w.value->source(); }>(),
    method<"exception", work_exception>(),
    method<"then", work_then>(),
    {},
};

// --- groups ---

std::unique_ptr<distributed::Backend> make_engine(const std::string& engine, const distributed::BackendPlace& own,
                                                  const distributed::GroupOptions& options) {
  if (engine == "threads") return make_thread_backend(own);
  const distributed::Meeting meeting(own, options.watch, options.world_ranks);
  const distributed::BackendPlace& place = meeting.place();
  if (engine == "shared") return make_shared_backend(place);
  if (engine == "gloo") return make_gloo_backend(place);
  if (engine == "mpi") return make_mpi_backend(place);
  TG_CHECK(engine == "auto", Value, "group: the engine must be auto, shared, gloo, mpi or threads: got {}", engine);
  return meeting.all_share_memory() ? make_shared_backend(place) : make_gloo_backend(place);
}

PyObject* group_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"store",       "rank",   "size",        "engine", "name", "timeout_ms",
                                "patience_ms", "parent", "world_ranks", "nccl",   nullptr};
  PyObject *store, *parent = Py_None, *world_ranks = Py_None;
  int rank, size;
  const char *engine, *name = "";
  int nccl = 0;
  long long timeout = 1'800'000, patience = 10'000;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oiis|sLLOOp:_Group", const_cast<char**>(names), &store, &rank, &size,
                                   &engine, &name, &timeout, &patience, &parent, &world_ranks, &nccl))
    return nullptr;
  TG_CHECK(size >= 1 && rank >= 0 && rank < size, Value, "group: there is no rank {} among {}", rank, size);
  TG_CHECK(parent == Py_None || Py_TYPE(parent) == group_type, Type, "group: the parent must be a group");
  distributed::BackendPlace place{store_of(store),       rank, size, std::make_shared<distributed::Failure>(),
                                  Milliseconds(timeout), {}};
  distributed::GroupOptions options;
  if (parent != Py_None) options.name = name;  // messages name no group where it is the whole job
  options.timeout = Milliseconds(timeout);
  options.patience = Milliseconds(patience);
  options.device_engine = nccl != 0;
  if (world_ranks != Py_None)
    for (int64_t r : to_ints(world_ranks, {"group", "world_ranks"})) options.world_ranks.push_back(static_cast<int>(r));
  TG_CHECK(options.world_ranks.empty() || options.world_ranks.size() == static_cast<size_t>(size), Value,
           "group: world_ranks must name all {} ranks: got {}", size, options.world_ranks.size());
  std::shared_ptr<distributed::Watch> watch;
  if (parent != Py_None) watch = object_of(parent).watch;
  const std::string kind = engine;
  std::unique_ptr<Group> group;
  {
    const BlockingRegion others_run;
    if (!watch) watch = std::make_shared<distributed::Watch>(place.store, rank, size);
    options.watch = watch;
    // A rank that fails while the others connect ends their waiting, too.
    const uint64_t listener =
        watch->add([failure = place.failure](const std::string& why, Milliseconds grace) { failure->set(why, grace); });
    std::unique_ptr<distributed::Backend> backend;
    try {
      backend = make_engine(kind, place, options);
    } catch (const std::exception& e) {
      watch->forget(listener);
      watch->failed(fmt::format("rank {} could not join the group: {}", rank, e.what()));
      throw;
    }
    watch->forget(listener);
    group = std::make_unique<Group>(std::move(place), std::move(backend), std::move(options));
  }
  PyObject* o = check(type->tp_alloc(type, 0));
  new (&object_of(o).watch) std::shared_ptr<distributed::Watch>(std::move(watch));
  new (&object_of(o).group) std::unique_ptr<Group>(std::move(group));
  return o;
}

void group_dealloc(PyObject* o) {
  if (object_of(o).weak_references) PyObject_ClearWeakRefs(o);
  {
    const GilRelease others_run;  // threads that end may need it
    object_of(o).group.~unique_ptr();
    object_of(o).watch.~shared_ptr();
  }
  free_object(o);
}

PyObject* group_run(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"kind",   "inputs", "outputs", "root",       "reduce", "mean",
                                "factor", "tag",    "varying", "timeout_ms", "wait",   nullptr};
  int kind, root = 0, reduce = 0, mean = 0, varying = 0, wait = 1;
  PyObject *inputs, *outputs, *factor = Py_None;
  unsigned long long tag = 0;
  long long timeout = -1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iOO|iipOKpLp:run", const_cast<char**>(names), &kind, &inputs,
                                   &outputs, &root, &reduce, &mean, &factor, &tag, &varying, &timeout, &wait))
    return nullptr;
  TG_CHECK(kind >= 0 && kind <= static_cast<int>(distributed::Kind::Recv), Value, "group: there is no collective {}",
           kind);
  TG_CHECK(reduce >= 0 && reduce <= static_cast<int>(distributed::Reduce::BitXor), Value,
           "group: there is no reduction {}", reduce);
  distributed::Call call;
  call.kind = static_cast<distributed::Kind>(kind);
  call.reduce = static_cast<distributed::Reduce>(reduce);
  call.mean = mean != 0;
  call.root = root;
  call.tag = tag;
  call.sizes_may_differ = varying != 0;
  if (factor != Py_None) {
    call.scaled = true;
    call.factor = to_double(factor, {"group", "factor"});
  }
  if (timeout >= 0) call.timeout = Milliseconds(timeout);
  call.inputs = to_tensors(inputs, {name_of(call.kind), "inputs"});
  call.outputs = to_tensors(outputs, {name_of(call.kind), "outputs"});
  return box(work_type, group_of(o).run(std::move(call), wait != 0));
}

// clang-format off
PyMethodDef group_methods[] = {
    {"run", as_c_function(guarded<group_run>), METH_VARARGS | METH_KEYWORDS, nullptr},
    method<"abort", [](PyGroup& g, PyObject* why) {
      const std::string text(to_str(why, {"abort", "why", 1}));
      const GilRelease others_run;
      g.group->abort(text);
    }>(),
    method<"close", [](PyGroup& g) {
      const BlockingRegion others_run;
      g.group->close();
    }>(),
    method<"flush", [](PyGroup& g, int64_t limit_ms) {  // waits for the receivers of what was sent
      const BlockingRegion others_run;
      g.group->flush(Milliseconds(limit_ms));
    }>(),
    method<"leave", [](PyGroup& g) {  // tells the other ranks that this one has ended in order
      const GilRelease others_run;
      g.watch->left();
    }>(),
    {},
};
// clang-format on

PyMemberDef group_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PyGroup, weak_references), READONLY, nullptr},
    {},
};

PyGetSetDef group_properties[] = {
    {"rank", [](PyObject* o, void*) { return PyLong_FromLong(group_of(o).rank()); }, nullptr, nullptr, nullptr},
    {"size", [](PyObject* o, void*) { return PyLong_FromLong(group_of(o).size()); }, nullptr, nullptr, nullptr},
    {"engine", [](PyObject* o, void*) { return PyUnicode_FromString(group_of(o).backend().name()); }, nullptr, nullptr,
     nullptr},
    {},
};

// --- where the program is ---

PyObject* where_function = nullptr;

std::string where() {
  std::string line;
  with_gil_while_it_lasts([&line] {
    PyRef text(where_function ? PyObject_CallNoArgs(where_function) : nullptr);
    const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (utf8) line = utf8;
    PyErr_Clear();
  });
  return line;
}

// clang-format off
PyMethodDef functions[] = {
    // (kind, inputs, outputs, reduce, root): cuda.nccl's collectives, among devices of this process
    method<"_nccl_among_devices", [](int kind, PyObject* inputs, PyObject* outputs, int reduce, int root) {
      const std::vector<Tensor> in = to_tensors(inputs, {"nccl", "inputs"}), out = to_tensors(outputs, {"nccl", "outputs"});
      const BlockingRegion others_run;
      distributed::among_devices(static_cast<distributed::Kind>(kind), in, out, static_cast<distributed::Reduce>(reduce), root);
    }>(),
    // Why NCCL cannot be used, "" where it can. Loads the CUDA library.
    method<"_nccl_why_not", [] { return distributed::device_engine_why_not(); }>(),
    // The function gives the line at which the main thread is, for other ranks that wait for this one.
    method<"_set_where", [](PyObject* function) {
      Py_XSETREF(where_function, Py_NewRef(function));
      distributed::where_hook = where;
    }>(),
    method<"_engine_is_available", [](std::string_view name) { return distributed::engine_is_available(name.data()); }>(),
    {},
};
// clang-format on

}  // namespace

bool init_groups(PyObject* module) {
  work_type = add_type(module, "tapegrad._C._Work", sizeof(PyWork), Py_TPFLAGS_DISALLOW_INSTANTIATION,
                       {{Py_tp_dealloc, dealloc_boxed<std::shared_ptr<Work>>}, {Py_tp_methods, work_methods}});
  group_type = add_type(module, "tapegrad._C._Group", sizeof(PyGroup), 0,
                        {{Py_tp_new, guarded<group_new>},
                         {Py_tp_dealloc, group_dealloc},
                         {Py_tp_methods, group_methods},
                         {Py_tp_getset, group_properties},
                         {Py_tp_members, group_members}});
  return work_type && group_type && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace tapegrad::python
