"""Files of TensorBoard's projector: vectors, what they are called, and their pictures in one sprite."""

import math
import os

import numpy as np
from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo, ProjectorConfig

from ._convert import as_array, as_bytes


def _write_table(path: str, rows) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write("\t".join(str(v) for v in row) + "\n")


def write(log_dir: str, mat, metadata, label_img, step: int, tag: str, header) -> None:
    """Adds an embedding to the projector's configuration in log_dir, in a folder of its own."""
    vectors = as_array(mat)
    if vectors.ndim != 2:
        raise AssertionError(f"add_embedding: mat should be 2D, where mat.size(0) is the number of data points: got shape {vectors.shape}")
    folder = f"{step:05d}/{tag}"
    path = os.path.join(log_dir, folder)
    os.makedirs(path, exist_ok=True)
    info = EmbeddingInfo(tensor_name=f"{tag}:{step:05d}", tensor_path=f"{folder}/tensors.tsv")
    if metadata is not None:
        if len(metadata) != len(vectors):
            raise AssertionError(f"add_embedding: #labels should equal with #data points: got {len(metadata)} and {len(vectors)}")
        rows = [list(m) if isinstance(m, (list, tuple)) else [m] for m in metadata]
        _write_table(os.path.join(path, "metadata.tsv"), [*([list(header)] if header else []), *rows])
        info.metadata_path = f"{folder}/metadata.tsv"
    if label_img is not None:
        pictures = as_array(label_img)
        if len(pictures) != len(vectors):
            raise AssertionError(f"add_embedding: #images should equal with #data points: got {len(pictures)} and {len(vectors)}")
        _write_sprite(os.path.join(path, "sprite.png"), pictures)
        info.sprite.image_path = f"{folder}/sprite.png"
        info.sprite.single_image_dim.extend([pictures.shape[3], pictures.shape[2]])
    _write_table(os.path.join(path, "tensors.tsv"), vectors.tolist())
    config, file_name = ProjectorConfig(), os.path.join(log_dir, "projector_config.pbtxt")
    if os.path.exists(file_name):
        with open(file_name) as file:
            text_format.Parse(file.read(), config)
    kept = [e for e in config.embeddings if e.tensor_name != info.tensor_name]
    with open(file_name, "w") as file:
        file.write(text_format.MessageToString(ProjectorConfig(embeddings=[*kept, info])))


def _write_sprite(path: str, pictures: np.ndarray) -> None:
    """(N, C, H, W) as a square of pictures."""
    from PIL import Image

    from ._convert import grid

    side = math.ceil(math.sqrt(len(pictures)))
    blank = np.zeros((side * side - len(pictures), *pictures.shape[1:]), pictures.dtype)
    canvas = as_bytes(grid(np.concatenate([pictures, blank]), side).transpose(1, 2, 0))
    Image.fromarray(np.ascontiguousarray(canvas[:, :, 0] if canvas.shape[2] == 1 else canvas)).save(path)
