"""Layers written by hand, and those that learn their sizes from the first input, against PyTorch."""

import copy
import inspect

import pytest
import tapegrad as tg
from tapegrad import nn
from twins import close, compare, ours, take_weights, torch


def pair(kind, *args, **kwargs):
    torch.manual_seed(0)
    return getattr(nn, kind)(*ours(args), **{k: ours(v) for k, v in kwargs.items()}), getattr(torch.nn, kind)(*args, **kwargs)


@pytest.mark.parametrize("name", ["EmbeddingBag", "MaxUnpool1d", "MaxUnpool2d", "FractionalMaxPool2d", "CTCLoss", "AdaptiveLogSoftmaxWithLoss",
                                  "TripletMarginWithDistanceLoss", "CrossMapLRN2d", "MultiheadAttention", "TransformerEncoderLayer",
                                  "TransformerDecoderLayer", "TransformerEncoder", "TransformerDecoder", "Transformer", "RNNBase", "LazyLinear",
                                  "SyncBatchNorm", "LinearCrossEntropyLoss"])
def test_signatures(name):
    def names(cls):
        return list(inspect.signature(cls.__init__).parameters)
    assert names(getattr(nn, name)) == names(getattr(torch.nn, name))
    assert list(inspect.signature(getattr(nn, name).forward).parameters) == list(inspect.signature(getattr(torch.nn, name).forward).parameters)


@pytest.mark.parametrize("options", [{}, {"mode": "sum"}, {"mode": "max"}, {"padding_idx": 2}, {"mode": "sum", "padding_idx": -1, "max_norm": 1.0},
                                     {"norm_type": 3.0}], ids=str)
def test_embedding_bag(options):
    mine, theirs = pair("EmbeddingBag", 6, 3, **options)
    compare(mine, theirs, (torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2, 2])))
    mine, theirs = pair("EmbeddingBag", 6, 3, **options)
    compare(mine, theirs, (torch.tensor([[1, 2], [4, 4]]),))


def test_embedding_bag_variants():
    mine, theirs = pair("EmbeddingBag", 6, 3, mode="sum", include_last_offset=True)
    compare(mine, theirs, (torch.tensor([1, 2, 4, 5]), torch.tensor([0, 3, 4]), torch.rand(4, requires_grad=True)))
    table = torch.randn(4, 2)
    a, b = nn.EmbeddingBag.from_pretrained(ours(table)), torch.nn.EmbeddingBag.from_pretrained(table)
    assert repr(a) == repr(b)
    assert not a.weight.requires_grad
    close(a(tg.tensor([[0, 3]])), b(torch.tensor([[0, 3]])), "pretrained")


def test_embedding_bag_gradient_by_frequency():
    """PyTorch divides by the frequency of a neighbouring index; here it is the row's own."""
    weight = tg.zeros(6, 2, requires_grad=True)
    nn.functional.embedding_bag(tg.tensor([[1, 2], [0, 0], [5, 1]]), weight, mode="sum", scale_grad_by_freq=True).sum().backward()
    assert weight.grad[:, 0].tolist() == [1, 1, 1, 0, 0, 1]


@pytest.mark.parametrize(("args", "kwargs", "error"), [
    ((([[0, 1]]), [0]), {}, ValueError), (([0, 1], None), {}, ValueError), (([0, 9], [0]), {}, RuntimeError), (([0, -1], [0]), {}, RuntimeError), (([0, 1], [1]), {}, RuntimeError),
    (([0, 1], [0, 3]), {}, RuntimeError)])
def test_embedding_bag_mistakes(args, kwargs, error):
    with pytest.raises(error):
        torch.nn.functional.embedding_bag(torch.tensor(args[0]), torch.zeros(3, 2), *(torch.tensor(a) if a is not None else None for a in args[1:]), **kwargs)
    with pytest.raises(error):
        nn.functional.embedding_bag(tg.tensor(args[0]), tg.zeros(3, 2), *(tg.tensor(a) if a is not None else None for a in args[1:]), **kwargs)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_max_unpool(d):
    x = torch.randn(2, 3, *[6] * d)
    pool = getattr(torch.nn, f"MaxPool{d}d")(2, stride=2, return_indices=True)
    values, indices = pool(x)
    mine, theirs = pair(f"MaxUnpool{d}d", 2, stride=2)
    compare(mine, theirs, (values.requires_grad_(), indices))
    close(mine(ours(values.detach()), ours(indices), output_size=[2, 3, *[6] * d]), theirs(values, indices, output_size=x.size()), "output_size")


@pytest.mark.parametrize("d", [2, 3])
def test_fractional_max_pool(d):
    samples = torch.rand(2, 3, d)
    for kwargs in ({"output_size": 3}, {"output_ratio": [0.5] * d}, {"output_size": 4, "return_indices": True}):
        mine, theirs = pair(f"FractionalMaxPool{d}d", 2, _random_samples=samples, **kwargs)
        compare(mine, theirs, (torch.randn(2, 3, *[8] * d, requires_grad=True),))
    drawn = nn.FractionalMaxPool2d(2, output_size=3)(tg.randn(1, 1, 9, 9))
    assert tuple(drawn.shape) == (1, 1, 3, 3)
    with pytest.raises(ValueError, match="requires specifying either an output size, or a pooling ratio"):
        nn.FractionalMaxPool2d(2)


CTC = [({}, (9, 8, 9), (4, 2, 3)), ({"reduction": "none"}, (9, 8, 9), (4, 2, 3)), ({"reduction": "sum", "zero_infinity": True}, (9, 3, 0), (4, 4, 1)),
       ({"blank": 3}, (9, 9, 9), (0, 2, 4))]


@pytest.mark.parametrize(("options", "lengths", "wanted"), CTC, ids=str)
def test_ctc(options, lengths, wanted):
    mine, theirs = pair("CTCLoss", **options)
    targets = torch.tensor([[1, 2, 2, 1], [2, 1, 1, 1], [1, 0, 2, 2]])
    if options.get("blank") != 3:
        targets = targets + (targets == 0).long()
    logits = torch.randn(9, 3, 4, dtype=torch.float64, requires_grad=True)
    my_logits = ours(logits)
    want = theirs(logits.log_softmax(2), targets, lengths, wanted)
    got = mine(my_logits.log_softmax(2), ours(targets), lengths, wanted)
    close(got, want, "loss")
    want.sum().backward()
    got.sum().backward()
    close(my_logits.grad, logits.grad, "gradient", atol=1e-9)
    flat = torch.cat([row[:n] for row, n in zip(targets, wanted, strict=True)])
    close(mine(my_logits.log_softmax(2), ours(flat), tg.tensor(lengths), tg.tensor(wanted)), want, "targets one after the other")


def test_ctc_gradient_by_differences():
    x = tg.randn(5, 2, 3, dtype=tg.float64, requires_grad=True)
    targets = tg.tensor([[1, 1], [2, 1]])
    assert tg.autograd.gradcheck(lambda t: nn.functional.ctc_loss(t.log_softmax(2), targets, (5, 4), (2, 1), reduction="none"), (x,))
    grad, = tg.autograd.grad(nn.functional.ctc_loss(x.log_softmax(2), targets, (5, 4), (2, 1)), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="ctc_loss: its gradient cannot be differentiated again"):
        grad.sum().backward()


@pytest.mark.parametrize(("targets", "lengths", "wanted", "kwargs"), [
    ([[1, 2]], (6,), (2,), {}), ([[1, 2]], (5,), (3,), {}), ([[1, 2]], (5, 5), (2,), {}), ([[1, 2]], (5,), (2,), {"blank": 4}), ([1, 2], (5,), (3,), {}),
    ([[1, 7]], (5,), (2,), {}), ([[1, -1]], (5,), (2,), {}), ([[1, 2]], (-1,), (2,), {}), ([[1, 2]], (5,), (-2,), {})])
def test_ctc_mistakes(targets, lengths, wanted, kwargs):
    with pytest.raises(RuntimeError, match="ctc_loss: "):
        nn.functional.ctc_loss(tg.zeros(5, 1, 4).log_softmax(2), tg.tensor(targets), lengths, wanted, **kwargs)


def test_adaptive_log_softmax():
    mine, theirs = pair("AdaptiveLogSoftmaxWithLoss", 8, 20, [4, 10, 15], div_value=2.0, head_bias=True)
    x, target = torch.randn(6, 8, requires_grad=True), torch.tensor([0, 3, 5, 12, 19, 4])
    compare(mine, theirs, (x, target))
    with torch.no_grad(), tg.no_grad():
        close(mine.log_prob(ours(x.detach())), theirs.log_prob(x), "log_prob")
        assert mine.predict(ours(x.detach())).tolist() == theirs.predict(x).tolist()
        close(mine(ours(x.detach())[0], tg.tensor(12)), theirs(x[0], torch.tensor(12)), "one sample")
    with pytest.raises(RuntimeError, match="Target values should be in"):
        mine(tg.zeros(1, 8), tg.tensor([20]))


def test_other_losses_and_norms():
    mine, theirs = pair("TripletMarginWithDistanceLoss", swap=True, margin=0.7)
    compare(mine, theirs, tuple(torch.randn(4, 5, requires_grad=True) for _ in range(3)))
    mine, theirs = pair("LinearCrossEntropyLoss", 5, 3, bias=True)
    compare(mine, theirs, (torch.randn(4, 5, requires_grad=True), torch.tensor([0, 2, 1, 1])))
    mine, theirs = pair("LinearCrossEntropyLoss", 5, 3, out_features=(2,), reduction="sum")
    compare(mine, theirs, (torch.randn(4, 5, requires_grad=True), torch.randint(0, 3, (4, 2))))
    mine, theirs = pair("CrossMapLRN2d", 3, alpha=0.1)
    compare(mine, theirs, (torch.randn(2, 5, 3, 3),))
    layer = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)))
    assert isinstance(layer[1], nn.SyncBatchNorm)
    assert tuple(layer(tg.randn(2, 1, 3, 3)).shape) == (2, 2, 3, 3)


def test_rrelu_in_training():
    tg.manual_seed(0)
    x = -tg.ones(1000)
    y = nn.RReLU()(x)
    assert float(y.min()) >= -1 / 3 and float(y.max()) <= -1 / 8 and 0.01 < float(y.std())
    assert tg.allclose(nn.RReLU().eval()(x), tg.full((1000,), -(1 / 8 + 1 / 3) / 2))
    z = x.clone()
    assert nn.functional.rrelu_(z, training=True) is z and not tg.equal(z, x)


LAZY = [("LazyLinear", (4,), (3, 5)), ("LazyLinear", (4, False), (3, 5)), ("LazyConv1d", (4, 3), (2, 3, 7)), ("LazyConv2d", (4, 3, 2, 1, 1, 1, False), (2, 3, 7, 7)),
        ("LazyConv3d", (4, 2), (1, 3, 4, 4, 4)), ("LazyConvTranspose1d", (4, 3), (2, 3, 7)), ("LazyConvTranspose2d", (4, 3, 2, 1, 1, 1, False), (2, 3, 5, 5)),
        ("LazyConvTranspose3d", (4, 2), (1, 3, 4, 4, 4)), ("LazyBatchNorm1d", (), (4, 3)), ("LazyBatchNorm2d", (), (2, 3, 4, 4)),
        ("LazyBatchNorm3d", (), (2, 3, 2, 2, 2)), ("LazyInstanceNorm1d", (), (2, 3, 5)), ("LazyInstanceNorm2d", (1e-5, 0.1, True, True), (2, 3, 4, 4)),
        ("LazyInstanceNorm3d", (), (2, 3, 2, 2, 2))]


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(("kind", "args", "shape"), LAZY, ids=str)
def test_lazy(kind, args, shape):
    mine, theirs = pair(kind, *args)
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert mine.has_uninitialized_params()
    x = torch.randn(shape)
    parameters = list(mine.parameters())
    mine(ours(x))
    theirs(x)
    assert type(mine).__name__ == kind[4:] == type(theirs).__name__
    assert all(a is b and type(a) is nn.Parameter for a, b in zip(parameters, mine.parameters(), strict=True))
    mine, theirs = mine.eval(), theirs.eval()
    compare(mine, theirs, (x,))


def test_lazy_loads_and_copies():
    lazy = nn.LazyLinear(2)
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        lazy.weight.shape  # noqa: B018
    assert repr(lazy.weight) == "<UninitializedParameter>"
    copied = copy.deepcopy(lazy)
    assert copied.has_uninitialized_params()
    copied.load_state_dict(nn.Linear(3, 2).state_dict())
    assert not copied.has_uninitialized_params()
    assert tuple(copied(tg.randn(5, 3)).shape) == (5, 2)
    with pytest.raises(RuntimeError, match="Expected 2D \\(unbatched\\) or 3D \\(batched\\) input"):
        nn.LazyConv1d(2, 3)(tg.randn(3))


def test_what_has_no_shape_is_not_computed_with():
    lazy = nn.LazyBatchNorm1d()
    for t in (lazy.weight, lazy.running_mean):
        for call in (lambda t: t + 1, tg.sum, tg.empty_like, lambda t: tg.add(1.0, t), lambda t: t.numel(), lambda t: t[0], lambda t: t.add_(1)):
            with pytest.raises(ValueError, match="^Attempted to use an uninitialized parameter in "):
                call(t)
        assert t.dtype == tg.float32 and t.device.type == "cpu" and t.size() == (0,) and not t.is_complex() and hash(t) == hash(t)
    assert lazy.double().weight.dtype == tg.float64 and lazy.running_mean.dtype == tg.float64
    with pytest.raises(ValueError, match="uninitialized parameter"):
        tg.optim.SGD(lazy.parameters(), lr=0.1, momentum=0.9).param_groups[0]["params"][0].square().sum().backward()
    assert lazy(tg.randn(3, 2).double()).shape == (3, 2) and lazy.weight.numel() == 2


def test_weights_go_both_ways():
    mine, theirs = pair("LSTM", 3, 4, 2)
    take_weights(mine, theirs)
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in mine.state_dict().items()})


@pytest.mark.parametrize("name", ["_InstanceNorm", "_BatchNorm"])
@pytest.mark.parametrize("options", [{}, {"affine": True, "track_running_stats": True}, {"affine": False, "momentum": None}, {"bias": False, "affine": True}])
def test_bases_of_norms_make_what_pytorch_s_make(name, options):
    """Classes of other libraries derive from them and call them as PyTorch's."""
    if torch is None:
        pytest.skip("compares with torch")
    own, theirs = getattr(tg.nn.modules.instancenorm if "Inst" in name else tg.nn.modules.batchnorm, name), getattr(
        torch.nn.modules.instancenorm if "Inst" in name else torch.nn.modules.batchnorm, name)
    made = []
    for base, dtype in ((own, tg.float64), (theirs, torch.float64)):
        norm = type("Norm", (base,), {})(5, 1e-4, device="cpu", dtype=dtype, **options)
        made.append(({k: v.tolist() for k, v in norm.state_dict().items()}, norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats,
                     [n for n, p in norm.named_parameters()], str(norm.weight.dtype).split(".")[-1] if norm.weight is not None else None))
    assert made[0] == made[1]


def test_a_lazy_weight_that_is_loaded_from_a_lazy_one_stays_lazy():
    class Linear(tg.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = tg.nn.UninitializedParameter()

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "weight"] = self.weight

    one, other = Linear(), Linear()
    assert other.load_state_dict(one.state_dict()).missing_keys == [] and tg.nn.parameter.is_lazy(other.weight)
    one.weight.materialize((2, 3))
    with pytest.raises(RuntimeError, match="uninitialized"):
        other.load_state_dict(one.state_dict())
    assert tg.nn.parameter.is_lazy(other.weight)
