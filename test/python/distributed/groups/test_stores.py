"""Stores against PyTorch's, both ways, and when processes are killed or interrupted."""

import datetime
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import tapegrad.distributed as dist

torch = pytest.importorskip("torch")
theirs = torch.distributed

SHORT = datetime.timedelta(milliseconds=50)
LONG = datetime.timedelta(seconds=20)


def every_call(store, wait_errors) -> list:
    """What the calls of a store give; errors by their class."""
    out = [store.set("a", "1"), store.get("a"), store.set("a", b"\x00\xff"), store.get("a"), store.set("", b""), store.get("")]
    out += [store.add("n", 5), store.add("n", -7), store.get("n")]
    out += [store.compare_set("c", "no", "x"), store.compare_set("c", "", "x"), store.compare_set("c", "no", "y"), store.compare_set("c", "x", "y")]
    out += [store.append("c", "z"), store.get("c"), store.append("fresh", "1"), store.get("fresh"), store.delete_key("fresh")]
    out += [store.check(["a", "n"]), store.check(["fresh"]), store.check([]), store.wait(["a", "c"]), store.wait(["a"], LONG), store.num_keys()]
    out += [store.multi_set(["m", "é"], ["1", "2"]), store.multi_get(["é", "m"]), store.get("é"), store.multi_get([])]
    out += [sorted(store.list_keys()), store.barrier("b", 1), store.has_extended_api()]
    for call in (lambda: store.wait(["a", "none"], SHORT), lambda: store.barrier("b2", 2, SHORT)):
        with pytest.raises(wait_errors):
            call()
    store.set_timeout(SHORT)
    with pytest.raises(wait_errors):
        store.get("none")
    for call in (lambda: store.get(3), lambda: store.set("k", 3), lambda: store.wait("k", 3), lambda: store.set_timeout(5), lambda: store.add("k", "x")):
        with pytest.raises(TypeError):
            call()
    out += [store.timeout, store.get("a")]
    other = store.clone()
    other.set_timeout(LONG)
    out += [other.get("m"), type(other).__name__]
    return out


def test_calls_give_what_torch_s_give(tmp_path):
    ours = {
        "hash": dist.HashStore(), "prefix": dist.PrefixStore("p", dist.HashStore()), "file": dist.FileStore(str(tmp_path / "ours"), -1),
        "tcp": dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)}
    reference = {
        "hash": theirs.HashStore(), "prefix": theirs.PrefixStore("p", theirs.HashStore()),
        "tcp": theirs.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)}
    for kind, store in ours.items():
        got = every_call(store, dist.DistStoreError)
        if kind in reference:
            assert got == every_call(reference[kind], theirs.DistStoreError), kind
    assert isinstance(dist.DistStoreError("x"), dist.DistError) and issubclass(dist.DistError, RuntimeError)


@pytest.mark.parametrize("libuv", [True, False])
@pytest.mark.parametrize("server", ["ours", "theirs"])
def test_clients_of_both_libraries_share_a_server(server, libuv):
    if server == "ours":
        served = dist.TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False)
    else:
        served = theirs.TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False, use_libuv=libuv)
    mine = dist.TCPStore("127.0.0.1", served.port, None, False, LONG)
    other = theirs.TCPStore("127.0.0.1", served.port, None, False, LONG, use_libuv=libuv)
    plain = theirs.TCPStore("127.0.0.1", served.port, None, False, LONG)
    assert every_call(mine.clone(), dist.DistStoreError)[:-1] == every_call(_cleared(plain, mine), theirs.DistStoreError)[:-1]
    mine.set("from mine", b"\x00" * 100_000)
    other.set("from other", b"\x01" * 100_000)
    assert other.get("from mine") == b"\x00" * 100_000 and mine.get("from other") == b"\x01" * 100_000
    got = []
    threads = [threading.Thread(target=lambda: got.append(mine.get("late"))), threading.Thread(target=lambda: mine.barrier("all", 2))]
    for thread in threads:
        thread.start()
    other.set("late", "x")
    other.barrier("all", 2)
    for thread in threads:
        thread.join(10)
    assert got == [b"x"] and not any(thread.is_alive() for thread in threads)
    mine.multi_set(["k1", "k2"], ["1", "2"])
    assert other.multi_get(["k1", "k2"]) == [b"1", b"2"]
    for store in (mine, other) if libuv else ():  # PyTorch's older server and client have no queues
        store.queue_push("q", "1")
        other.queue_push("q", "2")
        assert (mine.queue_pop("q"), other.queue_len("q"), other.queue_pop("q")) == (b"1", 1, b"2")
        with pytest.raises(RuntimeError, match="empty"):
            store.queue_pop("q", False)
    if libuv:
        with pytest.raises(dist.QueueEmptyError):
            mine.queue_pop("q", False)


def _cleared(result, store):
    for key in store.list_keys():
        store.delete_key(key)
    return result


@pytest.mark.parametrize("server", ["ours", "theirs"])
def test_a_server_waits_for_clients_of_both_libraries(server):
    port = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False).port
    libraries = (dist, theirs) if server == "ours" else (theirs, dist)
    clients = []
    threads = [threading.Thread(target=lambda lib=lib: clients.append(lib.TCPStore("127.0.0.1", port, 3, False, LONG))) for lib in (dist, theirs)]
    for thread in threads:
        thread.start()
    served = libraries[0].TCPStore("127.0.0.1", port, 3, True, LONG)
    for thread in threads:
        thread.join(20)
    assert len(clients) == 2
    served.set("k", "v")
    assert [client.get("k") for client in clients] == [b"v"] * 2


def test_a_token_keeps_torch_out_and_lets_the_job_in(monkeypatch):
    served = dist.TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False, token="secret")
    with pytest.raises(dist.DistNetworkError, match="TAPEGRAD_JOB_TOKEN"):
        dist.TCPStore("127.0.0.1", served.port, None, False, LONG)
    with pytest.raises(theirs.DistNetworkError):
        theirs.TCPStore("127.0.0.1", served.port, None, False, datetime.timedelta(seconds=1))
    monkeypatch.setenv("TAPEGRAD_JOB_TOKEN", "secret")
    client = dist.TCPStore("127.0.0.1", served.port, None, False, LONG)
    served.set("k", "v")
    assert client.get("k") == b"v"


def test_a_server_listens_where_it_was_told_and_nowhere_else(monkeypatch):
    def reached(host, served):
        try:
            dist.TCPStore(host, served.port, None, False, datetime.timedelta(milliseconds=300))
        except dist.DistNetworkError:
            return False
        return True

    served = dist.TCPStore("127.0.0.2", 0, None, True, LONG, wait_for_workers=False)
    assert [reached(f"127.0.0.{i}", served) for i in (1, 2, 3)] == [False, True, False]
    monkeypatch.setenv("TAPEGRAD_STORE_LISTEN", "0.0.0.0")
    served = dist.TCPStore("127.0.0.2", 0, None, True, LONG, wait_for_workers=False)
    assert [reached(f"127.0.0.{i}", served) for i in (1, 2, 3)] == [True, True, True]


def test_files_are_shared_with_torch(tmp_path):
    path = str(tmp_path / "keys")
    mine, other = dist.FileStore(path, 2), theirs.FileStore(path, 2)
    mine.set("a", b"1")
    other.set("b", b"2")
    assert other.get("a") == b"1" and mine.get("b") == b"2"
    assert [mine.add("n", 1), other.add("n", 1), mine.add("n", 1)] == [1, 2, 3]
    assert other.delete_key("a") and not mine.check(["a"])
    del other
    assert os.path.exists(path)
    del mine
    assert not os.path.exists(path)


def test_mistakes(tmp_path):
    hash_store = dist.HashStore()
    for call, error, text in [
        (lambda: hash_store.set(1, "x"), TypeError, "set: a key must be a str: got int"),
        (lambda: hash_store.set("k", None), TypeError, "set: a value must be bytes or a str: got NoneType"),
        (lambda: hash_store.wait("abc"), TypeError, "the keys must be a list: got one str"),
        (lambda: hash_store.wait(["k"], -LONG), ValueError, "must not be negative"),
        (lambda: hash_store.multi_set(["a"], []), ValueError, "one value per key: got 1 keys and 0 values"),
        (lambda: dist.PrefixStore("p", {}), TypeError, "expected a store: got dict"),
        (lambda: dist.Store().get("k"), TypeError, "^Store: only HashStore"),
        (lambda: dist.TCPStore("127.0.0.1", 70000), ValueError, "0 to 65535: got 70000"),
        (lambda: dist.FileStore(str(tmp_path), 1), dist.DistStoreError, "cannot open"),
        (lambda: __import__("pickle").dumps(hash_store), TypeError, "belongs to the process that made it"),
        (lambda: hash_store.get("none\ud800"), UnicodeEncodeError, "surrogates"),
    ]:
        with pytest.raises(error, match=text):
            call()
    with pytest.raises(dist.DistStoreError, match=r"^wait: timed out after 50 ms: no value for x, y$"):
        hash_store.wait(["x", "y"], SHORT)


def test_closing_wakes_threads():
    served = dist.TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False)
    raised = []

    def wait():
        try:
            served.get("never")
        except dist.DistStoreError as e:
            raised.append(str(e))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    start = time.monotonic()
    served.close("enough")
    for thread in threads:
        thread.join(10)
    assert time.monotonic() - start < 0.5 and raised == ["get: the store is closed: enough"] * 3


_PROGRAM = """
import sys, datetime, time
import tapegrad.distributed as dist
kind, place = sys.argv[1:3]
limit = datetime.timedelta(seconds=60)
store = (dist.FileStore(place, 2) if kind == "file" else dist.HashStore() if kind == "hash" else
         dist.TCPStore("127.0.0.1", int(place), None, kind == "server", limit, wait_for_workers=False))
print(store.port if kind == "server" else "ready", flush=True)
try:
    store.get("never") if kind != "server" else time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    store.set("after", "1")
    print(store.get("after"), flush=True)
"""


def start(kind: str, place) -> tuple[subprocess.Popen, str]:
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, kind, str(place)], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("kind", ["hash", "file", "client"])
def test_ctrl_c_ends_a_wait_at_once(kind, tmp_path):
    served = dist.TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False)
    latest = []
    for attempt in range(3):
        process, line = start(kind, tmp_path / f"keys{attempt}" if kind == "file" else served.port)
        assert line == "ready"
        time.sleep(0.2)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        latest.append(time.monotonic() - begun)
        assert process.stdout.read() == "b'1'\n" and process.wait(20) == 0
    assert min(latest) < 0.2


def test_a_killed_server_ends_its_clients_waits_at_once():
    server, port = start("server", 0)
    client = dist.TCPStore("127.0.0.1", int(port), None, False, LONG)
    threading.Timer(0.2, server.kill).start()
    begun = time.monotonic()
    with pytest.raises(dist.DistNetworkError, match="has closed the connection"):
        client.get("never")
    assert time.monotonic() - begun < 2
    with pytest.raises(dist.DistNetworkError):
        client.set("k", "v")
    server.wait()


def test_a_killed_client_leaves_the_server_as_it_was():
    served = dist.TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False)
    for _ in range(3):
        client, _ = start("client", served.port)
        client.kill()
        client.wait()
    served.set("never", "1")
    assert served.get("never") == b"1"


def test_a_forked_child_is_told_to_make_a_store_of_its_own():
    served = dist.TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            served.get("k")
        except dist.DistStoreError as e:
            text = str(e)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as file:
        assert "this is a forked child" in file.read()
    served.set("k", "v")
    assert served.get("k") == b"v"
