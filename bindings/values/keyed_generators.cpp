// Generators of random numbers keyed per sample, for data loaders: tapegrad's, Python's and NumPy's are reseeded from
// one number before each call of a dataset and restored afterwards.
//
// random.seed and numpy.random.seed cost 4 us each, saving and restoring 90 us: more than most samples. So the words of
// both Mersenne Twisters are written in place. Their location is determined once and verified against getstate() and
// get_state(); if that fails, the slow calls are used. Everything needs the GIL.
#include <cstring>
#include <memory>

#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/arguments/nested_data.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/errors.h"
#include "tapegrad/c10/random/thread_generator.h"

namespace tapegrad::python {

namespace {

constexpr int kWords = 624;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

uint64_t mix(uint64_t x) noexcept {  // SplitMix64's finaliser
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// A Mersenne Twister somewhere in another object.
struct Twister {
  uint32_t* words = nullptr;  // null: unknown
  int* index = nullptr;
  uint32_t first = 0;  // word 0 as filled last

  // Seeds with SplitMix64's sequence; index kWords says that a new block is to be made.
  void fill(uint64_t key) noexcept {
    for (int i = 0; i < kWords; i += 2) {
      key += kGolden;
      const uint64_t x = mix(key);
      std::memcpy(words + i, &x, sizeof(x));
    }
    words[0] |= 0x80000000u;  // the state is never all zeros
    first = words[0];
    *index = kWords;
  }
  bool used() const noexcept { return *index != kWords || words[0] != first; }
};

struct Raw {
  uint32_t words[kWords];
  int index;
  void copy_from(const Twister& t) noexcept {
    std::memcpy(words, t.words, sizeof(words));
    index = *t.index;
  }
  void copy_to(const Twister& t) const noexcept {
    std::memcpy(t.words, words, sizeof(words));
    *t.index = index;
  }
};

// The layouts that are tried: CPython's RandomObject since 2.3, NumPy's bitgen_t and mt19937_state since 1.17.
struct PythonRandom {
  PyObject_HEAD int index;
  uint32_t state[kWords];
};
struct NumpyBitGenerator {
  void* state;  // functions follow
};
struct NumpyTwister {
  uint32_t key[kWords];
  int pos;
};

// The half of a pair of normal numbers that NumPy's RandomState keeps for the next call.
struct Gauss {
  int* has = nullptr;
  double* value = nullptr;
};

struct Library {
  PyRef object;     // random._inst; numpy.random's RandomState
  PyRef generator;  // NumPy's bit generator
  Twister twister;
  Gauss gauss;  // NumPy's; Python's is the attribute gauss_next
};

Library& python_library() {
  static auto* instance = new Library;
  return *instance;
}
Library& numpy_library() {
  static auto* instance = new Library;
  return *instance;
}

// Whether `sequence` (kWords numbers, then perhaps the index) is what lies in memory.
bool verify(PyObject* sequence, PyObject* index, const Twister& t) {
  PyRef items = items_of(sequence);
  if (PyTuple_GET_SIZE(items.get()) < kWords) return false;
  for (int i = 0; i < kWords; ++i) {
    PyRef number = own(PyNumber_Index(PyTuple_GET_ITEM(items.get(), i)));
    if (PyLong_AsUnsignedLongMask(number.get()) != t.words[i]) return false;
  }
  PyRef at = own(PyNumber_Index(index ? index : PyTuple_GET_ITEM(items.get(), kWords)));
  return PyLong_AsLong(at.get()) == *t.index;
}

void find_python(Library& lib, PyObject* instance) {
  if (lib.object.get() == instance) return;
  lib.object = PyRef::borrow(instance);
  lib.twister = {};
  auto* raw = reinterpret_cast<PythonRandom*>(instance);
  if (Py_TYPE(instance)->tp_basicsize < static_cast<Py_ssize_t>(sizeof(PythonRandom))) return;
  Twister t{raw->state, &raw->index, 0};
  PyRef state = call_method(instance, "getstate");
  if (verify(PyTuple_GET_ITEM(state.get(), 1), nullptr, t)) lib.twister = t;
}

// Looks for a RandomState's aug_bitgen_t, {bitgen_t*, int has_gauss, double gauss}, whose pointer leads into the same
// object to a bitgen_t with the given state; then draws one normal number to see whether it is the right one.
Gauss find_gauss(PyObject* random_state, const void* state) {
  auto* begin = reinterpret_cast<char*>(random_state);
  const auto size = static_cast<size_t>(Py_TYPE(random_state)->tp_basicsize);
  PyRef before = call_method(random_state, "get_state");
  Gauss found;
  for (size_t at = sizeof(PyObject); at + 24 <= size && !found.has; at += sizeof(void*)) {
    char* target;
    std::memcpy(&target, begin + at, sizeof(target));
    if (target < begin || target + sizeof(void*) > begin + size) continue;
    const void* candidate;
    std::memcpy(&candidate, target, sizeof(candidate));
    if (candidate != state) continue;
    const Gauss gauss{reinterpret_cast<int*>(begin + at + 8), reinterpret_cast<double*>(begin + at + 16)};
    PyRef done = call_method(random_state, "seed", own(PyLong_FromLong(0)).get());
    if (*gauss.has != 0) continue;
    PyRef number = call_method(random_state, "standard_normal");
    PyRef after = call_method(random_state, "get_state");
    PyRef kept = own(PySequence_GetItem(after.get(), 4));
    if (*gauss.has == 1 && *gauss.value == PyFloat_AsDouble(kept.get())) found = gauss;
  }
  PyRef done = call_method(random_state, "set_state", before.get());
  return found;
}

void find_numpy(Library& lib, PyObject* random_state) {
  PyRef generator = own(PyObject_GetAttrString(random_state, "_bit_generator"));
  if (lib.generator.get() == generator.get()) return;
  lib.object = PyRef::borrow(random_state);
  lib.twister = {};
  PyRef capsule = own(PyObject_GetAttrString(generator.get(), "capsule"));
  auto* bits = static_cast<NumpyBitGenerator*>(PyCapsule_GetPointer(capsule.get(), "BitGenerator"));
  lib.generator = std::move(generator);
  if (bits == nullptr) return PyErr_Clear();
  if (std::strcmp(Py_TYPE(lib.generator.get())->tp_name, "numpy.random._mt19937.MT19937") != 0) return;
  auto* raw = static_cast<NumpyTwister*>(bits->state);
  Twister t{raw->key, &raw->pos, 0};
  PyRef state = own(PyObject_GetAttrString(lib.generator.get(), "state"));
  PyRef inner = own(PyObject_GetItem(state.get(), own(PyUnicode_FromString("state")).get()));
  PyRef key = own(PyObject_GetItem(inner.get(), own(PyUnicode_FromString("key")).get()));
  PyRef pos = own(PyObject_GetItem(inner.get(), own(PyUnicode_FromString("pos")).get()));
  if (!verify(key.get(), pos.get(), t)) return;
  lib.gauss = find_gauss(random_state, bits->state);
  if (lib.gauss.has) lib.twister = t;
}

// What `_keyed_begin` keeps for `_keyed_end`: raw, or as the library gives it.
struct Saved {
  PyRef python_state, numpy_state;
  Raw python_raw, numpy_raw;
  PyRef gauss_next;
  int has_gauss = 0;
  double gauss = 0;
  uint64_t seed = 0, offset = 0;
  bool for_devices =
      false;  // draws on devices come from the CPU's generator until the end, as they do in other threads
};

constexpr const char* kCapsule = "tapegrad._C.keyed";

Saved& saved_of(PyObject* capsule) {
  auto* saved = static_cast<Saved*>(PyCapsule_GetPointer(capsule, kCapsule));
  if (saved == nullptr) throw_python_error();
  return *saved;
}

void set_gauss_next(PyObject* value) {
  static PyObject* name = PyUnicode_InternFromString("gauss_next");
  check_status(PyObject_SetAttr(python_library().object.get(), name, value));
}

// _keyed_begin(random._inst, numpy.random's RandomState): a token of the generators' states.
PyObject* begin(PyObject* instance, PyObject* random_state) {
  Library &py = python_library(), &np = numpy_library();
  find_python(py, instance);
  find_numpy(np, random_state);
  auto saved = std::make_unique<Saved>();
  if (py.twister.words) {
    saved->python_raw.copy_from(py.twister);
    saved->gauss_next = own(PyObject_GetAttrString(instance, "gauss_next"));
    set_gauss_next(Py_None);
  } else {
    saved->python_state = call_method(instance, "getstate");
  }
  if (np.twister.words) {
    saved->numpy_raw.copy_from(np.twister);
    saved->has_gauss = *np.gauss.has;
    saved->gauss = *np.gauss.value;
  } else {
    saved->numpy_state = call_method(random_state, "get_state");
  }
  const auto& generator = default_cpu_generator();
  saved->seed = generator->initial_seed();
  saved->offset = generator->offset();
  saved->for_devices = !has_thread_generator();
  if (saved->for_devices) set_thread_generator(generator);
  PyRef capsule = own(PyCapsule_New(
      saved.get(), kCapsule, [](PyObject* c) { delete static_cast<Saved*>(PyCapsule_GetPointer(c, kCapsule)); }));
  saved.release();
  return capsule.release();
}

// _keyed_seed(token, seed of the pass, index): starts all generators from these two numbers.
PyObject* seed(PyObject*, PyObject* const* args, Py_ssize_t n) {
  TG_CHECK(n == 3, Type, "_keyed_seed: expected 3 arguments: got {}", n);
  saved_of(args[0]);
  const auto base = static_cast<uint64_t>(to_int(args[1], {"_keyed_seed", "seed", 2}));
  const auto index = static_cast<uint64_t>(to_int(args[2], {"_keyed_seed", "index", 3}));
  const uint64_t key = mix(base ^ (index * kGolden)) >> 1;
  Library &py = python_library(), &np = numpy_library();
  if (py.twister.words) {
    if (py.twister.used()) set_gauss_next(Py_None);
    py.twister.fill(key);
  } else {
    PyRef done = call_method(py.object.get(), "seed", own(PyLong_FromUnsignedLongLong(key)).get());
  }
  if (np.twister.words) {
    np.twister.fill(~key);  // not Python's numbers again
    *np.gauss.has = 0;
  } else {
    PyRef done = call_method(np.object.get(), "seed", own(PyLong_FromUnsignedLong(key & 0xFFFFFFFFu)).get());
  }
  default_cpu_generator()->manual_seed(key);
  Py_RETURN_NONE;
}

// _keyed_end(token): as if nothing had been drawn.
void end(PyObject* token) {
  Saved& saved = saved_of(token);
  Library &py = python_library(), &np = numpy_library();
  if (saved.python_state) {
    PyRef done = call_method(py.object.get(), "setstate", saved.python_state.get());
  } else {
    saved.python_raw.copy_to(py.twister);
    set_gauss_next(saved.gauss_next.get());
  }
  if (saved.numpy_state) {
    PyRef done = call_method(np.object.get(), "set_state", saved.numpy_state.get());
  } else {
    saved.numpy_raw.copy_to(np.twister);
    *np.gauss.has = saved.has_gauss;
    *np.gauss.value = saved.gauss;
  }
  const auto& generator = default_cpu_generator();
  generator->manual_seed(saved.seed);
  generator->set_offset(saved.offset);
  if (saved.for_devices) set_thread_generator(nullptr);
}

// _keyed_own_generator(flag): whether the calling thread has a default generator of its own.
void own_generator(PyObject* flag) {
  set_thread_generator(to_bool(flag, {"_keyed_own_generator", "flag"}) ? make_intrusive<Generator>() : nullptr);
}

}  // namespace

PyMethodDef keyed_generator_functions[] = {
    method<"_keyed_begin", begin>(),
    {"_keyed_seed", as_c_function(guarded<seed>), METH_FASTCALL, nullptr},
    method<"_keyed_end", end>(),
    method<"_keyed_own_generator", own_generator>(),
    {},
};

}  // namespace tapegrad::python
