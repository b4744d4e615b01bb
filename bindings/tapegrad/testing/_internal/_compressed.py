"""Random sparse tensors in compressed layouts, which tests of PyTorch ask their TestCase for: methods of it."""

import itertools
import random
import sys

_tg = sys.modules[__package__.partition(".")[0]]


def _least_size(t) -> tuple:
    names = ("ccol_indices", "row_indices") if t.layout in (_tg.sparse_csc, _tg.sparse_bsc) else ("crow_indices", "col_indices")
    return tuple(_tg.sparse_compressed_tensor(*(getattr(t, name)() for name in names), t.values(), layout=t.layout).shape)


class CompressedInputs:
    @staticmethod
    def _make_crow_indices(n_rows, n_cols, nnz, *, device, index_dtype, random=True, **_):
        """Where rows begin that have nnz entries together, none more than n_cols."""
        if not 0 <= nnz <= n_rows * n_cols:
            raise AssertionError(f"expected at most {n_rows * n_cols} entries: got {nnz}")
        starts = _tg.zeros(n_rows + 1, dtype=index_dtype, device=device)
        if n_rows:
            places = _tg.randperm(n_rows * n_cols)[:nnz] // max(n_cols, 1) if random else _tg.arange(nnz) % n_rows
            starts[1:] = _tg.bincount(places, minlength=n_rows).cumsum(0).to(index_dtype).to(device)
        return starts

    def genSparseCompressedTensor(self, size, nnz, *, layout, device, dtype, index_dtype, blocksize=(), dense_dims=0):
        from .. import make_tensor

        blocks = tuple(blocksize) or (1, 1)
        dims = len(size) - dense_dims
        grid = [size[dims - 2] // blocks[0], size[dims - 1] // blocks[1]]
        columns = layout in (_tg.sparse_csc, _tg.sparse_bsc)
        n, other = grid[::-1] if columns else grid
        batch, entries = tuple(size[:dims - 2]), nnz // (blocks[0] * blocks[1])
        starts, others = [], []
        for _ in itertools.product(*map(range, batch)):
            start = self._make_crow_indices(n, other, entries, device=device, index_dtype=index_dtype)
            starts.append(start)
            rows = [_tg.randperm(other)[:count].sort().values for count in start.diff().tolist()]
            others.append(_tg.cat(rows or [_tg.zeros(0, dtype=_tg.int64)]).to(index_dtype).to(device))
        values = make_tensor((*batch, entries, *blocksize, *size[dims:]), device=device, dtype=dtype, low=-1, high=1)
        return _tg.sparse_compressed_tensor(_tg.stack(starts).reshape(*batch, -1), _tg.stack(others).reshape(*batch, entries), values, tuple(size), layout=layout)

    def genSparseCSRTensor(self, size, nnz, *, device, dtype, index_dtype, dense_dims=0):
        return self.genSparseCompressedTensor(size, nnz, layout=_tg.sparse_csr, device=device, dtype=dtype, index_dtype=index_dtype, dense_dims=dense_dims)

    def genSparseCSCTensor(self, size, nnz, *, device, dtype, index_dtype, dense_dims=0):
        return self.genSparseCompressedTensor(size, nnz, layout=_tg.sparse_csc, device=device, dtype=dtype, index_dtype=index_dtype, dense_dims=dense_dims)

    def genSparseBSRTensor(self, size, blocksize, nnz, *, device, dtype, index_dtype, dense_dims=0):
        return self.genSparseCompressedTensor(size, nnz, layout=_tg.sparse_bsr, device=device, dtype=dtype, index_dtype=index_dtype, blocksize=blocksize, dense_dims=dense_dims)

    def genSparseBSCTensor(self, size, blocksize, nnz, *, device, dtype, index_dtype, dense_dims=0):
        return self.genSparseCompressedTensor(size, nnz, layout=_tg.sparse_bsc, device=device, dtype=dtype, index_dtype=index_dtype, blocksize=blocksize, dense_dims=dense_dims)

    def generate_simple_inputs(self, layout, device=None, dtype=None, index_dtype=None, pin_memory=None, members_pin_memory=None, enable_batch=True, enable_hybrid=True,
                               enable_zero_sized=True, enable_non_contiguous_indices=True, enable_non_contiguous_values=True, enable_batch_variable_nse=False,
                               output_tensor=True, patterns=None):
        """Small tensors of a layout, plain, in batches, with dense dimensions and empty ones; without output_tensor what makes them: ((indices
        ..., values), {device, dtype, size})."""
        if layout not in (_tg.sparse_csr, _tg.sparse_csc, _tg.sparse_bsr, _tg.sparse_bsc):
            raise NotImplementedError(f"generate_simple_inputs: of layout {layout} none are made here")
        blocks = (2, 1) if layout in (_tg.sparse_bsr, _tg.sparse_bsc) else ()
        index_dtype, dtype = index_dtype or _tg.int64, dtype or _tg.get_default_dtype()
        for batch, dense, empty in itertools.product(((), (2,), (2, 3)) if enable_batch else ((),), ((), (2,), (4, 3)) if enable_hybrid else ((),), (False, True)[:1 + enable_zero_sized]):
            columns_first = layout in (_tg.sparse_csc, _tg.sparse_bsc)
            sizes = [(0, 0), (0, 4) if columns_first else (4, 0)] if empty else [(4, 3), (6, 2)]
            for rows, columns in sizes:
                nnz = 0 if empty else 2 * (blocks[0] if blocks else 1) * random.randint(1, 2)
                size = (*batch, rows, columns, *dense)
                t = None
                while t is None or _least_size(t) != size:  # which is to follow from the parts
                    t = self.genSparseCompressedTensor((*batch, rows, columns, *dense), nnz, layout=layout, device=device, dtype=dtype, index_dtype=index_dtype, blocksize=blocks, dense_dims=len(dense))
                if output_tensor:
                    yield t
                    continue
                names = ("ccol_indices", "row_indices") if layout in (_tg.sparse_csc, _tg.sparse_bsc) else ("crow_indices", "col_indices")
                parts = tuple(getattr(t, name)() for name in names) + (t.values(),)
                yield parts, {"device": device, "dtype": dtype, "size": tuple(t.shape)}
