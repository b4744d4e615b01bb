// tapegrad.Generator, and the state of the default one.
#include "tapegrad/c10/generator.h"

#include <cstring>
#include <new>

#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/default_generators.h"
#include "tapegrad/c10/device_interface.h"

namespace tapegrad::python {

PyTypeObject* generator_type = nullptr;

namespace {

// The numbers are the same on all devices, so the device is only what the program said.
struct GeneratorObject {
  PyGenerator base;
  Device device;
  bool of_device;  // the device's default generator, whichever that is
};
GeneratorObject& object_of(PyObject* o) { return *reinterpret_cast<GeneratorObject*>(o); }
Device& device_of(PyObject* o) { return object_of(o).device; }

const GeneratorPtr& value_of(PyObject* o) {
  GeneratorObject& object = object_of(o);
  if (object.of_device) object.base.value = default_generator_of(object.device);
  return object.base.value;
}

// A seed is any 64-bit number; negative ones count from the top, as in PyTorch.
uint64_t to_seed(PyObject* o, const char* op) {
  PyRef index = own(PyNumber_Index(o));
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  if (!overflow) return static_cast<uint64_t>(value);
  const unsigned long long big = PyLong_AsUnsignedLongLong(index.get());
  if (PyErr_Occurred()) {
    PyErr_Clear();
    TG_THROW(Runtime, "{}: the seed does not fit into 64 bits", op);
  }
  return big;
}

PyObject* generator_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  TG_PY_TRY
  static const char* names[] = {"device", nullptr};
  PyObject* device = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", const_cast<char**>(names), &device)) return nullptr;
  Device d;
  if (device && device != Py_None) d = to_device(device, {"Generator", "device", 1});
  TG_CHECK(d.is_cpu() || d.is_cuda(), Runtime, "Generator: there are generators for the CPU and for CUDA only: got {}",
           d);
  if (d.is_cuda()) {
    DeviceInterface& cuda = need_device(DeviceType::CUDA, "Generator");
    if (d.index < 0) d.index = static_cast<int8_t>(cuda.current());
    TG_CHECK(d.index < cuda.count(), Runtime, "Generator: there is no device {}: got {} of them", d, cuda.count());
  }
  PyObject* made = wrap_generator(make_intrusive<Generator>());
  if (made != nullptr) device_of(made) = d;
  return made;
  TG_PY_CATCH
}

void generator_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  reinterpret_cast<PyGenerator*>(o)->value.~intrusive_ptr();
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* state_tensor(const Generator& generator) {
  const std::vector<uint8_t> bytes = generator.get_state();
  Tensor t = empty_tensor(DimVector{static_cast<int64_t>(bytes.size())}, DType::uint8);
  std::memcpy(t.data_ptr(), bytes.data(), bytes.size());
  return wrap(std::move(t));
}

void set_state_from(Generator& generator, PyObject* state) {
  const Tensor& t = to_tensor(state, {"set_state", "new_state", 1});
  TG_CHECK(t.dtype() == DType::uint8 && t.is_cpu() && t.is_contiguous(), Type,
           "set_state: the state must be a contiguous uint8 tensor on the CPU: got {}", t.dtype());
  generator.set_state(static_cast<const uint8_t*>(t.data_ptr()), static_cast<size_t>(t.numel()));
}

PyObject* manual_seed(PyObject* o, PyObject* seed) {
  TG_PY_TRY
  value_of(o)->manual_seed(to_seed(seed, "manual_seed"));
  return Py_NewRef(o);
  TG_PY_CATCH
}
PyObject* seed(PyObject* o, PyObject*) {
  TG_PY_TRY
  return PyLong_FromUnsignedLongLong(value_of(o)->seed());
  TG_PY_CATCH
}
PyObject* initial_seed(PyObject* o, PyObject*) { return PyLong_FromUnsignedLongLong(value_of(o)->initial_seed()); }
PyObject* get_state(PyObject* o, PyObject*) {
  TG_PY_TRY
  return state_tensor(*value_of(o));
  TG_PY_CATCH
}
PyObject* set_state(PyObject* o, PyObject* state) {
  TG_PY_TRY
  set_state_from(*value_of(o), state);
  return Py_NewRef(o);
  TG_PY_CATCH
}
PyObject* clone(PyObject* o, PyObject*) {
  TG_PY_TRY
  PyObject* made = wrap_generator(value_of(o)->clone());
  if (made != nullptr) device_of(made) = device_of(o);
  return made;
  TG_PY_CATCH
}
// Another handle of the same generator, and this one becomes a handle of another one: what a graph draws from either
// while it is recorded it draws from that in its replays (cuda/random/draws.h).
PyObject* graphsafe_get_state(PyObject* o, PyObject*) {
  TG_PY_TRY
  TG_CHECK(device_of(o).is_cuda(), Runtime, "graphsafe_get_state: expected a generator of CUDA: got one of {}",
           device_of(o));
  PyObject* made = wrap_generator(value_of(o));
  if (made != nullptr) device_of(made) = device_of(o);
  return made;
  TG_PY_CATCH
}
PyObject* graphsafe_set_state(PyObject* o, PyObject* other) {
  TG_PY_TRY
  TG_CHECK(device_of(o).is_cuda(), Runtime, "graphsafe_set_state: expected a generator of CUDA: got one of {}",
           device_of(o));
  TG_CHECK(Py_TYPE(other) == generator_type, Type, "graphsafe_set_state: expected a Generator as state: got {}",
           Py_TYPE(other)->tp_name);
  TG_CHECK(device_of(other) == device_of(o), Runtime, "graphsafe_set_state: expected a state of {}: got one of {}",
           device_of(o), device_of(other));
  if (object_of(o).of_device)
    set_default_generator_of(device_of(o), value_of(other));
  else
    object_of(o).base.value = value_of(other);
  return Py_NewRef(o);
  TG_PY_CATCH
}
PyObject* get_offset(PyObject* o, PyObject*) { return PyLong_FromUnsignedLongLong(value_of(o)->offset()); }
PyObject* set_offset(PyObject* o, PyObject* offset) {
  TG_PY_TRY
  value_of(o)->set_offset(to_seed(offset, "set_offset"));
  return Py_NewRef(o);
  TG_PY_CATCH
}

PyObject* reduce(PyObject* o, PyObject*) {
  TG_PY_TRY
  PyRef state = own(state_tensor(*value_of(o)));
  return Py_BuildValue("(O()O)", generator_type, state.get());
  TG_PY_CATCH
}

PyMethodDef methods[] = {
    {"manual_seed", manual_seed, METH_O, "manual_seed(seed)\n\nStarts anew from a seed; returns the generator."},
    {"seed", seed, METH_NOARGS, "Starts anew from the system's entropy; returns the seed."},
    {"initial_seed", initial_seed, METH_NOARGS, "The seed."},
    {"get_state", get_state, METH_NOARGS, "The state, as a uint8 tensor."},
    {"set_state", set_state, METH_O, "Takes a state that get_state gave."},
    {"clone_state", clone, METH_NOARGS, "Another generator in the same state."},
    {"graphsafe_get_state", graphsafe_get_state, METH_NOARGS,
     "A generator that shares this one's state: both draw from it, and graphs that do so when they are recorded do so "
     "in their replays. Raises RuntimeError for one of the CPU."},
    {"graphsafe_set_state", graphsafe_set_state, METH_O,
     "graphsafe_set_state(state)\n\nDraws from the state of another generator of the same device from here on, "
     "together with that one; also while a CUDA graph is recorded. Raises RuntimeError for generators of the CPU or of "
     "two devices."},
    {"get_offset", get_offset, METH_NOARGS, "The number of random calls since the seed."},
    {"set_offset", set_offset, METH_O, "set_offset(offset)"},
    {"__setstate__", set_state, METH_O, nullptr},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {},
};
PyGetSetDef properties[] = {
    {"device", [](PyObject* o, void*) { return wrap(device_of(o)); }, nullptr, nullptr, nullptr},
    {},
};

// Free functions on the default generator.
PyObject* default_manual_seed(PyObject*, PyObject* seed_object) {
  TG_PY_TRY
  manual_seed_all(to_seed(seed_object, "manual_seed"));
  return wrap_generator(default_cpu_generator());
  TG_PY_CATCH
}
PyObject* default_seed(PyObject*, PyObject*) {
  TG_PY_TRY
  const uint64_t fresh = default_cpu_generator()->seed();
  manual_seed_all(fresh);
  return PyLong_FromUnsignedLongLong(fresh);
  TG_PY_CATCH
}
PyObject* default_initial_seed(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(default_cpu_generator()->initial_seed());
}
PyObject* get_rng_state(PyObject*, PyObject*) {
  TG_PY_TRY
  return state_tensor(*default_cpu_generator());
  TG_PY_CATCH
}
PyObject* set_rng_state(PyObject*, PyObject* state) {
  TG_PY_TRY
  set_state_from(*default_cpu_generator(), state);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// _default_cuda_generator(index): does not access a device or load the CUDA library.
PyObject* default_cuda_generator(PyObject*, PyObject* index) {
  TG_PY_TRY
  const int64_t i = to_int(index, {"cuda.default_generators", "index", 1});
  TG_CHECK(i >= 0 && i < 128, Index, "cuda.default_generators: index out of range: got {}", i);
  const Device device(DeviceType::CUDA, static_cast<int8_t>(i));
  PyObject* made = wrap_generator(default_generator_of(device));
  if (made != nullptr) {
    device_of(made) = device;
    object_of(made).of_device = true;
  }
  return made;
  TG_PY_CATCH
}

PyMethodDef module_functions_of_generators[] = {
    {"_default_cuda_generator", default_cuda_generator, METH_O, nullptr},
    {},
};

const GeneratorPtr no_generator;

}  // namespace

PyMethodDef random_functions[] = {
    {"manual_seed", default_manual_seed, METH_O,
     "manual_seed(seed)\n\nSeeds the default generators of all devices and returns the CPU's."},
    {"seed", default_seed, METH_NOARGS, "Seeds the default generators of all devices from the system's entropy."},
    {"initial_seed", default_initial_seed, METH_NOARGS, "The seed of the default generator."},
    {"get_rng_state", get_rng_state, METH_NOARGS, "The state of the default generator."},
    {"set_rng_state", set_rng_state, METH_O, "set_rng_state(new_state)"},
    {},
};

const GeneratorPtr& to_generator(PyObject* o, const Ctx& ctx) {
  TG_CHECK(Py_TYPE(o) == generator_type, Type, "{}(): argument '{}' must be tapegrad.Generator, not {}", ctx.op,
           ctx.arg, Py_TYPE(o)->tp_name);
  return value_of(o);
}

const GeneratorPtr& ArgumentsBase::generator(int i) const {
  return has(i) ? to_generator(slots_[i], ctx(i)) : no_generator;
}

PyObject* wrap_generator(GeneratorPtr generator) noexcept {
  auto* o = PyObject_New(PyGenerator, generator_type);
  if (!o) return nullptr;
  new (&o->value) GeneratorPtr(std::move(generator));
  auto* made = reinterpret_cast<PyObject*>(o);
  new (&device_of(made)) Device();
  object_of(made).of_device = false;
  return reinterpret_cast<PyObject*>(o);
}

bool init_generator(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(generator_new)},
      {Py_tp_dealloc, reinterpret_cast<void*>(generator_dealloc)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {Py_tp_doc, const_cast<char*>("Generator(device='cpu')\n\nA source of random numbers with a seed of its own.")},
      {0, nullptr},
  };
  PyType_Spec spec{"tapegrad.Generator", sizeof(GeneratorObject), 0, Py_TPFLAGS_DEFAULT, slots};
  generator_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!generator_type || PyModule_AddObjectRef(module, "Generator", reinterpret_cast<PyObject*>(generator_type)) < 0)
    return false;
  if (PyModule_AddFunctions(module, module_functions_of_generators) < 0) return false;
  PyRef standard(wrap_generator(default_cpu_generator()));
  return standard && PyModule_AddObjectRef(module, "default_generator", standard.get()) == 0;
}

}  // namespace tapegrad::python
