// Creation and destruction of the Python object of a tensor.
//
// While the Python object owns the TensorImpl, `tensor` holds a counted reference. When the last Python reference goes
// while C++ still uses the tensor and the object carries something to lose, ownership is reversed ("preserve"): the
// TensorImpl owns one Python reference, and `tensor` keeps the pointer without a count. It is restored ("take back")
// when the tensor is passed to Python again. Subclasses pass through tp_finalize, which may resurrect an object once by
// Python's rules; taking back lifts that limit.
#include "tapegrad/bindings/tensor/tensor_object.h"

#include <cstdint>
#include <new>

#include "tapegrad/autograd/meta.h"
#include "tapegrad/bindings/tensor/tensor_type.h"

namespace tapegrad::python {

PyTypeObject* tensor_type = nullptr;
PyTypeObject* parameter_type = nullptr;
int (*traverse_tape)(const Tensor& tensor, visitproc visit, void* arg) = nullptr;
void (*clear_tape)(const Tensor& tensor) noexcept = nullptr;

namespace {

// Memory of plain Tensor objects for reuse: neither Python's allocator nor its collector's counter is touched.
constexpr int kFreeListSize = 128;
PyTensor* free_list[kFreeListSize];
int num_free = 0;

PyTensor* allocate_plain() noexcept {
  if (TG_LIKELY(num_free > 0)) {
    PyTensor* self = free_list[--num_free];
    PyObject_Init(reinterpret_cast<PyObject*>(self), tensor_type);
    return self;
  }
  auto* self = PyObject_GC_New(PyTensor, tensor_type);
  if (self) {
    self->weakrefs = nullptr;
    self->dict = nullptr;
  }
  return self;
}

// The collector's header before an object; its second word keeps the flag "finalized" in bit 0.
uintptr_t* collector_header(PyObject* o) noexcept { return reinterpret_cast<uintptr_t*>(o) - 2; }

void free_plain(PyTensor* self) noexcept {
  if (num_free < kFreeListSize) {
    collector_header(reinterpret_cast<PyObject*>(self))[1] = 0;
    free_list[num_free++] = self;
  } else {
    PyObject_GC_Del(self);
  }
  Py_DECREF(tensor_type);
}

// Drops the count that `tensor` holds, but keeps the pointer. The TensorImpl may die here when another thread has
// just dropped its own reference; then `release_object` runs and clears the pointer.
void drop_count(PyTensor* self) noexcept { intrusive_ptr<TensorImpl>::reclaim(self->tensor.impl()); }
void forget_pointer(PyTensor* self) noexcept { new (&self->tensor) Tensor(); }

// A gradient with a history (create_graph) usually leads back to its leaf: only the collector can free the two.
bool grad_has_history(const TensorImpl& impl) noexcept {
  auto* m = static_cast<const autograd::AutogradMeta*>(impl.autograd());
  return m && m->grad.defined() && m->grad.impl()->needs_grad();
}

bool must_preserve(PyTensor* self) noexcept {
  const TensorImpl* impl = self->tensor.impl();
  return impl && impl->use_count() > 1 && impl->python_object() == self && !impl->owns_python_object() &&
         (self->dict || self->weakrefs || Py_TYPE(self) != tensor_type || grad_has_history(*impl));
}

// The caller has given the TensorImpl one Python reference.
void preserve(PyTensor* self) noexcept {
  self->tensor.impl()->set_owns_python_object(true);
  drop_count(self);
}

PyObject* take_back(PyObject* o, Tensor tensor) noexcept {
  tensor.impl()->set_owns_python_object(false);
  alignas(Tensor) char keep[sizeof(Tensor)];
  new (keep) Tensor(std::move(tensor));  // never destroyed: this count now belongs to the Python object
  if (PyObject_GC_IsFinalized(o)) collector_header(o)[1] &= ~uintptr_t{1};
  return o;
}

// Installed as release_python_object: the TensorImpl that owns this object dies. May run on any thread.
void release_object(void* object) noexcept {
  auto* self = static_cast<PyTensor*>(object);
  if (interpreter_ends()) return forget_pointer(self);
  GilGuard gil;
  TensorImpl* dying = self->tensor.impl();
  forget_pointer(self);
  if (Py_REFCNT(self) > 1) {
    // Somebody came to it through a weak reference: the object lives on with what the dying TensorImpl had.
    auto heir =
        make_intrusive<TensorImpl>(dying->storage(), dying->dtype(), dying->sizes(), dying->strides(), dying->offset());
    heir->share_version(*dying);
    heir->set_needs_grad(dying->needs_grad());
    heir->set_inference(dying->is_inference());
    heir->set_autograd(dying->take_autograd());
    heir->set_python_object(self);
    self->tensor = Tensor(std::move(heir));
  }
  Py_DECREF(reinterpret_cast<PyObject*>(self));
}

}  // namespace

PyObject* wrap(Tensor tensor) noexcept {
  TensorImpl* impl = tensor.impl();
  if (TG_UNLIKELY(!impl)) Py_RETURN_NONE;
  if (auto* existing = static_cast<PyObject*>(impl->python_object())) {
    if (TG_UNLIKELY(impl->owns_python_object())) return take_back(existing, std::move(tensor));
    Py_INCREF(existing);
    return existing;
  }
  PyTensor* self = allocate_plain();
  if (TG_UNLIKELY(!self)) return nullptr;
  new (&self->tensor) Tensor(std::move(tensor));
  impl->set_python_object(self);
  PyObject_GC_Track(self);
  return reinterpret_cast<PyObject*>(self);
}

PyObject* wrap_as(PyTypeObject* type, Tensor tensor) noexcept {
  if (type == tensor_type) return wrap(std::move(tensor));
  TensorImpl* impl = tensor.impl();
  if (impl->python_object()) {
    PyRef existing(wrap(std::move(tensor)));
    if (Py_TYPE(existing.get()) == type) return existing.release();
    PyErr_Format(PyExc_RuntimeError, "this tensor is already a %s in Python and cannot be a %s as well",
                 Py_TYPE(existing.get())->tp_name, type->tp_name);
    return nullptr;
  }
  auto* self = reinterpret_cast<PyTensor*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  new (&self->tensor) Tensor(std::move(tensor));
  impl->set_python_object(self);
  return reinterpret_cast<PyObject*>(self);
}

namespace {

template <class Set>
PyObject* fill(PyObject* sequence, std::vector<Tensor>& tensors, Set&& set) noexcept {
  if (!sequence) return nullptr;
  for (size_t i = 0; i < tensors.size(); ++i) {
    PyObject* item = i % 65536 == 65535 && PyErr_CheckSignals() < 0 ? nullptr : wrap(std::move(tensors[i]));
    if (!item) {
      Py_DECREF(sequence);
      return nullptr;
    }
    set(sequence, static_cast<Py_ssize_t>(i), item);
  }
  return sequence;
}

}  // namespace

PyObject* wrap(std::vector<Tensor> tensors) noexcept {
  return fill(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())), tensors,
              [](PyObject* s, Py_ssize_t i, PyObject* item) { PyTuple_SET_ITEM(s, i, item); });
}

PyObject* wrap_list(std::vector<Tensor> tensors) noexcept {
  return fill(PyList_New(static_cast<Py_ssize_t>(tensors.size())), tensors,
              [](PyObject* s, Py_ssize_t i, PyObject* item) { PyList_SET_ITEM(s, i, item); });
}

void tensor_dealloc(PyObject* o) noexcept {
  auto* self = reinterpret_cast<PyTensor*>(o);
  PyTypeObject* type = Py_TYPE(o);
  const bool plain = type == tensor_type;
  // Instances of subclasses had their chance in tp_finalize.
  const TensorImpl* kept = self->tensor.impl();
  if (plain && TG_UNLIKELY(self->dict || self->weakrefs || (kept && kept->autograd())) && must_preserve(self)) {
    Py_SET_REFCNT(o, 1);
    preserve(self);
    return;
  }
  PyObject_GC_UnTrack(o);
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  Py_CLEAR(self->dict);
  if (TensorImpl* impl = self->tensor.impl(); impl && impl->python_object() == self) {
    impl->set_python_object(nullptr);
  }
  self->tensor.~Tensor();
  if (plain) {
    free_plain(self);
  } else {
    type->tp_free(o);
    Py_DECREF(type);
  }
}

void tensor_finalize(PyObject* o) noexcept {
  auto* self = reinterpret_cast<PyTensor*>(o);
  if (!must_preserve(self)) return;
  Py_INCREF(o);
  preserve(self);
}

int tensor_traverse(PyObject* o, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<PyTensor*>(o);
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(self->dict);
  const TensorImpl* impl = self->tensor.impl();
  if (traverse_tape && impl && impl->autograd()) return traverse_tape(self->tensor, visit, arg);
  return 0;
}

int tensor_clear(PyObject* o) {
  auto* self = reinterpret_cast<PyTensor*>(o);
  Py_CLEAR(self->dict);
  const TensorImpl* impl = self->tensor.impl();
  if (clear_tape && impl && impl->autograd()) clear_tape(self->tensor);
  return 0;
}

void install_release_hook() noexcept { release_python_object = release_object; }

}  // namespace tapegrad::python
