"""tools/cuda_occupancy.py: which loads are on their way together, how many threads are resident, and what is printed of it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "cuda_occupancy.py"
spec = importlib.util.spec_from_file_location("cuda_occupancy", TOOL)
occupancy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(occupancy)


def code(*lines):
    return [(16 * n, *(line if isinstance(line, tuple) else (None, line.partition(" ")[0], line.partition(" ")[2]))) for n, line in enumerate(lines)]


def test_loads_count_until_one_of_them_is_used():
    together = code("LDG.E.128 R4, desc[UR4][R2.64]", "LDG.E.128 R8, desc[UR4][R2.64+0x10]", "FADD R4, R4, R8", "STG.E desc[UR4][R2.64], R4")
    assert occupancy.in_flight(together) == (32, 2)
    one_by_one = code("LDG.E R4, desc[UR4][R2.64]", "FADD R5, R4, R4", "LDG.E.U16 R8, desc[UR4][R2.64]", "FADD R5, R8, R5")
    assert occupancy.in_flight(one_by_one) == (4, 1)
    address = code("LDG.E.64 R4, desc[UR4][R2.64]", "LDG.E.U8 R8, desc[UR4][R4.64]", "LDG.E.S16 R9, desc[UR4][R2.64]")  # an index first
    assert occupancy.in_flight(address) == (8, 1)
    assert occupancy.in_flight(code("LDG.E.64 R4, desc[UR4][R2.64]", "IADD3 R0, R5, R6, RZ", "LDG.E R8, desc[UR4][R2.64]")) == (8, 1)  # its second half
    assert occupancy.in_flight(code("LDG.E R4, desc[UR4][R2.64]", "LDG.E R5, desc[UR4][R2.64]", "STG.E desc[UR4][R2.64], R5", "LDG.E R6, desc[UR4][R2.64]")) == (8, 2)


def test_a_path_ends_where_the_code_jumps_back_or_ends():
    load = "LDG.E R{}, desc[UR4][R2.64]"
    assert occupancy.in_flight(code(load.format(4), "BRA 0x0", load.format(5))) == (4, 1)
    assert occupancy.in_flight(code(load.format(4), ("P0", "BRA", "0x40"), load.format(5), "EXIT", load.format(6), "EXIT")) == (8, 2)
    assert occupancy.in_flight(code(load.format(4), "EXIT", load.format(5), "EXIT")) == (4, 1)
    assert occupancy.in_flight(code("LDS R4, [R2]", "LDC R5, c[0x0][0x28]")) == (0, 0)


def test_threads_that_are_resident():
    assert [occupancy.resident_threads(registers, 0, 256) for registers in (16, 32, 33, 40, 64, 128, 255)] == [2048, 2048, 1536, 1536, 1024, 512, 256]
    assert occupancy.resident_threads(32, 48 << 10, 256) == 4 * 256 and occupancy.resident_threads(16, 0, 32) == 32 * 32


def test_what_is_printed(tmp_path):
    kernel = "_ZN8tapegrad4cuda15elements_kernelINS0_38_GLOBAL__N__aa980de7_6_pad_cu_dc5e15583PadIjEEEEvlT_"
    (tmp_path / "resources").write_text(f" Function {kernel}:\n  REG:34 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:580 TEXTURE:0\n")
    (tmp_path / "code").write_text(f"\t\tFunction : {kernel}\n\t.headerflags\t@\"EF_CUDA_SM90\"\n"
                                   "        /*0000*/                   LDG.E R4, desc[UR4][R2.64] ;       /* 0x00 */\n"
                                   "                                                                      /* 0x00 */\n"
                                   "        /*0010*/              @!P0 EXIT ;                             /* 0x00 */\n")
    done = subprocess.run([sys.executable, TOOL, "-", "--resources", tmp_path / "resources", "--code", tmp_path / "code"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 for an H100 (32 KB), 1 for an H200 (48 KB)" in done.stdout
    assert "| pad | Pad | 1 | 34 | 1536 | 4 | 6 | fewer than an H100 and an H200 needs |" in done.stdout
