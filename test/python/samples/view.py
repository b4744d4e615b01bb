"""Samples of views and of copies that rearrange."""

import tapegrad


def view_unary(make):
    return [((make((3, 4)),), {}), ((make(()),), {}), ((make((0, 2)),), {}), ((make((5,)),), {}), ((make((4, 3)).t(),), {})]


def view(make):
    return [((make((3, 4)), (2, 6)), {}), ((make((3, 4)), (-1,)), {}), ((make(()), (1, 1)), {}), ((make((0, 2)), (2, 0)), {}), ((make((2, 3, 4)).transpose(0, 1), (3, 2, 2, 2)), {})]


def view_dtype(make):
    return [((tapegrad.arange(4, dtype=tapegrad.int64), tapegrad.float64), {}), ((tapegrad.arange(4, dtype=tapegrad.int32), tapegrad.float32), {})]


def view_as(make):
    return [((make((3, 4)), make((2, 6))), {}), ((make((0, 2)), make((2, 0))), {})]


def reshape(make):
    return [((make((3, 4)), (2, 6)), {}), ((make((4, 3)).t(), (2, -1)), {}), ((make(()), (1,)), {}), ((make((0, 2)), (0,)), {}), ((make((3, 8))[:, ::2], (12,)), {})]


def transpose(make):
    return [((make((2, 3, 4)), 0, 2), {}), ((make((2, 3, 4)), -1, 1), {}), ((make((2, 3)), 0, 0), {}), ((make((0, 3)), 0, 1), {})]


def t(make):
    return [((make((2, 3)),), {}), ((make((3,)),), {}), ((make(()),), {})]


def permute(make):
    return [((make((2, 3, 4)), (2, 0, 1)), {}), ((make((2, 3, 4)), (-1, 0, 1)), {}), ((make(()), ()), {})]


def movedim(make):
    return [((make((2, 3, 4)), 0, 2), {}), ((make((2, 3, 4)), (0, 1), (2, 0)), {})]


def squeeze(make):
    x = make((1, 3, 1, 2))
    return [((x,), {}), ((x, 0), {}), ((x, 1), {}), ((x, (0, -2)), {}), ((make(()),), {})]


def unsqueeze(make):
    return [((make((2, 3)), d), {}) for d in (0, 1, -1, 2)] + [((make(()), 0), {})]


def expand(make):
    return [((make((3, 1)), (3, 4)), {}), ((make((3,)), (2, 3)), {}), ((make((1, 3)), (2, -1)), {}), ((make(()), (2, 2)), {}), ((make((1,)), (0,)), {})]


def expand_as(make):
    return [((make((3, 1)), make((2, 3, 4))), {}), ((make(()), make((2,))), {})]


def sum_to_size(make):
    return [((make((2, 3, 4)), (3, 1)), {}), ((make((2, 3)), (2, 3)), {}), ((make((2, 3)), (1,)), {})]


def narrow(make):
    return [((make((4, 5)), 0, 1, 2), {}), ((make((4, 5)), -1, -3, 2), {}), ((make((4, 5)), 1, 5, 0), {}), ((make((5, 4)).t(), 0, 0, 4), {})]


def select(make):
    return [((make((4, 5)), 0, 1), {}), ((make((4, 5)), -1, -1), {}), ((make((4,)), 0, 2), {}), ((make((5, 4)).t(), 1, 0), {})]


def _slice(make):
    return [((make((6, 5)), 0, 1, 4), {}), ((make((6, 5)), 1, None, None, 2), {}), ((make((6, 5)), 0, -3), {}), ((make((6, 5)), 0, 5, 2), {})]


def _strided_view(make):
    return [((make((6,)), (2, 3), (3, 1), 0, (3, 1), 0), {})]


def _embed_view(make):
    return [((make((3,)), (4, 3), (3,), (1,), 3), {}), ((make((4,)), (4, 3), (4,), (3,), 1), {}), ((make((2, 2)), (6,), (2, 2), (1, 1), 1), {})]


def _read_view(make):
    return [((make((4, 3)), (3,), (1,), 3), {}), ((make((4, 3)), (4,), (3,), 1), {}), ((make((6,)), (2, 2), (1, 1), 1), {})]


def unfold(make):
    return [((make((7,)), 0, 3, 2), {}), ((make((2, 6)), 1, 2, 1), {}), ((make((6, 2)).t(), -1, 6, 1), {}), ((make((3, 5)), 0, 1, 1), {})]


def _unfold_backward(make):
    return [((make((3, 3)), (7,), 0, 3, 2), {}), ((make((2, 5, 2)), (2, 6), 1, 2, 1), {})]


def as_strided(make):
    return [((make((3, 4)), (2, 2), (4, 1)), {}), ((make((12,)), (3, 3), (2, 1), 1), {}), ((make((3, 4)), (2, 3), (0, 1)), {})]


def diagonal(make):
    return [((make((3, 4)),), {}), ((make((3, 4)), 1), {}), ((make((3, 4)), -1), {}), ((make((2, 3, 4)), 0, 1, 2), {}), ((make((2, 3, 4)), 1, -1, 0), {}), ((make((3, 4)), 9), {})]


def flatten(make):
    return [((make((2, 3, 4)),), {}), ((make((2, 3, 4)), 1), {}), ((make((2, 3, 4)), 0, 1), {}), ((make(()),), {}), ((make((4, 3)).t(),), {}), ((make((0, 3)),), {})]


def unflatten(make):
    return [((make((6, 2)), 0, (2, 3)), {}), ((make((2, 6)), -1, (-1, 2)), {})]


def split(make):
    return [((make((5, 2)), 2), {}), ((make((2, 6)), 3, 1), {}), ((make((5, 2)), 9), {})]


def split_with_sizes(make):
    return [((make((5, 2)), (2, 3)), {}), ((make((2, 6)), (1, 0, 5), 1), {})]


def chunk(make):
    return [((make((5, 2)), 2), {}), ((make((2, 6)), 4, 1), {}), ((make((3,)), 5), {})]


def tensor_split_sections(make):
    return [((make((5, 2)), 2), {}), ((make((2, 7)), 3, 1), {})]


def tensor_split_indices(make):
    return [((make((5, 2)), (1, 3)), {}), ((make((2, 6)), (2, -1), 1), {})]


def tensor_split_tensor(make):
    return [((make((5, 2)), tapegrad.tensor([1, 3])), {}), ((make((5, 2)), tapegrad.tensor(2)), {})]


def hsplit_sections(make):
    return [((make((2, 6)), 3), {}), ((make((6,)), 2), {})]


def hsplit_indices(make):
    return [((make((2, 6)), (1, 4)), {})]


def vsplit_sections(make):
    return [((make((6, 2)), 3), {})]


def vsplit_indices(make):
    return [((make((6, 2)), (1, 4)), {})]


def dsplit_sections(make):
    return [((make((2, 2, 6)), 3), {})]


def dsplit_indices(make):
    return [((make((2, 2, 6)), (1, 4)), {})]


def unbind(make):
    return [((make((3, 2)),), {}), ((make((3, 2)), 1), {}), ((make((2, 3)).t(), -1), {})]


def _complex(make, shape):
    return make(shape, dtype=tapegrad.complex64 if make.dtype == tapegrad.float32 else tapegrad.complex128)


def complex_unary(make):
    return [((_complex(make, (3, 4)),), {}), ((_complex(make, ()),), {}), ((_complex(make, (4, 3)).t(),), {}), ((_complex(make, (0,)),), {})]


def view_as_complex(make):
    return [((make((3, 4, 2)),), {}), ((make((2,)),), {}), ((make((0, 2)),), {})]


def flip(make):
    return [((make((2, 3, 4)), (0,)), {}), ((make((2, 3, 4)), (0, -1)), {}), ((make((4, 3)).t(), (1,)), {}), ((make((0, 3)), (0,)), {})]


def matrix_unary(make):
    return [((make((3, 4)),), {}), ((make((4, 3)).t(),), {}), ((make((0, 2)),), {})]


def roll(make):
    return [((make((3, 4)), 1), {}), ((make((3, 4)), 2, 0), {}), ((make((3, 4)), (1, -2), (0, 1)), {}), ((make((0, 2)), 1, 0), {}), ((make((4, 3)).t(), -1, 1), {})]


def rot90(make):
    return [((make((3, 4)), k), {}) for k in (0, 1, 2, 3, -1)] + [((make((2, 3, 4)), 1, (1, 2)), {})]


def repeat(make):
    return [((make((2, 3)), (2, 2)), {}), ((make((3,)), (2, 1, 2)), {}), ((make((2, 3)), (0, 2)), {}), ((make(()), (3,)), {})]


def tile(make):
    return [((make((2, 3)), (2, 2)), {}), ((make((2, 3)), (2,)), {}), ((make((3,)), (2, 1)), {})]


def _repeat_indices(make):
    return [((tapegrad.tensor([1, 0, 3]),), {}), ((tapegrad.tensor([2, 2]), 4), {})]


def repeat_interleave_tensor(make):
    return [((make((3, 2)), tapegrad.tensor([1, 0, 2]), 0), {}), ((make((3, 2)), tapegrad.tensor([2]), 1), {}), ((make((2, 3)), tapegrad.tensor(2)), {})]


def repeat_interleave_int(make):
    return [((make((3, 2)), 2), {}), ((make((3, 2)), 3, 1), {}), ((make((0, 2)), 2, 0), {})]


def adjoint(make):
    return [((make((3, 4)),), {}), ((make((2, 3, 4)),), {}), ((make((3, 4), dtype=tapegrad.complex128),), {}), ((make((0, 4)),), {})]


def as_strided_scatter(make):
    return [((make((4, 5)), make((2, 3)), (2, 3), (5, 1)), {}), ((make((4, 5)), make((3,)), (3,), (6,), 1), {}), ((make((6,)), make((2, 2)), (2, 2), (3, 1), 1), {})]
