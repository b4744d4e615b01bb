"""Writes the corpus: small files of every kind. `python test/fuzz/files/make_corpus.py` (needs torch and safetensors)."""

import collections
import io
import pickle
import struct
import tarfile
import zipfile
from argparse import Namespace
from pathlib import Path

import numpy as np
import safetensors.torch
import tapegrad as tg
import torch

CORPUS = Path(__file__).parent / "corpus"


def put(target: str, name: str, data: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def contents(lib) -> dict:
    """What users save, small, for either library."""
    lib.manual_seed(0)
    model = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.BatchNorm1d(2))
    optimizer = lib.optim.Adam(model.parameters())
    model(lib.ones(2, 2)).sum().backward()
    optimizer.step()
    w = lib.arange(6.0).reshape(2, 3)
    p = lib.nn.Parameter(lib.ones(2))
    p.tag = "weight"
    return {
        "state_dict": model.state_dict(), "optimizer": optimizer.state_dict(),
        "views": {"w": w, "row": w[1], "turned": w.t(), "p": [p, p], "many": lib.ones(1).expand(5), "empty": lib.zeros(0, 2)},
        "dtypes": [lib.ones(2).to(getattr(lib, d)) for d in ("float64", "float16", "bfloat16", "int8", "bool", "complex64")],
        "sparse": {"s": lib.eye(2).to_sparse(), "meta": lib.empty(2, device="meta")},
        "plain": {"n": [1, -2**70, 2.5, None, True, "\u00e4", (1, 2, 3, 4), {3}, 1j, b"\xff"], "size": w.shape, "dtype": lib.int8,
                  "device": lib.device("cpu"), 3: collections.OrderedDict(a=1), "c": collections.Counter("aab"),
                  "args": Namespace(lr=0.1), "d": collections.defaultdict(list, {"a": [1]}), "q": collections.deque([1], 2)},
        "numpy": [np.float32(1.5), np.arange(3, dtype=np.uint16), np.array(["ab"]), np.array(["2026-01-02"], "M8[D]")],
        "module": lib.nn.Linear(1, 1),
    }


def tar() -> bytes:
    storages, tensors, data, out = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    pickle.dump(1, storages, 2)
    pickle.dump((7, "cpu", torch.FloatStorage), storages, 2)
    storages.write(struct.pack("<q", 6) + np.arange(6, dtype=np.float32).tobytes())
    pickle.dump([(8, 7, 2, 3)], storages, 2)
    pickle.dump(1, tensors, 2)
    pickle.dump((100, 8, torch.FloatTensor), tensors, 2)
    tensors.write(struct.pack("<i4x", 1) + struct.pack("<3q", 3, 1, 0))
    data.write(b"\x80\x02}q\x00U\x01wq\x01U\x03100q\x02Qs.")
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, file in (("storages", storages), ("tensors", tensors), ("pickle", data)):
            member = tarfile.TarInfo(name)
            member.size = len(file.getvalue())
            archive.addfile(member, io.BytesIO(file.getvalue()))
    return out.getvalue()


def main() -> None:
    for name, value in contents(torch).items():
        for form, options in (("zip", {}), ("zip5", {"pickle_protocol": 5}), ("streams", {"_use_new_zipfile_serialization": False})):
            buffer = io.BytesIO()
            torch.save(value, buffer, **options)
            put("archive" if form.startswith("zip") else "streams", f"{name}.{form}", buffer.getvalue())
            if form.startswith("zip"):
                with zipfile.ZipFile(buffer) as archive:
                    put("stream", f"{name}.{form}.pkl", archive.read("archive/data.pkl"))
    for name, value in contents(tg).items():
        for format in ("tapegrad", "torch"):
            buffer = io.BytesIO()
            tg.save(value, buffer, format=format)
            put("container" if format == "tapegrad" else "archive", f"{name}.ours", buffer.getvalue())
    put("safetensors", "several", safetensors.torch.save({"a": torch.ones(2, 2), "b": torch.ones(3, dtype=torch.bfloat16), "c": torch.zeros(0)}, {"k": "v"}))
    put("safetensors", "one", safetensors.torch.save({"": torch.tensor(1.5)}))
    put("tar", "old.tar", tar())


if __name__ == "__main__":
    main()
