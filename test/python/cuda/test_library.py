"""The real CUDA library on a machine without a GPU: it loads beside libtapegrad, and says what is missing."""

import ctypes
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad as tg

FOLDERS = [Path(tg._C.__file__).parent / "lib", Path(tg._C.__file__).parents[2] / "lib"]
LIBRARY = next((f / "libtapegrad_cuda.so" for f in FOLDERS if (f / "libtapegrad_cuda.so").exists()), None)


def built():
    """Linked since libtapegrad was: an older one may lack what that has now."""
    return LIBRARY is not None and LIBRARY.stat().st_mtime >= (LIBRARY.parent / "libtapegrad.so").stat().st_mtime


pytestmark = pytest.mark.skipif(not built() or Path("/dev/nvidiactl").exists(), reason="no CUDA library was built (tools/cuda_build.sh), or there is a GPU")


def run(program):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPEGRAD_CUDA", "CUDA_"))}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_everything_it_refers_to_is_there():
    """Undefined symbols, which a linker may let through, stop this."""
    ctypes.CDLL(str(LIBRARY), mode=os.RTLD_NOW)


def test_without_a_driver_the_package_says_so_and_goes_on():
    run("""
import tapegrad as tg
assert not tg.cuda.is_available() and tg.cuda.device_count() == 0 and tg.cuda.memory_stats() == {}
for f in (tg.cuda.current_device, tg.cuda.synchronize, tg.cuda.Stream, lambda: tg.ones(2, device="cuda"), lambda: tg.ones(2).cuda()):
    try:
        f()
    except RuntimeError as e:
        assert ": no NVIDIA driver was found" in str(e) and str(e).startswith("cuda"), str(e)
    else:
        raise AssertionError(f)
x = tg.ones(3, requires_grad=True)
(x * 2).sum().backward()
assert x.grad.tolist() == [2, 2, 2] and x.pin_memory() is x
""")


def test_importing_opens_nothing_of_cuda():
    run("""
import tapegrad
maps = open("/proc/self/maps").read()
assert "libtapegrad.so" in maps and "cuda" not in maps
tapegrad.cuda.is_available()
assert "libtapegrad_cuda.so" in open("/proc/self/maps").read()
""")


def _nvcc_commands():
    """What compiles each .cu file of the build that is tested, where that has nvcc."""
    path = Path(tg._C.__file__).parents[2] / "compile_commands.json"
    commands = json.loads(path.read_text()) if path.exists() else []
    return {Path(c["file"]).name: c for c in commands if c["file"].endswith(".cu")}


def compile_unoptimised(command, source, out):
    """PTX of `source` as the build compiles the file of `command`, without optimisation."""
    words = shlex.split(command["command"])
    words = words[next(i for i, w in enumerate(words) if w.endswith("nvcc")):]
    kept, skip = [], False
    for word in words:
        if not skip and word not in ("-MD", "-c", "-o", "-MT", "-MF", command["file"]) and not word.startswith(("--generate-code", "--compress-mode", "-Xcicc", "-Xptxas")):
            kept.append("-O0" if word == "-O2" else word)
        skip = word in ("-o", "-MT", "-MF")
    return subprocess.run([*kept, str(source), "-arch=sm_90", "-ptx", "-Xcicc=-O0", "-o", str(out)], cwd=command["directory"], capture_output=True, text=True)


def command_of(name):
    found = _nvcc_commands().get(name)
    if found is None:
        pytest.skip("this build has no nvcc")
    return found


@pytest.mark.parametrize("name", ["scan.cu", "fft.cu", "ldl.cu", "eig.cu", "reduce_reduce_sum.cu"])
def test_kernels_call_nothing_of_complex_numbers_that_nvcc_removes(name, tmp_path):
    """launch/complex_operators.h says why. Unoptimised PTX names each function: of std::complex only the constructor from two
    parts, and no operator of the library."""
    command = command_of(name)
    out = tmp_path / "kernels.ptx"
    done = compile_unoptimised(command, command["file"], out)
    assert done.returncode == 0, done.stderr[-3000:]
    text = out.read_text()
    assert ".entry" in text and "_ZNSt7complexI" in text
    called = set(re.findall(r"\b(_ZNSt7complexI[fd]E\w+|_ZSt(?:pl|mi|ml|dv)I[fd]E\w+)", text))
    removed = {n for n in called if not re.match(r"_ZNSt7complexI[fd]EC[12]E(dd|ff)", n)}
    assert not removed, f"{name} calls {sorted(removed)[:5]}"


def test_a_text_that_a_kernel_makes_is_refused(tmp_path):
    """It would lie in the device's memory, where the host cannot read it to raise the error."""
    source = tmp_path / "fault.cu"
    for given, allowed in (("op", True), ('"gather"', False)):
        source.write_text(f"""
#include "tapegrad/cuda/launch/faults.h"
namespace tapegrad::cuda {{
TG_KERNEL void kernel(FaultRecord* record, FaultText op) {{ record_fault(record, Fault::Index, {given}, 1, 2, 3); }}
}}
""")
        done = compile_unoptimised(command_of("ctc.cu"), source, tmp_path / "fault.ptx")
        assert (done.returncode == 0) == allowed, done.stderr[-2000:]
    assert "FaultText" in done.stderr and "__host__" in done.stderr
