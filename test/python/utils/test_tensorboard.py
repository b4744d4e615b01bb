"""SummaryWriter: every kind of record, read back with TensorBoard's own reader."""

import io
import os
import textwrap

import numpy as np
import pytest
import tapegrad
from interpreter.programs import run
from tapegrad import nn

pytest.importorskip("tensorboard")
from tapegrad.utils.tensorboard import SummaryWriter  # noqa: E402
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from tensorboard.util import tensor_util  # noqa: E402


def read(folder):
    events = EventAccumulator(str(folder), size_guidance={k: 0 for k in ("scalars", "images", "histograms", "tensors", "audio", "compressedHistograms")})
    events.Reload()
    return events


@pytest.fixture
def writer(tmp_path):
    with SummaryWriter(tmp_path / "run") as w:
        yield w


def done(writer):
    writer.flush()
    return read(writer.get_logdir())


def test_scalars(writer):
    for k in range(5):
        writer.add_scalar("loss/train", tapegrad.tensor(1.0 / (k + 1)), k, walltime=1000.0 + k)
    writer.add_scalar("a b?", np.float32(2.5))
    writer.add_scalar("new", 3, 7, new_style=True, double_precision=True)
    writer.add_scalars("both", {"x": 1, "y": tapegrad.tensor([2.0])}, 3)
    events = done(writer)
    found = events.Scalars("loss/train")
    assert [(e.step, e.wall_time) for e in found] == [(k, 1000.0 + k) for k in range(5)]
    np.testing.assert_allclose([e.value for e in found], [1.0 / (k + 1) for k in range(5)], rtol=1e-6)
    assert events.Scalars("a_b_")[0].value == 2.5
    (new,) = events.Tensors("new")
    assert tensor_util.make_ndarray(new.tensor_proto).item() == 3 and new.tensor_proto.dtype == 2 and new.step == 7
    for name, value in (("x", 1), ("y", 2)):
        (e,) = read(os.path.join(writer.get_logdir(), f"both_{name}")).Scalars("both")
        assert (e.value, e.step) == (value, 3)
    with pytest.raises(AssertionError, match="one value"):
        writer.add_scalar("x", tapegrad.ones(3))
    with pytest.raises(NotImplementedError):
        writer.add_scalar("x", "text")


def test_histograms(writer):
    tapegrad.manual_seed(0)
    x = tapegrad.randn(1000)
    writer.add_histogram("weights", x, 2)
    writer.add_histogram("few", [1, 2, 2, 3], bins=3)
    writer.add_histogram("merged", x, max_bins=10)
    writer.add_histogram("halves", x.bfloat16())
    writer.add_histogram_raw("raw", min=0, max=3, num=4, sum=6, sum_squares=14, bucket_limits=[1, 2, 3], bucket_counts=[1, 1, 2])
    events = done(writer)
    (h,) = events.Histograms("weights")
    v = h.histogram_value
    assert (h.step, v.num) == (2, 1000) and sum(v.bucket) == 1000
    np.testing.assert_allclose([v.min, v.max, v.sum, v.sum_squares], [x.min().item(), x.max().item(), x.sum().item(), x.square().sum().item()], rtol=1e-4)
    for limit in v.bucket_limit[::20]:  # counts up to an edge are those of the values
        below = sum(n for n, e in zip(v.bucket, v.bucket_limit) if e <= limit)
        assert abs(below - (x <= limit).sum().item()) <= 1
    few = events.Histograms("few")[0].histogram_value
    assert list(few.bucket) == [0, 1, 2, 1]
    assert len(events.Histograms("merged")[0].histogram_value.bucket) <= 11 and sum(events.Histograms("merged")[0].histogram_value.bucket) == 1000
    assert list(events.Histograms("raw")[0].histogram_value.bucket_limit) == [1, 2, 3]
    for wrong in (tapegrad.ones(0), tapegrad.tensor([1.0, float("nan")])):
        with pytest.raises(ValueError, match="add_histogram"):
            writer.add_histogram("x", wrong)
    with pytest.raises(ValueError, match="bucket_limits"):
        writer.add_histogram_raw("raw", 0, 1, 1, 1, 1, [1], [1, 2])


def picture(event):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))


def test_images(writer):
    x = tapegrad.rand(3, 4, 6)
    writer.add_image("chw", x, 1)
    writer.add_image("hwc", x.permute(1, 2, 0), dataformats="HWC")
    writer.add_image("grey", x[0], dataformats="HW")
    writer.add_image("bytes", (x * 255).to(tapegrad.uint8))
    writer.add_images("many", tapegrad.stack([x] * 9))
    writer.add_image_with_boxes("boxes", tapegrad.ones(3, 20, 20), tapegrad.tensor([[2, 3, 12, 15]]), labels=["a"])
    writer.add_image_with_boxes("larger", x, tapegrad.zeros(0, 4), rescale=2)
    writer.add_video("video", tapegrad.rand(2, 3, 3, 4, 4), fps=5)
    events = done(writer)
    expected = (x.permute(1, 2, 0) * 255).to(tapegrad.uint8).numpy()
    for tag in ("chw", "hwc", "bytes"):
        assert (picture(events.Images(tag)[0]) == expected).all()
    assert events.Images("chw")[0].step == 1 and (events.Images("chw")[0].height, events.Images("chw")[0].width) == (4, 6)
    assert (picture(events.Images("grey")[0]) == expected[:, :, :1]).all()
    many = picture(events.Images("many")[0])
    assert many.shape == (8, 48, 3) and (many[:4, :6] == expected).all() and (many[4:, :6] == expected).all() and not many[4:, 6:].any()
    boxes = picture(events.Images("boxes")[0])
    assert tuple(boxes[3, 5]) == (255, 0, 0) and tuple(boxes[18, 18]) == (255, 255, 255)
    assert picture(events.Images("larger")[0]).shape == (8, 12, 3)
    assert events.Images("video")[0].encoded_image_string.startswith(b"GIF8")
    for shape, formats in (((3, 4), "CHW"), ((3, 4, 5), "CCH"), ((3, 4, 5), "XYZ")):
        with pytest.raises(AssertionError, match="add_image"):
            writer.add_image("x", tapegrad.ones(*shape), dataformats=formats)


def test_figures_text_audio_tensors(writer):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(2, 1), dpi=50)
    axes.plot([1, 2])
    writer.add_figure("figure", figure, 4)
    assert not pyplot.fignum_exists(figure.number)
    writer.add_figure("figures", [pyplot.figure(figsize=(1, 1), dpi=20), pyplot.figure(figsize=(1, 1), dpi=20)])
    writer.add_text("note", "**bold**", 1)
    writer.add_audio("tone", tapegrad.sin(tapegrad.arange(800) / 10).view(1, -1), sample_rate=8000)
    writer.add_tensor("values", tapegrad.arange(6).view(2, 3))
    events = done(writer)
    assert picture(events.Images("figure")[0]).shape == (50, 100, 3) and events.Images("figure")[0].step == 4
    assert picture(events.Images("figures")[0]).shape == (20, 40, 3)
    assert tensor_util.make_ndarray(events.Tensors("note/text_summary")[0].tensor_proto).tolist() == [b"**bold**"]
    tone = events.Audio("tone")[0]
    assert tone.sample_rate == 8000 and tone.encoded_audio_string.startswith(b"RIFF") and len(tone.encoded_audio_string) == 44 + 1600
    assert tensor_util.make_ndarray(events.Tensors("values")[0].tensor_proto).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_pr_curves(writer):
    labels, scores = tapegrad.tensor([0, 1, 1, 0, 1]), tapegrad.tensor([0.1, 0.9, 0.6, 0.6, 0.3])
    writer.add_pr_curve("pr", labels, scores, 1, num_thresholds=11)
    writer.add_pr_curve_raw("raw", *(tapegrad.arange(3.0) for _ in range(6)), num_thresholds=3)
    events = done(writer)
    tp, fp, tn, fn, precision, recall = tensor_util.make_ndarray(events.Tensors("pr")[0].tensor_proto)
    for k in range(11):
        predicted = np.floor(scores.numpy() * 10) >= k
        want = labels.numpy().astype(bool)
        assert (tp[k], fp[k], tn[k], fn[k]) == ((predicted & want).sum(), (predicted & ~want).sum(), (~predicted & ~want).sum(), (~predicted & want).sum())
    assert recall[0] == 1 and precision[0] == pytest.approx(0.6)
    assert tensor_util.make_ndarray(events.Tensors("raw")[0].tensor_proto).shape == (6, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.head(self.norm(self.layers(x)) * 2)


def test_graph(writer):
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    net = Net()
    net.head.bias.requires_grad_(False)
    mean = net.norm.running_mean.clone()
    x = tapegrad.randn(5, 4)
    writer.add_graph(net, x)
    graph = done(writer).Graph()
    assert isinstance(graph, GraphDef)
    nodes = {n.name: n for n in graph.node}
    scopes = {n.rpartition("/")[0] for n in nodes}
    assert {"input", "output", "Net", "Net/layers/0", "Net/layers/1", "Net/head", "Net/norm"} <= scopes
    for parameter in ("Net/head/weight", "Net/layers/0/bias", "Net/head/bias"):
        assert nodes[parameter].op == "Parameter"
    assert nodes["Net/head/weight"].attr["_output_shapes"].list.shape[0].dim[0].size == 2
    assert all(i in nodes for n in graph.node for i in n.input)  # every edge ends
    reached, waiting = set(), [n for n in nodes if n.startswith("output")]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += nodes[name].input
    assert "input/input.0" in reached and "Net/layers/0/weight" in reached
    # and nothing has changed
    assert not x.requires_grad and not net.head.bias.requires_grad and net.head.weight.requires_grad and net.head.weight.grad is None
    assert net.norm.running_mean.equal(mean)
    with pytest.raises(ValueError, match="add_graph"):
        writer.add_graph(net)
    with pytest.raises(NotImplementedError):
        writer.add_onnx_graph("x")


def test_embedding(writer):
    folder = writer.get_logdir()
    vectors = tapegrad.arange(6.0).view(3, 2)
    writer.add_embedding(vectors, metadata=["a", "b", "c"], label_img=tapegrad.rand(3, 3, 4, 4), global_step=1, tag="words")
    writer.add_embedding(vectors, metadata=[("a", 1), ("b", 2), ("c", 3)], metadata_header=["name", "number"], tag="more")
    with open(os.path.join(folder, "projector_config.pbtxt")) as file:
        config = file.read()
    assert config.count("embeddings {") == 2 and "single_image_dim: 4" in config
    with open(os.path.join(folder, "00001/words/tensors.tsv")) as file:
        assert file.read() == "0.0\t1.0\n2.0\t3.0\n4.0\t5.0\n"
    with open(os.path.join(folder, "00000/more/metadata.tsv")) as file:
        assert file.read() == "name\tnumber\na\t1\nb\t2\nc\t3\n"
    from PIL import Image

    assert Image.open(os.path.join(folder, "00001/words/sprite.png")).size == (8, 8)
    with pytest.raises(AssertionError, match="labels"):
        writer.add_embedding(vectors, metadata=["a"])


def test_hparams(writer):
    from tensorboard.plugins.hparams import metadata

    writer.add_hparams({"lr": 0.1, "layers": 3, "name": "x", "flag": True, "nothing": None, "t": tapegrad.tensor(2.0)}, {"accuracy": 0.9}, {"lr": [0.1, 0.2]},
                       run_name="trial", global_step=5)
    events = read(os.path.join(writer.get_logdir(), "trial"))
    assert (events.Scalars("accuracy")[0].value, events.Scalars("accuracy")[0].step) == (pytest.approx(0.9), 5)
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    start = metadata.parse_session_start_info_plugin_data(content)
    assert start.hparams["lr"].number_value == 0.1 and start.hparams["name"].string_value == "x" and start.hparams["flag"].bool_value is True
    assert start.hparams["t"].number_value == 2 and "nothing" not in start.hparams
    experiment = metadata.parse_experiment_plugin_data(events.SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content)
    assert [i.name for i in experiment.hparam_infos] == ["lr", "layers", "name", "flag", "t"] and len(experiment.hparam_infos[0].domain_discrete) == 2
    with pytest.raises(TypeError):
        writer.add_hparams([], {})
    with pytest.raises(ValueError, match="one of int"):
        writer.add_hparams({"x": object()}, {})


def test_custom_scalars_and_mesh(writer):
    writer.add_custom_scalars({"cat": {"losses": ["Multiline", ["loss/.*"]], "band": ["Margin", ["a", "b", "c"]]}})
    writer.add_mesh("shape", tapegrad.rand(1, 5, 3), colors=tapegrad.zeros(1, 5, 3, dtype=tapegrad.uint8), faces=tapegrad.zeros(1, 2, 3, dtype=tapegrad.int32))
    events = done(writer)
    assert "custom_scalars__config__" in events.Tags()["tensors"]
    assert sorted(t for t in events.Tags()["tensors"] if t.startswith("shape")) == ["shape_COLOR", "shape_FACE", "shape_VERTEX"]
    with pytest.raises(AssertionError):
        writer.add_custom_scalars_marginchart(["a"])


def test_files_purging_and_reopening(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="_mine", filename_suffix=".end") as w:
        w.add_scalar("x", 1, 0)
    assert w.get_logdir().startswith("runs/") and w.get_logdir().endswith("_mine")
    (file,) = os.listdir(w.get_logdir())
    assert file.startswith("events.out.tfevents.") and file.endswith(".end")
    w.add_scalar("x", 2, 1)  # behind close(): in a new file
    w.close()
    with SummaryWriter(w.get_logdir(), purge_step=1) as again:
        again.add_scalar("x", 3, 1)
    assert [e.value for e in read(w.get_logdir()).Scalars("x")] == [1, 3]
    w.close()


def test_without_the_package():
    program = textwrap.dedent("""
        import sys
        sys.modules["tensorboard"] = None
        import tapegrad
        try:
            from tapegrad.utils.tensorboard import SummaryWriter
        except ImportError as error:
            print(error)
    """)
    assert "pip install tensorboard" in run(program)
