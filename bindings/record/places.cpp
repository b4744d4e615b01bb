// tapegrad._C._Sizes: see places.h.
#include "tapegrad/bindings/record/places.h"

#include <algorithm>

#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"

namespace tapegrad::python {

namespace {

int instruction_of(PyFrameObject* frame) noexcept {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti * static_cast<int>(sizeof(_Py_CODEUNIT));
#endif
}

bool is_traced_by(PyObject* self) noexcept {
  const PyThreadState* state = PyThreadState_Get();
  return state->c_tracefunc != nullptr && state->c_traceobj == self;
}

}  // namespace

Places::Place* Places::find(PyFrameObject* frame) noexcept {
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.frame == frame; });
  return found == places_.end() ? nullptr : &*found;
}

void Places::lose(const Given& given) {
  for (const auto& [first, count] : given.symbols)
    for (int i = 0; i < count; ++i) lost_.push_back(first + i);
}

void Places::ran(Place& place, int line) noexcept {
  for (Given& g : place.given) g.ran |= g.line == line;
}

// Lines cost something in all functions. From CPython 3.12 on so does each change: all code is prepared for it anew.
void Places::trace_where_open(PyObject* self) {
  const auto is_open = [](const Place& p) {
    return std::any_of(p.given.begin(), p.given.end(), [](const Given& g) { return g.open(); });
  };
  const bool wanted = std::any_of(places_.begin(), places_.end(), is_open), traces = is_traced_by(self);
  if (wanted && !traces) PyEval_SetTrace(&Places::trace, self);
  if (!wanted && traces && PY_VERSION_HEX < 0x030C0000) PyEval_SetTrace(nullptr, nullptr);
}

bool Places::add(PyObject* self, PyFrameObject* frame, PyObject* given, int64_t first, int count) {
  if (PyThreadState_Get()->c_tracefunc != nullptr && !is_traced_by(self)) return false;
  Place* place = find(frame);
  if (place == nullptr) place = &places_.emplace_back(Place{frame, {}});
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); ++i) {
    Given made{};
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "iii", &made.begin, &made.end, &made.line)) throw_python_error();
    auto at =
        std::find_if(place->given.begin(), place->given.end(), [&](const Given& g) { return g.begin == made.begin; });
    if (at == place->given.end()) at = place->given.insert(at, std::move(made));
    at->symbols.emplace_back(first, count);
  }
  ran(*place, PyFrame_GetLineNumber(frame));
  trace_where_open(self);
  return true;
}

void Places::called(PyFrameObject* frame, bool known) {
  Place* place = find(frame);
  if (place == nullptr) return;
  const int now = instruction_of(frame);
  for (Given& g : place->given) {
    if (now < g.begin || now >= g.end) continue;
    if (known)
      g.seen = true;
    else
      lose(g);
  }
}

void Places::returned(PyFrameObject* frame) {
  Place* place = find(frame);
  if (place == nullptr) return;
  for (const Given& g : place->given)
    if (!g.seen && g.ran) lose(g);
  places_.erase(places_.begin() + (place - places_.data()));
}

std::vector<int64_t> Places::end(PyObject* self) {
  if (is_traced_by(self)) PyEval_SetTrace(nullptr, nullptr);
  while (!places_.empty()) returned(places_.back().frame);
  std::sort(lost_.begin(), lost_.end());
  lost_.erase(std::unique(lost_.begin(), lost_.end()), lost_.end());
  return lost_;
}

int Places::trace(PyObject* self, PyFrameObject* frame, int what, PyObject*) {
  auto& places = unbox<Places>(self);
  Place* place = what == PyTrace_LINE ? places.find(frame) : nullptr;
  if (place == nullptr) return 0;
  places.ran(*place, PyFrame_GetLineNumber(frame));
  places.trace_where_open(self);
  return 0;
}

namespace {

// clang-format off
PyMethodDef sizes_methods[] = {
    method<"end", [](PySizes& self) { return self.value.end(reinterpret_cast<PyObject*>(&self)); }>("The symbols of which it is not known where they went."),
    {}};
// clang-format on

}  // namespace

PyTypeObject* sizes_type = nullptr;

bool init_places(PyObject* module) {
  static constexpr auto make = [](PyTypeObject* type, PyObject*, PyObject*) -> PyObject* {
    TG_PY_TRY
    return box<Places>(type, {});
    TG_PY_CATCH
  };
  sizes_type = add_type(module, "tapegrad._C._Sizes", sizeof(PySizes), 0,
                        {{Py_tp_new, +make}, {Py_tp_dealloc, dealloc_boxed<Places>}, {Py_tp_methods, sizes_methods}});
  return sizes_type != nullptr;
}

}  // namespace tapegrad::python
