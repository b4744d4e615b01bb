"""A save that fails or is killed leaves the old file; what is on the disk is always a whole file."""

import builtins
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tapegrad as tg

SAVER = """
import sys, tapegrad as tg
path = sys.argv[1]
x = tg.zeros(100_000)
for n in range(int(sys.argv[2]) + 1, 1 << 30):
    tg.save({"x": x + n, "n": n, "more": [x[:10] + n]}, path)
    if n == int(sys.argv[2]) + 1:
        print("ready", flush=True)
"""
KILLS = 200


def check(path, most):
    data = tg.load(path)
    n = data["n"]
    assert data["x"].min().item() == data["x"].max().item() == n
    assert data["more"][0].tolist() == [n] * 10
    assert n >= most
    return n


@pytest.mark.parametrize("name", ["x.tape", "x.pt"])
def test_killed_at_200_moments_the_old_file_loads(tmp_path, name):
    """Children that save without end are killed, 100 for each format; forked copies of a warm process make that cheap."""
    path = tmp_path / name
    tg.save({"x": tg.zeros(100_000), "n": 0, "more": [tg.zeros(10)]}, path)
    rng = np.random.default_rng(len(name))
    most, moved = 0, 0
    x = tg.zeros(100_000)
    begin = time.monotonic()
    for _ in range(3):
        tg.save({"x": x, "n": 0, "more": [x[:10]]}, path)
    window = max(0.02, time.monotonic() - begin)  # some saves long, however busy the machine is
    for _ in range(KILLS // 2):
        child = os.fork()
        if child == 0:
            try:
                for n in range(most + 1, 1 << 30):
                    tg.save({"x": x + n, "n": n, "more": [x[:10] + n]}, path)
            finally:
                os._exit(1)
        time.sleep(window * rng.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        n = check(path, most)
        moved += n > most
        most = n
    assert moved > 3, "the kills came before anything was saved"
    left = [f for f in os.listdir(tmp_path) if f != name]
    assert left in ([], [f".{name}.tmp"]), f"files are left behind: {left}"  # a kill between naming and renaming leaves one
    tg.save({}, path)
    assert os.listdir(tmp_path) == [name]


def test_what_a_killed_process_left_is_removed(tmp_path):
    """A temporary file that nobody locks is taken away; that of a living process, here this one, stays."""
    path, left = tmp_path / "x", tmp_path / ".x.tmp"
    left.write_bytes(b"half")
    tg.save({"v": 1}, path)
    assert os.listdir(tmp_path) == ["x"]
    with open(left, "wb") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        tg.save({"v": 2}, path)
        assert sorted(os.listdir(tmp_path)) == [".x.tmp", "x"]
    left.unlink()
    left.mkdir()  # and what is no file of ours is left alone
    tg.save({"v": 3}, path)
    assert left.is_dir()
    assert tg.load(path) == {"v": 3}
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no lock is kept


def test_processes_that_save_the_same_file(tmp_path):
    path, children = tmp_path / "x", []
    for n in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            status = 1
            try:
                for _ in range(100):
                    tg.save({"n": n}, path)
                status = 0
            finally:
                os._exit(status)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert os.listdir(tmp_path) == ["x"]
    assert tg.load(path)["n"] in (0, 1, 2)


def test_a_process_of_its_own_is_killed(tmp_path):
    path, most = tmp_path / "x", 0
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", SAVER, str(path), str(most)], stdout=subprocess.PIPE,
                                 env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.05)
        child.kill()
        child.wait()
        child.stdout.close()
        most = check(path, most)
    assert most > 2


@pytest.mark.parametrize("format", ["tapegrad", "torch"])
def test_full_disk(tmp_path, format, monkeypatch):
    path = tmp_path / "x"
    tg.save({"v": 1}, path)

    opened = builtins.open

    def small(file, mode="r", *args, **kwargs):
        real = opened(file, mode, *args, **kwargs)
        if "w" in mode and "b" in mode:
            class Wrapper:
                def __init__(self):
                    self.left = 100_000

                def write(self, data):
                    self.left -= len(data)
                    if self.left < 0:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    return real.write(data)

                def __getattr__(self, name):
                    return getattr(real, name)

                def __enter__(self):
                    return self

                def __exit__(self, *_):
                    real.close()
            return Wrapper()
        return real

    monkeypatch.setattr(builtins, "open", small)
    with pytest.raises(OSError, match="save: No space left on device; the file that was there is as it was") as error:
        tg.save({"t": tg.ones(1_000_000)}, path, format=format)
    monkeypatch.undo()
    assert error.value.errno == errno.ENOSPC
    assert error.value.filename == str(path)
    assert tg.load(path) == {"v": 1}
    assert os.listdir(tmp_path) == ["x"]


def test_a_limit_of_the_system(tmp_path):
    """The same with the kernel's own refusal: a limit on the size of files."""
    path = tmp_path / "x"
    tg.save({"v": 1}, path)
    code = ("import resource, signal, sys, tapegrad as tg\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
            "try: tg.save({'t': tg.ones(4_000_000)}, sys.argv[1])\nexcept OSError as e: print(e.errno, e)")
    out = subprocess.run([sys.executable, "-c", code, str(path)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                         capture_output=True, text=True, check=True).stdout
    assert out.startswith(f"{errno.EFBIG} ")
    assert "save: File too large; the file that was there is as it was" in out
    assert tg.load(path) == {"v": 1}
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("nameless", [True, False])
def test_permissions_links_and_leftovers(tmp_path, nameless, monkeypatch):
    if not nameless:  # systems without such files take one with a name
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path, link = tmp_path / "x", tmp_path / "link"
    tg.save({"v": 1}, path)
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    path.chmod(0o640)
    link.symlink_to(path)
    tg.save({"v": 2}, link)
    assert link.is_symlink()
    assert tg.load(path) == {"v": 2}
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(TypeError):
        tg.save({"bad": object()}, path)
    assert sorted(os.listdir(tmp_path)) == ["link", "x"]


def test_without_links_to_descriptors(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "link", refuse)
    tg.save({"x": tg.arange(5)}, tmp_path / "x")
    monkeypatch.undo()
    assert tg.load(tmp_path / "x")["x"].tolist() == [0, 1, 2, 3, 4]
    assert os.listdir(tmp_path) == ["x"]


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_devices_and_pipes(tmp_path):
    tg.save({"x": tg.ones(3)}, os.devnull)
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    got = []

    def read():
        with open(fifo, "rb") as file:
            got.append(tg.load(file))

    thread = threading.Thread(target=read)
    thread.start()
    tg.save({"x": tg.arange(4)}, fifo)
    thread.join(20)
    assert got[0]["x"].tolist() == [0, 1, 2, 3]


def test_the_name_comes_after_the_bytes(tmp_path, monkeypatch):
    """fsync of the file, rename, fsync of the folder: in this order."""
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "file"), fsync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), replace(a, b))[1])
    tg.save({"x": tg.ones(3)}, tmp_path / "x")
    assert calls == ["file", "rename", "folder"]
