"""Runs what tapegrad.onnx.export writes by onnx's reference, and compares it with the code."""

import numpy as np
import tapegrad as tg


def runs(function, *inputs, dynamic_shapes=None, others=(), **options):
    """Exports a function or module, runs what was written on the example and on others, and compares."""
    program = tg.onnx.export(function, inputs, dynamic_shapes=dynamic_shapes, **options)
    for given in (inputs, *others):
        with tg.no_grad():
            expected = [t for t in tg.utils._pytree.tree_leaves(function(*(t.clone() for t in given))) if isinstance(t, tg.Tensor)]
        for mine, theirs in zip(program(*given), expected, strict=True):
            assert mine.shape == theirs.shape and mine.dtype is theirs.dtype
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)
    return program
