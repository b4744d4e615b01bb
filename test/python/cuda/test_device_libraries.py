"""What cuFFT and cuSOLVER are asked for: NumPy stands in for them on the simulated device, whose memory it can reach.

Runs where the environment asks for the simulated device, as test_operators.py does; on a real one the libraries answer themselves.
"""

import ctypes
import os
from contextlib import contextmanager

import numpy as np
import pytest
import tapegrad as tg
from device_asked_for import simulated_library

if not os.environ.get("TAPEGRAD_CUDA_SIMULATE"):
    pytest.skip("no simulated device was asked for in the environment", allow_module_level=True)

I64 = ctypes.c_int64
REQUEST = [("between", ctypes.c_uint8), ("wide", ctypes.c_bool), ("forward", ctypes.c_bool), ("rank", ctypes.c_int), ("n", I64 * 3), ("count", I64),
           ("input", ctypes.c_void_p), ("in_step", I64), ("in_dist", I64), ("out", ctypes.c_void_p), ("out_step", I64), ("out_dist", I64)]
EIGEN_REQUEST = [("dtype", ctypes.c_uint8), ("spectrum", ctypes.c_uint8), ("vectors", ctypes.c_bool), ("m", I64), ("n", I64), ("a", ctypes.c_void_p),
                 ("values", ctypes.c_void_p), ("u", ctypes.c_void_p), ("u_columns", I64), ("vh", ctypes.c_void_p), ("info", ctypes.c_void_p)]


class Request(ctypes.Structure):
    _fields_ = REQUEST


class EigenRequest(ctypes.Structure):
    _fields_ = EIGEN_REQUEST


def memory(address, dtype, shape, strides):
    """An array of elements at an address, strides in elements."""
    item = np.dtype(dtype).itemsize
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    flat = np.frombuffer((ctypes.c_char * (extent * item)).from_address(address), dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, [s * item for s in strides])


@contextmanager
def library(symbol, structure, answer):
    """`answer(request)`, which returns whether it did it, in the library's place; gives the list of what was asked."""
    tg.empty(1, device="cuda")
    place = ctypes.c_void_p.in_dll(simulated_library(), symbol)
    asked, errors = [], []

    @ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(structure))
    def call(_, request):
        try:
            tg.cuda.synchronize()  # what was queued before
            asked.append({name: getattr(request.contents, name) for name, _ in structure._fields_})
            simulated_library().tapegrad_simulated_open_memory(1)
            try:
                return answer(request.contents)
            finally:
                simulated_library().tapegrad_simulated_open_memory(0)
        except BaseException as e:
            errors.append(e)
            return False

    place.value = ctypes.cast(call, ctypes.c_void_p).value
    try:
        yield asked
    finally:
        place.value = None
        assert not errors, errors


def transform(r):
    real, cplx = (np.float64, np.complex128) if r.wide else (np.float32, np.complex64)
    n = list(r.n)[: r.rank]
    half = [*n[:-1], n[-1] // 2 + 1]
    axes = tuple(range(1, r.rank + 1))

    def side(address, dtype, sizes, step, dist):
        strides = [step * int(np.prod(sizes[d + 1:])) for d in range(r.rank)]
        return memory(address, dtype, [r.count, *sizes], [dist, *strides])

    x = side(r.input, real if r.between == 1 else cplx, half if r.between == 2 else n, r.in_step, r.in_dist)
    y = side(r.out, real if r.between == 2 else cplx, half if r.between == 1 else n, r.out_step, r.out_dist)
    if r.between == 0:
        y[...] = np.fft.fftn(x, axes=axes) if r.forward else np.fft.ifftn(x, axes=axes) * np.prod(n)
    elif r.between == 1:
        y[...] = np.fft.rfftn(x, axes=axes)
    else:
        y[...] = np.fft.irfftn(x, s=n, axes=axes) * np.prod(n)
        x[...] = np.nan  # as it may
    return True


def numbers(shape, dtype=tg.complex128):
    tg.manual_seed(3)
    x = tg.randn(shape, dtype=tg.float64)
    return (tg.complex(x, tg.randn(shape, dtype=tg.float64)) if dtype.is_complex else x).to(dtype)


def near(got, expected, tolerance=1e-11):
    assert got.shape == expected.shape and got.stride() == expected.stride() and got.dtype == expected.dtype
    tg.testing.assert_close(got.cpu(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("shape", [(6,), (3, 10), (2, 3, 7), (2, 3, 4, 5)], ids=str)
def test_transforms_are_asked_for(shape):
    x = numbers(shape)
    with library("_ZN8tapegrad4cuda3fft7libraryE", Request, transform) as asked:
        for norm in ("backward", "ortho"):
            for d in range(len(shape)):
                for f in (tg.fft.fft, tg.fft.ifft):
                    near(f(x.cuda(), dim=d, norm=norm), f(x, dim=d, norm=norm))
                for f in (tg.fft.rfft, tg.fft.fft, tg.fft.ihfft):
                    near(f(x.real.contiguous().cuda(), dim=d, norm=norm), f(x.real.contiguous(), dim=d, norm=norm))
                for odd in (0, 1):
                    n = 2 * shape[d] - 2 + odd
                    near(tg.fft.irfft(x.cuda(), n, dim=d, norm=norm), tg.fft.irfft(x, n, dim=d, norm=norm))
        before = len(asked)
        near(tg.fft.fftn(x.cuda()), tg.fft.fftn(x))
        assert [r["rank"] for r in asked[before:]] == ([len(shape)] if len(shape) <= 3 else [3, 1])
        narrow = numbers(shape, tg.complex64)
        near(tg.fft.ifftn(narrow.cuda()), tg.fft.ifftn(narrow), 1e-6)
    assert before == 14 * sum(1 if d == len(shape) - 1 else int(np.prod(shape[:d])) for d in range(len(shape)))
    assert {r["wide"] for r in asked} == {True, False} and {r["between"] for r in asked} == {0, 1, 2}


def test_what_a_library_refuses_and_what_it_is_not_asked():
    x = numbers((4, 20, 3))
    with library("_ZN8tapegrad4cuda3fft7libraryE", Request, lambda r: False) as asked:
        near(tg.fft.fftn(x.cuda()), tg.fft.fftn(x))
        near(tg.fft.irfft(x.cuda(), dim=1), tg.fft.irfft(x, dim=1))
        assert len(asked) > 0
        count = len(asked)
        near(tg.fft.fft(x.mT.cuda().mT[:, ::2], dim=1), tg.fft.fft(x.mT.contiguous().mT[:, ::2], dim=1))
        assert len(asked) == count  # not contiguous
    # Later parts of real numbers may be refused, as those at odd addresses are.
    answers = iter([True, True, False, True, False])
    with library("_ZN8tapegrad4cuda3fft7libraryE", Request, lambda r: next(answers) and transform(r)) as asked:
        near(tg.fft.rfft(x.real.contiguous().cuda(), dim=1), tg.fft.rfft(x.real.contiguous(), dim=1))
        near(tg.fft.irfft(x.cuda(), dim=1), tg.fft.irfft(x, dim=1))
        assert len(asked) == 5


SINGULAR, HERMITIAN, GENERAL = range(3)


def packed(w, v):
    """As LAPACK's geev gives those of real matrices: pairs of conjugate values, the one above the axis first, whose columns are the first vector's parts."""
    order = sorted(range(len(w)), key=lambda i: (w[i].real, abs(w[i].imag), -w[i].imag))
    w, v = w[order], v[:, order]
    columns = v.real.copy()
    for j in np.flatnonzero(w.imag > 0):
        w[j + 1] = w[j].conj()
        columns[:, j + 1] = v[:, j].imag
    return w, columns


def decompose(r):
    name, real = {tg.float32: (np.float32, np.float32), tg.float64: (np.float64, np.float64), tg.complex64: (np.complex64, np.float32),
                  tg.complex128: (np.complex128, np.float64)}[DTYPES[r.dtype]]
    a = memory(r.a, name, (r.m, r.n), (1, r.m))
    values = memory(r.values, np.result_type(real, np.complex64) if r.spectrum == GENERAL else real, (r.n,), (1,))
    if r.spectrum == GENERAL:
        w, v = np.linalg.eig(a)
        if name is real:
            w, v = packed(w.astype(complex), v.astype(complex))
        values[...] = w
        if r.vectors:
            memory(r.u, name, (r.n, r.u_columns), (1, r.n))[...] = v
        a[...] = np.nan  # as it may
    elif r.spectrum == HERMITIAN:
        w, v = np.linalg.eigh(a, "L")
        values[...] = w
        if r.vectors:
            a[...] = v
    else:
        u, s, vh = np.linalg.svd(a, full_matrices=r.u_columns == r.m)
        values[...] = s
        if r.vectors:
            memory(r.u, name, (r.m, r.u_columns), (1, r.m))[...] = u
            memory(r.vh, name, (r.n, r.n), (1, r.n))[...] = vh
        a[...] = np.nan  # as it may
    memory(r.info, np.int32, (1,), (1,))[...] = 0
    return True


DTYPES = {}  # by the number that kernels know them by


def learn(dtype):
    """The number of a dtype: of what is asked for a matrix of it."""
    def first(r):
        DTYPES[r.dtype] = dtype
        return decompose(r)
    with library("_ZN8tapegrad4cuda13eigen_libraryE", EigenRequest, first):
        near(tg.linalg.eigvalsh(tg.eye(65, dtype=dtype).cuda()), tg.ones(65, dtype=tg.float32 if dtype in (tg.float32, tg.complex64) else tg.float64))


@pytest.mark.parametrize("dtype", [tg.float64, tg.complex64], ids=str)
def test_spectra_of_large_matrices_are_asked_for(dtype):
    learn(dtype)
    tolerance = 1e-3 if dtype == tg.complex64 else 1e-10
    with library("_ZN8tapegrad4cuda13eigen_libraryE", EigenRequest, decompose) as asked:
        for shape in ((2, 70, 66), (66, 70), (65, 65)):
            a = numbers(shape, dtype)
            for full in (False, True):
                u, s, vh = tg.linalg.svd(a.cuda(), full_matrices=full)
                expected = tg.linalg.svd(a, full_matrices=full)
                assert (u.shape, u.stride(), vh.shape, vh.stride()) == (expected[0].shape, expected[0].stride(), expected[2].shape, expected[2].stride())
                near(s, expected[1], tolerance)
                k = s.shape[-1]
                near(((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :]).contiguous(), a, tolerance)
                for q in (u, vh.mH):
                    near(q.mH @ q, tg.eye(q.shape[-1], dtype=dtype).expand(*q.shape[:-2], -1, -1).contiguous(), tolerance)
            near(tg.linalg.svdvals(a.cuda()), expected[1], tolerance)
        for uplo in "LU":
            w, v = tg.linalg.eigh(a.cuda(), uplo)
            near(w, tg.linalg.eigvalsh(a, uplo), tolerance)
            near(tg.linalg.eigvalsh(a.cuda(), uplo), tg.linalg.eigvalsh(a, uplo), tolerance)
            whole = a.tril(-1) + a.tril(-1).mH if uplo == "L" else a.triu(1) + a.triu(1).mH
            whole = whole + tg.diag(a.diagonal().real.to(dtype) if dtype.is_complex else a.diagonal())
            near(((v * w.unsqueeze(-2)) @ v.mH).contiguous(), whole, tolerance)
        assert len(asked) == 3 * (2 + 1 + 1) + 4
        assert {r["spectrum"] for r in asked} == {SINGULAR, HERMITIAN}
        a[0, 1] = float("nan")
        with pytest.raises(tg.linalg.LinAlgError, match="linalg.svd: the matrix has infinite elements or NaN"):
            tg.linalg.svd(a.cuda())
        before = len(asked)
        tg.linalg.svdvals(numbers((3, 4, 4), dtype).cuda())
        assert len(asked) == before  # small


def in_order(w):
    return tg.tensor(sorted(w.cpu().tolist(), key=lambda x: (round(x.real, 2), x.imag)), dtype=w.dtype)


@pytest.mark.parametrize("dtype", [tg.float32, tg.float64, tg.complex64, tg.complex128], ids=str)
def test_spectra_of_large_general_matrices_are_asked_for(dtype):
    learn(dtype)
    tolerance = 2e-3 if dtype in (tg.float32, tg.complex64) else 1e-9
    a = numbers((2, 66, 66), dtype)
    wide = tg.complex64 if dtype in (tg.float32, tg.complex64) else tg.complex128
    with library("_ZN8tapegrad4cuda13eigen_libraryE", EigenRequest, decompose) as asked:
        for x in (a, a.mT, a[1]):
            w, v = tg.linalg.eig(x.cuda())
            near((v * w.unsqueeze(-2)).contiguous().cpu(), (x.to(wide) @ v.cpu()).contiguous(), tolerance)
            near(tg.linalg.vector_norm(v, dim=-2).cpu(), tg.ones(w.shape, dtype=w.real.dtype), tolerance)
        near(in_order(w), in_order(tg.linalg.eigvals(x)), tolerance)
        assert (v.shape, v.stride(), v.dtype, w.dtype) == ((66, 66), (1, 66), wide, wide)
        near(in_order(tg.linalg.eigvals(x.cuda())), in_order(w), tolerance)
        assert [r["vectors"] for r in asked] == [True] * 5 + [False] and {r["spectrum"] for r in asked} == {GENERAL}
        bad = a.clone()
        bad[1, 3, 60] = float("inf")
        with pytest.raises(tg.linalg.LinAlgError, match=r"linalg.eig: \(Batch element 1\): the matrix has infinite elements or NaN"):
            tg.linalg.eig(bad.cuda())
        before = len(asked)
        tg.linalg.eig(a[0, :20, :20].cuda())
        assert len(asked) == before  # small

    def does_not_converge(r):
        decompose(r)
        memory(r.info, np.int32, (1,), (1,))[...] = 7
        return True
    with library("_ZN8tapegrad4cuda13eigen_libraryE", EigenRequest, does_not_converge), \
            pytest.raises(tg.linalg.LinAlgError, match="linalg.eigvals: the algorithm did not converge: LAPACK says 7"):
        tg.linalg.eigvals(a[0].cuda())
    # What it refuses our own kernel does.
    with library("_ZN8tapegrad4cuda13eigen_libraryE", EigenRequest, lambda r: False) as asked:
        near(in_order(tg.linalg.eigvals(a[0].cuda())), in_order(tg.linalg.eigvals(a[0])), tolerance)
        assert len(asked) == 1
