"""What the tests that compare with PyTorch have in common."""

import pytest
import tapegrad


@pytest.fixture
def double():
    """Both libraries in double precision, PyTorch's numbers the same in every run."""
    torch = pytest.importorskip("torch")
    before = tapegrad.get_default_dtype(), torch.get_default_dtype()
    tapegrad.set_default_dtype(tapegrad.float64)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    yield
    tapegrad.set_default_dtype(before[0])
    torch.set_default_dtype(before[1])
