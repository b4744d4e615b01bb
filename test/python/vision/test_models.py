"""Networks: sizes as published, names of weights, equal outputs and gradients on PyTorch's operators, published files."""

import hashlib
import pickle

import numpy as np
import pytest
import tapegrad as tg
import vision_twin
from served import serving
from tapegrad import nn
from tapegrad.vision import models

torch = pytest.importorskip("torch")

# The numbers of parameters in torchvision's documentation.
PARAMETERS = {
    "alexnet": 61100840, "vgg11": 132863336, "vgg11_bn": 132868840, "vgg13": 133047848, "vgg13_bn": 133053736, "vgg16": 138357544,
    "vgg16_bn": 138365992, "vgg19": 143667240, "vgg19_bn": 143678248, "resnet18": 11689512, "resnet34": 21797672, "resnet50": 25557032,
    "resnet101": 44549160, "resnet152": 60192808, "resnext50_32x4d": 25028904, "resnext101_32x8d": 88791336, "resnext101_64x4d": 83455272,
    "wide_resnet50_2": 68883240, "wide_resnet101_2": 126886696, "squeezenet1_0": 1248424, "squeezenet1_1": 1235496,
    "densenet121": 7978856, "densenet161": 28681000, "densenet169": 14149480, "densenet201": 20013928, "inception_v3": 27161264,
    "shufflenet_v2_x0_5": 1366792, "shufflenet_v2_x1_0": 2278604, "shufflenet_v2_x1_5": 3503624, "shufflenet_v2_x2_0": 7393996,
    "mobilenet_v2": 3504872, "mobilenet_v3_large": 5483032, "mobilenet_v3_small": 2542856, "efficientnet_b0": 5288548,
    "efficientnet_b1": 7794184, "efficientnet_b2": 9109994, "efficientnet_b3": 12233232, "efficientnet_b4": 19341616,
    "efficientnet_b5": 30389784, "efficientnet_b6": 43040704, "efficientnet_b7": 66347960, "efficientnet_v2_s": 21458488,
    "efficientnet_v2_m": 54139356, "efficientnet_v2_l": 118515272, "vit_b_16": 86567656, "vit_b_32": 88224232, "vit_l_16": 304326632,
    "vit_l_32": 306535400, "convnext_tiny": 28589128, "convnext_small": 50223688, "convnext_base": 88591464, "convnext_large": 197767336,
}


def count(model) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_parameters_as_published(name):
    with tg.device("meta"):
        assert count(models.get_model(name)) == PARAMETERS[name]


def test_parameters_of_variants():
    with tg.device("meta"):
        assert count(models.googlenet(aux_logits=False)) == 6624904
        assert count(models.segmentation.fcn_resnet50(aux_loss=True)) == 35322218
        assert count(models.segmentation.fcn_resnet101(aux_loss=True)) == 54314346
        assert count(models.segmentation.deeplabv3_resnet50(aux_loss=True)) == 42004074
        assert count(models.segmentation.deeplabv3_resnet101(aux_loss=True)) == 60996202
    assert set(PARAMETERS) | {"googlenet", "vit_h_14"} | set(models.list_models(models.segmentation)) == set(models.list_models())


# Names and shapes that files of torchvision hold.
KEYS = {
    "resnet50": {"conv1.weight": (64, 3, 7, 7), "layer1.0.downsample.1.running_mean": (256,), "layer4.2.bn3.num_batches_tracked": (),
                 "layer3.5.conv2.weight": (256, 256, 3, 3), "fc.bias": (1000,)},
    "vgg16_bn": {"features.41.running_var": (512,), "classifier.6.weight": (1000, 4096)},
    "densenet121": {"features.denseblock4.denselayer16.conv2.weight": (32, 128, 3, 3), "features.transition3.norm.weight": (1024,),
                    "features.norm5.bias": (1024,), "classifier.weight": (1000, 1024)},
    "googlenet": {"inception4e.branch3.1.conv.weight": (128, 32, 3, 3), "aux2.fc1.weight": (1024, 2048), "inception5b.branch4.1.bn.bias": (128,)},
    "inception_v3": {"Mixed_7c.branch3x3dbl_3b.conv.weight": (384, 384, 3, 1), "Mixed_6e.branch7x7dbl_5.bn.weight": (192,),
                     "AuxLogits.conv1.conv.weight": (768, 128, 5, 5), "Conv2d_4a_3x3.bn.running_mean": (192,)},
    "mobilenet_v2": {"features.17.conv.2.weight": (320, 960, 1, 1), "features.18.1.bias": (1280,), "classifier.1.weight": (1000, 1280)},
    "mobilenet_v3_large": {"features.15.block.2.fc1.weight": (240, 960, 1, 1), "classifier.3.weight": (1000, 1280),
                           "features.16.0.weight": (960, 160, 1, 1)},
    "shufflenet_v2_x1_0": {"stage4.3.branch2.6.weight": (232,), "stage2.0.branch1.2.weight": (58, 24, 1, 1), "conv5.0.weight": (1024, 464, 1, 1)},
    "efficientnet_b0": {"features.7.0.block.3.0.weight": (320, 1152, 1, 1), "features.1.0.block.1.fc1.weight": (8, 32, 1, 1),
                        "classifier.1.bias": (1000,)},
    "vit_b_16": {"class_token": (1, 1, 768), "encoder.pos_embedding": (1, 197, 768), "heads.head.weight": (1000, 768),
                 "encoder.layers.encoder_layer_11.self_attention.in_proj_weight": (2304, 768),
                 "encoder.layers.encoder_layer_0.mlp.3.weight": (768, 3072), "encoder.ln.bias": (768,), "conv_proj.weight": (768, 3, 16, 16)},
    "convnext_tiny": {"features.5.8.layer_scale": (384, 1, 1), "features.7.2.block.5.weight": (768, 3072), "features.6.1.weight": (768, 384, 2, 2),
                      "classifier.2.weight": (1000, 768)},
    "squeezenet1_1": {"features.12.expand3x3.weight": (256, 64, 3, 3), "classifier.1.bias": (1000,)},
    "deeplabv3_resnet50": {"backbone.layer4.2.conv2.weight": (512, 512, 3, 3), "classifier.0.convs.4.1.weight": (256, 2048, 1, 1),
                           "classifier.0.project.1.running_var": (256,), "classifier.4.weight": (21, 256, 1, 1)},
}


@pytest.mark.parametrize("name", sorted(KEYS))
def test_names_of_weights(name):
    with tg.device("meta"):
        state = models.get_model(name).state_dict()
    assert {key: tuple(state[key].shape) for key in KEYS[name]} == KEYS[name]


# Networks as published where they are small, else narrower ones of the same parts; the size of the images; how to build.
SMALL = {
    "alexnet": (64, lambda m: m.alexnet().features),
    "vgg": (32, lambda m: m.vgg.make_layers((1, 2, 1, 1, 1), True)),
    "resnet18": (33, lambda m: m.resnet18(num_classes=3)),
    "resnext": (32, lambda m: m.ResNet(m.resnet.Bottleneck, [1, 2, 1, 1], num_classes=3, groups=4, width_per_group=8)),
    "squeezenet1_0": (64, lambda m: m.squeezenet1_0(num_classes=3)),
    "squeezenet1_1": (48, lambda m: m.squeezenet1_1(num_classes=3)),
    "densenet": (32, lambda m: m.DenseNet(8, (2, 2, 3), 16, num_classes=3)),
    "googlenet": (48, lambda m: m.googlenet(num_classes=3, aux_logits=False, transform_input=True)),
    "inception_v3": (75, lambda m: m.inception_v3(num_classes=3, aux_logits=False)),
    "mobilenet_v2": (32, lambda m: m.mobilenet_v2(num_classes=3, width_mult=0.35)),
    "mobilenet_v3_small": (48, lambda m: m.mobilenet_v3_small(num_classes=3)),
    "mobilenet_v3_large": (48, lambda m: m.mobilenet_v3_large(num_classes=3, width_mult=0.35)),
    "shufflenet_v2": (32, lambda m: m.shufflenet_v2_x0_5(num_classes=3)),
    "efficientnet": (32, lambda m: m.EfficientNet([(1, 1, 3, 1, 8, 8, 1), (1, 4, 3, 2, 8, 16, 2), (0, 4, 5, 2, 16, 24, 2)], 0.2, num_classes=3)),
    "convnext": (32, lambda m: m.ConvNeXt([(8, 16, 1), (16, None, 2)], layer_scale=0.5, num_classes=3)),
    "aspp": (12, lambda m: m.segmentation.networks.DeepLabHead(3, 5, (2, 3, 4))),
}


@pytest.mark.parametrize("name", SMALL)
def test_outputs_and_gradients_equal_pytorchs(name):
    """Each network from the same weights on both libraries, in evaluation, with the gradients of the first and of the last weights."""
    size, build = SMALL[name]
    theirs, mine = build(vision_twin.vision("models")), build(models)
    state = {k: v.detach().clone() for k, v in theirs.state_dict().items()}
    assert list(mine.state_dict()) == list(state)
    mine.load_state_dict({k: tg.from_numpy(v.numpy()) for k, v in state.items()})
    image = np.random.default_rng(0).standard_normal((2, 3, size, size))
    results = []
    for library, model in ((tg, mine.double().eval()), (torch, theirs.double().eval())):  # in float32 some rectifiers fall the other way
        out = model(library.from_numpy(image))
        out.square().mean().backward()
        parameters = list(model.parameters())
        results.append([out.detach().numpy(), parameters[0].grad.numpy(), parameters[-1].grad.numpy()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9 * abs(b).max())


def test_segmentation_equals_pytorchs():
    def build(m):
        backbone = m.ResNet(m.resnet.Bottleneck, [1, 1, 1, 1], replace_stride_with_dilation=[False, True, True])
        getter = m.segmentation.networks.IntermediateLayerGetter(backbone, {"layer3": "aux", "layer4": "out"})
        heads = [m.segmentation.networks.FCNHead(c, 4) for c in (2048, 1024)]
        return m.segmentation.FCN(getter, *heads).eval()

    theirs, mine = build(vision_twin.vision("models")), build(models)
    mine.load_state_dict({k: tg.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    image = np.random.default_rng(0).standard_normal((1, 3, 40, 33)).astype(np.float32)
    got, want = mine(tg.from_numpy(image)), theirs(torch.from_numpy(image))
    assert list(got) == list(want) == ["out", "aux"]
    for name in got:
        assert got[name].shape == (1, 4, 40, 33)
        np.testing.assert_allclose(got[name].detach().numpy(), want[name].detach().numpy(), rtol=1e-3, atol=1e-4)


def test_vision_transformer_equals_pytorchs():
    options = dict(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5, representation_size=7)
    theirs, mine = vision_twin.vision("models").VisionTransformer(**options), models.VisionTransformer(**options)
    torch.nn.init.normal_(theirs.heads.head.weight)
    mine.load_state_dict({k: tg.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    image = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32)
    want = theirs(torch.from_numpy(image)).detach().numpy()
    np.testing.assert_allclose(mine(tg.from_numpy(image)).detach().numpy(), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError, match="Expected 32"):
        mine(tg.zeros(1, 3, 16, 16))


def test_auxiliary_scores_in_training():
    model = models.googlenet(num_classes=4, init_weights=False)
    out = model(tg.rand(2, 3, 64, 64))
    assert type(out) is models.GoogLeNetOutputs
    assert [tuple(o.shape) for o in out] == [(2, 4)] * 3
    assert model.eval()(tg.rand(2, 3, 64, 64)).shape == (2, 4)
    assert models.inception.InceptionAux(768, 4)(tg.rand(2, 768, 17, 17)).shape == (2, 4)


def test_initial_values():
    tg.manual_seed(0)
    model = models.resnet18(zero_init_residual=True)
    assert abs(model.layer4[1].conv2.weight.std().item() / (2 / (512 * 9)) ** 0.5 - 1) < 0.01
    assert model.layer1[0].bn2.weight.abs().max().item() == 0
    assert model.layer1[0].bn1.weight.min().item() == 1
    squeeze = models.squeezenet1_1()
    assert abs(squeeze.classifier[1].weight.std().item() - 0.01) < 5e-4
    mobile = models.mobilenet_v2()
    assert abs(mobile.classifier[1].weight.std().item() - 0.01) < 5e-4


def test_a_small_resnet_learns():
    tg.manual_seed(0)
    model = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=2)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x = tg.rand(32, 3, 32, 32)
    y = (tg.arange(32) % 2)
    x[y == 1, 0] += 0.5  # class 1 is redder
    losses = []
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 < losses[0]


def test_features_on_the_way():
    from tapegrad.vision.models._utils import IntermediateLayerGetter
    from tapegrad.vision.models.feature_extraction import create_feature_extractor

    model = models.resnet18().eval()
    x = tg.rand(1, 3, 64, 64)
    getter = IntermediateLayerGetter(model, {"layer1": "a", "layer3": "b"})
    features = getter(x)
    assert {k: tuple(v.shape) for k, v in features.items()} == {"a": (1, 64, 16, 16), "b": (1, 256, 4, 4)}
    assert "layer4" not in getter
    extracted = create_feature_extractor(model, {"layer1": "a", "layer3.1.conv2": "c"})(x)
    assert tg.equal(extracted["a"], features["a"]) and extracted["c"].shape == (1, 256, 4, 4)
    with pytest.raises(ValueError, match="return_layers are not present in model"):
        IntermediateLayerGetter(model, {"x": "a"})


def test_published_weights(tmp_path, monkeypatch):
    """A file as torchvision publishes it, from a local server: fetched once, checked, and loaded."""
    from tapegrad.vision.models import _weights

    theirs = vision_twin.vision("models").squeezenet1_1()
    torch.save(theirs.state_dict(), tmp_path / "file.pth")
    digest = hashlib.sha256((tmp_path / "file.pth").read_bytes()).hexdigest()
    (tmp_path / f"squeezenet1_1-{digest[:8]}.pth").write_bytes((tmp_path / "file.pth").read_bytes())
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    with serving(tmp_path) as (url, asked):
        cls = _weights._make("Test", {"IMAGENET1K_V1": _weights.Weights(f"{url}/squeezenet1_1-{digest[:8]}.pth", None, {"num_classes": 1000})})
        monkeypatch.setitem(_weights._OF_FUNCTION, "squeezenet1_1", cls)
        for how in ({"weights": cls.DEFAULT}, {"weights": "IMAGENET1K_V1"}, {"pretrained": True}):
            model = models.squeezenet1_1(progress=False, **how)
            assert tg.equal(model.classifier[1].weight, tg.from_numpy(theirs.classifier[1].weight.detach().numpy()))
        assert len(asked) == 1
        with pytest.raises(ValueError, match="expected value 1000 but got 10"):
            models.squeezenet1_1(weights="DEFAULT", num_classes=10)
        (tmp_path / f"squeezenet1_1-{digest[:8]}.pth").write_bytes(b"something else")
        monkeypatch.setenv("TORCH_HOME", str(tmp_path / "other"))
        with pytest.raises(RuntimeError, match="invalid hash value"):
            models.squeezenet1_1(weights="DEFAULT", progress=False)
    with pytest.raises(KeyError):
        models.resnet18(weights="IMAGENET1K_V9")
    with pytest.raises(ValueError, match="no published weights are known"):
        models.vit_h_14(weights="DEFAULT")


def test_enumerations_of_weights():
    assert models.ResNet50_Weights.DEFAULT is models.ResNet50_Weights.IMAGENET1K_V2
    assert models.ResNet50_Weights.IMAGENET1K_V1.url == "https://download.pytorch.org/models/resnet50-0676ba61.pth"
    assert models.get_weight("ResNet18_Weights.DEFAULT") is models.ResNet18_Weights.IMAGENET1K_V1
    assert pickle.loads(pickle.dumps(models.VGG16_Weights.DEFAULT)) is models.VGG16_Weights.DEFAULT
    assert models.get_model_weights("resnet34") is models.ResNet34_Weights
    prepare = models.ResNet50_Weights.IMAGENET1K_V2.transforms()
    out = prepare(tg.full((3, 300, 400), 128, dtype=tg.uint8))
    assert out.shape == (3, 224, 224)
    want = [(128 / 255 - m) / s for m, s in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))]
    np.testing.assert_allclose(out.mean((1, 2)).numpy(), want, atol=1e-5)
    with pytest.raises(AttributeError, match="ResNet19_Weights"):
        models.ResNet19_Weights  # noqa: B018
