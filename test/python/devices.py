"""The CUDA devices of a machine, of which there may be one or several, for the tests that run on them."""

import pytest
import tapegrad

COUNT = tapegrad.cuda.device_count()
LAST = f"cuda:{max(COUNT - 1, 0)}"  # another one than the current device where there is another
several = pytest.mark.skipif(COUNT < 2, reason="one device")
