"""DataParallel on two simulated devices: what one device gives."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import tapegrad as tg
from tapegrad import nn

def network():
    tg.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)).to("cuda:0")

class Two(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, scale, *, shift=None):
        return {"sum": self.inner(x).sum(1), "out": (self.inner(x) * scale + shift, None)}

x = tg.randn(7, 5)
alone, net = network(), network()
alone.eval(), net.eval()
both = nn.DataParallel(net)
assert both.device_ids == [0, 1]
out = both(x)
assert out.device == tg.device("cuda:0")
tg.testing.assert_close(out, alone(x.to("cuda:0")))
out.square().sum().backward()
alone(x.to("cuda:0")).square().sum().backward()
for a, b in zip(net.parameters(), alone.parameters()):
    tg.testing.assert_close(a.grad, b.grad)
named = nn.DataParallel(Two(net))(x, 2.0, shift=tg.ones(7, 2))
assert named["sum"].shape == (7,) and named["out"][0].shape == (7, 2)
tg.testing.assert_close(named["out"][0], alone(x.to("cuda:0")) * 2 + 1)
with tg.no_grad():
    assert not both(x[:1]).requires_grad and both(x[:1]).shape == (1, 2)
net.train()
before = net[1].running_mean.clone()
both(x)
assert not net[1].running_mean.equal(before)  # the first device's
only = nn.DataParallel(network().cpu(), [1])
assert {p.device for p in only.parameters()} == {tg.device("cuda:1")} and only(x).device == tg.device("cuda:1")
try:
    nn.DataParallel(nn.Linear(1, 1))(tg.ones(2, 1))
except RuntimeError as error:
    assert "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one of them on device: cpu" in str(error)
else:
    raise AssertionError
print("done")
"""


def test_two_devices_equal_one():
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, "TAPEGRAD_CUDA_SIMULATE": "2"}, capture_output=True, text=True, timeout=120)
    if "libtapegrad_cuda" in done.stderr:  # is not there
        pytest.skip("the simulated device is not built: cmake --build build --target tapegrad_cuda_sim")
    assert done.stdout == "done\n", done.stderr
