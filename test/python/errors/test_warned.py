"""Every row of the table of warnings: PyTorch warns, and this library does what the row says, naming the program's line."""

import ast
import contextlib
import importlib
import pickle
import platform
import re
import struct
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tapegrad
import tapegrad.distributions
import tapegrad.nn.utils.stateless
import tapegrad.profiler
import tapegrad.testing
import tapegrad.utils.checkpoint
from errors.warned import NOT_MET, NOT_MET_IN_CPP, WARNED


@contextlib.contextmanager
def world_of_one(library):
    """distributed, with a group of this process alone."""
    dist = importlib.import_module(f"{library.__name__}.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield dist
    finally:
        dist.destroy_process_group()


def run(library, row):
    """The warnings of a row's program, and its error."""
    for name in ("profiler.profiler", "nn.attention.flex_attention"):  # what PyTorch says once in a process
        getattr(sys.modules.get(f"{library.__name__}.{name}"), "_WARNINGS_SHOWN", set()).clear()
    names = {"tg": library, "F": library.nn.functional, "np": np, "pickle": pickle, "mod": lambda name: importlib.import_module(f"{library.__name__}.{name}")}
    with warnings.catch_warnings(record=True) as said, contextlib.ExitStack() as stack:
        warnings.simplefilter("always")
        if row.section == "Many processes":
            names["dist"] = stack.enter_context(world_of_one(library))
            said.clear()
        try:
            exec(compile(row.code, "train.py", "exec"), names)
        except Exception as error:
            return list(said), error
        return list(said), None


_in_pytorch: dict = {}


def run_in_pytorch(pytorch, row):
    """The same, once in a process: what a row registers there stays."""
    if row.title not in _in_pytorch:
        _in_pytorch[row.title] = run(pytorch, row)
    return _in_pytorch[row.title]


@pytest.mark.parametrize("row", WARNED, ids=lambda w: w.title)
def test_warned(row):
    said, error = run(tapegrad, row)
    if row.said.startswith("raises "):
        assert type(error).__name__ == row.said.removeprefix("raises ")
        return
    assert error is None
    if row.said.startswith("no: "):
        assert not said
    elif ", once" in row.said:
        assert len(said) <= 1
    else:
        assert row.said in [w.category.__name__ for w in said]
    assert {w.filename for w in said} <= {"train.py"}


@pytest.fixture(scope="module")
def pytorch():
    """torch, which says each time what it would say once."""
    torch = pytest.importorskip("torch")
    for name in ("nn.utils.stateless", "distributions", "nested", "profiler", "testing", "utils.checkpoint"):
        importlib.import_module(f"torch.{name}")
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    torch.storage._reset_warn_typed_storage_removal()  # which another test's use of a storage may have set
    yield torch
    torch.set_warn_always(before)


@pytest.mark.parametrize("row", WARNED, ids=lambda w: w.title)
def test_pytorch_warns_too(row, pytorch):
    said, _ = run_in_pytorch(pytorch, row)
    assert said
    if row.said.endswith("Warning"):
        assert row.said in [w.category.__name__ for w in said]


def places_of_warnings(root):
    """(file, function, its lines) of every call of warnings.warn in a tree of Python files, and of every @deprecated, without lines."""
    class Places(ast.NodeVisitor):
        def definition(self, node):
            self.inside.append(node.name)
            if any(isinstance(d, ast.Call) and "deprecated" in ast.unparse(d.func) for d in node.decorator_list):
                found.append((file, ".".join(self.inside), ()))
            self.generic_visit(node)
            self.inside.pop()

        visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = definition

        def visit_Call(self, node):
            if re.fullmatch(r"(?!log)(\w+\.)*_?warn(_once|_deprecated)?", ast.unparse(node.func)):
                found.append((file, ".".join(self.inside), range(node.lineno, node.end_lineno + 1)))
            self.generic_visit(node)

    found = []
    for path in sorted(root.rglob("*.py")):
        file, text, places = str(path.relative_to(root)), path.read_text(), Places()
        places.inside = []
        if "warn" not in text and "deprecated" not in text:
            continue
        if any(re.match(pattern, file) for pattern in NOT_MET):
            found.append((file, "", ()))  # as a whole
        else:
            places.visit(ast.parse(text))
    return found


def test_every_warning_of_pytorchs_python_files_is_decided(pytorch, monkeypatch):
    """By a row whose program comes to it, or by the table of what nothing here meets, no part of which is idle."""
    root, met, warn = Path(pytorch.__file__).parent, set(), warnings.warn

    def remember(message, category=None, stacklevel=1, source=None, **more):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != "train.py":
            place, wrapped = frame.f_code.co_filename, frame.f_locals.get("arg")  # of typing_extensions.deprecated
            met.add((place, frame.f_lineno))
            if wrapped is not None and hasattr(wrapped, "__qualname__"):
                met.add((sys.modules[wrapped.__module__].__file__, wrapped.__qualname__))
            frame = frame.f_back
        warn(message, category, stacklevel + 1, source, **more)

    for module in [m for m in list(sys.modules.values()) if vars(m).get("warn") is warn]:  # warnings, and who has it under its own name
        monkeypatch.setattr(module, "warn", remember)
    vars(pytorch.storage._warn_typed_storage_removal).clear()  # that it has been said
    for row in WARNED:
        _in_pytorch.setdefault(row.title, run(pytorch, row))
    rest, idle = [], dict(NOT_MET)
    for file, name, lines in places_of_warnings(root):
        path = str(root / file)
        fits = [pattern for pattern in NOT_MET if re.match(pattern, f"{file} {name}")]
        for pattern in fits:
            idle.pop(pattern, None)
        if not fits and (path, name) not in met and not any((path, line) in met for line in lines):
            rest.append(f"{file} {name} {lines[0] if lines else ''}")
    assert not rest, "\n".join(rest)
    assert not idle


def files_that_warn(library):
    """Source files of the calls of c10::Warning's constructors in a shared library (ELF, x86-64): the last name of a file among the texts that
    the code before a call takes the address of."""
    data = np.memmap(library, mode="r")
    (start,), (size, count, names) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]  # name, _, _, address, offset, size, ...

    def text(at):
        part = bytes(data[at : at + 400])
        return part[: part.find(0)].decode("latin1")

    sections = {text(headers[names][4] + h[0]): h[3:6] for h in headers}
    relocations = np.concatenate([data[o : o + n].view("<u8").reshape(-1, 3) for name in (".rela.plt", ".rela.dyn") for _, o, n in [sections[name]]])
    slots = set()  # where the addresses of the constructors are written
    for place, info, _ in relocations[np.isin(relocations[:, 1] & 0xFFFFFFFF, (6, 7))].tolist():
        (name,) = struct.unpack_from("<I", data, sections[".dynsym"][1] + 24 * (info >> 32))
        if text(sections[".dynstr"][1] + name).startswith("_ZN3c107WarningC"):
            slots.add(place)

    def jumps(section, code):
        """(place, target) of instructions that begin with `code` and end with four bytes of distance."""
        address, offset, n = sections[section]
        part = data[offset : offset + n]
        at = np.flatnonzero(part[: -len(code) - 4] == code[0])
        for k, byte in enumerate(code):
            at = at[part[at + k] == byte]
        distance = sum(part[at + len(code) + k].astype(np.int64) << 8 * k for k in range(4)).astype(np.uint32).view(np.int32)
        return zip((at + address).tolist(), (at + address + len(code) + 4 + distance).tolist(), strict=True)

    stubs = {place for section in (".plt", ".plt.sec", ".plt.got") if section in sections for place, target in jumps(section, b"\xff\x25") if target in slots}
    stubs |= {place - 4 for place in stubs}  # after endbr64
    address, offset, _ = sections[".text"]
    lowest, text_offset, length = sections[".rodata"]
    files = set()
    for place, target in [*jumps(".text", b"\xe8"), *jumps(".text", b"\xff\x15")]:
        if target in stubs or target in slots:
            begin = place - 700
            code = bytes(data[begin - address + offset : place - address + offset])
            taken = [begin + m.end() + struct.unpack_from("<i", code, m.end() - 4)[0] for m in re.finditer(rb"(?s)[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]....", code)]
            words = [text(t - lowest + text_offset) for t in taken if lowest <= t < lowest + length]
            files |= set([w for w in words if re.search(r"/pytorch/pytorch/(?!c10/core/\w+\.h)\w\S*\.(cpp|h|hpp)$", w)][-1:])  # but those of checks
    return {re.sub(r".*/pytorch/pytorch/", "", f) for f in files}


def test_every_warning_of_pytorchs_libraries_is_decided(pytorch):
    """By a row whose warning names the file, or by the table of what nothing here meets, no part of which is idle."""
    if platform.machine() != "x86_64":
        pytest.skip("instructions of x86-64 are read")
    said = "".join(str(w.message) for row in WARNED for w in run_in_pytorch(pytorch, row)[0])
    met = set(re.findall(r"Triggered internally at (?:\S*/pytorch/pytorch/)?(\S+?):\d", said))
    assert len(met) > 30
    found = {f for name in ("c10", "torch_cpu", "torch_python") for f in files_that_warn(f"{Path(pytorch.__file__).parent}/lib/lib{name}.so")}
    assert len(found) > 100
    idle = {pattern for pattern in NOT_MET_IN_CPP if not any(re.match(pattern, f) for f in found)}
    assert not idle
    assert not {f for f in found - met if not any(re.match(pattern, f) for pattern in NOT_MET_IN_CPP)}


def test_a_warning_comes_once_for_a_line_and_can_be_an_error():
    code = "for _ in range(3): tg.ones(1).std()\ntg.ones(1).std()"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        exec(compile(code, "loop.py", "exec"), {"tg": tapegrad})
    assert [(w.filename, w.lineno) for w in said] == [("loop.py", 1), ("loop.py", 2)]
    out = tapegrad.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="imaginary part"):
            out.copy_(tapegrad.ones(2, dtype=tapegrad.complex64))
    assert out.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["dequantize", "int_repr", "to_padded_tensor", "to_mkldnn"])
def test_methods_that_are_not_there_say_why(name):
    x = tapegrad.zeros(1)
    with pytest.raises(AttributeError, match=rf"^'tapegrad\.Tensor' object has no attribute '{re.escape(name)}': \w"):
        getattr(x, name)
    assert not hasattr(x, name)
