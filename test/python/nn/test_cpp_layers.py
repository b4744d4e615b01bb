"""The C++ layers against the Python ones: the same state, the same values from the same seed, the same bits of results."""

import re
from pathlib import Path

import pytest
import tapegrad as tg
from cpp_peer import equal, run_cpp
from tapegrad import nn
from tapegrad.nn.utils import rnn
from tapegrad.serialization import load_file, save_file

causal = nn.Transformer.generate_square_subsequent_mask


def _flat(result):
    if isinstance(result, tg.Tensor):
        return [result]
    return [t for part in result if part is not None for t in _flat(part)]


def _lstm_packed(m, i):
    packed = rnn.pack_padded_sequence(i["x"], i["lengths"], enforce_sorted=False)
    out, (h, c) = m(packed)
    padded, lengths = rnn.pad_packed_sequence(out)
    return padded, h, c, lengths


def _gru_packed(m, i):
    out, h = m(rnn.pack_padded_sequence(i["x"], i["lengths"], batch_first=True), i["h"])
    padded, lengths = rnn.pad_packed_sequence(out, batch_first=True, padding_value=-1, total_length=6)
    return padded, h, lengths


def _state(i):
    return (i["h"], i["c"]) if "h" in i else None


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.list = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU()])
        self.dict = nn.ModuleDict({"first": nn.Linear(3, 2), "act": nn.Tanh()})
        self.values = nn.ParameterList([tg.ones(2, 3), tg.zeros(1)])
        self.named = nn.ParameterDict({"scale": tg.ones(2)})

    def forward(self, x):
        return self.dict["first"](self.list[1](self.list[0](x))) * self.named["scale"] + self.values[0].sum()


def _lazy():
    net = nn.Sequential(nn.LazyConv2d(4, 3, 2), nn.LazyBatchNorm2d(), nn.LazyConvTranspose2d(6, 2, groups=2),
                        nn.LazyInstanceNorm2d(affine=True, track_running_stats=False), nn.Flatten(), nn.LazyLinear(5, False))
    net(tg.ones(2, 3, 7, 7))
    return net


def _containers():
    from collections import OrderedDict

    return nn.Sequential(OrderedDict(holder=Holder(), act=nn.GELU()))


randn, boolean = tg.randn, tg.tensor
PADDING = [[False, False, False, True], [False, False, True, True]]
RECURRENT = {
    "rnn": (lambda: nn.RNN(4, 3), lambda: {"x": randn(5, 2, 4), "h": randn(1, 2, 3)}, lambda m, i: m(i["x"], i["h"])),
    "rnn_relu": (lambda: nn.RNN(4, 3, 2, "relu", bias=False), lambda: {"x": randn(5, 2, 4)}, lambda m, i: m(i["x"])),
    "gru": (lambda: nn.GRU(4, 3, 2, bidirectional=True, dropout=0.5), lambda: {"x": randn(5, 2, 4), "h": randn(4, 2, 3)},
            lambda m, i: m(i["x"], i["h"])),
    "lstm": (lambda: nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True),
             lambda: {"x": randn(2, 5, 4), "h": randn(4, 2, 3), "c": randn(4, 2, 3)}, lambda m, i: m(i["x"], _state(i))),
    "lstm_unbatched": (lambda: nn.LSTM(4, 3), lambda: {"x": randn(5, 4)}, lambda m, i: m(i["x"])),
    "lstm_proj": (lambda: nn.LSTM(4, 5, proj_size=2), lambda: {"x": randn(5, 2, 4)}, lambda m, i: m(i["x"])),
    "lstm_packed": (lambda: nn.LSTM(4, 3, bidirectional=True), lambda: {"x": randn(5, 3, 4), "lengths": tg.tensor([2, 5, 3])},
                    _lstm_packed),
    "gru_packed": (lambda: nn.GRU(4, 3), lambda: {"x": randn(3, 5, 4), "lengths": tg.tensor([5, 2, 2]), "h": randn(1, 3, 3)},
                   _gru_packed),
}
TRANSFORMERS = {
    "mha": (lambda: nn.MultiheadAttention(8, 2), lambda: {"q": randn(3, 2, 8), "k": randn(4, 2, 8), "v": randn(4, 2, 8),
                                                          "padding": boolean(PADDING)},
            lambda m, i: m(i["q"], i["k"], i["v"], i["padding"])),
    "mha_self": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda: {"x": randn(2, 4, 8), "mask": causal(4)},
                 lambda m, i: m(i["x"], i["x"], i["x"], attn_mask=i["mask"], need_weights=False)),
    "mha_dims": (lambda: nn.MultiheadAttention(8, 2, kdim=5, vdim=6, add_bias_kv=True, dropout=0.3),
                 lambda: {"q": randn(3, 2, 8), "k": randn(4, 2, 5), "v": randn(4, 2, 6), "padding": boolean(PADDING),
                          "mask": randn(4, 3, 4)},
                 lambda m, i: m(i["q"], i["k"], i["v"], i["padding"], attn_mask=i["mask"])),
    "mha_zero": (lambda: nn.MultiheadAttention(8, 4, add_zero_attn=True, bias=False), lambda: {"x": randn(4, 8)},
                 lambda m, i: m(i["x"], i["x"], i["x"], need_weights=False)),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.1),
                      lambda: {"x": randn(4, 2, 8), "mask": causal(4), "padding": boolean(PADDING)},
                      lambda m, i: m(i["x"], i["mask"], tg.zeros(2, 4).masked_fill(i["padding"], -float("inf")))),
    "decoder_layer": (lambda: nn.TransformerDecoderLayer(8, 2, 16, 0.0, "gelu", norm_first=True, batch_first=True),
                      lambda: {"x": randn(2, 4, 8), "memory": randn(2, 5, 8), "mask": causal(4)},
                      lambda m, i: m(i["x"], i["memory"], i["mask"])),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.1), 2, nn.LayerNorm(8)),
                lambda: {"x": randn(4, 2, 8), "mask": causal(4)}, lambda m, i: m(i["x"], i["mask"])),
    "decoder": (lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.1), 2),
                lambda: {"x": randn(4, 2, 8), "memory": randn(5, 2, 8), "mask": tg.ones(4, 4, dtype=tg.bool).triu(1)},
                lambda m, i: m(i["x"], i["memory"], i["mask"])),
    "transformer": (lambda: nn.Transformer(8, 2, 2, 1, 16, 0.2, bias=False),
                    lambda: {"src": randn(4, 2, 8), "tgt": randn(3, 2, 8), "mask": causal(3), "padding": boolean(PADDING)},
                    lambda m, i: m(i["src"], i["tgt"], tgt_mask=i["mask"], src_key_padding_mask=i["padding"])),
}
OTHERS = {
    "embedding_bag": (lambda: nn.EmbeddingBag(6, 3, mode="sum", padding_idx=-2),
                      lambda: {"x": tg.tensor([0, 4, 5, 1]), "offsets": tg.tensor([0, 3]), "weights": randn(4)},
                      lambda m, i: m(i["x"], i["offsets"], i["weights"])),
    "max_unpool": (lambda: nn.MaxUnpool2d(2), lambda: {"x": randn(1, 2, 4, 6)},
                   lambda m, i: (lambda v, at: (m(v, at), v, at))(*nn.MaxPool2d(2, return_indices=True)(i["x"]))),
    "fractional": (lambda: nn.FractionalMaxPool2d(2, output_size=3, return_indices=True), lambda: {"x": randn(1, 2, 7, 8)},
                   lambda m, i: m(i["x"])),
    "ctc": (lambda: nn.CTCLoss(reduction="sum"),
            lambda: {"x": randn(6, 2, 4).log_softmax(2), "targets": tg.tensor([[1, 2, 3], [3, 1, 1]]),
                     "lengths": tg.tensor([6, 5]), "target_lengths": tg.tensor([3, 2])},
            lambda m, i: m(i["x"], i["targets"], i["lengths"], i["target_lengths"])),
    "sync_batch_norm": (lambda: nn.SyncBatchNorm(3), lambda: {"x": randn(4, 3, 2, 2)}, lambda m, i: m(i["x"])),
    "cross_map": (lambda: nn.CrossMapLRN2d(3, 1e-2, 0.5, 2.0), lambda: {"x": randn(2, 6, 3, 3)}, lambda m, i: m(i["x"])),
    "nearest": (lambda: nn.UpsamplingNearest2d((5, 7)), lambda: {"x": randn(1, 2, 3, 4)}, lambda m, i: m(i["x"])),
    "bilinear": (lambda: nn.UpsamplingBilinear2d(scale_factor=2), lambda: {"x": randn(1, 2, 3, 4)}, lambda m, i: m(i["x"])),
    "triplet": (lambda: nn.TripletMarginWithDistanceLoss(swap=True, margin=2.0),
                lambda: {"a": randn(3, 4), "p": randn(3, 4), "n": randn(3, 4)}, lambda m, i: m(i["a"], i["p"], i["n"])),
    "linear_cross_entropy": (lambda: nn.LinearCrossEntropyLoss(4, 5, bias=True, label_smoothing=0.1),
                             lambda: {"x": randn(3, 4), "target": tg.tensor([0, 4, 2])}, lambda m, i: m(i["x"], i["target"])),
    "adaptive_softmax": (lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7]),
                         lambda: {"x": randn(5, 8), "target": tg.tensor([0, 3, 11, 7, 2])},
                         lambda m, i: (*m(i["x"], i["target"]), m.log_prob(i["x"]), m.predict(i["x"]))),
    "lazy": (_lazy, lambda: {"x": randn(2, 3, 7, 7)}, lambda m, i: m(i["x"])),
    "lazy_loaded": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ConvTranspose1d(4, 3, 2)),
                    lambda: {"x": randn(2, 2, 6)}, lambda m, i: m(i["x"])),
    "containers": (_containers, lambda: {"x": randn(4, 3)}, lambda m, i: m(i["x"])),
}
# Printed by Python in another way: a child that C++ has as a function, the subclass of Linear, a dict of one parameter.
OTHER_TEXT = {"triplet", "containers", "lazy_loaded", *TRANSFORMERS}


def _gradients(module) -> dict:
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("title, cases", [("recurrent networks for Python", RECURRENT), ("transformers for Python", TRANSFORMERS),
                                          ("other layers for Python", OTHERS)], ids=["recurrent", "transformers", "others"])
def test_cpp_layers_are_the_python_ones(title, cases, tmp_path):
    modules, inputs = {}, {}
    for name, (make, arguments, _) in cases.items():
        tg.manual_seed(100)
        modules[name], inputs[name] = make(), arguments()
        save_file(modules[name].state_dict(), tmp_path / f"{name}.state")
        save_file(inputs[name], tmp_path / f"{name}.in")
    run_cpp(title, tmp_path)
    for name, (make, _, run) in cases.items():
        tg.manual_seed(7)
        fresh = make()
        if name == "lazy_loaded":  # C++ had no values before
            fresh.load_state_dict(modules[name].state_dict())
        first = fresh.state_dict() if name == "lazy_loaded" else load_file(tmp_path / f"{name}.first")
        assert list(first) == list(fresh.state_dict()), name
        for key, value in fresh.state_dict().items():
            assert equal(first[key], value), f"{name}: first value of {key}"
        if name not in OTHER_TEXT:
            assert (tmp_path / f"{name}.repr").read_text() == repr(fresh), name
        fresh.load_state_dict(first)  # a file of C++ loads
        tg.manual_seed(11)
        results = _flat(run(modules[name], inputs[name]))
        total = sum(t.sum() for t in results if t.is_floating_point())
        if total.requires_grad:
            total.backward()
        out = load_file(tmp_path / f"{name}.out")
        for i, t in enumerate(results):
            assert equal(out[str(i)], t.detach()), f"{name}: result {i}"
        wanted = {f"grad.{key}": g for key, g in _gradients(modules[name]).items()}
        assert {key for key in out if key.startswith("grad.")} == set(wanted), name
        for key, g in wanted.items():
            assert tg.allclose(out[key], g, rtol=1e-5, atol=1e-6), f"{name}: {key}"
        for key, b in modules[name].named_buffers():
            assert equal(out[f"buffer.{key}"], b), f"{name}: {key}"


def test_cpp_initialisation_and_utilities(tmp_path):
    parameters = [nn.Parameter(randn(3, 4)), nn.Parameter(randn(5))]
    save_file({"a": parameters[0].detach(), "b": parameters[1].detach()}, tmp_path / "utilities.in")
    run_cpp("initialisation and utilities for Python", tmp_path)
    out = load_file(tmp_path / "utilities.out")
    init, utils = nn.init, nn.utils
    tg.manual_seed(5)
    wanted = {
        "orthogonal": init.orthogonal_(tg.empty(3, 5), 2), "orthogonal_tall": init.orthogonal_(tg.empty(6, 2, 2)),
        "trunc_normal": init.trunc_normal_(tg.empty(50), 0.5, 2, -1, 1.5), "sparse": init.sparse_(tg.empty(7, 4), 0.4),
        "dirac": init.dirac_(tg.empty(4, 3, 3, 2), 2), "xavier_normal": init.xavier_normal_(tg.empty(4, 3)),
        "kaiming_normal": init.kaiming_normal_(tg.empty(4, 3, 2), 0.1, "fan_out")}
    for p in parameters:
        p.grad = p.detach() * 3
    wanted["vector"] = utils.parameters_to_vector(parameters).detach()
    wanted["norm"] = utils.clip_grad_norm_(parameters, 1.5)
    wanted["clipped"] = parameters[0].grad.clone()
    wanted["norm_inf"] = utils.clip_grad_norm_(parameters, 0.2, float("inf"))
    wanted["norm_1"] = utils.get_total_norm(parameters, 1)
    utils.clip_grad_value_(parameters, 0.1)
    wanted["clamped"] = parameters[1].grad
    assert list(out) == list(wanted)
    for name, value in wanted.items():
        assert equal(out[name], value), name


def test_cpp_has_every_layer():
    root = Path(__file__).resolve().parents[3]
    headers = [*root.glob("nn/**/*.h"), Path(tg._C.__file__).resolve().parents[2] / "gen/tapegrad/nn/layers.h"]
    if not headers[-1].exists():
        pytest.skip("not a build tree")
    text = "\n".join(h.read_text() for h in headers)
    there = {a or b for a, b in re.findall(r"^class (\w+) : public ModuleHolder<\w+Impl>|^TG_MODULE(?:_OF_OPTIONS)?\((\w+)\)", text, re.M)}
    there |= {kind.replace("##n##d", f"{d}d") for kind in re.findall(r"using (Lazy\w+(?:##n##d)?) =", text)
              for d in (1, 2, 3)}
    layers = {name for name in nn.__all__ if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), nn.Module)}
    python_alone = {"Container", "DataParallel", "Module", "NLLLoss2d", "RNNBase", "RNNCellBase"}
    assert layers - there == python_alone
    docs = (root / "docs/cpp.md").read_text()
    written = "\n".join(h.read_text() for h in headers[:-1])
    by_hand = {name for name in there if re.search(rf"class {name} |^TG_MODULE\w*\({name}\)", written, re.M)}
    assert not [name for name in by_hand if f"`{name}`" not in docs]
