"""DistributedDataParallel against PyTorch's over gloo: the same scenarios in as many processes, the same numbers on every rank."""

import numpy as np
import pytest
from distributed.data_parallel import ddp_scenarios
from distributed.ranks import results, run_ranks

# 16 bits: the sums are rounded once here and at every addition there.
TOLERANCE = {"hook_fp16": 2e-3, "hook_bf16": 2e-2, "hook_wrapped": 2e-2}


def compare(found, expected, tolerance, where):
    assert type(found) is type(expected) or isinstance(found, (np.ndarray, np.floating)), where
    if isinstance(found, list):
        assert len(found) == len(expected), where
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            compare(a, b, tolerance, f"{where}[{i}]")
    elif found is None:
        assert expected is None, where
    else:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=where)


OF_THREE = ["plain", "unused"]
OF_TWO = [s.__name__ for s in ddp_scenarios.PEERS if s.__name__ not in OF_THREE]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What each rank of each library gives, by scenario."""
    pytest.importorskip("torch")
    ours, theirs = {}, {}
    for size, scenarios in ((3, OF_THREE), (2, OF_TWO)):
        store = str(tmp_path_factory.mktemp("store") / "file")
        for ranks, found in ((run_ranks(size, ddp_scenarios.run, "tapegrad", scenarios, "", timeout=200), ours),
                             (run_ranks(size, ddp_scenarios.run, "torch", scenarios, store, world=False, timeout=200), theirs)):
            of_ranks = results(ranks)
            found.update({scenario: [r[scenario] for r in of_ranks] for scenario in scenarios})
    return ours, theirs


@pytest.mark.parametrize("scenario", OF_THREE + OF_TWO)
def test_same_as_pytorch(scenario, both):
    ours, theirs = both
    for rank, (found, expected) in enumerate(zip(ours[scenario], theirs[scenario], strict=True)):
        compare(found, expected, TOLERANCE.get(scenario, 2e-6), f"rank {rank}")
