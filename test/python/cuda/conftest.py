"""A process whose device has failed (an address that is not its own, an assertion of a kernel) gets that error from every later
call. Under xdist such a worker ends after the test that did it, and another takes its place."""

import os

import pytest
import tapegrad

_failed = []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if outcome.get_result().failed:
        _failed.append(item.nodeid)


def pytest_runtest_logfinish(nodeid):
    """The reports of the test have been sent then, and xdist has not heard that it is done: the crash counts as this test's, too."""
    if nodeid in _failed and os.environ.get("TAPEGRAD_GPU") and os.environ.get("PYTEST_XDIST_WORKER"):
        try:
            tapegrad.cuda.synchronize()
        except RuntimeError:
            os._exit(1)
