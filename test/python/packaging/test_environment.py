"""Variables of the environment: all are in docs/environment.md, and a value or a name that is wrong is named once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad as tg
from tapegrad._root import environment

ROOT = Path(__file__).resolve().parents[3]
LAYERS = ("c10", "aten", "autograd", "nn", "cuda", "multiprocessing", "distributed", "bindings")
READS = re.compile(r"""(?:getenv\(|environment_\w+\(|\b(?:flag|choice)\(|environ(?:ment)?(?:\.get\(|\.pop\(|\[)|whole_number\(\w+(?:\.\w+)?,\s)\s*"([A-Z][A-Z0-9_]+)"|"([A-Z][A-Z0-9_]+)" (?:not )?in os\.environ""")
NOT_OF_USERS = {"PYTHONPATH", "NAME"}


def test_all_variables_are_documented():
    page = (ROOT / "docs/environment.md").read_text()
    read = {}
    for layer in LAYERS:
        for file in (ROOT / layer).rglob("*"):
            if file.suffix in (".py", ".cpp", ".h", ".cu"):
                for match in READS.finditer(file.read_text()):
                    read[match[1] or match[2]] = file
    assert len(read) > 45 and "TAPEGRAD_ISA" in read and "TORCH_HOME" in read
    families = ("OMPI_", "PMI_", "MPI_", "SLURM_", "PET_")  # the page names one of each
    missing = {name: str(file) for name, file in read.items() if f"`{name}`" not in page and not name.startswith(families)}
    assert missing == {}
    ours = set(re.findall(r"`(TAPEGRAD_\w+)`", page))
    assert ours == environment.KNOWN and {name for name in read if name.startswith("TAPEGRAD_")} <= ours


def said(code, **variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TAPEGRAD_")}
    path = os.pathsep.join([str(Path(tg.__file__).absolute().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-c", code], env={**clean, **variables, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


SUM = "import tapegrad as tg; x = tg.ones(300_000); print((x + x).sum()); print(tg.get_num_threads()); (x * 2).exp()"
STEP = "import tapegrad as tg; tg.record.loops(True); tg.record.loops(True)"


@pytest.mark.parametrize("code, name, value, text", [
    (SUM, "TAPEGRAD_NUM_THREADS", "two", "tapegrad: TAPEGRAD_NUM_THREADS: expected a number from 1 to 1024: got 'two': it is ignored"),
    (SUM, "TAPEGRAD_NUM_THREADS", "0", "tapegrad: TAPEGRAD_NUM_THREADS: expected a number from 1 to 1024: got '0': it is ignored"),
    (SUM, "TAPEGRAD_NUM_THREADS", "-1", "tapegrad: TAPEGRAD_NUM_THREADS: expected a number from 1 to 1024: got '-1': it is ignored"),
    (SUM, "TAPEGRAD_NUM_THREADS", "4 threads", "tapegrad: TAPEGRAD_NUM_THREADS: expected a number from 1 to 1024: got '4 threads': it is ignored"),
    (SUM, "TAPEGRAD_HUGE_PAGES", "off", "tapegrad: TAPEGRAD_HUGE_PAGES: expected 0 or 1: got 'off': it is ignored"),
    (STEP, "TAPEGRAD_LOOPS", "no", "tapegrad: TAPEGRAD_LOOPS: expected 0 or 1: got 'no': it is ignored"),
    (SUM, "TAPEGRAD_RECORD", "true", "UserWarning: TAPEGRAD_RECORD: expected 0 or 1: got 'true': it is ignored"),
    ("import tapegrad.distributed", "TAPEGRAD_ALLOW_PICKLE", "false", "UserWarning: TAPEGRAD_ALLOW_PICKLE: expected 0 or 1: got 'false': it is ignored"),
    (SUM, "TAPEGRAD_NUM_THREAD", "1", "UserWarning: TAPEGRAD_NUM_THREAD is no variable that tapegrad reads\ndid you mean 'TAPEGRAD_NUM_THREADS'?\ndocs/environment.md lists them"),
])
def test_a_wrong_value_or_name_is_named_once(code, name, value, text):
    returned, stderr = said(code, **{name: value})
    assert returned == 0 and stderr.count(text) == 1 and stderr.count(name) == 1 + text.count("\n") // 2, stderr


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other instruction sets")
@pytest.mark.parametrize("value", ["sse", "generic", "AVX2"])
def test_a_wrong_instruction_set_is_named(value):
    returned, stderr = said(SUM, TAPEGRAD_ISA=value)
    assert returned == 0 and re.fullmatch(rf"tapegrad: TAPEGRAD_ISA: expected avx2( or avx512)?: got '{value}': it is ignored\n", stderr), stderr


@pytest.mark.parametrize("variables", [{"TAPEGRAD_NUM_THREADS": "1", "TAPEGRAD_ISA": "avx2", "TAPEGRAD_HUGE_PAGES": "0", "TAPEGRAD_LOOPS": "1", "TAPEGRAD_TEST_SEEDS": "1", "TAPEGRAD_CACHE_MB": "64"},
                                       {"TAPEGRAD_NUM_THREADS": "", "TAPEGRAD_ISA": "", "TAPEGRAD_LOOPS": "", "TAPEGRAD_RECORD": "", "TAPEGRAD_CACHE_MB": ""}])
def test_right_values_and_empty_ones_say_nothing(variables):
    if os.uname().machine != "x86_64":
        variables = {k: v for k, v in variables.items() if k != "TAPEGRAD_ISA"}
    assert said(SUM, **variables) == (0, "")


def test_a_wrong_value_counts_as_not_set():
    code = "import tapegrad as tg, tapegrad.distributed as d; assert not d.allow_pickle(False); print(tg.get_num_threads())"
    returned, _ = said(code, TAPEGRAD_ALLOW_PICKLE="false", TAPEGRAD_NUM_THREADS="99999")
    assert returned == 0


@pytest.mark.parametrize("code, name, value, text", [
    ("import tapegrad as tg; tg.ones(3)", "TAPEGRAD_CACHE_MB", "much", "ValueError: TAPEGRAD_CACHE_MB: expected a number of MiB: got 'much'"),
    ("import tapegrad as tg; tg.ones(3).share_memory_()", "TAPEGRAD_SHARED_DIR", "/not/there", "no unnamed file can be made in /not/there"),
    ("import tapegrad.distributed as d; d.get_debug_level()", "TORCH_DISTRIBUTED_DEBUG", "loud", "ValueError: The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL."),
    ("from tapegrad.distributed.launcher.api import LaunchConfig; LaunchConfig(1, 1, 1)", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon",
     "ValueError: TORCH_ELASTIC_SHUTDOWN_TIMEOUT: expected a number of seconds: got 'soon'"),
])
def test_where_it_is_dangerous_it_is_an_error(code, name, value, text):
    returned, stderr = said(code, **{name: value})
    assert returned == 1 and text in stderr.strip().splitlines()[-1], stderr
