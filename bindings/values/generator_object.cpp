// tapegrad.Generator, and the state of the default one.
#include "tapegrad/aten/record/recording.h"
#include "tapegrad/c10/random/generator.h"

#include <cstring>
#include <new>

#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/type_object.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/random/default_generators.h"

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

const GeneratorPtr& value_of(GeneratorObject& g) {
  if (g.of_device) g.base.value = default_generator_of(g.device);
  return g.base.value;
}
PyObject* itself(GeneratorObject& g) { return Py_NewRef(reinterpret_cast<PyObject*>(&g)); }

PyObject* wrap_on(Device device, GeneratorPtr generator) {
  PyObject* made = check(wrap_generator(std::move(generator)));
  object_of(made).device = device;
  return made;
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
    TG_THROW(Value, "{}: Overflow when unpacking long long: the seed does not fit into 64 bits", op);
  }
  return big;
}

PyObject* generator_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
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
  return wrap_on(d, make_intrusive<Generator>());
}

void generator_dealloc(PyObject* o) {
  reinterpret_cast<PyGenerator*>(o)->value.~intrusive_ptr();
  free_object(o);
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
  const auto* bytes = static_cast<const uint8_t*>(t.data_ptr());
  if (record::active()) {
    Generator next;
    next.set_state(bytes, static_cast<size_t>(t.numel()));
    record::note_generator_set(generator, next.initial_seed(), next.offset());
  }
  generator.set_state(bytes, static_cast<size_t>(t.numel()));
}

void check_cuda(const GeneratorObject& g, const char* op) {
  TG_CHECK(g.device.is_cuda(), Runtime, "{}: expected a generator of CUDA: got one of {}", op, g.device);
}

// Another handle of the same generator, and below, this one becomes a handle of another one: what a graph draws from
// either while it is recorded it draws from that in its replays (cuda/random/draws.h).
PyObject* graphsafe_get_state(GeneratorObject& g) {
  check_cuda(g, "graphsafe_get_state");
  return wrap_on(g.device, value_of(g));
}
PyObject* graphsafe_set_state(GeneratorObject& g, PyObject* o) {
  check_cuda(g, "graphsafe_set_state");
  TG_CHECK(Py_TYPE(o) == generator_type, Type, "graphsafe_set_state: expected a Generator as state: got {}",
           Py_TYPE(o)->tp_name);
  GeneratorObject& other = object_of(o);
  TG_CHECK(other.device == g.device, Runtime, "graphsafe_set_state: expected a state of {}: got one of {}", g.device,
           other.device);
  if (g.of_device)
    set_default_generator_of(g.device, value_of(other));
  else
    g.base.value = value_of(other);
  return itself(g);
}

PyObject* set_state(GeneratorObject& g, PyObject* state) {
  set_state_from(*value_of(g), state);
  return itself(g);
}

// clang-format off
PyMethodDef methods[] = {
    method<"manual_seed", [](GeneratorObject& g, PyObject* seed) {
      record::refuse("it seeds a random generator");
      value_of(g)->manual_seed(to_seed(seed, "manual_seed"));
      return itself(g);
    }>("manual_seed(seed)\n\nStarts anew from a seed; returns the generator."),
    method<"seed", [](GeneratorObject& g) {
      record::refuse("it seeds a random generator");
      return value_of(g)->seed();
    }>(
        "Starts anew from the system's entropy; returns the seed."),
    method<"initial_seed", [](GeneratorObject& g) { return value_of(g)->initial_seed(); }>("The seed."),
    method<"get_state", [](GeneratorObject& g) { return state_tensor(*value_of(g)); }>("The state, as a uint8 tensor."),
    method<"set_state", set_state>("Takes a state that get_state gave."),
    method<"clone_state", [](GeneratorObject& g) { return wrap_on(g.device, value_of(g)->clone()); }>(
        "Another generator in the same state."),
    method<"graphsafe_get_state", graphsafe_get_state>(
        "A generator that shares this one's state: both draw from it, and graphs that do so when they are recorded do so "
        "in their replays. Raises RuntimeError for one of the CPU."),
    method<"graphsafe_set_state", graphsafe_set_state>(
        "graphsafe_set_state(state)\n\nDraws from the state of another generator of the same device from here on, "
        "together with that one; also while a CUDA graph is recorded. Raises RuntimeError for generators of the CPU or of "
        "two devices."),
    method<"get_offset", [](GeneratorObject& g) { return value_of(g)->offset(); }>("The number of random calls since the seed."),
    method<"set_offset", [](GeneratorObject& g, PyObject* offset) {
      record::refuse("it sets the offset of a random generator");
      value_of(g)->set_offset(to_seed(offset, "set_offset"));
      return itself(g);
    }>("set_offset(offset)"),
    method<"__setstate__", set_state>(),
    method<"__reduce__", [](GeneratorObject& g) {
      return Py_BuildValue("(O()N)", generator_type, state_tensor(*value_of(g)));
    }>(),
    {},
};
// clang-format on
PyGetSetDef properties[] = {
    {"device", [](PyObject* o, void*) { return wrap(object_of(o).device); }, nullptr, nullptr, nullptr},
    {},
};

// clang-format off
PyMethodDef module_functions_of_generators[] = {
    method<"_default_cuda_generator", [](PyObject* index) {  // does not access a device or load the CUDA library
      const int64_t i = to_int(index, {"cuda.default_generators", "index", 1});
      TG_CHECK(i >= 0 && i < 128, Index, "cuda.default_generators: index out of range: got {}", i);
      const Device device(DeviceType::CUDA, static_cast<int8_t>(i));
      PyObject* made = wrap_on(device, default_generator_of(device));
      object_of(made).of_device = true;
      return made;
    }>(),
    {},
};
// clang-format on

const GeneratorPtr no_generator;

}  // namespace

// clang-format off
PyMethodDef random_functions[] = {  // on the default generators
    method<"manual_seed", [](PyObject* seed) {
      record::refuse("it seeds a random generator");
      manual_seed_all(to_seed(seed, "manual_seed"));
      return wrap_generator(default_cpu_generator());
    }>("manual_seed(seed)\n--\n\nSeeds the default generators of all devices and returns the CPU's."),
    method<"seed", [] {
      record::refuse("it seeds a random generator");
      const uint64_t fresh = default_cpu_generator()->seed();
      manual_seed_all(fresh);
      return fresh;
    }>("seed()\n--\n\nSeeds the default generators of all devices from the system's entropy."),
    method<"initial_seed", [] { return default_cpu_generator()->initial_seed(); }>("initial_seed()\n--\n\nThe seed of the default generator."),
    method<"get_rng_state", [] { return state_tensor(*default_cpu_generator()); }>("get_rng_state()\n--\n\nThe state of the default generator."),
    method<"set_rng_state", [](PyObject* state) { set_state_from(*default_cpu_generator(), state); }>(
        "set_rng_state(new_state)\n--\n\nPuts the default generator into a state."),
    {},
};
// clang-format on

const GeneratorPtr& to_generator(PyObject* o, const Ctx& ctx) {
  TG_CHECK(Py_TYPE(o) == generator_type, Type, "{}(): argument '{}' must be tapegrad.Generator, not {}", ctx.op,
           ctx.arg, Py_TYPE(o)->tp_name);
  return value_of(object_of(o));
}

const GeneratorPtr& ArgumentsBase::generator(int i) const {
  return has(i) ? to_generator(slots_[i], ctx(i)) : no_generator;
}

PyObject* wrap_generator(GeneratorPtr generator) noexcept {
  auto* o = PyObject_New(PyGenerator, generator_type);
  if (!o) return nullptr;
  new (&o->value) GeneratorPtr(std::move(generator));
  auto* made = reinterpret_cast<PyObject*>(o);
  new (&object_of(made).device) Device();
  object_of(made).of_device = false;
  return reinterpret_cast<PyObject*>(o);
}

bool init_generator(PyObject* module) {
  generator_type =
      add_type(module, "tapegrad.Generator", sizeof(GeneratorObject), 0,
               {{Py_tp_new, guarded<generator_new>},
                {Py_tp_dealloc, generator_dealloc},
                {Py_tp_methods, methods},
                {Py_tp_getset, properties},
                {Py_tp_doc, "Generator(device='cpu')\n--\n\nA source of random numbers with a seed of its own."}});
  if (!generator_type) return false;
  if (PyModule_AddFunctions(module, module_functions_of_generators) < 0) return false;
  PyRef standard(wrap_generator(default_cpu_generator()));
  return standard && PyModule_AddObjectRef(module, "default_generator", standard.get()) == 0;
}

}  // namespace tapegrad::python
