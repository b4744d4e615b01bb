"""Identity of Python objects, subclasses, attributes, weak references, garbage."""

import copy
import gc
import pickle
import weakref

import pytest
import tapegrad as tg


class Tagged(tg.Tensor):
    """A subclass with an attribute."""

    label = "none"

    def shout(self):
        return self.label.upper()


def test_gradient_is_one_object():
    x = tg.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is x.grad
    held = x.grad
    x.grad = None
    assert x.grad is None
    x.grad = held
    assert x.grad is held
    with pytest.raises(RuntimeError):
        x.grad = tg.ones(4)
    with pytest.raises(RuntimeError):
        x.grad = tg.ones(3, dtype=tg.float64)
    with pytest.raises(TypeError):
        x.grad = 3
    del x.grad
    assert x.grad is None


def test_attributes_of_a_tensor_outlive_its_python_names():
    x = tg.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    x.grad.note = "kept"
    gc.collect()
    assert x.grad.note == "kept"
    y = x * 2
    y.mark = [1]
    z = y.exp()
    number = id(y)
    del y
    gc.collect()
    assert z.grad_fn.next_functions is not None and number


def test_in_place_and_queries_return_self():
    x = tg.zeros(3)
    assert x.add_(1) is x and x.zero_() is x and x.requires_grad_() is x and x.detach_() is x
    assert x.to(tg.float32) is x and x.float() is x and x.cpu() is x and x.contiguous() is x
    assert x.to("cpu") is x and x.type(tg.float32) is x and x.real is x
    assert x.detach() is not x and x.view(3) is not x
    assert x.to(tg.float32, copy=True) is not x


def test_base_and_data():
    x = tg.zeros(3, 4)
    view = x[1]
    assert view._base is x and x._base is None
    assert view.view(2, 2)._base is x
    d = x.data
    d.fill_(2)
    assert x.sum() == 24 and d is not x
    x.data = tg.ones(2, 2)
    assert x.shape == (2, 2) and x.sum() == 4
    with pytest.raises(TypeError):
        x.data = 4


def test_weak_references():
    x = tg.zeros(3)
    r = weakref.ref(x)
    assert r() is x
    del x
    assert r() is None
    gone = []
    y = tg.zeros(2)
    weakref.finalize(y, gone.append, 1)
    del y
    assert gone == [1]


def test_weak_reference_to_a_tensor_that_the_tape_keeps():
    x = tg.ones(3, requires_grad=True)
    y = x.exp()
    r = weakref.ref(y)
    z = (y * y).sum()
    del y
    gc.collect()
    assert r() is None or r().shape == (3,)
    z.backward()
    assert x.grad is not None
    del z
    gc.collect()
    assert r() is None


def test_any_attribute():
    x = tg.zeros(2)
    x.name_of_mine = {"a": 1}
    assert x.name_of_mine == {"a": 1} and "name_of_mine" in x.__dict__
    del x.name_of_mine
    with pytest.raises(AttributeError, match="name_of_mine"):
        x.name_of_mine  # noqa: B018
    with pytest.raises(AttributeError):
        x.shape = (3,)


def test_a_cycle_through_attributes_is_collected():
    x = tg.zeros(2)
    x.me = x
    r = weakref.ref(x)
    del x
    gc.collect()
    assert r() is None
    y = tg.zeros(2, requires_grad=True)
    z = y * 2
    y.z = z
    r = weakref.ref(y)
    del y, z
    gc.collect()
    assert r() is None


def test_subclass():
    t = Tagged([1.0, 2.0])
    assert type(t) is Tagged and t.tolist() == [1.0, 2.0] and t.shout() == "NONE"
    t.label = "mine"
    assert t.shout() == "MINE"
    assert isinstance(t, tg.Tensor) and isinstance(t + 1, tg.Tensor)
    assert (t + 1).tolist() == [2.0, 3.0]
    assert t.requires_grad_() is t and type(t) is Tagged
    t.sum().backward()
    assert t.grad.tolist() == [1.0, 1.0]
    u = tg.zeros(2, 2).as_subclass(Tagged)
    assert type(u) is Tagged and u.shape == (2, 2)
    v = tg.Tensor._make_subclass(Tagged, tg.ones(3), True)
    assert type(v) is Tagged and v.requires_grad and v.is_leaf
    w = tg.Tensor._make_subclass(Tagged, data=tg.ones(3), require_grad=True, dispatch_sizes_strides_policy="sizes", dispatch_device=True)
    assert type(w) is Tagged and w.requires_grad
    with pytest.raises(TypeError):
        tg.zeros(2).as_subclass(int)
    with pytest.raises(TypeError):
        tg.Tensor._make_subclass(dict, tg.ones(3))


def test_subclass_with_new_and_init():
    class Named(tg.Tensor):
        def __new__(cls, data, *, name):
            return tg.tensor(data).as_subclass(cls)

        def __init__(self, data, *, name):
            self.name_of = name

    n = Named([1, 2, 3], name="n")
    assert type(n) is Named and n.name_of == "n" and n.tolist() == [1, 2, 3]

    class Slotted(tg.Tensor):
        __slots__ = ("extra",)

    s = Slotted([1.0])
    s.extra = 4
    assert s.extra == 4


def test_a_subclass_survives_on_the_tape():
    x = tg.ones(2, requires_grad=True)
    y = (x * 2).as_subclass(Tagged)
    y.label = "on tape"
    y.retain_grad()
    z = y.sum()
    del y
    gc.collect()
    z.backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_finalizers_run_once():
    counts = []

    class Watched(tg.Tensor):
        __torch_function__ = tg._C._disabled_torch_function_impl  # results are plain tensors

        def __del__(self):
            counts.append(1)

    w = Watched([1.0, 2.0])
    w.requires_grad_()
    z = (w * w).sum()
    del w
    gc.collect()
    z.backward()
    del z
    gc.collect()
    assert counts == [1]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol):
    for dtype in (tg.float32, tg.bfloat16, tg.bool, tg.complex128, tg.int8):
        x = tg.tensor([[0, 1, 2], [3, 4, 5]], dtype=dtype)
        for t in (x, x.t(), x[:, 1:], x[0, 0], x[:0]):
            back = pickle.loads(pickle.dumps(t, protocol))
            assert back.dtype == t.dtype and back.shape == t.shape and back.stride() == t.stride()
            assert (back == t).all()
    x = tg.ones(2, requires_grad=True)
    assert pickle.loads(pickle.dumps(x, protocol)).requires_grad


def test_pickle_and_copy_of_what_has_no_data():
    x = tg.empty(2, 3, device="meta").t()
    for back in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert back.is_meta and back.dtype == x.dtype and back.shape == (3, 2) and back.stride() == (1, 3)
    layer = pickle.loads(pickle.dumps(tg.nn.Linear(2, 3, device="meta")))
    assert layer.weight.is_meta and layer.weight.requires_grad and isinstance(layer.weight, tg.nn.Parameter)


def test_pickle_keeps_shared_memory_and_attributes():
    x = tg.arange(6.0)
    a, b = pickle.loads(pickle.dumps((x, x[2:])))
    a.fill_(7)
    assert b.sum() == 28
    t = Tagged([1.0])
    t.label = "kept"
    back = pickle.loads(pickle.dumps(t))
    assert type(back) is Tagged and back.label == "kept"
    p = tg.nn.Parameter(tg.ones(2), requires_grad=False)
    q = pickle.loads(pickle.dumps(p))
    assert type(q) is tg.nn.Parameter and not q.requires_grad


def test_pickle_of_values():
    for value in (tg.float32, tg.bool, tg.Size([1, 2]), tg.device("cpu"), tg.device("cuda:1"), tg.strided, tg.channels_last):
        back = pickle.loads(pickle.dumps(value))
        assert back == value and type(back) is type(value) and repr(back) == repr(value)
        assert copy.deepcopy(value) == value and copy.copy(value) == value
    assert pickle.loads(pickle.dumps(tg.float16)) is tg.float16


def test_copy():
    x = tg.ones(2, 3)
    x.tag = [1]
    shallow = copy.copy(x)
    assert shallow is not x and shallow.data_ptr() == x.data_ptr() and shallow.tag is x.tag
    deep = copy.deepcopy(x)
    assert deep.data_ptr() != x.data_ptr() and deep.tag == [1] and deep.tag is not x.tag and (deep == x).all()
    leaf = tg.ones(2, requires_grad=True)
    leaf.grad = tg.ones(2)
    other = copy.deepcopy(leaf)
    assert other.requires_grad and other.is_leaf and other.grad.tolist() == [1, 1] and other.grad is not leaf.grad
    pair = copy.deepcopy([x, x, x[0]])
    assert pair[0] is pair[1] and pair[2].data_ptr() == pair[0].data_ptr()
    with pytest.raises(RuntimeError, match="detach"):
        copy.deepcopy(leaf * 2)
    t = Tagged([1.0])
    t.label = "deep"
    assert copy.deepcopy(t).label == "deep" and type(copy.deepcopy(t)) is Tagged
    assert copy.deepcopy(x.t()).stride() == x.t().stride()


def test_deepcopy_of_a_tensor_that_holds_itself():
    x = tg.zeros(2)
    x.me = x
    y = copy.deepcopy(x)
    assert y.me is y and y is not x


def test_parameters():
    p = tg.nn.Parameter(tg.ones(2))
    assert p.requires_grad and isinstance(p, tg.Tensor) and repr(p).startswith("Parameter containing:\ntensor([1., 1.]")
    assert type(p * 2) is tg.Tensor and type(p.data) is tg.Tensor
    source = tg.zeros(3)
    assert tg.nn.Parameter(source).data_ptr() == source.data_ptr()
    assert type(copy.deepcopy(p)) is tg.nn.Parameter


def test_is_view_as_torch_says():
    torch = pytest.importorskip("torch")
    for make in (lambda x: x, lambda x: x[0], lambda x: x.view(-1), lambda x: x.detach(), lambda x: x.t(), lambda x: x.expand(2, 2, 2), lambda x: x.clone(),
                 lambda x: x.data, lambda x: x.requires_grad_().clone(), lambda x: x.requires_grad_()[0]):  # fmt: skip
        assert make(tg.ones(2, 2))._is_view() is make(torch.ones(2, 2))._is_view()


def test_many_objects():
    tensors = [tg.zeros(1) for _ in range(10000)]
    assert len({id(t) for t in tensors}) == 10000
    rows = tg.zeros(500, 2)
    assert all(r._base is rows for r in rows)


def test_dir_lists_what_there_is():
    x = tg.ones(2, 2)
    assert [name for name in dir(x) if name != "imag" and not hasattr(x, name)] == []
    assert "sum" in dir(x) and "to_mkldnn" not in dir(x)


class Noted(tg.Tensor):
    """A subclass with a slot."""

    __slots__ = ("note",)


class NotedParameter(tg.nn.Parameter):
    __slots__ = ("note",)


@pytest.mark.parametrize("cls", [tg.nn.Parameter, Noted, NotedParameter])
def test_a_pickle_has_attributes_and_slots(cls):
    given = cls(tg.ones(2)) if issubclass(cls, tg.nn.Parameter) else tg.ones(2).as_subclass(cls)
    names = ["rank", "note"] if cls is not tg.nn.Parameter else ["rank"]
    for name in names:
        setattr(given, name, [name])
    back = pickle.loads(pickle.dumps(given))
    assert type(back) is cls and [getattr(back, name) for name in names] == [[name] for name in names]
