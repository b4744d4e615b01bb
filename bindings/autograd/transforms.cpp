// The state of autocast and the levels of vmap, for tapegrad/amp and tapegrad/func.
#include <unordered_set>
#include <vector>

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/batch/tape_below.h"
#include "tapegrad/autograd/accumulate.h"
#include "tapegrad/autograd/autocast.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/program_scope.h"

namespace tapegrad::python {
namespace {

void expect(Py_ssize_t nargs, Py_ssize_t wanted, const char* op) {
  TG_CHECK(nargs == wanted, Type, "{}: expected {} arguments: got {}", op, wanted, nargs);
}

// Autocast knows CPU and CUDA; the index of a device type among them.
DeviceType cast_device(PyObject* o, const char* op) {
  const std::string_view name = to_str(o, {op, "device_type"});
  TG_CHECK(name == "cpu" || name == "cuda", Runtime, "{}: expected device type 'cpu' or 'cuda': got '{}'", op, name);
  return name == "cpu" ? DeviceType::CPU : DeviceType::CUDA;
}

// _autocast_enabled(device_type[, value])
PyObject* autocast_enabled(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  constexpr const char* kOp = "set_autocast_enabled";
  const DeviceType device = cast_device(args[0], kOp);
  if (nargs == 1) return wrap(autocast::enabled(device));
  expect(nargs, 2, kOp);
  autocast::set_enabled(device, to_bool(args[1], {kOp, "enabled"}));
  keep_modes(kModeAutocast);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// _autocast_dtype(device_type[, dtype])
PyObject* autocast_dtype(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  constexpr const char* kOp = "set_autocast_dtype";
  const DeviceType device = cast_device(args[0], kOp);
  if (nargs == 1) return wrap(autocast::dtype(device));
  expect(nargs, 2, kOp);
  autocast::set_dtype(device, to_dtype(args[1], {kOp, "dtype"}));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* cache_enabled(PyObject*, PyObject*) { return wrap(autocast::cache_enabled()); }
PyObject* set_cache_enabled(PyObject*, PyObject* value) {
  TG_PY_TRY
  autocast::set_cache_enabled(to_bool(value, {"set_autocast_cache_enabled", "enabled"}));
  Py_RETURN_NONE;
  TG_PY_CATCH
}
PyObject* clear_cache(PyObject*, PyObject*) {
  autocast::clear_cache();
  Py_RETURN_NONE;
}
PyObject* nesting(PyObject*, PyObject* by) {
  TG_PY_TRY
  return PyLong_FromLong(autocast::change_nesting(static_cast<int>(to_int(by, {"autocast", "by"}))));
  TG_PY_CATCH
}

// _vmap_enter(size, randomness): the new level
PyObject* vmap_enter(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  expect(nargs, 2, "vmap");
  const std::string_view randomness = to_str(args[1], {"vmap", "randomness"});
  const int level =
      batch::enter(to_int(args[0], {"vmap", "size"}), randomness == "same"        ? batch::Randomness::Same
                                                      : randomness == "different" ? batch::Randomness::Different
                                                                                  : batch::Randomness::Error);
  keep_modes(kModeBatch);
  return PyLong_FromLong(level);
  TG_PY_CATCH
}

PyObject* vmap_leave(PyObject*, PyObject* level) {
  TG_PY_TRY
  batch::leave(static_cast<int>(to_int(level, {"vmap", "level"})));
  keep_modes(kModeBatch);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* vmap_depth(PyObject*, PyObject*) { return PyLong_FromLong(batch::depth()); }

// _vmap_wrap(tensor, level, has_dim)
PyObject* vmap_wrap(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  expect(nargs, 3, "vmap");
  const int level = static_cast<int>(to_int(args[1], {"vmap", "level"}));
  TG_CHECK(level >= 1 && level <= batch::depth(), Runtime, "vmap: there is no level {}", level);
  return wrap(batch::wrap(to_tensor(args[0], {"vmap", "tensor"}), level, to_bool(args[2], {"vmap", "has_dim"})));
  TG_PY_CATCH
}

// _vmap_unwrap(tensor, level): the tensor below it, and whether it has samples along dimension 0
PyObject* vmap_unwrap(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  expect(nargs, 2, "vmap");
  auto [t, has_dim] =
      batch::unwrap(to_tensor(args[0], {"vmap", "tensor"}), static_cast<int>(to_int(args[1], {"vmap", "level"})));
  PyRef below = own(wrap(t));
  return PyTuple_Pack(2, below.get(), has_dim ? Py_True : Py_False);
  TG_PY_CATCH
}

// _vmap_level(tensor): that of a batched tensor, else 0
PyObject* vmap_level(PyObject*, PyObject* tensor) {
  TG_PY_TRY
  const Tensor& t = to_tensor(tensor, {"vmap", "tensor"});
  return PyLong_FromLong(batch::is_batched(t) ? batch::impl_of(t).level() : 0);
  TG_PY_CATCH
}

// _vmap_physical(tensor): what a batched tensor stands for, for printing
PyObject* vmap_physical(PyObject*, PyObject* tensor) {
  TG_PY_TRY
  const Tensor& t = to_tensor(tensor, {"vmap", "tensor"});
  return wrap(batch::is_batched(t) ? batch::impl_of(t).physical() : t);
  TG_PY_CATCH
}

PyObject* vmap_recorded(PyObject*, PyObject*) { return wrap(batch::tape_below()); }

// _reaches_others(tensors, inputs): whether what the tensors were computed from has leaves apart from the inputs. An
// input that is no leaf leads on to others.
PyObject* reaches_others(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  expect(nargs, 2, "func");
  std::unordered_set<const TensorImpl*> own;
  for (const Tensor& t : to_tensors(args[1], {"func", "inputs"})) own.insert(t.impl());
  std::vector<intrusive_ptr<autograd::Node>> waiting;
  std::unordered_set<const autograd::Node*> seen;
  auto visit = [&](const intrusive_ptr<autograd::Node>& node) {
    if (node && seen.insert(node.get()).second) waiting.push_back(node);
  };
  for (const Tensor& t : to_tensors(args[0], {"func", "tensors"}))
    if (t.requires_grad()) visit(autograd::edge_of(t).node);
  while (!waiting.empty()) {
    const intrusive_ptr<autograd::Node> node = std::move(waiting.back());
    waiting.pop_back();
    if (node->is_accumulator) {
      if (!own.contains(static_cast<const autograd::AccumulateGrad&>(*node).variable.impl())) Py_RETURN_TRUE;
      continue;
    }
    for (const autograd::Edge& edge : node->edges) visit(edge.node);
  }
  Py_RETURN_FALSE;
  TG_PY_CATCH
}

template <class F>
PyCFunction erase(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

}  // namespace

PyMethodDef transform_functions[] = {
    {"_autocast_enabled", erase(&autocast_enabled), METH_FASTCALL, "_autocast_enabled(device_type[, value])"},
    {"_autocast_dtype", erase(&autocast_dtype), METH_FASTCALL, "_autocast_dtype(device_type[, dtype])"},
    {"_autocast_cache_enabled", &cache_enabled, METH_NOARGS, nullptr},
    {"_set_autocast_cache_enabled", &set_cache_enabled, METH_O, nullptr},
    {"_clear_autocast_cache", &clear_cache, METH_NOARGS, nullptr},
    {"_autocast_nesting", &nesting, METH_O, "_autocast_nesting(by): the count of nested scopes"},
    {"_vmap_enter", erase(&vmap_enter), METH_FASTCALL, "_vmap_enter(size, randomness): the new level"},
    {"_vmap_leave", &vmap_leave, METH_O, "_vmap_leave(level)"},
    {"_vmap_depth", &vmap_depth, METH_NOARGS, nullptr},
    {"_vmap_wrap", erase(&vmap_wrap), METH_FASTCALL, "_vmap_wrap(tensor, level, has_dim)"},
    {"_vmap_unwrap", erase(&vmap_unwrap), METH_FASTCALL, "_vmap_unwrap(tensor, level): (tensor, has_dim)"},
    {"_vmap_level", &vmap_level, METH_O, "_vmap_level(tensor)"},
    {"_vmap_physical", &vmap_physical, METH_O, "_vmap_physical(tensor)"},
    {"_vmap_recorded", &vmap_recorded, METH_NOARGS, "whether a tape below the levels knows their tensors"},
    {"_reaches_others", erase(&reaches_others), METH_FASTCALL, "_reaches_others(tensors, inputs)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace tapegrad::python
