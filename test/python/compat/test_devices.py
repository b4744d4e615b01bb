"""Devices that are not there: questions are answered, the rest says in one sentence what is missing."""

import importlib

import pytest
import tapegrad as tg

WHY = r"^cuda\.{}: there is no CUDA device: [^\n]+\nuse device='cpu', or ask tapegrad.cuda.is_available\(\) first$"


def answer(module, name, *arguments):
    return getattr(module, name)(*arguments)


@pytest.mark.skipif(tg.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["is_available", "device_count", "is_initialized", "is_bf16_supported", "is_tf32_supported", "get_arch_list",
                                  "get_gencode_flags", "memory_allocated", "max_memory_allocated", "memory_reserved",
                                  "max_memory_reserved", "memory_cached", "max_memory_cached", "memory_stats", "empty_cache",
                                  "get_rng_state_all", "seed", "seed_all", "memory_stats_as_nested_dict", "host_memory_stats"])
def test_cuda_answers_as_torch_s_without_a_gpu(name):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch has a GPU")
    assert answer(tg.cuda, name) == answer(torch.cuda, name)


def test_cuda_is_harmless_where_nothing_is_asked_of_a_gpu():
    cuda = tg.cuda
    cuda.manual_seed(1), cuda.manual_seed_all(1), cuda.reset_peak_memory_stats(), cuda.ipc_collect()
    cuda.set_rng_state_all(cuda.get_rng_state_all())
    with cuda.device(None), cuda.device(-1), cuda.stream(None), cuda.device_of(tg.ones(1)), cuda.nvtx.range("step {}", 1):
        assert cuda.nvtx.range_push("inner") == 1 and cuda.nvtx.range_pop() == 1
    assert not isinstance(tg.ones(1), (cuda.FloatTensor, cuda.Stream, cuda.Event)) and cuda.default_generators == ()
    assert cuda.OutOfMemoryError is tg.OutOfMemoryError and not cuda.is_current_stream_capturing()


@pytest.mark.skipif(tg.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["synchronize", "current_device", "get_device_name", "get_device_properties", "get_device_capability",
                                  "current_stream", "mem_get_info", "Stream", "Event", "CUDAGraph", "get_rng_state", "nccl.version",
                                  "comm.broadcast", "profiler.start"])
def test_cuda_says_what_is_missing(name):
    place = tg.cuda
    for part in name.split("."):
        place = getattr(place, part)
    with pytest.raises(RuntimeError, match=WHY.format(name)):
        place(*([tg.ones(1), [0]] if name == "comm.broadcast" else ()))


def test_cuda_s_old_classes():
    with pytest.raises(TypeError, match="type cuda.FloatTensor not available"):
        tg.cuda.FloatTensor(2)
    for kind in (tg.cuda.HalfTensor, "torch.cuda.HalfTensor"):
        with pytest.raises(RuntimeError, match="^cuda: (this device is not available|there is no CUDA device)"):
            tg.ones(1).type(kind)
    with pytest.raises(AttributeError, match="has no attribute 'is_availabel'\ndid you mean 'is_available'"):
        tg.cuda.is_availabel  # noqa: B018


@pytest.mark.parametrize("name", ["mps", "xpu", "mtia"])
def test_other_devices(name):
    module = importlib.import_module(f"tapegrad.{name}")
    assert module is getattr(tg, name) and not module.is_available() and module.device_count() == 0
    module.manual_seed(0), module.empty_cache()
    with pytest.raises(RuntimeError, match=f"^{name}.synchronize: .* are not supported\nuse device='cpu'"):
        module.synchronize()
    with pytest.raises(AttributeError, match="no attribute 'zzzz'"):
        module.zzzz  # noqa: B018


def test_accelerator():
    torch = pytest.importorskip("torch")
    if torch.accelerator.is_available() or tg.cuda.is_available():
        pytest.skip("there is an accelerator")
    assert tg.accelerator.is_available() is False and tg.accelerator.device_count() == torch.accelerator.device_count()
    assert tg.accelerator.current_accelerator() is None
    with tg.accelerator.device_index(None):
        pass
    assert tg.get_device_module("cpu") is tg.cpu and tg.get_device_module(tg.device("cuda")) is tg.cuda
