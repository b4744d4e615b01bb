"""Every public name of torch.nn is here, under the same path, or in a list that says why not. The lists may only shrink."""

import importlib
import inspect
import types

import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")

PATHS = ["nn", "nn.attention", "nn.attention.bias", "nn.attention.flex_attention", "nn.functional", "nn.grad", "nn.init", "nn.modules",
         "nn.modules.utils", "nn.parallel", "nn.parallel.data_parallel", "nn.parallel.distributed", "nn.parallel.parallel_apply",
         "nn.parallel.replicate", "nn.parallel.scatter_gather", "nn.parameter", "nn.utils", "nn.utils.clip_grad",
         "nn.utils.convert_parameters", "nn.utils.fusion", "nn.utils.init", "nn.utils.memory_format", "nn.utils.parametrizations",
         "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn", "nn.utils.spectral_norm", "nn.utils.stateless",
         "nn.utils.weight_norm", "optim", "optim.lr_scheduler", "optim.optimizer", "optim.swa_utils"]
PATHS += [f"nn.modules.{name}" for name in (
    "activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance", "dropout", "flatten", "fold", "instancenorm",
    "lazy", "linear", "loss", "module", "normalization", "padding", "pixelshuffle", "pooling", "rnn", "sparse", "transformer", "upsampling")]

FLASH = "the registry of foreign GPU kernels for attention: there is one implementation"
COPIES = "copies among GPUs in one process; DataParallel works on one device"
DETAIL = "a helper of PyTorch's own implementation, which is written another way here"
MISSING = {
    "nn.attention": dict.fromkeys(("activate_flash_attention_impl", "current_flash_attention_impl", "list_flash_attention_impls",
                                   "register_flash_attention_impl", "restore_flash_attention_impl"), FLASH),
    "nn.parallel": {"comm": COPIES}, "nn.parallel.parallel_apply": {"get_a_var": DETAIL},
    "nn.parallel.scatter_gather": {"is_namedtuple": DETAIL}, "nn.utils.rnn": {"bind": DETAIL},
    "nn.utils.spectral_norm": {"SpectralNormStateDictHook": DETAIL, "SpectralNormLoadStateDictPreHook": DETAIL},
}


def public(module) -> set[str]:
    """What a module offers: __all__, and the classes and functions that it defines itself."""
    own = {name for name, value in vars(module).items()
           if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
           and getattr(value, "__module__", "") == module.__name__}
    children = {name for name, value in vars(module).items() if isinstance(value, types.ModuleType)
                and value.__name__ == f"{module.__name__}.{name}" and not name.startswith("_")}
    return own | children | set(getattr(module, "__all__", ()))


@pytest.mark.parametrize("path", PATHS)
def test_public_names(path):
    theirs = importlib.import_module(f"torch.{path}")
    mine = importlib.import_module(f"tapegrad.{path}")
    missing = {name for name in public(theirs) if not hasattr(mine, name)}
    assert missing == set(MISSING.get(path, {}))


CONSTRUCT = {
    "AdaptiveAvgPool1d": (3,), "AdaptiveAvgPool2d": ((3, None),), "AdaptiveAvgPool3d": (3,), "AdaptiveMaxPool1d": (3,),
    "AdaptiveMaxPool2d": ((3, 4),), "AdaptiveMaxPool3d": (3,), "AdaptiveLogSoftmaxWithLoss": (8, 20, [5, 10]), "AvgPool1d": (2,),
    "AvgPool2d": (2,), "AvgPool3d": (2,), "BatchNorm1d": (3,), "BatchNorm2d": (3,), "BatchNorm3d": (3,), "Bilinear": (2, 3, 4),
    "ChannelShuffle": (2,), "CircularPad1d": (2,), "CircularPad2d": (2,), "CircularPad3d": (2,), "ConstantPad1d": (2, 0.5),
    "ConstantPad2d": (2, 0.5), "ConstantPad3d": (2, 0.5), "Conv1d": (2, 4, 3), "Conv2d": (2, 4, 3), "Conv3d": (2, 4, 3),
    "ConvTranspose1d": (2, 4, 3), "ConvTranspose2d": (2, 4, 3), "ConvTranspose3d": (2, 4, 3), "CrossMapLRN2d": (3,),
    "Embedding": (5, 3), "EmbeddingBag": (5, 3), "Fold": ((4, 5), 2), "FractionalMaxPool2d": (2, (3, 3)), "FractionalMaxPool3d": (2, (3, 3, 3)),
    "GRU": (3, 4, 2), "GRUCell": (3, 4), "GroupNorm": (2, 4), "InstanceNorm1d": (3,), "InstanceNorm2d": (3,), "InstanceNorm3d": (3,),
    "LPPool1d": (2, 3), "LPPool2d": (2, 3), "LPPool3d": (2, 3), "LSTM": (3, 4, 2), "LSTMCell": (3, 4), "LayerNorm": ((3, 4),), "Linear": (3, 4),
    "LinearCrossEntropyLoss": (3, 4), "LocalResponseNorm": (2,), "MaxPool1d": (2,), "MaxPool2d": (2,), "MaxPool3d": (2,),
    "MaxUnpool1d": (2,), "MaxUnpool2d": (2,), "MaxUnpool3d": (2,), "MultiheadAttention": (8, 2), "PixelShuffle": (2,), "PixelUnshuffle": (2,),
    "RMSNorm": (3,), "RNN": (3, 4, 2), "RNNBase": ("LSTM", 3, 4), "RNNCell": (3, 4), "RNNCellBase": (3, 4, True, 4), "ReflectionPad1d": (2,),
    "ReflectionPad2d": (2,), "ReflectionPad3d": (2,), "ReplicationPad1d": (2,), "ReplicationPad2d": (2,), "ReplicationPad3d": (2,),
    "SyncBatchNorm": (3,), "Threshold": (0.1, 2.0), "Transformer": (8, 2, 1, 1, 16), "TransformerDecoderLayer": (8, 2, 16),
    "TransformerEncoderLayer": (8, 2, 16), "Unflatten": (1, (2, 3)), "Unfold": (2,), "ZeroPad1d": (2,), "ZeroPad2d": (2,), "ZeroPad3d": (2,),
    "LazyConv1d": (4, 3), "LazyConv2d": (4, 3), "LazyConv3d": (4, 3), "LazyConvTranspose1d": (4, 3), "LazyConvTranspose2d": (4, 3),
    "LazyConvTranspose3d": (4, 3), "LazyLinear": (4,),
}
OPTIONS = {
    "AvgPool2d": {"stride": 1, "padding": 1}, "BatchNorm2d": {"affine": False, "momentum": None}, "Conv1d": {"padding": "same"},
    "Conv2d": {"stride": 2, "padding": (1, 0), "dilation": 2, "groups": 2, "bias": False, "padding_mode": "reflect"},
    "ConvTranspose2d": {"stride": 3, "output_padding": 1}, "Embedding": {"padding_idx": 1, "max_norm": 2.0, "sparse": True},
    "Flatten": {"start_dim": 2}, "GELU": {"approximate": "tanh"}, "GroupNorm": {"affine": False}, "LSTM": {
        "bias": False, "batch_first": True, "dropout": 0.5, "bidirectional": True, "proj_size": 2}, "LayerNorm": {"elementwise_affine": False},
    "LeakyReLU": {"negative_slope": 0.2, "inplace": True}, "Linear": {"bias": False}, "MaxPool2d": {"stride": 3, "ceil_mode": True},
    "MultiheadAttention": {"kdim": 4, "vdim": 6, "add_bias_kv": True}, "RNN": {"nonlinearity": "relu"}, "Upsample": {"scale_factor": 2, "mode": "bilinear"},
    "InstanceNorm2d": {"affine": True, "track_running_stats": True}, "Softmax": {"dim": 1}, "Softplus": {"beta": 2}, "CosineSimilarity": {"dim": 0},
    "TransformerEncoderLayer": {"norm_first": True, "activation": "gelu", "bias": False}, "SmoothL1Loss": {"reduction": "sum"},
}
CONTAINERS = {"Module", "Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "TransformerEncoder",
              "TransformerDecoder", "DataParallel", "LinearCrossEntropyOptions"}


def classes() -> list[str]:
    return sorted(n for n in torch.nn.modules.__all__ if n not in CONTAINERS)


@pytest.mark.parametrize("name", classes())
@pytest.mark.filterwarnings("ignore")
def test_description_and_names_of_the_state(name):
    for options in ({}, OPTIONS.get(name)):
        if options is None:
            continue
        given = CONSTRUCT.get(name, ())
        mine, theirs = getattr(tg.nn, name)(*given, **options), getattr(torch.nn, name)(*given, **options)
        assert repr(mine) == repr(theirs)
        assert list(mine.state_dict()) == list(theirs.state_dict())
        assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
        assert [n for n, _ in mine.named_buffers()] == [n for n, _ in theirs.named_buffers()]
        if not name.startswith("Lazy"):
            assert {n: tuple(t.shape) for n, t in mine.state_dict().items()} == {n: tuple(t.shape) for n, t in theirs.state_dict().items()}
