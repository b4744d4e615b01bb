// The state of autocast and the levels of vmap, for tapegrad/amp and tapegrad/func.
#include <unordered_set>
#include <vector>

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/batch/tape_below.h"
#include "tapegrad/autograd/autocast.h"
#include "tapegrad/autograd/engine/accumulate.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/program_scope.h"

namespace tapegrad::python {
namespace {

// Autocast knows CPU and CUDA; the index of a device type among them.
DeviceType cast_device(PyObject* o, const char* op) {
  const std::string_view name = to_str(o, {op, "device_type"});
  TG_CHECK(name == "cpu" || name == "cuda", Runtime, "{}: expected device type 'cpu' or 'cuda': got '{}'", op, name);
  return name == "cpu" ? DeviceType::CPU : DeviceType::CUDA;
}

// _autocast_enabled(device_type[, value]), _autocast_dtype(device_type[, dtype]); kOp, kArg: of the public setter.
template <Text kOp, Text kArg, auto kGet, auto kSet, auto kConvert>
PyObject* autocast_setting(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  if (nargs != 1) expect_args(nargs, 2, kOp.text);
  const DeviceType device = cast_device(args[0], kOp.text);
  if (nargs == 1) return wrap(kGet(device));
  kSet(device, kConvert(args[1], {kOp.text, kArg.text}));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

void set_enabled(DeviceType device, bool enabled) {
  autocast::set_enabled(device, enabled);
  keep_modes(kModeAutocast);
}
constexpr auto autocast_enabled =
    autocast_setting<"set_autocast_enabled", "enabled", autocast::enabled, set_enabled, to_bool>;
constexpr auto autocast_dtype =
    autocast_setting<"set_autocast_dtype", "dtype", autocast::dtype, autocast::set_dtype, to_dtype>;

// _vmap_enter(size, randomness): the new level
PyObject* vmap_enter(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  expect_args(nargs, 2, "vmap");
  const std::string_view randomness = to_str(args[1], {"vmap", "randomness"});
  const int level =
      batch::enter(to_int(args[0], {"vmap", "size"}), randomness == "same"        ? batch::Randomness::Same
                                                      : randomness == "different" ? batch::Randomness::Different
                                                                                  : batch::Randomness::Error);
  keep_modes(kModeBatch);
  return PyLong_FromLong(level);
}

// _vmap_wrap(tensor, level, has_dim)
PyObject* vmap_wrap(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  expect_args(nargs, 3, "vmap");
  const int level = static_cast<int>(to_int(args[1], {"vmap", "level"}));
  TG_CHECK(level >= 1 && level <= batch::depth(), Runtime, "vmap: there is no level {}", level);
  Tensor tensor = to_tensor(args[0], {"vmap", "tensor"});
  // Views inside are views by strides of this memory, whose gradient is the mean over elements that share a place: in a
  // tensor that the tape knows, each element has one of its own, in a copy that cannot be written: no more can what it
  // stands for, a leaf, or memory that elements share. What is not recorded stays the memory that is written.
  if (grad_enabled() && tensor.requires_grad() && !tensor.is_meta() && has_internal_overlap(tensor)) {
    tensor = tensor.clone();
    tensor.impl()->storage()->set_read_only(true);
  }
  return wrap(batch::wrap(tensor, level, to_bool(args[2], {"vmap", "has_dim"})));
}

// _vmap_unwrap(tensor, level): the tensor below it, and whether it has samples along dimension 0
PyObject* vmap_unwrap(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  expect_args(nargs, 2, "vmap");
  auto [t, has_dim] =
      batch::unwrap(to_tensor(args[0], {"vmap", "tensor"}), static_cast<int>(to_int(args[1], {"vmap", "level"})));
  PyRef below = own(wrap(t));
  return PyTuple_Pack(2, below.get(), has_dim ? Py_True : Py_False);
}

// _reaches_others(tensors, inputs): whether what the tensors were computed from has leaves apart from the inputs. An
// input that is no leaf leads on to others.
PyObject* reaches_others(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  expect_args(nargs, 2, "func");
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
}

}  // namespace

// clang-format off
PyMethodDef transform_functions[] = {
    {"_autocast_enabled", as_c_function(autocast_enabled), METH_FASTCALL, "_autocast_enabled(device_type[, value])"},
    {"_autocast_dtype", as_c_function(autocast_dtype), METH_FASTCALL, "_autocast_dtype(device_type[, dtype])"},
    method<"_autocast_cache_enabled", [] { return autocast::cache_enabled(); }>(),
    method<"_set_autocast_cache_enabled", [](PyObject* value) {
      autocast::set_cache_enabled(to_bool(value, {"set_autocast_cache_enabled", "enabled"}));
    }>(),
    method<"_clear_autocast_cache", [] { autocast::clear_cache(); }>(),
    method<"_autocast_nesting", [](PyObject* by) {
      return autocast::change_nesting(static_cast<int>(to_int(by, {"autocast", "by"})));
    }>("_autocast_nesting(by): the count of nested scopes"),
    {"_vmap_enter", as_c_function(guarded<vmap_enter>), METH_FASTCALL, "_vmap_enter(size, randomness): the new level"},
    method<"_vmap_leave", [](PyObject* level) {
      batch::leave(static_cast<int>(to_int(level, {"vmap", "level"})));
      keep_modes(kModeBatch);
    }>("_vmap_leave(level)"),
    method<"_vmap_level_info", [](int64_t level) {  // (samples, randomness)
      TG_CHECK(level >= 1 && level <= batch::depth(), Runtime, "vmap: there is no level {}", level);
      const batch::Level& l = batch::level(static_cast<int>(level));
      const char* names[] = {"error", "same", "different"};
      return own(Py_BuildValue("Ls", static_cast<long long>(l.size), names[static_cast<int>(l.randomness)]));
    }>("_vmap_level_info(level)"),
    method<"_vmap_below", [](int64_t level, PyObject* function) {  // function(), as if the level had not been entered
      struct Keep {
        ~Keep() { keep_modes(kModeBatch); }
      } keep;
      const batch::Suspended suspended(static_cast<int>(level));
      keep_modes(kModeBatch);
      return own(PyObject_CallNoArgs(function));
    }>("_vmap_below(level, function)"),
    method<"_vmap_depth", [] { return batch::depth(); }>(),
    {"_vmap_wrap", as_c_function(guarded<vmap_wrap>), METH_FASTCALL, "_vmap_wrap(tensor, level, has_dim)"},
    {"_vmap_unwrap", as_c_function(guarded<vmap_unwrap>), METH_FASTCALL, "_vmap_unwrap(tensor, level): (tensor, has_dim)"},
    method<"_vmap_level", [](PyObject* tensor) {  // that of a batched tensor, else 0
      const Tensor& t = to_tensor(tensor, {"vmap", "tensor"});
      return batch::is_batched(t) ? batch::impl_of(t).level() : 0;
    }>("_vmap_level(tensor)"),
    method<"_vmap_physical", [](PyObject* tensor) {  // what a batched tensor stands for, for printing
      const Tensor& t = to_tensor(tensor, {"vmap", "tensor"});
      return batch::is_batched(t) ? batch::impl_of(t).physical() : t;
    }>("_vmap_physical(tensor)"),
    method<"_vmap_recorded", [] { return batch::tape_below(); }>("whether a tape below the levels knows their tensors"),
    {"_reaches_others", as_c_function(guarded<reaches_others>), METH_FASTCALL, "_reaches_others(tensors, inputs)"},
    {},
};
// clang-format on

}  // namespace tapegrad::python
