// tapegrad._C._Tracer and _Program: what the package tapegrad.export is made of.
//
//   tracer = _Tracer([(name, input)], [(name, weight)])   writes down what this thread calls from here on
//   program = tracer.finish([output])                     ends it; RuntimeError where no program can repeat the run
//   program.run([input], False)                           replays it; True: operator by operator, on the tape
#include "tapegrad/aten/record/program.h"

#include "tapegrad/aten/record/tracer.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/tensor/tensor_object.h"
#include "tapegrad/nn/files/program_file.h"
#include "tapegrad/nn/record.h"

namespace tapegrad::python {

namespace {

using record::NamedValues, record::Program, record::Tracer, record::Value;

using PyTracer = Boxed<std::unique_ptr<Tracer>>;

// Changed only before it is run for the first time.
struct Served {
  std::shared_ptr<Program> program;
  std::optional<Record> record;
};
using PyProgram = Boxed<Served>;

PyTypeObject *tracer_type = nullptr, *program_type = nullptr, *body_type = nullptr;

// [(name, tensor)]
struct NamedTensorList {
  NamedValues values;
  static NamedTensorList from(PyObject* o, const char* op) {
    NamedTensorList made;
    const ListObject list = ListObject::from(o, op);
    for (Py_ssize_t i = 0; i < list.size(); ++i) {
      const char* name;
      PyObject* tensor;
      check_status(PyArg_ParseTuple(PyList_GET_ITEM(o, i), "sO", &name, &tensor) ? 0 : -1);
      made.values.emplace_back(name, to_tensor(tensor, {op, name}));
    }
    return made;
  }
};
struct TensorList {
  std::vector<Tensor> values;
  static TensorList from(PyObject* o, const char* op) { return {to_tensors(o, {op, "tensors"})}; }
};
struct NameList {
  std::vector<std::string> values;
  static NameList from(PyObject* o, const char* op) {
    NameList made;
    const ListObject list = ListObject::from(o, op);
    for (Py_ssize_t i = 0; i < list.size(); ++i) made.values.emplace_back(to_str(PyList_GET_ITEM(o, i), {op, "names"}));
    return made;
  }
  std::vector<int> numbers_in(const Program& program) const {
    std::vector<int> all;
    for (const std::string& name : values) all.push_back(program.value(name));
    return all;
  }
};
struct Texts {
  nn::Metadata values;
  static Texts from(PyObject* o, const char* op) {
    Texts made;
    TG_CHECK(PyDict_Check(o), Type, "{}: expected a dictionary of texts", op);
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);)
      made.values.emplace(to_str(key, {op, "metadata"}), to_str(value, {op, "metadata"}));
    return made;
  }
};
PyObject* wrap_program(std::shared_ptr<Program> program) {
  return box<Served>(program_type, {std::move(program), std::nullopt});
}

PyRef name_list(const Program& program, const std::vector<int>& values) {
  return new_list(values.size(), [&](size_t i) {
    return values[i] < 0 ? Py_NewRef(Py_None) : rows::to_python(program.values[static_cast<size_t>(values[i])].name);
  });
}

template <class T>
PyObject* to_object(const T& x) {
  if constexpr (std::is_same_v<T, Operand>)
    return to_object(x.tensor());
  else if constexpr (std::is_same_v<T, Tensor>)  // a number in the place of a tensor
    return x.defined() ? wrap(x.item()) : Py_NewRef(Py_None);
  else if constexpr (std::is_same_v<T, record::ListValue>)
    return new_list(x.tensors.size(), [](size_t) { return Py_NewRef(Py_None); }).release();
  else if constexpr (std::is_same_v<T, record::IntsValue>)
    return new_list(x.values.size(), [&](size_t i) { return wrap(x.values[i]); }).release();
  else if constexpr (requires { x.values; })
    return rows::to_python(x.values);
  else if constexpr (requires { x.has_value(); })
    return x ? to_object(*x) : Py_NewRef(Py_None);
  else if constexpr (std::is_same_v<T, std::vector<double>>)
    return rows::to_python(x);
  else if constexpr (std::is_same_v<T, MemoryFormat>)
    return wrap(static_cast<int64_t>(x));
  else if constexpr (std::is_same_v<T, Scalar> || std::is_arithmetic_v<T> || std::is_same_v<T, DType> ||
                     std::is_same_v<T, Device>)
    return wrap(x);
  else
    return Py_NewRef(Py_None);
}

// (function, arguments, [(argument, item, value's name)], names of results, line, [(argument, item, recorded, [(set of
// symbols, factor)])] of the integers that depend on sizes)
PyObject* operation_object(const Program& program, const Program::Operation& o) {
  const PyRef arguments = new_list(o.arguments.size(), [&](size_t i) {
    return std::visit([](const auto& v) { return to_object(v); }, o.arguments[i]);
  });
  const PyRef tensors = new_list(o.tensors.size(), [&](size_t i) {
    const Program::Place& p = o.tensors[i];
    return Py_BuildValue("(iis)", p.argument, p.item, program.values[static_cast<size_t>(p.value)].name.c_str());
  });
  const PyRef fits = new_list(o.fits.size(), [&](size_t i) {
    const Program::Fit& fit = o.fits[i];
    const PyRef terms = new_list(fit.terms.size(), [&](size_t k) {
      return Py_BuildValue("(IL)", fit.terms[k].first, static_cast<long long>(fit.terms[k].second));
    });
    return Py_BuildValue("(iiLO)", fit.argument, fit.item, static_cast<long long>(fit.recorded), terms.get());
  });
  return Py_BuildValue("(sOONsO)", std::string(o.id()).c_str(), arguments.get(), tensors.get(),
                       name_list(program, o.results).release(), o.line.c_str(), fits.get());
}

std::vector<PyRef> run(PyProgram& self, const std::vector<Tensor>& inputs, bool tape) {
  Served& served = self.value;
  if (!served.record) served.record.emplace(served.program);
  const Record record = *served.record;  // shares its state; the object may go while others have the GIL
  std::vector<Tensor> results;
  {
    const ComputeRelease released;
    results = tape ? record.program().run(inputs) : record.run(inputs);
  }
  std::vector<PyRef> wrapped;
  for (Tensor& t : results) wrapped.push_back(own(wrap(std::move(t))));
  return wrapped;
}

Program& changeable(PyProgram& self) {
  TG_CHECK(!self.value.record, Runtime, "this program has been run already");
  return *self.value.program;
}

// symbols: [(name, size, [(input, dimension)])]
void generalize(PyProgram& self, ListObject symbols, ListObject others) {
  std::vector<Program::Symbol> changing;
  for (Py_ssize_t i = 0; i < symbols.size(); ++i) {
    const char* name;
    long long size;
    PyObject* places;
    check_status(
        PyArg_ParseTuple(PyList_GET_ITEM(symbols.object, i), "sLO!", &name, &size, &PyList_Type, &places) ? 0 : -1);
    Program::Symbol& symbol = changing.emplace_back(Program::Symbol{name, size, {}});
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(places); ++k) {
      int input, dim;
      check_status(PyArg_ParseTuple(PyList_GET_ITEM(places, k), "ii", &input, &dim) ? 0 : -1);
      symbol.places.emplace_back(input, dim);
    }
  }
  std::vector<std::shared_ptr<Program>> programs;
  for (Py_ssize_t i = 0; i < others.size(); ++i) {
    PyObject* other = PyList_GET_ITEM(others.object, i);
    TG_CHECK(Py_TYPE(other) == program_type, Type, "generalize: expected a program, not {}", Py_TYPE(other)->tp_name);
    programs.push_back(unbox<Served>(other).program);
  }
  changeable(self).generalize(std::move(changing), programs);
}

// clang-format off
PyMethodDef tracer_methods[] = {
    method<"finish", [](PyTracer& self, TensorList outputs) {
      TG_CHECK(self.value, Runtime, "finish: this has ended");
      const std::unique_ptr<Tracer> tracer = std::move(self.value);
      return PyRef(wrap_program(tracer->finish(outputs.values)));
    }>(),
    method<"stop", [](PyTracer& self) { self.value.reset(); }>(),
    {}};

PyMethodDef program_methods[] = {
    method<"run", [](PyProgram& self, TensorList inputs, bool tape) { return run(self, inputs.values, tape); }>(),
    method<"text", [](PyProgram& self) { return self.value.program->text(); }>(),
    method<"inputs", [](PyProgram& self) { return name_list(*self.value.program, self.value.program->inputs); }>(),
    method<"outputs", [](PyProgram& self) { return name_list(*self.value.program, self.value.program->outputs); }>(),
    method<"values", [](PyProgram& self) {
      const auto& values = self.value.program->values;
      return new_list(values.size(), [&](size_t i) {
        const Program::ValueInfo& v = values[i];
        return Py_BuildValue("(sNNN)", v.name.c_str(), wrap(v.dtype), wrap(IntSpan(v.sizes)), wrap(v.constant));
      });
    }>(),
    // Of each value, in the order of values(): values of one number share memory.
    method<"memories", [](PyProgram& self) {
      const auto& values = self.value.program->values;
      return new_list(values.size(), [&](size_t i) { return rows::to_python(int64_t{values[i].memory}); });
    }>(),
    method<"symbols", [](PyProgram& self) {
      const auto& symbols = self.value.program->symbols;
      return new_list(symbols.size(), [&](size_t i) {
        const Program::Symbol& s = symbols[i];
        const PyRef places = new_list(s.places.size(), [&](size_t k) {
          return Py_BuildValue("(ii)", s.places[k].first, s.places[k].second);
        });
        return Py_BuildValue("(sLO)", s.name.c_str(), static_cast<long long>(s.recorded), places.get());
      });
    }>(),
    method<"operations", [](PyProgram& self) {
      const Program& program = *self.value.program;
      return new_list(program.operations.size(), [&](size_t i) { return operation_object(program, program.operations[i]); });
    }>(),
    // Of the operation with that number, in the order of operations().
    method<"bodies", [](PyProgram& self, int64_t number) {
      const auto& operations = self.value.program->operations;
      TG_CHECK(number >= 0 && number < static_cast<int64_t>(operations.size()), Index, "bodies: there is no operation {}", number);
      const auto& bodies = operations[static_cast<size_t>(number)].bodies;
      return new_list(bodies.size(), [&](size_t i) { return wrap_program(bodies[i]); });
    }>(),
    method<"set_constant", [](PyProgram& self, std::string_view name, PyObject* object) {
      Program& program = changeable(self);
      const Tensor& t = to_tensor(object, {"set_constant", "tensor"});
      Program::ValueInfo& info = program.values[static_cast<size_t>(program.value(name))];
      TG_CHECK(info.constant.defined() && t.dtype() == info.dtype && t.sizes() == IntSpan(info.sizes) && t.is_cpu(), Value,
               "program: '{}' is no constant of this size and dtype", name);
      info.constant = t;
    }>(),
    method<"part", [](PyProgram& self, NameList feeds, NameList fetches) {
      const Program& program = *self.value.program;
      return PyRef(wrap_program(program.part(feeds.numbers_in(program), fetches.numbers_in(program))));
    }>(),
    method<"generalize", generalize>(),
    method<"plans", [](PyProgram& self) {
      return self.value.record ? static_cast<int64_t>(self.value.record->num_plans()) : int64_t{0};
    }>(),
    method<"save", [](PyProgram& self, std::string_view path, Texts metadata) {
      const std::string to(path);
      const std::shared_ptr<Program> program = self.value.program;
      const GilRelease released;
      nn::save_program(*program, to, metadata.values);
    }>(),
    {}};

PyMethodDef program_functions[] = {
    method<"_load_program", [](std::string_view path) {
      nn::ProgramFile file;
      {
        const std::string from(path);
        const GilRelease released;
        file = nn::load_program(from);
      }
      const PyRef texts = own(PyDict_New());
      for (const auto& [key, text] : file.metadata) {
        const PyRef value = own(rows::to_python(text));
        check_status(PyDict_SetItemString(texts.get(), key.c_str(), value.get()));
      }
      return own(Py_BuildValue("(NO)", wrap_program(std::move(file.program)), texts.get()));
    }>(),
    // (inputs, function): a body of what function() calls, which returns a list of tensors.
    method<"_trace_body", [](TensorList inputs, PyObject* function) {
      Tracer tracer(inputs.values);
      // What runs in the end draws the numbers that come now.
      struct DrawnForNothing {
        Generator& generator = default_generator();
        uint64_t offset = generator.offset();
        ~DrawnForNothing() {
          const ModeGuard off(0, kModeRecord);
          generator.set_offset(offset);
        }
      } drawn;
      const PyRef outputs = own(PyObject_CallNoArgs(function));
      return PyRef(box<Tracer::Body>(body_type, tracer.finish_body(to_tensors(outputs.get(), {"control flow", "result"}))));
    }>(),
    // (loop, body, body, predicate or carried, operands)
    method<"_trace_control", [](bool loop, PyObject* first, PyObject* second, TensorList values, TensorList operands) {
      std::vector<Tracer::Body> bodies;
      for (PyObject* o : {first, second}) {
        TG_CHECK(Py_TYPE(o) == body_type, Type, "control flow: expected a body, not {}", Py_TYPE(o)->tp_name);
        bodies.push_back(std::move(unbox<Tracer::Body>(o)));
      }
      std::vector<PyRef> wrapped;
      for (Tensor& t : Tracer::control(loop ? Program::Control::While : Program::Control::Cond, std::move(bodies),
                                       values.values, operands.values))
        wrapped.push_back(own(wrap(std::move(t))));
      return wrapped;
    }>(),
    method<"_is_tracing", [] { return Tracer::active(); }>(),
    method<"_name_value", [](PyObject* tensor, std::string_view name) {
      return Tracer::name(to_tensor(tensor, {"name", "tensor"}), std::string(name));
    }>(),
    {}};
// clang-format on

PyObject* tracer_new(PyTypeObject* type, PyObject* args, PyObject*) {
  TG_PY_TRY
  PyObject *inputs, *weights;
  if (!PyArg_ParseTuple(args, "OO:_Tracer", &inputs, &weights)) return nullptr;
  const NamedTensorList given = NamedTensorList::from(inputs, "_Tracer"),
                        named = NamedTensorList::from(weights, "_Tracer");
  PyRef object(box<std::unique_ptr<Tracer>>(type, nullptr));
  unbox<std::unique_ptr<Tracer>>(object.get()) = std::make_unique<Tracer>(given.values, named.values);
  return object.release();
  TG_PY_CATCH
}

}  // namespace

bool init_program(PyObject* module) {
  tracer_type = add_type(module, "tapegrad._C._Tracer", sizeof(PyTracer), 0,
                         {{Py_tp_new, tracer_new},
                          {Py_tp_dealloc, dealloc_boxed<std::unique_ptr<Tracer>>},
                          {Py_tp_methods, tracer_methods}});
  program_type = add_type(module, "tapegrad._C._Program", sizeof(PyProgram), Py_TPFLAGS_DISALLOW_INSTANTIATION,
                          {{Py_tp_dealloc, dealloc_boxed<Served>}, {Py_tp_methods, program_methods}});
  body_type = add_type(module, "tapegrad._C._Body", sizeof(Boxed<Tracer::Body>), Py_TPFLAGS_DISALLOW_INSTANTIATION,
                       {{Py_tp_dealloc, dealloc_boxed<Tracer::Body>}});
  return tracer_type && program_type && body_type && PyModule_AddFunctions(module, program_functions) == 0;
}

}  // namespace tapegrad::python
