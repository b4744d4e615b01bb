"""Attention layers and transformers against PyTorch."""

import pytest
import tapegrad as tg
from pairs import same_as_torch
from tapegrad import nn
from twins import close, compare, ours, pair, take_weights, torch

MHA = [{}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 5, "vdim": 7}, {"batch_first": True},
       {"add_bias_kv": True, "add_zero_attn": True, "bias": False, "batch_first": True}]


def _inputs(options, self_attention, length=4, seen=5, n=3):
    def make(steps, width):
        x = torch.randn(steps, n, width)
        return (x.transpose(0, 1).contiguous() if options.get("batch_first") else x).requires_grad_()
    query = make(length, 6)
    if self_attention:
        return (query, query, query)
    return (query, make(seen, options.get("kdim", 6)), make(seen, options.get("vdim", 6)))


def _my_inputs(inputs):
    made = {}
    return tuple(made.setdefault(id(x), ours(x)) for x in inputs)


@pytest.mark.parametrize("need", [{}, {"need_weights": False}, {"average_attn_weights": False}], ids=str)
@pytest.mark.parametrize("options", MHA, ids=str)
@pytest.mark.parametrize("self_attention", [True, False])
def test_multihead_attention(options, need, self_attention):
    if self_attention and "kdim" in options:
        return
    mine, theirs = pair("MultiheadAttention", 6, 2, **options)
    inputs = _inputs(options, self_attention)
    compare(mine, theirs, inputs, need, my_inputs=_my_inputs(inputs))


def _mask(kind, length, seen, n, heads):
    torch.manual_seed(1)
    if kind == "bool":
        return torch.rand(length, seen) > 0.8
    if kind == "float":
        return torch.randn(length, seen)
    return torch.randn(n * heads, length, seen)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padding", [None, "bool", "float"])
@pytest.mark.parametrize("mask", [None, "bool", "float", "3d"])
def test_masks(mask, padding, need_weights):
    if "bool" in (mask, padding) and {mask, padding} & {"float", "3d"}:
        return  # a deprecated mixture
    mine, theirs = pair("MultiheadAttention", 6, 2)
    inputs = _inputs({}, False)
    kwargs = {"need_weights": need_weights}
    if mask:
        kwargs["attn_mask"] = _mask(mask, 4, 5, 3, 2)
    if padding:
        hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
        kwargs["key_padding_mask"] = hidden if padding == "bool" else torch.zeros(3, 5).masked_fill(hidden, -2.0)
    compare(mine, theirs, inputs, kwargs, my_inputs=_my_inputs(inputs))


@pytest.mark.parametrize("need_weights", [True, False])
def test_causal_hint_and_input_without_batch(need_weights):
    mine, theirs = pair("MultiheadAttention", 6, 2)
    x = torch.randn(4, 6, requires_grad=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
    my_x = ours(x)
    compare(mine, theirs, (x, x, x), {"attn_mask": mask, "is_causal": True, "need_weights": need_weights}, my_inputs=(my_x,) * 3)
    assert tg.equal(nn.Transformer.generate_square_subsequent_mask(4), ours(mask))


@pytest.mark.parametrize(("shapes", "kwargs"), [
    (((4,), (4,), (4,)), {}), (((4, 3, 6), (4, 6), (4, 6)), {}), (((4, 3, 6),) * 3, {"key_padding_mask": (4,)}), (((4, 3, 5),) * 3, {}),
    (((4, 3, 6), (5, 3, 6), (4, 3, 6)), {}), (((4, 3, 6),) * 3, {"attn_mask": (3, 3)}), (((4, 3, 6),) * 3, {"attn_mask": (3, 4, 4)}),
    (((4, 3, 6),) * 3, {"is_causal": True}), (((4, 3, 6),) * 3, {"key_padding_mask": (3, 5)})])
def test_mistakes(shapes, kwargs):
    def run(library, module):
        more = {k: library.zeros(v) if isinstance(v, tuple) else v for k, v in kwargs.items()}
        module(*(library.zeros(s) for s in shapes), **more)

    mine, theirs = pair("MultiheadAttention", 6, 2)
    with pytest.raises((AssertionError, RuntimeError)) as want:
        run(torch, theirs)
    with pytest.raises(want.type) as got:
        run(tg, mine)
    assert str(got.value).replace("tapegrad.", "torch.") == str(want.value)


LAYERS = [{}, {"norm_first": True}, {"activation": "gelu", "batch_first": True}, {"bias": False}]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_encoder(options, masked):
    mine, theirs = pair("TransformerEncoderLayer", 8, 2, 16, dropout=0.0, **options)
    x = torch.randn(3, 3, 8, requires_grad=True)
    kwargs = {"src_mask": torch.nn.Transformer.generate_square_subsequent_mask(3)} if masked else {}
    compare(mine, theirs, (x,), kwargs)
    mine, theirs = nn.TransformerEncoder(mine, 2), torch.nn.TransformerEncoder(theirs, 2, enable_nested_tensor=False)
    kwargs = {"mask": kwargs["src_mask"]} if masked else {"src_key_padding_mask": torch.tensor([[False] * 3, [False, False, True], [False] * 3])}
    compare(mine, theirs, (x.detach().requires_grad_(),), kwargs)


@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_decoder(options):
    mine, theirs = pair("TransformerDecoderLayer", 8, 2, 16, dropout=0.0, **options)
    x, memory = torch.randn(3, 3, 8, requires_grad=True), torch.randn(3, 3, 8, requires_grad=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(3)
    compare(mine, theirs, (x, memory), {"tgt_mask": mask})
    mine, theirs = (m.TransformerDecoder(layer, 2, m.LayerNorm(8)) for m, layer in ((nn, mine), (torch.nn, theirs)))
    compare(mine, theirs, (x.detach().requires_grad_(), memory.detach().requires_grad_()), {"tgt_mask": mask})


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_transformer(options):
    mine, theirs = pair("Transformer", 8, 2, 1, 2, 16, dropout=0.0, **options)
    src, tgt = torch.randn(4, 4, 8, requires_grad=True), torch.randn(4, 4, 8, requires_grad=True)
    compare(mine, theirs, (src, tgt), {"tgt_mask": torch.nn.Transformer.generate_square_subsequent_mask(4)})
    mine.eval()
    theirs.eval()
    with torch.no_grad(), tg.no_grad():
        close(mine(ours(src.detach()), ours(tgt.detach())), theirs(src, tgt), "in evaluation")


def test_trains_with_dropout():
    tg.manual_seed(0)
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3), 2)
    x = tg.randn(3, 2, 8)
    assert not tg.equal(net(x), net(x))
    net(x).square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_choice_of_implementation_sets_the_switches_of_backends():
    from tapegrad.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel
    switches = tg.backends.cuda
    q = tg.randn(1, 2, 4, 8)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        inside = nn.functional.scaled_dot_product_attention(q, q, q)
        assert switches.math_sdp_enabled() and switches.flash_sdp_enabled()
        assert not switches.cudnn_sdp_enabled() and not switches.mem_efficient_sdp_enabled()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION, set_priority=True):
            assert _cur_sdpa_kernel_backends() == [SDPBackend.CUDNN_ATTENTION] and switches.cudnn_sdp_enabled()
        assert _cur_sdpa_kernel_backends() == [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
    assert tg.equal(inside, nn.functional.scaled_dot_product_attention(q, q, q))
    assert switches.cudnn_sdp_enabled() and len(_cur_sdpa_kernel_backends()) == 4
    assert {b.name: b.value for b in SDPBackend}.items() <= {b.name: b.value for b in map(SDPBackend, range(-1, 5))}.items()
    for wrong in ("math", [SDPBackend.MATH, 1]):
        with pytest.raises(AssertionError), sdpa_kernel(wrong):
            pass


def test_switches_of_attention_are_kept():
    switches = tg.backends.cuda
    for name in ("math", "flash", "mem_efficient", "cudnn"):
        enable, enabled = getattr(switches, f"enable_{name}_sdp"), getattr(switches, f"{name}_sdp_enabled")
        assert enabled() is True
        enable(False)
        assert enabled() is False
        with switches.sdp_kernel(**{f"enable_{name}": True, "enable_flash": True}):
            assert enabled() is True
        assert enabled() is False
        enable(True)


def test_state_of_other_classes_of_the_family():
    mine, theirs = pair("MultiheadAttention", 6, 3, kdim=4, add_bias_kv=True)
    take_weights(mine, theirs)
    assert {n: tuple(v.shape) for n, v in mine.state_dict().items()} == {n: tuple(v.shape) for n, v in theirs.state_dict().items()}


@same_as_torch
def test_a_bias_of_a_narrower_dtype_is_added(t):
    layer = t.nn.MultiheadAttention(4, 2, batch_first=True)
    with t.no_grad():
        for p in layer.parameters():
            p.copy_((t.arange(float(p.numel())) * 0.37).sin().reshape(p.shape))
    layer.in_proj_bias = t.nn.Parameter(layer.in_proj_bias.detach().half())
    x = (t.arange(24.0) * 0.7).cos().reshape(2, 3, 4)
    return [round(v, 4) for v in layer.eval()(x, x, x)[0].flatten().tolist()]
