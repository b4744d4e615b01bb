"""TensorBoard's records (protocol buffers) of values."""

import io
import re

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

from ._convert import as_array, as_bytes, as_number, to_hwc

# The edges of histograms: rising by a tenth from 1e-12, mirrored.
_POSITIVE = 1e-12 * 1.1 ** np.arange(int(np.log(1e32) / np.log(1.1)) + 1)
DEFAULT_BINS = np.concatenate([-_POSITIVE[::-1], [0.0], _POSITIVE])


def clean_tag(tag: str) -> str:
    """A tag with _ for what TensorBoard does not take, and without slashes in front."""
    return re.sub(r"[^-/\w.]", "_", tag).lstrip("/")


def _plugin(name: str, content: bytes = b"") -> SummaryMetadata:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=name, content=content))


def _tensor_proto(array: np.ndarray, dtype: str) -> TensorProto:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in array.shape])
    field = {"DT_FLOAT": "float_val", "DT_DOUBLE": "double_val"}[dtype]
    return TensorProto(dtype=dtype, tensor_shape=shape, **{field: array.reshape(-1).tolist()})


def scalar(tag: str, value, new_style: bool = False, double_precision: bool = False) -> Summary:
    number = as_number(value)
    if new_style:
        proto = _tensor_proto(np.array(number), "DT_DOUBLE" if double_precision else "DT_FLOAT")
        return Summary(value=[Summary.Value(tag=tag, tensor=proto, metadata=_plugin("scalars"))])
    return Summary(value=[Summary.Value(tag=tag, simple_value=number)])


def tensor(tag: str, value) -> Summary:
    proto = _tensor_proto(as_array(value).astype(np.float32), "DT_FLOAT")
    return Summary(value=[Summary.Value(tag=tag, tensor=proto, metadata=_plugin("tensor"))])


def histogram(tag: str, values, bins="tensorflow", max_bins: int | None = None) -> Summary:
    array = as_array(values).astype(np.float64).reshape(-1)
    if array.size == 0:
        raise ValueError("add_histogram: the input has no element")
    if not np.isfinite(array).all():
        raise ValueError("add_histogram: the input has values that are not finite")
    counts, edges = np.histogram(array, bins=DEFAULT_BINS if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:  # neighbours together
        step = -(-len(counts) // max_bins)
        counts = np.add.reduceat(counts, np.arange(0, len(counts), step))
        edges = np.append(edges[:-1:step], edges[-1])
    if counts.sum() == 0:
        raise ValueError("add_histogram: no value lies in the bins")
    used = np.flatnonzero(counts)
    first, last = used[0], used[-1] + 1
    # TensorBoard takes a bucket's lower edge from the one before: an empty one goes in front.
    limits = [edges[first], *edges[first + 1:last + 1]]
    return histogram_raw(tag, array.min(), array.max(), array.size, array.sum(), array @ array, limits, [0, *counts[first:last]])


def histogram_raw(tag: str, min, max, num, sum, sum_squares, bucket_limits, bucket_counts) -> Summary:
    proto = HistogramProto(min=float(min), max=float(max), num=float(num), sum=float(sum), sum_squares=float(sum_squares),
                           bucket_limit=[float(v) for v in bucket_limits], bucket=[float(v) for v in bucket_counts])
    return Summary(value=[Summary.Value(tag=tag, histo=proto)])


def picture(tag: str, array: np.ndarray, formats: str, rescale: float = 1, boxes=None, labels=None) -> Summary:
    pixels = as_bytes(to_hwc(array, formats))
    return Summary(value=[Summary.Value(tag=tag, image=_png(pixels, rescale, boxes, labels))])


def _png(pixels: np.ndarray, rescale: float = 1, boxes=None, labels=None):
    from PIL import Image, ImageDraw

    height, width, channels = pixels.shape
    drawn = Image.fromarray(np.ascontiguousarray(pixels))
    if boxes is not None:
        draw = ImageDraw.Draw(drawn)
        for k, (x0, y0, x1, y1) in enumerate(boxes):
            draw.rectangle([x0, y0, x1, y1], outline="red", width=2)
            if labels is not None:
                draw.text((x0 + 2, y0 + 2), str(labels[k]), fill="red")
    if rescale != 1:
        width, height = int(width * rescale), int(height * rescale)
        drawn = drawn.resize((width, height), Image.LANCZOS)
    file = io.BytesIO()
    drawn.save(file, format="PNG")
    return Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue())


def video(tag: str, array: np.ndarray, fps: float = 4) -> Summary:
    """(N, T, C, H, W) as an animated GIF, the N side by side."""
    from PIL import Image

    from ._convert import grid

    frames = [as_bytes(grid(array[:, t]).transpose(1, 2, 0)) for t in range(array.shape[1])]
    images = [Image.fromarray(np.ascontiguousarray(f[:, :, 0] if f.shape[2] == 1 else f)) for f in frames]
    file = io.BytesIO()
    images[0].save(file, format="GIF", save_all=True, append_images=images[1:], duration=round(1000 / fps), loop=0)
    height, width, channels = frames[0].shape
    proto = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue())
    return Summary(value=[Summary.Value(tag=tag, image=proto)])


def audio(tag: str, array: np.ndarray, sample_rate: int = 44100) -> Summary:
    """Numbers from -1 to 1 as 16-bit samples."""
    import wave

    samples = (array.astype(np.float64).squeeze().clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2")
    if samples.ndim != 1:
        raise AssertionError(f"add_audio: expected one channel: got shape {array.shape}")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(samples.tobytes())
    proto = Summary.Audio(sample_rate=sample_rate, num_channels=1, length_frames=len(samples), encoded_audio_string=file.getvalue(), content_type="audio/wav")
    return Summary(value=[Summary.Value(tag=tag, audio=proto)])


def text(tag: str, string: str) -> Summary:
    proto = TensorProto(dtype="DT_STRING", string_val=[string.encode()], tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]))
    metadata = _plugin("text", TextPluginData(version=0).SerializeToString())
    return Summary(value=[Summary.Value(tag=tag + "/text_summary", metadata=metadata, tensor=proto)])


def pr_curve(tag: str, labels, predictions, num_thresholds: int = 127, weights=None) -> Summary:
    """Counts, precision and recall at equally spaced thresholds, of labels (0 or 1) and predictions (0 to 1)."""
    n = min(num_thresholds, 127)  # TensorBoard takes no more
    labels, predictions = as_array(labels).reshape(-1).astype(np.float64), as_array(predictions).reshape(-1)
    weights = np.ones_like(labels) if weights is None else np.broadcast_to(as_array(weights).reshape(-1).astype(np.float64), labels.shape)
    bucket = np.floor(predictions * (n - 1)).astype(int)
    positive = np.bincount(bucket, weights * labels, n)[::-1].cumsum()[::-1]  # predicted at least the threshold
    negative = np.bincount(bucket, weights * (1 - labels), n)[::-1].cumsum()[::-1]
    rows = np.stack([positive, negative, negative[0] - negative, positive[0] - positive])
    precision = positive / np.maximum(1e-7, positive + negative)
    recall = positive / np.maximum(1e-7, positive[0])
    return _pr_curve(tag, np.concatenate([rows, [precision, recall]]), n)


def pr_curve_raw(tag: str, tp, fp, tn, fn, precision, recall, num_thresholds: int = 127, weights=None) -> Summary:
    n = min(num_thresholds, 127)
    return _pr_curve(tag, np.stack([as_array(v)[:n] for v in (tp, fp, tn, fn, precision, recall)]), n)


def _pr_curve(tag: str, rows: np.ndarray, n: int) -> Summary:
    metadata = _plugin("pr_curves", PrCurvePluginData(version=0, num_thresholds=n).SerializeToString())
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=_tensor_proto(rows.astype(np.float32), "DT_FLOAT"))])


def custom_scalars(layout: dict) -> Summary:
    """Charts by category and name: ["Multiline" or "Margin", tags]."""
    categories = []
    for category, charts in layout.items():
        made = []
        for title, (kind, tags) in charts.items():
            if kind == "Margin":
                content = layout_pb2.MarginChartContent(series=[layout_pb2.MarginChartContent.Series(value=tags[0], lower=tags[1], upper=tags[2])])
                made.append(layout_pb2.Chart(title=title, margin=content))
            else:
                made.append(layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=list(tags))))
        categories.append(layout_pb2.Category(title=category, chart=made))
    content = layout_pb2.Layout(category=categories).SerializeToString()
    proto = TensorProto(dtype="DT_STRING", string_val=[content], tensor_shape=TensorShapeProto())
    return Summary(value=[Summary.Value(tag="custom_scalars__config__", tensor=proto, metadata=_plugin("custom_scalars"))])


def mesh(tag: str, vertices, colors=None, faces=None, config: dict | None = None, display_name: str = "", description: str = "") -> Summary:
    """Points (B, N, 3) with colours and triangles (indices of points)."""
    import json

    from tensorboard.plugins.mesh import metadata
    from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData

    kinds = [(part, array) for part, array in ((MeshPluginData.VERTEX, vertices), (MeshPluginData.FACE, faces), (MeshPluginData.COLOR, colors)) if array is not None]
    components = metadata.get_components_bitmask([kind for kind, _ in kinds])
    values = []
    for kind, array in kinds:
        array = as_array(array).astype(np.float32)
        about = metadata.create_summary_metadata(tag, display_name or tag, kind, components, list(array.shape), description, json_config=json.dumps(config or {}))
        values.append(Summary.Value(tag=metadata.get_instance_name(tag, kind), tensor=_tensor_proto(array, "DT_FLOAT"), metadata=about))
    return Summary(value=values)


def hparams(hparam_dict: dict, metric_dict: dict, discrete: dict | None = None):
    """The three records of a run of the HParams plug-in: what there is, its beginning and its end."""
    from google.protobuf.struct_pb2 import ListValue, Value
    from tensorboard.plugins.hparams import api_pb2, metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

    if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
        raise TypeError("add_hparams: hparam_dict and metric_dict should be dictionary.")

    def typed(name, value):
        if isinstance(value, bool):
            return Value(bool_value=value), api_pb2.DATA_TYPE_BOOL
        if isinstance(value, str):
            return Value(string_value=value), api_pb2.DATA_TYPE_STRING
        try:
            return Value(number_value=as_number(value)), api_pb2.DATA_TYPE_FLOAT64
        except (NotImplementedError, AssertionError, TypeError):
            raise ValueError(f"add_hparams: value should be one of int, float, str, bool, or a tensor with one element: {name} is {value!r}") from None

    def record(tag, data):
        return Summary(value=[Summary.Value(tag=tag, tensor=metadata.NULL_TENSOR, metadata=metadata.create_summary_metadata(data))])

    start, infos = SessionStartInfo(), []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        wrapped, kind = typed(name, value)
        start.hparams[name].CopyFrom(wrapped)
        info = api_pb2.HParamInfo(name=name, type=kind)
        if discrete and name in discrete:
            info.domain_discrete.CopyFrom(ListValue(values=[typed(name, v)[0] for v in discrete[name]]))
        infos.append(info)
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metric_dict]
    return (record(metadata.EXPERIMENT_TAG, HParamsPluginData(experiment=api_pb2.Experiment(hparam_infos=infos, metric_infos=metrics))),
            record(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start)),
            record(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=SessionEndInfo(status=api_pb2.STATUS_SUCCESS))))
