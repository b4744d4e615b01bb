"""Files whose tensors are read when they are asked for."""

import json
import os
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
import tapegrad as tg
from tapegrad import serialization


def test_names_and_values(tmp_path):
    x = tg.arange(10.0)
    shared = tg.nn.Parameter(tg.randn(2, 3))
    saved = {"model": {"w": shared, "tied": shared, "turned": tg.randn(3, 4).t()}, "steps": [tg.ones(2), {"deep": x[:6]}], "high": x[4:],
             "n": 3, (1, 2): tg.zeros(1), "sparse": tg.eye(3).to_sparse()}
    for name in ("x.tape", "x.pt"):
        path = tmp_path / name
        tg.save(saved, path)
        with serialization.open_file(path) as file:
            assert set(file) == {"model.w", "model.tied", "model.turned", "steps.0", "steps.1.deep", "high", "(1, 2)", "sparse"}
            assert len(file) == 8
            assert tg.equal(file["model.w"], shared)
            assert file["model.w"] is file["model.tied"]
            assert tg.equal(file["model.turned"], saved["model"]["turned"])
            assert file["high"].tolist() == x[4:].tolist()
            assert file.shape("steps.1.deep") == (6,)
            assert list(file.load(prefix="model.", strip=True)) == ["w", "tied", "turned"]
            assert list(file.load(pattern="steps.*")) == ["steps.0", "steps.1.deep"]
            assert list(file.load(["high"])) == ["high"]
            with pytest.raises(KeyError, match="nothing"):
                file["nothing"]
            kept = file["high"]
            assert "8 tensors" in repr(file)
        kept[0] = 99.0
        assert tg.load(path)["high"][0] == 4.0


def test_a_model_loads_from_it(tmp_path):
    model, other = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.Linear(4, 2)), tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.Linear(4, 5))
    tg.save(model.state_dict(), tmp_path / "m")
    with serialization.open_file(tmp_path / "m") as file:
        again = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.Linear(4, 2))
        assert str(again.load_state_dict(file)) == "<All keys matched successfully>"
        assert tg.equal(again[1].weight, model[1].weight)
        with pytest.raises(RuntimeError, match="size mismatch for 1.weight"):
            other.load_state_dict(file, strict=False)
        keys = other.load_state_dict(file.load(prefix="0."), strict=False)
        assert keys.missing_keys == ["1.weight", "1.bias"]
        again.load_state_dict(file, assign=True)
    again[0].weight.sum().backward()
    with tg.no_grad():
        again[0].weight.fill_(0.0)
    assert tg.equal(tg.load(tmp_path / "m")["0.weight"], model[0].weight)


@pytest.mark.parametrize("name", ["x.tape", "x.pt"])
def test_only_what_is_asked_for_is_checked(tmp_path, name):
    path = tmp_path / name
    tg.save({"good": tg.ones(1000), "bad": tg.full((1000,), 2.0)}, path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(struct.pack("<f", 2.0) * 1000) + 1] ^= 1
    path.write_bytes(bytes(raw))
    file = serialization.open_file(path)
    assert file["good"].sum() == 1000
    with pytest.raises(RuntimeError, match="the tensor 'bad' is damaged: its checksum is wrong"):
        file["bad"]
    assert file.read("bad", verify=False).shape == (1000,)
    assert serialization.open_file(path, verify=False)["bad"].shape == (1000,)


def test_each_part_of_a_sparse_tensor_is_checked(tmp_path):
    path = tmp_path / "x"
    t = tg.sparse_bsr_tensor([0, 1, 4660], list(range(4660)), tg.ones(4660, 1, 1), size=(2, 4660))
    tg.save({"t": t}, path)
    raw = bytearray(path.read_bytes())
    at = raw.index(struct.pack("<qqq", 0, 1, 4660)) + 8
    raw[at] = 2
    path.write_bytes(bytes(raw))
    with pytest.raises(RuntimeError, match="the tensor 't' is damaged: its checksum is wrong"):
        serialization.open_file(path)["t"]


def sparse_file(path, gigabytes):
    """A file of this size that takes no disk space: one large tensor of zeros and a small one behind it."""
    size = gigabytes << 30
    header = {"large": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]},
              "small": {"dtype": "F32", "shape": [256], "data_offsets": [size, size + 1024]}}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.seek(size, os.SEEK_CUR)
        file.write(np.arange(256, dtype=np.float32).tobytes())


def test_one_tensor_out_of_a_gigabyte_takes_milliseconds(tmp_path):
    path = tmp_path / "large"
    sparse_file(path, 1)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        small = serialization.open_file(path)["small"]
        assert small.sum() == 255 * 128
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.01, seconds
    seconds.clear()
    for _ in range(5):
        start = time.perf_counter()
        assert tg.load(path, mmap=True)["small"][255] == 255
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.01, seconds


MEMORY = """
import resource, sys, tapegrad as tg
from tapegrad import serialization
model = tg.nn.Linear(4096, 4096, bias=False)  # 64 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.load_state_dict(serialization.open_file(sys.argv[1], verify=False), assign=True)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
print(float(model.weight[0, 0].item()))
"""


def test_assigning_from_it_takes_no_memory(tmp_path):
    path = tmp_path / "m"
    tg.save({"weight": tg.full((4096, 4096), 3.0)}, path)
    out = subprocess.run([sys.executable, "-c", MEMORY, str(path)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                         capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) < 32, "assigning a mapped 64 MB tensor took memory"
    assert float(out[1]) == 3.0
