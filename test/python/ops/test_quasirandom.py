"""Sobol's sequences."""

import numpy as np
import pytest
import tapegrad as tg

pytest.importorskip("scipy", reason="the direction numbers are SciPy's")


@pytest.mark.parametrize("dimension", [1, 2, 50, 1111])
def test_points_are_pytorchs(dimension):
    torch = pytest.importorskip("torch", reason="compared with PyTorch")
    ours, theirs = (lib.quasirandom.SobolEngine(dimension).draw(300).numpy() for lib in (tg, torch))
    np.testing.assert_array_equal(ours, theirs)


def test_scrambled_points_fill_the_cube_evenly():
    engine = tg.quasirandom.SobolEngine(3, scramble=True, seed=3)
    points = engine.draw(4096).numpy()
    for k in range(3):  # 64 points in each of 64 parts of an axis, and one in each small square
        assert (np.bincount((points[:, k] * 64).astype(int), minlength=64) == 64).all()
    assert (np.histogram2d(points[:, 0], points[:, 1], bins=64, range=[[0, 1], [0, 1]])[0] == 1).all()
    again = tg.quasirandom.SobolEngine(3, scramble=True, seed=3)
    np.testing.assert_array_equal(again.fast_forward(7).draw(3).numpy(), points[7:10])
    np.testing.assert_array_equal(again.reset().draw(3).numpy(), points[:3])
    other = tg.quasirandom.SobolEngine(3, scramble=True, seed=4).draw(3).numpy()
    assert not np.array_equal(other, points[:3])


def test_draw_base2_out_and_dtype():
    engine = tg.quasirandom.SobolEngine(2)
    out = tg.empty(0, dtype=tg.float64)
    assert engine.draw_base2(2, out=out) is out and out.tolist() == [[0, 0], [0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]
    assert engine.draw_base2(2, dtype=tg.float64).dtype == tg.float64 and engine.num_generated == 8
    with pytest.raises(ValueError, match="balance properties"):
        engine.draw_base2(1)
    assert engine.num_generated == 8


@pytest.mark.parametrize("dimension", [0, -1, 21202])
def test_dimension_out_of_range(dimension):
    with pytest.raises(ValueError, match=r"\[1, 21201\]"):
        tg.quasirandom.SobolEngine(dimension)


def test_too_many_points():
    engine = tg.quasirandom.SobolEngine(1).fast_forward((1 << 30) - 1)
    engine.draw()
    with pytest.raises(ValueError, match="has 2"):
        engine.draw()
