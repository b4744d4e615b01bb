"""The smaller parts of utils: environment, old names, absent builders, exchanging tensors, downloads of weights."""

import functools
import hashlib
import http.server
import importlib
import threading

import pytest
import tapegrad
import tapegrad as tg
from pairs import same_as_torch
from tapegrad import nn


def test_environment():
    text = tapegrad.utils.collect_env.get_pretty_env_info()
    assert tapegrad.__version__ in text and "Is CUDA available: False" in text and "numpy==" in text and "CPU: " in text
    assert tapegrad.utils.collect_env.get_env_info().tapegrad_version == tapegrad.__version__


def test_dlpack():
    x = tapegrad.arange(3)
    y = tapegrad.utils.dlpack.from_dlpack(tapegrad.utils.dlpack.to_dlpack(x))
    y[0] = 7
    assert x.tolist() == [7, 1, 2]


def test_extensions_say_why_not():
    c = tapegrad.utils.cpp_extension
    for refused in (lambda: c.load("x", ["x.cpp"]), lambda: c.load_inline("x", ""), lambda: c.CUDAExtension("x", []), lambda: c.BuildExtension()):
        with pytest.raises(NotImplementedError, match="C\\+\\+ interface"):
            refused()

    class Own(c.BuildExtension):
        pass

    assert c.CUDA_HOME is None and isinstance(c.include_paths(), list)


def test_absent_names():
    with pytest.raises(AttributeError):
        tapegrad.utils.nothing_here  # noqa: B018


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    """A folder behind a web server of this process: (folder, address)."""
    folder = tmp_path / "served"
    folder.mkdir()
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_weights_from_the_network(server, tmp_path):
    folder, address = server
    net = nn.Linear(3, 2)
    tapegrad.save(net.state_dict(), folder / "plain.pt")
    digest = hashlib.sha256((folder / "plain.pt").read_bytes()).hexdigest()
    (folder / "plain.pt").rename(folder / f"net-{digest[:8]}.pt")
    cache = tmp_path / "cache"
    state = tapegrad.utils.model_zoo.load_url(f"{address}/net-{digest[:8]}.pt", model_dir=str(cache), progress=False, check_hash=True)
    assert state["weight"].equal(net.weight) and [f.name for f in cache.iterdir()] == [f"net-{digest[:8]}.pt"]
    (folder / f"net-{digest[:8]}.pt").unlink()  # from the cache now
    again = tapegrad.hub.load_state_dict_from_url(f"{address}/net-{digest[:8]}.pt", model_dir=str(cache), progress=False)
    assert again["bias"].equal(net.bias)
    (folder / "net-00000000.pt").write_bytes(b"something else")
    with pytest.raises(RuntimeError, match="hash"):
        tapegrad.hub.load_state_dict_from_url(f"{address}/net-00000000.pt", model_dir=str(cache), progress=False, check_hash=True)
    assert [f.name for f in cache.iterdir()] == [f"net-{digest[:8]}.pt"]  # nothing half
    with pytest.raises(OSError, match="404"):
        tapegrad.hub.load_state_dict_from_url(f"{address}/absent.pt", model_dir=str(cache), progress=False)


def test_dictionaries_with_weak_keys_by_identity():
    import gc
    import importlib

    def run(t):
        weak = importlib.import_module(f"{t.__name__}.utils.weak")
        a, b = t.ones(2), t.ones(2)
        table = weak.WeakIdKeyDictionary({a: 1})
        table[b] = 2
        table[a] = 3
        reference, held = weak.WeakIdRef(a), weak.TensorWeakRef(b)
        facts = [len(table), table[a], table[b], a in table, t.ones(2) in table, reference == weak.WeakIdRef(a), reference == weak.WeakIdRef(b),
                 held() is b, sorted(table.values()), table.get(t.ones(2), "none"), len(table.copy())]
        del b
        gc.collect()
        return [*facts, len(table), held() is None, [k is a for k in table], table.pop(a), len(table)]

    assert run(tg) == run(pytest.importorskip("torch"))


def test_groups_of_tensors_as_torch_s():
    torch = pytest.importorskip("torch")

    def plain(groups):
        return sorted((str(key[1]).split(".")[1], [[None if t is None else (str(t.dtype).split(".")[1], t.tolist()) for t in part] for part in parts], places)
                      for key, (parts, places) in groups.items())

    def outcomes(library):
        module = library.utils._foreach_utils
        a, b, c = library.ones(2), library.ones(2, dtype=library.float64), library.ones(3)
        half, whole = a.half(), a.to(library.int64)
        found = [module._get_foreach_kernels_supported_devices(), set(module._get_fused_kernels_supported_devices()),
                 module._has_foreach_support([a, None], a.device), module._has_foreach_support([library.nn.Parameter(a)], a.device)]
        for lists in ([[a, b, c], [a, None, c]], [[a, b, c], []], [[a, b, c], [b, b, c]], [(b, b, c), (a, b, c)], [[a, b], [a]], [[a, None], [a, b]],
                      [[a, b], [half, b]], [[a, b], [a.bfloat16(), b]], [[a], [whole]], [[half, whole], [a, b]], [], [[]]):  # fmt: skip
            for with_indices in False, True:
                try:
                    found.append(plain(module._group_tensors_by_device_and_dtype(lists, with_indices)))
                except RuntimeError:
                    found.append("RuntimeError")
        return found

    assert outcomes(tapegrad) == outcomes(torch)


def test_futures_in_annotations():
    assert tapegrad.Future is tapegrad.futures.Future and tapegrad.Future[int].__args__ == (int,)


def test_callbacks_of_futures_that_fail(caplog):
    def fail(future):
        raise ValueError("no")

    def interrupt(future):
        raise KeyboardInterrupt

    seen, future = [], tapegrad.Future()
    for callback in (fail, seen.append, lambda: None, seen.append):
        future.add_done_callback(callback)
    derived = future.then(fail)
    both = tapegrad.futures.collect_all([future, derived])
    future.set_result(3)
    assert seen == [future, future] and future.wait() == 3 and [record.exc_info[0] for record in caplog.records] == [ValueError, TypeError]
    for waited in (derived, both):
        with pytest.raises(RuntimeError, match="^Got the following error when running the callback: ValueError: no$") as error:
            waited.wait()
        assert isinstance(error.value.__cause__, ValueError)
    future.add_done_callback(fail)  # done: at once, and ignored as well
    with pytest.raises(RuntimeError, match="^Future can only be marked completed once"):
        future.set_result(4)
    with pytest.raises(RuntimeError, match="^Future can't be None$"):
        tapegrad.futures.wait_all([future, None])
    future = tapegrad.Future()
    derived = future.then(interrupt)
    future.add_done_callback(seen.append)
    with pytest.raises(KeyboardInterrupt):
        future.set_result(1)
    assert len(seen) == 3 and derived.done()
    with pytest.raises(KeyboardInterrupt):
        derived.wait()


@same_as_torch
def test_what_optimizers_of_others_import(library):
    o = importlib.import_module(f"{library.__name__}.optim.optimizer")
    complex_, real = library.ones(2, dtype=library.complex64), library.ones(2)
    params, states = [complex_, real], [complex_ * 2, real]
    o._view_as_real(params, states)
    found = [[list(t.shape) for t in params + states], str(o._get_scalar_dtype()).split(".")[1], o._to_scalar(3), o._to_scalar(library.ones(1)).dim(),
             o._stack_if_compiling(2), o._disable_dynamo_if_unsupported(single_tensor_fn=len)(len)([]), o._device_dtype_check_for_fused(real)]
    library.set_default_dtype(library.float64)
    found += [str(o._get_scalar_dtype(fused)).split(".")[1] for fused in (None, False, True)]
    library.set_default_dtype(library.float32)
    try:
        o._device_dtype_check_for_fused(complex_)
    except RuntimeError:
        found.append("refused")
    groups = library.optim.Optimizer._group_tensors_by_device_and_dtype([[real, complex_]], with_indices=True)
    docs = [isinstance(getattr(o, f"_{name}_doc"), str) for name in ("params", "foreach", "fused", "capturable", "differentiable", "maximize")]
    return [*found, docs, sorted(places for _, places in groups.values()), o.ParamsT is not None, o._foreach_supported_types[0] is library.Tensor]


def test_data_pipes_by_name():
    from tapegrad.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe

    assert not isinstance(tapegrad.utils.data.TensorDataset(tapegrad.ones(1)), ShufflerIterDataPipe)
    assert isinstance(tapegrad.utils.data.datapipes.iter.IterableWrapper([1]).shuffle(), ShufflerIterDataPipe)
    with pytest.raises(NotImplementedError, match="chains over files are not there\nuse a Dataset"):
        tapegrad.utils.data.datapipes.iter.FileOpener([])
    with pytest.raises(NotImplementedError, match="the loader asks chains themselves"):
        tapegrad.utils.data.graph_settings.apply_shuffle_settings(None)
