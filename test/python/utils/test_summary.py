"""tapegrad.summary and the counter of operations."""

import pytest
import tapegrad
from tapegrad import nn
from tapegrad.utils.flop_counter import FlopCounterMode, register_flop_formula


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8 * 16, 5)
        self.unused = nn.Linear(2, 2)

    def forward(self, x, scale=1.0):
        return self.head(self.features(x).flatten(1)) * scale


def test_summary():
    net = Net()
    net.head.bias.requires_grad_(False)
    net.features[1].eval()
    mean, state = net.features[1].running_mean.clone(), tapegrad.get_rng_state()
    result = tapegrad.summary(net, tapegrad.randn(2, 3, 4, 4), scale=2.0)
    rows = {r.name: r for r in result.rows}
    assert list(rows) == ["", "features", "features.0", "features.1", "features.2", "features.3", "head", "unused"]
    assert rows["features.0"].output_shape == [2, 8, 4, 4] and rows["head"].input_shape == [2, 128] and rows["unused"].output_shape is None
    assert (rows["features.0"].parameters, rows["head"].parameters, rows["head"].trainable) == (8 * 27 + 8, 645, 640)
    assert result.total_params == sum(p.numel() for p in net.parameters()) and result.total_params - result.trainable_params == 5
    assert rows["features.0"].mult_adds == 2 * 8 * 16 * 27 and rows["head"].mult_adds == 2 * 128 * 5
    assert result.total_mult_adds == 2 * 8 * 16 * 27 + 2 * 128 * 5
    assert (result.input_bytes, result.param_bytes) == (2 * 3 * 16 * 4, result.total_params * 4)
    assert result.output_bytes == 4 * (4 * 2 * 8 * 16 + 2 * 5)
    text = str(result)
    assert "features: Sequential" in text and "[2, 8, 4, 4]" in text and "Multiply-adds: 8,192" in text and "Memory (MB)" in text
    # and the model is as before
    assert net.training and not net.features[1].training and net.features[1].running_mean.equal(mean)
    assert tapegrad.get_rng_state()[:16].equal(state[:16]) and not net._forward_hooks and net.head.weight.grad is None


def test_summary_depth_and_without_input():
    net = Net()
    short = tapegrad.summary(net, tapegrad.randn(1, 3, 4, 4), depth=1)
    assert "Conv2d" not in str(short) and f"{8 * 27 + 8 + 16:,}" in str(short)
    nothing = tapegrad.summary(net)
    assert nothing.total_mult_adds is None and "Multiply-adds: --" in str(nothing) and nothing.total_params == short.total_params


def test_summary_of_shared_modules_and_under_a_profiler():
    layer = nn.Linear(4, 4)
    net = nn.Sequential(layer, nn.Tanh(), layer)
    result = tapegrad.summary(net, tapegrad.ones(2, 4))
    assert result.total_params == 20 and result.total_mult_adds == 2 * 2 * 16 and "(x2)" in str(result)
    with tapegrad.profiler.profile():
        assert tapegrad.summary(net, tapegrad.ones(2, 4)).total_mult_adds is None


def test_flop_counter():
    net = Net().eval()
    x = tapegrad.randn(2, 3, 4, 4)
    with FlopCounterMode(display=False) as counter:
        net(x).sum().backward()
    counts = counter.get_flop_counts()
    conv, linear = 2 * 2 * 8 * 16 * 27, 2 * 2 * 128 * 5
    assert counter.get_total_flops() == 2 * conv + 3 * linear  # the input asks for no gradient
    assert sum(counts["Net.features.0"].values()) == 2 * conv and sum(counts["Net.head"].values()) == 3 * linear
    assert sum(counts["Net"].values()) == counter.get_total_flops() == sum(counts["Global"].values())
    assert "Net.head" in counter.get_table() and "% Total" in counter.get_table(1) and "Net.features.0" not in counter.get_table(1)


def test_flop_counter_against_torch(capsys):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode as Theirs

    totals = []
    for lib, mode in ((tapegrad, FlopCounterMode), (torch, Theirs)):
        net = lib.nn.Sequential(lib.nn.Conv2d(4, 6, 3, stride=2), lib.nn.ConvTranspose2d(6, 4, 3, stride=2), lib.nn.Flatten(), lib.nn.Linear(4 * 81, 7))
        with mode(display=lib is tapegrad) as counter:
            net(lib.ones(2, 4, 9, 9, requires_grad=True)).square().sum().backward()
            lib.bmm(lib.ones(3, 4, 5), lib.ones(3, 5, 6))
            lib.nn.functional.scaled_dot_product_attention(lib.ones(1, 2, 6, 4), lib.ones(1, 2, 8, 4), lib.ones(1, 2, 8, 3))
        totals.append(counter.get_total_flops())
    assert totals[0] == totals[1]
    assert "Global" in capsys.readouterr().out


def test_own_formulas():
    from tapegrad.utils import flop_counter

    try:
        @register_flop_formula(["aten.exp", tapegrad.sin])
        def one_each(shape, *args, **kwargs):
            return shape[0] * 10

        with FlopCounterMode(display=False, custom_mapping={"aten::cos": lambda shape: 1000}) as counter:
            tapegrad.ones(3).exp().sin().cos()
        assert counter.get_total_flops() == 30 + 30 + 1000
    finally:
        flop_counter.flop_registry.clear()
    assert flop_counter.mm_flop((2, 3), (3, 4)) == 48 and flop_counter.addmm_flop((4,), (2, 3), (3, 4)) == 48
    assert flop_counter.sdpa_flop_count((1, 2, 6, 4), (1, 2, 8, 4), (1, 2, 8, 3)) == 2 * 2 * 6 * 8 * 7
    assert flop_counter.conv_flop_count((2, 3, 5, 5), (4, 3, 3, 3), (2, 4, 3, 3)) == 2 * 2 * 9 * 108
