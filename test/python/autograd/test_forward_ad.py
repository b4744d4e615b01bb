"""Forward mode: tangents as PyTorch's."""

import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")


def _tangents(lib):
    fwd = lib.autograd.forward_ad
    x, t = lib.tensor([0.5, -1.0], dtype=lib.float64), lib.tensor([1.0, 2.0], dtype=lib.float64)
    w = lib.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=lib.float64)
    with fwd.dual_level():
        dual = fwd.make_dual(x, t)
        first = fwd.unpack_dual(dual)
        y = fwd.unpack_dual((w @ dual).sin() * dual)
        none = fwd.unpack_dual(w.sum())
        both = fwd.unpack_dual(dual * fwd.make_dual(x + 1, t * 3))
        return [first.primal.tolist(), first.tangent.tolist(), y.primal.tolist(), y.tangent.tolist(), none.tangent, both.tangent.tolist()]


def test_equals_torch():
    for mine, theirs in zip(_tangents(tg), _tangents(torch), strict=True):
        assert mine == (pytest.approx(theirs, rel=1e-12) if theirs is not None else None)


def test_levels():
    fwd = tg.autograd.forward_ad
    with pytest.raises(RuntimeError, match="no level exists"):
        fwd.make_dual(tg.ones(1), tg.ones(1))
    with fwd.dual_level():
        with pytest.raises(ValueError, match="Expected primal to be floating point or complex"):
            fwd.make_dual(tg.ones(1, dtype=tg.int64), tg.ones(1))
        with pytest.raises(RuntimeError, match="Nested forward mode"), fwd.dual_level():
            pass
    assert fwd.unpack_dual(tg.ones(1)).tangent is None
    with pytest.raises(RuntimeError, match="not the last one"):
        fwd.exit_dual_level()


def test_the_tangent_can_be_differentiated():
    fwd = tg.autograd.forward_ad
    x = tg.tensor([0.3], dtype=tg.float64, requires_grad=True)
    with fwd.dual_level():
        tangent = fwd.unpack_dual(fwd.make_dual(x, tg.ones(1, dtype=tg.float64)) ** 3).tangent
    tangent.backward()
    assert x.grad.tolist() == pytest.approx([6 * 0.3])


def test_who_asks_for_the_open_level():
    forward_ad = tg.autograd.forward_ad
    assert forward_ad._current_level == -1
    with forward_ad.dual_level() as level:
        assert forward_ad._current_level == level == 0
        with pytest.raises(RuntimeError, match="Nested forward mode"):
            forward_ad.enter_dual_level()
        assert forward_ad._current_level == 0
    assert forward_ad._current_level == -1


def test_tangents_that_are_unlike_the_primal():
    fwd = tg.autograd.forward_ad
    with fwd.dual_level():
        with pytest.raises(RuntimeError, match="Trying to set a forward gradient that has a different size than that of the original Tensor: got .2,. for .1,."):
            fwd.make_dual(tg.ones(1), tg.ones(2))
        with pytest.raises(RuntimeError, match="expected a tangent like the primal"):
            fwd.make_dual(tg.ones(1), tg.ones(1, dtype=tg.float64))


def test_tangents_are_printed_and_no_dual_tensors_themselves():
    fwd = tg.autograd.forward_ad
    x = tg.ones(1)
    with fwd.dual_level():
        dual = fwd.make_dual(x, tg.full((1,), 2.0))
        assert "tangent=tensor([2.])" in repr(dual) and "tangent=tensor([4.])" in repr(dual * 2)
        assert "tangent" not in repr(x) and "tangent" not in repr(fwd.unpack_dual(dual).primal)
        with pytest.raises(RuntimeError, match="has a forward gradient at the same level"):
            fwd.make_dual(x, dual)
    assert "tangent" not in repr(dual)


def test_dual_tensors_are_written_to_in_place():
    """Their memory is the primal's, and tangents go with what is written."""
    def run(t):
        fw, results = t.autograd.forward_ad, []
        changes = [lambda d: d.add_(1), lambda d: d.mul_(2), lambda d: d.zero_(), lambda d: d.copy_(t.ones(2)), lambda d: d[0].mul_(3), lambda d: d[:1].fill_(7.0),
                   lambda d: d.__setitem__(0, d[1] * 2), lambda d: d.unsqueeze_(0)]
        for change in changes:
            primal = t.tensor([1.0, 2.0], dtype=t.float64)
            with fw.dual_level():
                dual = fw.make_dual(primal, t.tensor([3.0, 4.0], dtype=t.float64))
                change(dual)
                value, tangent = fw.unpack_dual(dual)
                _, further = fw.unpack_dual(dual * 2 + 1)
                results.append((value.tolist(), tangent.tolist(), further.tolist(), primal.tolist()))
        with fw.dual_level():
            plain = t.ones(2)
            plain.add_(fw.make_dual(t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0])))
            results.append(fw.unpack_dual(plain)[1].tolist())
        return results

    def flat(results):
        return [x for part in results for x in (flat(part) if isinstance(part, (list, tuple)) else [part])]

    assert flat(run(tg)) == pytest.approx(flat(run(torch)), rel=1e-12)
    fw = tg.autograd.forward_ad
    with fw.dual_level():
        dual = fw.make_dual(tg.ones(2, requires_grad=True) * 2, tg.ones(2))
        dual.mul_(3)
        with pytest.raises(NotImplementedError, match="was written to in place: write to a copy of it"):
            fw.unpack_dual(dual)
