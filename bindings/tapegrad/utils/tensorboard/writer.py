"""SummaryWriter: writes a run's values for TensorBoard."""

import os
import time

from tensorboard.compat.proto import event_pb2
from tensorboard.compat.proto.event_pb2 import Event, SessionLog, TaggedRunMetadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from . import summary
from ._convert import as_array, figure_to_array

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Writes events into a file of a folder, from a thread behind a queue."""

    def __init__(self, log_dir, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""):
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        return self.event_writer.get_logdir()

    def add_event(self, event, step=None, walltime=None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary, global_step=None, walltime=None) -> None:
        self.add_event(event_pb2.Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_and_stats, walltime=None) -> None:
        graph, stats = graph_and_stats
        self.add_event(event_pb2.Event(graph_def=graph.SerializeToString()), None, walltime)
        self.add_event(event_pb2.Event(tagged_run_metadata=TaggedRunMetadata(tag="step1", run_metadata=stats.SerializeToString())), None, walltime)

    def flush(self) -> None:
        self.event_writer.flush()

    def close(self) -> None:
        self.event_writer.close()

    def reopen(self) -> None:
        """Begins a new file in the same folder."""
        old = self.event_writer
        self.event_writer = EventFileWriter(old.get_logdir())


class SummaryWriter:
    """Writes scalars, pictures, histograms, graphs and the like into `log_dir`, for `tensorboard --logdir`.

    Args:
        log_dir: default: runs/TIME_HOST + comment.
        comment: ends the default log_dir.
        purge_step: events from this step on are to be forgotten: a crashed run goes on there.
        max_queue, flush_secs: how many events wait at most, and how many seconds, before they are on disk.
        filename_suffix: ends the names of files.

    Values are tensors, arrays or numbers. The step and the wall time (seconds since 1970) may be given with each call.
    A context: closes at its end.
    """

    def __init__(self, log_dir=None, comment: str = "", purge_step=None, max_queue: int = 10, flush_secs: float = 120,
                 filename_suffix: str = ""):
        if not log_dir:
            import socket
            from datetime import datetime

            log_dir = os.path.join("runs", datetime.now().strftime("%b%d_%H-%M-%S") + "_" + socket.gethostname() + comment)
        self.log_dir = str(log_dir)
        self.purge_step, self.max_queue, self.flush_secs, self.filename_suffix = purge_step, max_queue, flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict | None = None
        self.default_bins = summary.DEFAULT_BINS.tolist()
        self._get_file_writer()

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is None or self.all_writers is None:
            self.file_writer = FileWriter(self.log_dir, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers = {self.log_dir: self.file_writer}
            if self.purge_step is not None:
                self.file_writer.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                self.file_writer.add_event(Event(step=self.purge_step, session_log=SessionLog(status=SessionLog.START)))
                self.purge_step = None
        return self.file_writer

    def _add(self, record, step, walltime) -> None:
        self._get_file_writer().add_summary(record, step, walltime)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False) -> None:
        """A number."""
        self._add(summary.scalar(summary.clean_tag(tag), scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None) -> None:
        """Several numbers for one chart: a dictionary. Each has a folder of its own below log_dir."""
        walltime = time.time() if walltime is None else walltime
        self._get_file_writer()
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers[folder].add_summary(summary.scalar(summary.clean_tag(main_tag), value), global_step, walltime)

    def add_tensor(self, tag, tensor, global_step=None, walltime=None) -> None:
        """All values of a tensor, as float32."""
        self._add(summary.tensor(summary.clean_tag(tag), tensor), global_step, walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None) -> None:
        """How values are distributed. `bins`: "tensorflow" (edges rise by a tenth), a method or number of numpy.histogram,
        or edges. ValueError for no value, or one that is not finite."""
        self._add(summary.histogram(summary.clean_tag(tag), values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(self, tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts, global_step=None, walltime=None) -> None:
        """A histogram that was counted elsewhere: the upper edges of buckets, and their counts."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        self._add(summary.histogram_raw(summary.clean_tag(tag), min, max, num, sum, sum_squares, bucket_limits, bucket_counts), global_step, walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW") -> None:
        """A picture: numbers from 0 to 1, or bytes. `dataformats` names the dimensions: CHW, HWC or HW."""
        self._add(summary.picture(summary.clean_tag(tag), as_array(img_tensor), dataformats), global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW") -> None:
        """Pictures, as a grid of eight columns."""
        array = as_array(img_tensor)
        self._add(summary.picture(summary.clean_tag(tag), array, dataformats[1:] if array.ndim == 3 and len(dataformats) == 4 else dataformats),
                  global_step, walltime)

    def add_image_with_boxes(self, tag, img_tensor, box_tensor, global_step=None, walltime=None, rescale=1, dataformats="CHW", labels=None) -> None:
        """A picture with rectangles (x0, y0, x1, y1) in pixels, and their labels."""
        labels = [labels] if isinstance(labels, str) else labels
        boxes = as_array(box_tensor).reshape(-1, 4)
        if labels is not None and len(labels) != len(boxes):
            labels = None
        self._add(summary.picture(summary.clean_tag(tag), as_array(img_tensor), dataformats, rescale, boxes, labels), global_step, walltime)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None) -> None:
        """A figure of matplotlib, or a list of them; close: they are closed."""
        array = figure_to_array(figure, close)
        self._add(summary.picture(summary.clean_tag(tag), array, "NCHW" if array.ndim == 4 else "CHW"), global_step, walltime)

    def add_video(self, tag, vid_tensor, global_step=None, fps=4, walltime=None) -> None:
        """Moving pictures (N, T, C, H, W), side by side, as a GIF."""
        self._add(summary.video(summary.clean_tag(tag), as_array(vid_tensor), fps), global_step, walltime)

    def add_audio(self, tag, snd_tensor, global_step=None, sample_rate=44100, walltime=None) -> None:
        """A sound (1, L) of numbers from -1 to 1."""
        self._add(summary.audio(summary.clean_tag(tag), as_array(snd_tensor), sample_rate), global_step, walltime)

    def add_text(self, tag, text_string, global_step=None, walltime=None) -> None:
        """Text, in Markdown."""
        self._add(summary.text(summary.clean_tag(tag), text_string), global_step, walltime)

    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True) -> None:
        """The operators of model(*input_to_model) in the scopes of their modules; runs the model once. Weights, buffers and
        their flags are as before. RuntimeError while a profiler runs."""
        from ._graph import graph

        if input_to_model is None:
            raise ValueError("add_graph: an input is needed: the graph is that of one call")
        made = graph(model, input_to_model)
        if verbose:
            print(made[0])
        self._get_file_writer().add_graph(made)

    def add_onnx_graph(self, prototxt) -> None:
        raise NotImplementedError("add_onnx_graph: ONNX files are not read\nuse add_graph with the model")

    def add_embedding(self, mat, metadata=None, label_img=None, global_step=None, tag="default", metadata_header=None) -> None:
        """Vectors (N, D) for the projector, with names per vector and pictures (N, C, H, W)."""
        from ._embedding import write

        write(self._get_file_writer().get_logdir(), mat, metadata, label_img, 0 if global_step is None else int(global_step), tag, metadata_header)

    def add_pr_curve(self, tag, labels, predictions, global_step=None, num_thresholds=127, weights=None, walltime=None) -> None:
        """Precision and recall of predictions (0 to 1) of labels (0 or 1)."""
        self._add(summary.pr_curve(summary.clean_tag(tag), labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(self, tag, true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision,
                         recall, global_step=None, num_thresholds=127, weights=None, walltime=None) -> None:
        """A curve that was counted elsewhere, per threshold."""
        self._add(summary.pr_curve_raw(summary.clean_tag(tag), true_positive_counts, false_positive_counts, true_negative_counts,
                                       false_negative_counts, precision, recall, num_thresholds, weights), global_step, walltime)

    def add_custom_scalars(self, layout) -> None:
        """Charts out of scalars: {category: {title: ["Multiline" or "Margin", tags]}}."""
        self._add(summary.custom_scalars(layout), None, None)

    def add_custom_scalars_multilinechart(self, tags, category="default", title="untitled") -> None:
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(self, tags, category="default", title="untitled") -> None:
        if len(tags) != 3:
            raise AssertionError(f"add_custom_scalars_marginchart: expected three tags (value, lower, upper): got {len(tags)}")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_mesh(self, tag, vertices, colors=None, faces=None, config_dict=None, global_step=None, walltime=None) -> None:
        """Points (B, N, 3), their colours and triangles."""
        self._add(summary.mesh(summary.clean_tag(tag), vertices, colors, faces, config_dict), global_step, walltime)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None) -> None:
        """Settings of a run and the numbers it came to, in a folder of their own below log_dir (run_name; default: the time)."""
        records = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), str(time.time()) if run_name is None else run_name)
        with SummaryWriter(log_dir=folder) as writer:
            for record in records:
                writer.file_writer.add_summary(record, global_step)
            for tag, value in metric_dict.items():
                writer.add_scalar(tag, value, global_step)

    def flush(self) -> None:
        """Writes what waits."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Writes what waits and closes the files; a later call of add_* begins new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None
