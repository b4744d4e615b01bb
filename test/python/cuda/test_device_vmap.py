"""vmap, and the derivatives of func, on CUDA against the CPU: what is made inside of a vmap lies on the device of its tensors.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""


import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg
from devices import LAST
from tapegrad.func import grad, hessian, jacfwd, jacrev, vmap


def numbers(device, *shape):
    return tg.randn(*shape, generator=tg.Generator().manual_seed(1)).to(device)


CASES = {
    "gradients of samples": lambda d: vmap(grad(lambda x: (x.sin() * x).sum()))(numbers(d, 3, 4)),
    "one weight": lambda d: vmap(grad(lambda w, x: (w @ x).square().sum()), (None, 0))(numbers(d, 4, 3), numbers(d, 5, 3)),
    "nested": lambda d: vmap(vmap(grad(lambda x: x.exp().sum())))(numbers(d, 2, 3, 4)),
    "second derivatives": lambda d: vmap(hessian(lambda x: x.pow(3).sum()))(numbers(d, 2, 3)),
    "jacobians": lambda d: vmap(jacrev(lambda x: x.cumsum(0) * x))(numbers(d, 2, 3)) + vmap(jacfwd(lambda x: x.sin()))(numbers(d, 2, 3)),
    "subscripts": lambda d: vmap(lambda x, i: x[i])(numbers(d, 3, 4), tg.tensor([0, 2, 1], device=d)),
    "writes": lambda d: vmap(lambda x, i: x.clone().index_put_((i,), x[0]))(numbers(d, 3, 4), tg.tensor([[0, 2], [2, 1], [3, 3]], device=d)),
    "places": lambda d: vmap(lambda x, i: x.index_select(0, i).sum() + x.index_fill(0, i, 2.0) + x.take(i).sum())(numbers(d, 3, 4), tg.tensor([[0, 2], [2, 1], [3, 3]], device=d)),
    "counts": lambda d: vmap(lambda i: i.bincount(minlength=4))(tg.tensor([[0, 2], [2, 1], [3, 3]], device=d)),
    "tables": lambda d: vmap(grad(lambda w, i: tg.nn.functional.embedding(i, w, padding_idx=1).square().sum()))(numbers(d, 3, 4, 2), tg.tensor([[0, 2], [2, 1], [3, 3]], device=d)),
    "bags": lambda d: vmap(lambda i, w: tg.nn.functional.embedding_bag(i, w, tg.tensor([0, 1], device=d)), (0, None))(tg.tensor([[0, 2], [2, 1], [3, 3]], device=d), numbers(d, 4, 2)),
    "new memory": lambda d: vmap(lambda x: tg.zeros_like(x) + x.new_ones(4) * x + tg.zeros(4, device=x.device))(numbers(d, 3, 4)),
    "inverses": lambda d: vmap(tg.linalg.inv)(numbers(d, 3, 4, 4)),
    "solve": lambda d: vmap(tg.linalg.solve)(numbers(d, 3, 4, 4), numbers(d, 3, 4)),
    "cholesky": lambda d: vmap(lambda a: tg.linalg.cholesky(a @ a.mT + tg.eye(4, device=a.device)))(numbers(d, 3, 4, 4)),
    "written in place": lambda d: vmap(lambda x: x.clone().index_fill_(0, tg.tensor([1], device=x.device), 2.0))(numbers(d, 3, 4)),
}


@pytest.mark.parametrize("f", CASES.values(), ids=CASES)
def test_values(f):
    there, host = f("cuda"), f("cpu")
    assert there.device.type == "cuda"
    tg.testing.assert_close(there.cpu(), host, rtol=1e-4, atol=1e-4)


def test_the_device_that_a_program_sees():
    seen = []
    vmap(lambda x, y: seen.append((str(x.device), x.is_cuda, y.is_cpu)) or x)(tg.ones(2, device=LAST), tg.ones(2, device=LAST))
    vmap(lambda x: seen.append((str(x.device), x.is_cuda, x.is_cpu)) or x)(tg.ones(2))
    assert seen == [(LAST, True, False), ("cpu", False, True)]
    assert vmap(lambda x: x.to(LAST) + 1)(tg.ones(2)).tolist() == [2.0, 2.0]
    assert vmap(lambda x: x.cpu() + 1)(tg.ones(2, device="cuda")).device.type == "cpu"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_sample_is_checked(device):
    matrices = tg.stack([tg.eye(2), tg.zeros(2, 2)]).to(device)
    with pytest.raises(tg.linalg.LinAlgError, match="singular"):
        vmap(tg.linalg.inv)(matrices)
