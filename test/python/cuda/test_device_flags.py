"""Tensors of bool with other bytes than 0 and 1 on a device: results as on the CPU.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""


import device_asked_for  # noqa: F401
import rows
import tapegrad as tg
from flags import VALUES, dirty, with_flags


def test_any_byte_is_true():
    there = lambda t: dirty(t).to("cuda")  # noqa: E731
    checked = 0
    for record in VALUES:
        for args, kwargs in with_flags(record):
            try:
                expected = record.function(*rows.map_tree(tg.clone, list(args)), **kwargs)
                record.function(*rows.map_tree(tg.Tensor.cuda, list(args)), **rows.map_tree(tg.Tensor.cuda, kwargs))
                tg.cuda.synchronize()
            except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                continue  # not for bool, or with lists of host tensors
            got = record.function(*rows.map_tree(there, list(args)), **rows.map_tree(there, kwargs))
            for g, e in zip(rows.tensors_of([got]), rows.tensors_of([expected]), strict=True):
                g = g.cpu().to(tg.uint8).ne(0) if g.dtype == tg.bool else g.cpu()
                assert g.shape == e.shape and tg.allclose(g.to(tg.complex128), e.to(tg.complex128), rtol=1e-4, atol=1e-4, equal_nan=True), (record.name, args, g, e)
                checked += 1
    assert checked > 500
