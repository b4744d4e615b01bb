"""Sparse tensors on CUDA against those of the CPU: what makes them and reads them, operators, gradients, optimizers, files.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""

import copy
import io
import pickle

import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg
from devices import COUNT, LAST, several

INDICES, VALUES, SIZE = [[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 1.5], (2, 3)
DENSE = [[0.0, 2, 0], [3, 0, 4]]


def sparse(device="cuda", values=VALUES):
    return tg.sparse_coo_tensor(INDICES, values, SIZE, device=device)


def same(there, host):
    """One device, places, values and dtype; the device's are compared bit for bit where sums have an order."""
    assert there.is_sparse == host.is_sparse and there.shape == host.shape and there.dtype == host.dtype
    assert there.device == tg.device("cuda", 0) and host.device == tg.device("cpu")
    if host.is_sparse:
        assert there.is_coalesced() == host.is_coalesced()
        assert there._indices().device == there._values().device == there.device
        assert there._indices().tolist() == host._indices().tolist()
        there, host = there._values(), host._values()
    tg.testing.assert_close(there.detach().cpu(), host.detach())


MADE = {
    "lists": lambda d: tg.sparse_coo_tensor(INDICES, VALUES, SIZE, device=d),
    "no size": lambda d: tg.sparse_coo_tensor(INDICES, VALUES, device=d),
    "tensors": lambda d: tg.sparse_coo_tensor(tg.tensor(INDICES), tg.tensor(VALUES), SIZE, device=d),
    "indices follow values": lambda d: tg.sparse_coo_tensor(INDICES, tg.tensor(VALUES, device=d), SIZE),
    "int32 indices": lambda d: tg.sparse_coo_tensor(tg.tensor(INDICES, dtype=tg.int32, device=d), tg.tensor(VALUES, device=d), SIZE),
    "one value": lambda d: tg.sparse_coo_tensor(INDICES, tg.tensor(2.0, device=d), SIZE),
    "rows": lambda d: tg.sparse_coo_tensor([[0, 2, 0]], [[1.0, 2], [3, 4], [5, 6]], (3, 2), device=d),
    "dtype": lambda d: tg.sparse_coo_tensor(INDICES, VALUES, SIZE, dtype=tg.float64, device=d),
    "empty": lambda d: tg.sparse_coo_tensor((2, 0, 3), device=d),
    "coalesced": lambda d: sparse(d).coalesce(),
    "rows coalesced": lambda d: tg.sparse_coo_tensor([[2, 0, 2]], [[1.0, 2], [3, 4], [5, 6]], (3, 2), device=d).coalesce(),
    "three dimensions": lambda d: tg.sparse_coo_tensor([[1, 0, 1, 1], [3, 2, 3, 0], [4, 0, 4, 1]], [1, 2, 3, 4], (2, 4, 5), device=d).coalesce(),
    "empty coalesced": lambda d: tg.sparse_coo_tensor([[], []], [], (2, 3), device=d).coalesce(),
    "to_sparse": lambda d: tg.tensor(DENSE, device=d).to_sparse(),
    "to_sparse(1)": lambda d: tg.tensor(DENSE, device=d).to_sparse(1),
    "mask": lambda d: tg.tensor(DENSE, device=d).sparse_mask(sparse(d)),
    "clone": lambda d: sparse(d).clone(),
    "detach": lambda d: sparse(d).detach(),
    "deepcopy": lambda d: copy.deepcopy(sparse(d)),
    "pickle": lambda d: pickle.loads(pickle.dumps(sparse(d))),
    "double": lambda d: sparse(d).double(),
    "there and back": lambda d: sparse(d).to(LAST).cpu().to(d),
    "as another": lambda d: sparse("cpu").to(sparse(d)),
    "sums": lambda d: tg.sparse.sum(sparse(d), 0),
    "narrowed": lambda d: tg.sparse.sum(sparse(d), (0, 1)),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_construction(make):
    there, host = make("cuda"), make("cpu")
    same(there, host)
    if host.is_sparse:
        same(there.to_dense(), host.to_dense())
        same(there.coalesce().values(), host.coalesce().values())
        assert (there._nnz(), there.sparse_dim(), there.dense_dim()) == (host._nnz(), host.sparse_dim(), host.dense_dim())
        assert repr(there).replace(" device='cuda:0',", "").split() == repr(host).split()


def test_what_they_say_of_themselves():
    s = sparse()
    assert s.is_sparse and s.is_cuda and not s.is_cpu and s.get_device() == 0 and s.device == tg.device("cuda:0")
    assert s.to(LAST).get_device() == COUNT - 1 and s.cpu().get_device() == -1 and s.cuda() is s and s.to("cuda") is s
    assert s.to("cuda", copy=True) is not s and s.cpu().cpu().device.type == "cpu"
    assert repr(sparse().coalesce()) == ("tensor(indices=tensor([[0, 1, 1],\n                       [2, 0, 2]]),\n       values=tensor([4.5000, 4.0000, 5.0000]),\n"
                                         "       device='cuda:0', size=(2, 3), nnz=3, layout=tapegrad.sparse_coo)")
    for refused in (lambda: s.untyped_storage(), lambda: s.exp(), lambda: s.numpy(), lambda: s.to("meta"), lambda: tg.from_dlpack(s)):
        with pytest.raises((NotImplementedError, RuntimeError, TypeError), match="sparse|Sparse"):
            refused()


ARITHMETIC = {
    "a + b": lambda a, b, d: a + b, "a - b": lambda a, b, d: a - b, "d + a": lambda a, b, d: d + a, "a * 3": lambda a, b, d: a * 3,
    "a / 2": lambda a, b, d: a / 2, "-a": lambda a, b, d: -a, "a.t()": lambda a, b, d: a.t(), "transpose": lambda a, b, d: a.transpose(0, 1).coalesce(),
    "a * d": lambda a, b, d: a * d, "a * scalar": lambda a, b, d: a * d[1, 1], "sum": lambda a, b, d: a.sum(), "a @ d": lambda a, b, d: a @ d.t(),
    "d @ a": lambda a, b, d: d.t() @ a, "sparse.mm": lambda a, b, d: tg.sparse.mm(a, d.t()), "alpha": lambda a, b, d: tg.add(d, a, alpha=2),
    "addmm": lambda a, b, d: tg.sparse.addmm(d @ d.t(), a, d.t(), beta=0.5, alpha=2),
    "a[1]": lambda a, b, d: a[1], "a[:, 2]": lambda a, b, d: a[:, 2], "index_select": lambda a, b, d: a.index_select(1, tg.tensor([2, 0, 2], device=d.device)),
}


@pytest.mark.parametrize("f", ARITHMETIC.values(), ids=ARITHMETIC)
def test_arithmetic(f):
    results = [f(sparse(d), tg.sparse_coo_tensor([[1, 0], [1, 2]], [7.0, -1.0], SIZE, device=d), tg.arange(6.0, device=d).reshape(2, 3)) for d in ("cuda", "cpu")]
    same(*results)


def test_gradients():
    gradients = {}
    for d in ("cuda", "cpu"):
        values = tg.tensor(VALUES, device=d, requires_grad=True)
        dense = tg.arange(12.0, device=d).reshape(3, 4).requires_grad_()
        s = tg.sparse_coo_tensor(INDICES, values, SIZE)
        weight = tg.arange(8.0, device=d).reshape(2, 4)
        loss = (tg.sparse.mm(s, dense) * weight).sum() + (s.to_dense() * tg.arange(6.0, device=d).reshape(2, 3)).sum() + s.coalesce().values().square().sum()
        (loss + s.to("cpu").to_dense().sum().to(d)).backward()
        gradients[d] = values.grad, dense.grad
    for there, host in zip(gradients["cuda"], gradients["cpu"], strict=True):
        same(there, host)


MIXED = [lambda s, h: s + h, lambda s, h: h - s, lambda s, h: tg.ones(2, 3) + s, lambda s, h: s * tg.ones(2, 3), lambda s, h: h * tg.ones(2, 3, device="cuda"),
         lambda s, h: s @ tg.ones(3, 2), lambda s, h: tg.ones(3, 2) @ s, lambda s, h: tg.ones(2, 3).sparse_mask(s),
         lambda s, h: tg.sparse_coo_tensor(tg.tensor(INDICES), tg.tensor(VALUES, device="cuda"), SIZE),
         lambda s, h: tg.sparse_coo_tensor(tg.tensor(INDICES, device="cuda"), VALUES, SIZE), lambda s, h: h * tg.tensor(2.0, device="cuda")]


@pytest.mark.parametrize("use", MIXED, ids=range(len(MIXED)))
def test_tensors_on_two_devices(use):
    with pytest.raises(RuntimeError, match="expected all tensors on one device: got"):
        use(sparse(), sparse("cpu"))


@several
def test_a_sum_over_two_devices():
    with pytest.raises(RuntimeError, match="expected all tensors on one device: got"):
        sparse() + sparse().to(LAST)


def test_gradient_of_another_device():
    p = tg.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="grad: the gradient must be on the tensor's device cpu: got cuda:0"):
        p.grad = sparse()
    q = tg.ones(2, 3, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="grad: the gradient must be on the tensor's device cuda:0: got cpu"):
        q.grad = sparse("cpu")
    q.grad = sparse()
    assert q.grad.is_sparse


def test_indices_out_of_bounds_are_raised_by_the_next_wait():
    for index in (3, -1):
        indices = tg.tensor([[0, index]]).cuda()
        with tg.strict("sync"):
            bad = tg.sparse_coo_tensor(indices, tg.ones(2, device="cuda"), (3,))
        with pytest.raises(IndexError, match=f"sparse_coo_tensor: index {index} is out of bounds for dimension 0 with size 3"):
            bad.to_dense().sum().item()
    assert sparse().sum().item() == 13.5


def table(device, **kwargs):
    weight = (tg.arange(30.0) / 7).reshape(10, 3)
    return tg.nn.Embedding(10, 3, sparse=True, _weight=weight, **kwargs).to(device)


@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_gradient(padding):
    tables = [table(d, padding_idx=padding) for d in ("cuda", "cpu")]

    def compare():
        same(tables[0].weight.grad, tables[1].weight.grad)

    for net in tables:
        d = net.weight.device
        for batch in ([[1, 2], [2, 7]], [[9, 2], [1, 1]]):
            (net(tg.tensor(batch).to(d)) * tg.arange(3.0, device=d)).sum().backward()
    assert tables[0].weight.grad.is_sparse
    compare()
    for net in tables:  # converted with the module, and added to a dense one
        net.double()
    compare()
    for net in tables:
        net.weight.sum().backward()
    compare()
    got = [tg.autograd.grad(net(tg.tensor([1, 1]).to(net.weight.device)).sum(), net.weight)[0] for net in tables]
    same(*got)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag_gradient(mode):
    gradients = []
    for d in ("cuda", "cpu"):
        net = tg.nn.EmbeddingBag(6, 2, mode=mode, sparse=True).to(d)
        net(tg.tensor([1, 2, 1], device=d), tg.tensor([0, 2], device=d)).sum().backward()
        gradients.append(net.weight.grad)
    same(*gradients)


OPTIMIZERS = [("SGD", {}), ("SGD", {"maximize": True}), ("SGD", {"momentum": 0.9}), ("SGD", {"momentum": 0.9, "nesterov": True}), ("SGD", {"foreach": True}),
              ("Adagrad", {"lr_decay": 0.01}), ("Adagrad", {"foreach": True}), ("SparseAdam", {}), ("SparseAdam", {"maximize": True})]


@pytest.mark.parametrize(("name", "kwargs"), OPTIMIZERS, ids=str)
def test_optimizers(name, kwargs):
    done = []
    for d in ("cuda", "cpu"):
        net = table(d, padding_idx=4)
        optimizer = getattr(tg.optim, name)(net.parameters(), lr=0.1, **kwargs)
        for k, batch in enumerate(([1, 2, 2], [7, 1, 0], [2, 4, 9])):
            optimizer.zero_grad(set_to_none=k != 1)
            (net(tg.tensor(batch, device=d)) ** 2).sum().backward()
            optimizer.step()
            if k == 1:  # the state passes through a file
                file = io.BytesIO()
                tg.save(optimizer.state_dict(), file)
                file.seek(0)
                optimizer = getattr(tg.optim, name)(net.parameters(), lr=0.1, **kwargs)
                optimizer.load_state_dict(tg.load(file))
        done.append((net.weight, optimizer.state[net.weight]))
    (there, state), (host, expected) = done
    same(there, host)
    assert state.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, tg.Tensor) and key != "step":
            same(state[key], value)
        else:
            assert state[key] == value


def test_a_step_of_sgd_waits_for_nothing():
    net = table("cuda")
    optimizer = tg.optim.SGD(net.parameters(), lr=0.5)
    batch = tg.tensor([3, 3, 8]).cuda()
    with tg.strict("sync"):
        for _ in range(3):
            optimizer.zero_grad()
            net(batch).sum().backward()
            optimizer.step()
        moved = net.weight.grad * 2 + net.weight.grad
        dense = moved.to_dense()
    assert dense[:, 0].tolist() == [0, 0, 0, 6, 0, 0, 0, 0, 3, 0]
    tg.testing.assert_close((table("cpu").weight - net.weight.cpu())[:, 1].detach(), tg.tensor([0, 0, 0, 3.0, 0, 0, 0, 0, 1.5, 0]))


def test_optimizers_that_do_not_take_them():
    net = table("cuda")
    net(tg.tensor([1], device="cuda")).sum().backward()
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients, please consider SparseAdam instead"):
        tg.optim.Adam(net.parameters()).step()
    with pytest.raises(RuntimeError, match="`_fused_sgd` does not support sparse gradients"):
        tg.optim.SGD(net.parameters(), lr=0.1, fused=True).step()


def test_grad_scaler():
    weights = []
    for d in ("cuda", "cpu"):
        net = table(d)
        optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
        scaler = tg.amp.GradScaler(d, init_scale=8.0)
        for bad in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scaler.scale((net(tg.tensor([1, 1, 5], device=d)) * bad).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 4.0
        weights.append(net.weight)
    same(*weights)


def test_anomaly_mode_looks_at_values():
    net = table("cuda")
    factor = tg.tensor([1.0, float("nan")], device="cuda").unsqueeze(1)
    with tg.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan"):
        (net(tg.tensor([1, 1], device="cuda")) * factor).sum().backward()


def test_hooks_and_create_graph():
    net, seen = table("cuda"), []
    net.weight.register_hook(lambda g: seen.append(g.is_sparse and g.is_cuda))
    net(tg.tensor([1], device="cuda")).sum().backward(create_graph=True)
    assert seen == [True] and net.weight.grad.device == net.weight.device


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
def test_files(name, tmp_path):
    path = tmp_path / name
    tg.save({"s": sparse(), "t": tg.ones(2, device=LAST)}, path)
    same(tg.load(path)["s"], sparse("cpu"))
    assert tg.load(path, map_location="cpu")["s"].device.type == "cpu"
    assert tg.load(path, map_location=LAST)["s"].device == tg.device(LAST)
    assert tg.load(path, map_location={"cuda:0": LAST})["s"].coalesce()._values().tolist() == [4.5, 4.0, 5.0]


def test_module_with_a_sparse_buffer():
    class Graph(tg.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("adjacency", sparse("cpu"))
            self.linear = tg.nn.Linear(3, 2)

        def forward(self, x):
            return self.adjacency @ self.linear(x)

    net = Graph()
    x = tg.randn(3, 3)
    expected = net(x)
    moved = copy.deepcopy(net).cuda()
    assert moved.adjacency.is_cuda
    same(moved(x.cuda()), expected)
    assert moved.double().adjacency.dtype is tg.float64


BLOCKS = [[1.0, 0, 0, 0, 2, 3], [0, 0, 0, 0, 0, 4], [0, 0, 5, 0, 0, 0], [0, 0, 0, 6, 0, 0]]


@pytest.mark.parametrize("form", ("sparse_bsr", "sparse_bsc"))
def test_blocks(form):
    """As on the CPU: conversions, products with gradients, a batch, and parts that are out of bounds."""
    def run(device):
        dense = tg.tensor(BLOCKS, device=device, requires_grad=True)
        x = tg.arange(12.0, device=device).reshape(6, 2).requires_grad_()
        a = dense.to_sparse(layout=getattr(tg, form), blocksize=(2, 3))
        y = a @ x + (x.t() @ a.t()).t()
        (y.square().sum() + (a + a).to_dense().sum()).backward()
        batch = tg.stack([dense.detach()] * 2).to_sparse(layout=getattr(tg, form), blocksize=(2, 3))
        again = getattr(dense.detach().to_sparse_csr(), f"to_{form}")((2, 2))
        back = getattr(a.detach().to("cpu").to(device), f"to_{'sparse_bsc' if form == 'sparse_bsr' else 'sparse_bsr'}")((2, 3))
        assert a.device.type == again.device.type == device
        return [t.cpu().tolist() for t in (y.detach(), dense.grad, x.grad, batch.mT[1].to_dense(), again.to_dense(), again.values(), back.to_dense(), a.detach().to_sparse().to_dense())]

    assert run("cuda") == run("cpu")
    starts, others, values = [0, 1, 2], [0, 2], tg.ones(2, 2, 2, device="cuda")
    with pytest.raises((IndexError, RuntimeError)):
        tg.sparse_compressed_tensor(starts, others, values, (4, 4), layout=getattr(tg, form))
        tg.cuda.synchronize()
