"""Whole modules that torch.save wrote: every class of torch.nn loads as the class of the same name and computes the same."""

import io
import os
import sys

import numpy as np
import pytest
import tapegrad as tg
from tapegrad import serialization

torch = pytest.importorskip("torch")
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "nn"))
from test_names import CONSTRUCT, OPTIONS, classes  # noqa: E402

rng = np.random.default_rng(5)
FORMS = {"zip": {}, "streams": {"_use_new_zipfile_serialization": False}}


def reals(*shape):
    return rng.normal(size=shape).astype(np.float32)


def whole(high, *shape):
    return rng.integers(0, high, shape)


LINE, PICTURE, VOLUME = (2, 4, 12), (2, 4, 9, 10), (1, 4, 7, 8, 9)
BY_DIMENSIONS = {"1d": LINE, "2d": PICTURE, "3d": VOLUME}
SIGNS = np.float32([1, -1, 1])
# What forward is given, where it is not one array of the shape that the name's ending asks for, with the channels that the
# constructor's first argument names.
GIVEN = {
    "AdaptiveLogSoftmaxWithLoss": lambda: (reals(6, 8), whole(20, 6)),
    "BCELoss": lambda: (rng.uniform(0.1, 0.9, (3, 4)).astype(np.float32), rng.uniform(0, 1, (3, 4)).astype(np.float32)),
    "BCEWithLogitsLoss": lambda: (reals(3, 4), rng.uniform(0, 1, (3, 4)).astype(np.float32)),
    "Bilinear": lambda: (reals(5, 2), reals(5, 3)),
    "CTCLoss": lambda: (reals(6, 2, 5), 1 + whole(4, 2, 3), np.int64([6, 6]), np.int64([3, 2])),
    "ChannelShuffle": lambda: (reals(*PICTURE),), "CosineEmbeddingLoss": lambda: (reals(3, 4), reals(3, 4), SIGNS),
    "CosineSimilarity": lambda: (reals(3, 4), reals(3, 4)), "CrossEntropyLoss": lambda: (reals(3, 4), whole(4, 3)),
    "Embedding": lambda: (whole(5, 2, 3),), "EmbeddingBag": lambda: (whole(5, 2, 3),), "Fold": lambda: (reals(2, 12, 12),),
    "GRUCell": lambda: (reals(2, 3), reals(2, 4)), "GaussianNLLLoss": lambda: (reals(3, 4), reals(3, 4), np.abs(reals(3, 4)) + 0.5),
    "GRU": lambda: (reals(5, 2, 3),), "LSTM": lambda: (reals(5, 2, 3),), "RNN": lambda: (reals(5, 2, 3),),
    "HingeEmbeddingLoss": lambda: (reals(3), SIGNS), "LSTMCell": lambda: (reals(2, 3),), "LayerNorm": lambda: (reals(2, 3, 4),),
    "Linear": lambda: (reals(2, 3),), "LazyLinear": lambda: (reals(2, 3),), "LinearCrossEntropyLoss": lambda: (reals(5, 3), whole(4, 5)),
    "MarginRankingLoss": lambda: (reals(3), reals(3), SIGNS),
    "MaxUnpool1d": lambda: (reals(1, 2, 4), 2 * np.arange(8).reshape(1, 2, 4) % 8),
    "MaxUnpool2d": lambda: (reals(1, 1, 2, 2), np.int64([[[[0, 2], [8, 10]]]])),
    "MaxUnpool3d": lambda: (reals(1, 1, 1, 2, 2), np.int64([[[[[0, 2], [8, 10]]]]])),
    "MultiLabelMarginLoss": lambda: (reals(2, 4), np.int64([[1, -1, 0, 0], [0, 3, -1, 1]])),
    "MultiLabelSoftMarginLoss": lambda: (reals(2, 4), whole(2, 2, 4).astype(np.float32)), "MultiMarginLoss": lambda: (reals(3, 4), whole(4, 3)),
    "MultiheadAttention": lambda: (reals(5, 2, 8), reals(6, 2, 8), reals(6, 2, 8)), "NLLLoss": lambda: (reals(3, 4), whole(4, 3)),
    "NLLLoss2d": lambda: (reals(2, 3, 4, 5), whole(3, 2, 4, 5)), "PairwiseDistance": lambda: (reals(3, 4), reals(3, 4)),
    "PixelShuffle": lambda: (reals(1, 8, 3, 2),), "PixelUnshuffle": lambda: (reals(1, 2, 4, 6),), "RMSNorm": lambda: (reals(2, 3),),
    "RNNCell": lambda: (reals(2, 3),), "SyncBatchNorm": lambda: (reals(4, 3, 5),), "SoftMarginLoss": lambda: (reals(3), SIGNS),
    "Softmax2d": lambda: (reals(*PICTURE),), "Transformer": lambda: (reals(5, 2, 8), reals(4, 2, 8)),
    "TransformerDecoderLayer": lambda: (reals(4, 2, 8), reals(5, 2, 8)), "TransformerEncoderLayer": lambda: (reals(5, 2, 8),),
    "TripletMarginLoss": lambda: (reals(3, 4), reals(3, 4), reals(3, 4)), "Unflatten": lambda: (reals(2, 6),), "Unfold": lambda: (reals(*PICTURE),),
    "TripletMarginWithDistanceLoss": lambda: (reals(3, 4), reals(3, 4), reals(3, 4)), "Upsample": lambda: (reals(*PICTURE),),
    "UpsamplingBilinear2d": lambda: (reals(*PICTURE),), "UpsamplingNearest2d": lambda: (reals(*PICTURE),), "LocalResponseNorm": lambda: (reals(*PICTURE),),
    "CrossMapLRN2d": lambda: (reals(*PICTURE),), "GroupNorm": lambda: (reals(*PICTURE),), "Flatten": lambda: (reals(2, 3, 4, 5),),
    **{name: lambda: (reals(3, 4), reals(3, 4)) for name in ("HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "PoissonNLLLoss", "SmoothL1Loss")},
}
ONLY_A_BASE = {"RNNBase", "RNNCellBase"}
RANDOM = {"FractionalMaxPool2d": {"_random_samples": torch.rand(2, 4, 2)}, "FractionalMaxPool3d": {"_random_samples": torch.rand(1, 4, 3)}}
FIRST = {"Upsample": {"scale_factor": 2.0}, "UpsamplingBilinear2d": {"scale_factor": 2}, "UpsamplingNearest2d": {"size": (5, 7)}}
OTHER_GIVEN = {"LSTM": lambda: (reals(2, 5, 3),), "MultiheadAttention": lambda: (reals(5, 2, 8), reals(6, 2, 4), reals(6, 2, 6)),
               "CosineSimilarity": lambda: (reals(3, 4), reals(3, 4))}


def given_to(name, construct):
    if name in GIVEN:
        return GIVEN[name]()
    shape = BY_DIMENSIONS.get(name[-2:], LINE)
    if construct and name[-2:] in BY_DIMENSIONS and ("Norm" in name or name.startswith("Conv")):
        shape = (shape[0], construct[0], *shape[2:])
    return (reals(*shape),)


def saved(model, form="zip"):
    buffer = io.BytesIO()
    torch.save(model, buffer, **FORMS[form])
    buffer.seek(0)
    return buffer


def flat(result):
    """The tensors of a result as arrays."""
    if hasattr(result, "detach"):
        return [result.detach().numpy()]
    return [a for part in result if part is not None for a in flat(part)]


def compare(mine, theirs, given):
    got, expected = flat(mine(*map(tg.from_numpy, given))), flat(theirs(*map(torch.from_numpy, given)))
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert a.shape == b.shape
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", [n for n in classes() if n not in ONLY_A_BASE])
@pytest.mark.filterwarnings("ignore")
def test_every_class(name):
    construct = CONSTRUCT.get(name, ())
    for options in ({**FIRST.get(name, {}), **RANDOM.get(name, {})}, OPTIONS.get(name)):
        if options is None:
            continue
        theirs = getattr(torch.nn, name)(*construct, **options).eval()
        given = OTHER_GIVEN[name]() if name in OTHER_GIVEN and options == OPTIONS.get(name) else given_to(name, construct)
        fresh = saved(theirs)
        if name.startswith("Lazy"):  # saved before it has seen anything: it finds its sizes when it does
            unseen = tg.load(fresh, weights_only=False)
            assert type(unseen) is getattr(tg.nn, name)
            assert [tuple(a.shape) for a in flat(unseen(*map(tg.from_numpy, given)))] == [tuple(a.shape) for a in flat(theirs(*map(torch.from_numpy, given)))]
            fresh = saved(theirs)
        mine = tg.load(fresh, weights_only=False)
        assert type(mine) is getattr(tg.nn, type(theirs).__name__)
        assert not mine.training
        assert repr(mine) == repr(theirs)
        assert list(mine.state_dict()) == list(theirs.state_dict())
        compare(mine, theirs, given)
        # And on: another pass through our own formats, and training.
        buffer = io.BytesIO()
        tg.save(mine, buffer)
        buffer.seek(0)
        compare(tg.load(buffer, weights_only=False), theirs, given)
        buffer = io.BytesIO()
        tg.save(mine, buffer, format="torch")
        buffer.seek(0)
        compare(mine, torch.load(buffer, weights_only=False), given)
        mine.train()
        assert all(p.requires_grad for p in mine.parameters())


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)


CONTAINERS = {
    "Sequential": lambda nn: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
    "nested": lambda nn: nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Sequential()),
    "TransformerEncoder": lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2, nn.LayerNorm(4)),
    "DataParallel": lambda nn: nn.DataParallel(nn.Linear(3, 2)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.filterwarnings("ignore")
def test_containers(name, form):
    theirs = CONTAINERS[name](torch.nn).eval()
    mine = tg.load(saved(theirs, form), weights_only=False)
    assert repr(mine) == repr(theirs)
    compare(mine, theirs, (reals(2, 5, 4),) if name == "TransformerEncoder" else (reals(5, 3),))


@pytest.mark.parametrize("form", FORMS)
def test_containers_that_have_no_forward(form):
    shared = torch.nn.Linear(3, 3)
    theirs = torch.nn.ModuleDict({"list": torch.nn.ModuleList([shared, torch.nn.ReLU()]), "again": shared})
    theirs.scales = torch.nn.ParameterList([torch.ones(2), torch.nn.Parameter(torch.zeros(3)), "a text"])
    theirs.table = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.full((2,), 5.0))})
    mine = tg.load(saved(theirs, form), weights_only=False)
    assert mine["list"][0] is mine["again"]
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert mine.scales[0].tolist() == [1.0, 1.0]
    assert mine.scales[2] == "a text"
    assert mine.table["w"].tolist() == [5.0, 5.0]


def test_recurrent_weights_are_one():
    """PyTorch's file has the weights twice, by name and in a list: after a change of the dtype both are the same."""
    theirs = torch.nn.LSTM(3, 4, 2, bidirectional=True)
    mine = tg.load(saved(theirs), weights_only=False).double()
    assert {w.dtype for w in mine._flat_weights} == {tg.float64}
    assert sum(p.numel() for p in mine.parameters()) == sum(p.numel() for p in theirs.parameters())
    with tg.no_grad():
        mine.weight_ih_l0.zero_()
    assert mine.all_weights[0][0] is mine.weight_ih_l0
    x = rng.normal(size=(2, 1, 3))
    with torch.no_grad():
        theirs = theirs.double()
        theirs.weight_ih_l0.zero_()
    compare(mine, theirs, (x,))


def test_hooks_that_are_registered_later_have_places_of_their_own():
    """A lazy layer brings hooks with numbers: a new one does not take the place of one of those."""
    handle = tg.nn.Linear(1, 1).register_forward_hook(len)
    torch.utils.hooks.RemovableHandle.next_id = max(torch.utils.hooks.RemovableHandle.next_id, handle.id + 10)
    theirs = torch.nn.LazyLinear(2)
    assert handle.id < theirs._initialize_hook.id
    mine = tg.load(saved(theirs), weights_only=False)
    seen = []
    handles = [mine.register_forward_pre_hook(lambda module, args: seen.append(len(args))) for _ in range(theirs._initialize_hook.id - handle.id + 5)]
    assert tuple(mine(tg.ones(1, 3)).shape) == (1, 2)
    assert seen == [1] * len(handles)
    assert type(mine) is tg.nn.Linear
    for handle in handles:
        handle.remove()
    mine(tg.ones(1, 3))
    assert len(seen) == len(handles)


def test_classes_and_methods_that_are_not_named():
    """What a lazy layer's file asks for is given to lazy layers and for these two methods only."""
    theirs = torch.nn.LazyLinear(2)
    with pytest.raises(serialization.FileError, match="needs torch.nn.modules.linear.LazyLinear"):
        tg.load(saved(theirs))
    for name, value in (("load_state_dict", theirs), ("_apply", theirs), ("forward", torch.nn.Linear(2, 2)), ("_infer_parameters", Twice())):
        model = torch.nn.Sequential(torch.nn.Identity())
        model._forward_hooks[0] = Lookup(value, name)
        with pytest.raises(serialization.FileError, match=f"attribute '{name}'|needs .*Twice"):
            tg.load(saved(model), weights_only=False)


class Lookup:
    """Is saved as getattr(value, name)."""

    def __init__(self, value, name):
        self.value, self.name = value, name

    def __reduce__(self):
        return getattr, (self.value, self.name)
