"""Files that want to run code, or to take all memory or time: each is refused, in every container, and nothing happens."""

import io
import os
import pickle
import struct
import sys
import tarfile
import time
import zipfile

import pytest
import tapegrad as tg
from tapegrad import serialization

MARK = "/tmp/tapegrad-was-here"


def g(module, name):
    return f"c{module}\n{name}\n".encode()


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def call(module, name, *args):
    return g(module, name) + b"(" + b"".join(text(a) if isinstance(a, str) else a for a in args) + b"tR"


def wrap_protocol(body, protocol=2):
    return b"\x80" + bytes([protocol]) + body + b"."


TOUCH = f"touch {MARK}"
ZOO = {
    "os.system": call("os", "system", TOUCH), "posix.system": call("posix", "system", TOUCH), "nt": call("nt", "system", TOUCH),
    "subprocess": call("subprocess", "Popen", b"]" + text("touch") + b"a" + text(MARK) + b"a"),
    "subprocess.check_output": call("subprocess", "check_output", TOUCH), "commands": call("commands", "getoutput", TOUCH),
    "eval": call("builtins", "eval", f"open({MARK!r}, 'w')"), "exec": call("builtins", "exec", f"open({MARK!r}, 'w')"),
    "eval of Python 2": call("__builtin__", "eval", f"open({MARK!r}, 'w')"), "execfile": call("__builtin__", "execfile", MARK),
    "open": call("builtins", "open", MARK, "w"), "io.open": call("io", "open", MARK, "w"), "_io": call("_io", "FileIO", MARK, "w"),
    "import": call("builtins", "__import__", "os"), "importlib": call("importlib", "import_module", "antigravity"),
    "getattr": call("builtins", "getattr", g("torch", "Tensor"), "__class__"), "apply": call("__builtin__", "apply", g("os", "system")),
    "compile": call("builtins", "compile", "1", "x", "eval"), "type": call("builtins", "type", "X", b")", b"}"),
    "globals": call("builtins", "globals"), "input": call("builtins", "input"), "breakpoint": call("builtins", "breakpoint"),
    "map": call("builtins", "map", g("builtins", "eval"), b"]" + text("1") + b"a"),
    "partial": call("functools", "partial", g("os", "system"), TOUCH), "methodcaller": call("operator", "methodcaller", "system", TOUCH),
    "attrgetter": call("operator", "attrgetter", "system"), "timeit": call("timeit", "timeit", f"open({MARK!r}, 'w')"),
    "pickle.loads": call("pickle", "loads", b"C\x02N."), "_pickle.loads": call("_pickle", "loads", b"C\x02N."),
    "torch's own": call("torch.storage", "_load_from_bytes", b"C\x02N."), "torch.load": call("torch", "load", MARK),
    "torch.serialization.load": call("torch.serialization", "load", MARK), "torch.hub": call("torch.hub", "load", "a/b", "c"),
    "torch.jit": call("torch.jit", "load", MARK), "torch.compile": call("torch", "compile", g("os", "system")),
    "torch.utils.cpp_extension": call("torch.utils.cpp_extension", "load", "x", MARK),
    "tapegrad.save": call("tapegrad", "save", b"N", MARK), "tapegrad.serialization": call("tapegrad.serialization", "save", b"N", MARK),
    "torch.nn names": call("torch.nn.functional", "relu", b"N"), "torch.zeros": call("torch", "zeros", b"J\xff\xff\xff\x7f"),
    "constructor of a layer": call("torch.nn", "Linear", b"J\xff\xff\xff\x7f", b"J\xff\xff\xff\x7f"),
    "torch.classes": g("torch._classes", "classes") + b"0N", "numpy.load": call("numpy", "load", MARK),
    "numpy.f2py": call("numpy.f2py", "compile", "x"), "numpy.testing": call("numpy.testing._private.utils", "runstring", "1", b"}"),
    "numpy.fromfile": call("numpy", "fromfile", "/etc/passwd"), "numpy objects": call("numpy", "dtype", "O"),
    "numpy zeros": call("numpy", "zeros", b"J\xff\xff\xff\x7f"), "ctypes": call("ctypes", "CDLL", "libc.so.6"), "pty": call("pty", "spawn", "sh"),
    "code": call("types", "CodeType", b"K\x00"), "function": call("types", "FunctionType", b"N"), "marshal": call("marshal", "loads", b"C\x01N"),
    "webbrowser": call("webbrowser", "open", "http://127.0.0.1"), "socket": call("socket", "create_connection", b"N"),
    "shutil": call("shutil", "rmtree", "/tmp/nothing"), "os.remove": call("os", "remove", "/tmp/nothing"), "sys": call("sys", "exit"),
    "runpy": call("runpy", "run_path", MARK), "threading": call("threading", "Thread", b"N"), "asyncio": call("asyncio", "run", b"N"),
    "logging": call("logging.config", "dictConfig", b"}"), "pip": call("pip", "main", b"]"), "pdb": call("pdb", "set_trace"),
    "INST": b"(" + text(TOUCH) + b"ios\nsystem\n", "OBJ": b"(" + g("os", "system") + text(TOUCH) + b"o",
    "NEWOBJ": g("subprocess", "Popen") + text("true") + b"\x85\x81", "NEWOBJ_EX": g("subprocess", "Popen") + b")}\x92",
    "STACK_GLOBAL": b"\x8c\x02os\x8c\x06system\x93" + text(TOUCH) + b"\x85R", "EXT1": b"\x82\x01", "EXT4": b"\x84\x01\x00\x00\x00",
    "copyreg": call("copy_reg", "_reconstructor", g("subprocess", "Popen"), g("builtins", "object"), b"N"),
    "copyreg.add_extension": call("copyreg", "add_extension", "os", "system", b"K\x01"),
    "class of an object": call("argparse", "Namespace") + b"}" + text("__class__") + g("torch", "Tensor") + b"sb",
    "class of a dictionary": call("collections", "OrderedDict") + b"}" + text("__class__") + b"Nsb",
    "state of a type": g("torch", "Tensor") + b"}" + text("backward") + b"Nsb", "state of a list": b"]}b", "factory": call("collections", "defaultdict", g("os", "system")),
    "factory of ours": call("collections", "defaultdict", g("torch.nn", "Linear")), "dotted": g("torch", "os.system") + text(TOUCH) + b"\x85R",
    "dunder": g("torch.nn", "Linear.__init__") + b")R", "tensors by other means": g("torch._tensor", "_rebuild_from_type_v2")
    + b"(" + g("collections", "deque") + g("torch", "Tensor") + b")NtR", "next buffer": b"\x97", "set of lists": call("builtins", "set", b"]]a"),
}


def in_zip(stream):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", stream)
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def in_streams(stream):
    head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
    return head + stream + pickle.dumps([], 2)


def in_system_info(stream):
    """Code that would run before the reader comes to the object."""
    return pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + stream + pickle.dumps([], 2)


def in_first_stream(stream):
    return stream + b"\x80\x02N." * 3


def in_tar(stream):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in (("storages", pickle.dumps(0, 2) + pickle.dumps([], 2)), ("tensors", pickle.dumps(0, 2)), ("pickle", stream)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("container", [in_zip, in_streams, in_system_info, in_first_stream, in_tar])
def test_the_zoo(container):
    before = set(sys.modules)
    for name, body in ZOO.items():
        raw = container(wrap_protocol(body, 4 if b"\x93" in body or b"\x92" in body else 2))
        for weights_only in (True, False):
            with pytest.raises(serialization.FileError, match="load: ") as error:
                tg.load(io.BytesIO(raw), weights_only=weights_only)
            assert isinstance(error.value, pickle.UnpicklingError), name
    assert not os.path.exists(MARK)
    for module in ("antigravity", "pip", "pty", "webbrowser", "numpy.f2py", "pdb"):
        assert module in before or module not in sys.modules, f"a file had {module} imported"


def test_harmless_files_pass_the_same_way():
    """The zoo's wrapping is right: data in it are read."""
    stream = wrap_protocol(call("collections", "OrderedDict") + text("a") + b"K\x01s")
    for container in (in_zip, in_streams, in_tar):
        assert tg.load(io.BytesIO(container(stream))) == {"a": 1}


def test_what_a_refusal_says():
    with pytest.raises(RuntimeError, match=r"names posix.system, .* nothing of the module posix is called for a file\nthis is what a file does that wants to run code"):
        tg.load(io.BytesIO(in_zip(wrap_protocol(ZOO["posix.system"]))))
    with serialization.safe_globals([(os.system, "os.system")]), pytest.raises(RuntimeError, match="nothing of the module os is called"):
        tg.load(io.BytesIO(in_zip(wrap_protocol(ZOO["os.system"]))))
    with pytest.raises(RuntimeError, match=r"needs mine.Thing, and only tensors and plain data(.|\n)*add_safe_globals\(\[Thing\]\)"):
        tg.load(io.BytesIO(in_zip(wrap_protocol(call("mine", "Thing")))))
    with pytest.raises(RuntimeError, match="this is a bare pickle"):
        tg.load(io.BytesIO(pickle.dumps(list(range(100)))))
    with pytest.raises(RuntimeError, match="TorchScript archive"):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("m/data.pkl", b"\x80\x02N.")
            archive.writestr("m/constants.pkl", b"\x80\x02N.")
        tg.load(io.BytesIO(buffer.getvalue()))


def storage(count, key="0", kind="FloatStorage"):
    return b"(" + text("storage") + g("torch", kind) + text(key) + text("cpu") + integer(count) + b"tQ"


def integer(n):
    return b"\x8a\x09" + n.to_bytes(9, "little", signed=True)


def tensor(count, size, stride, offset=0):
    return (g("torch._utils", "_rebuild_tensor_v2") + b"(" + storage(count) + integer(offset) + b"(" + b"".join(map(integer, size)) + b"t("
            + b"".join(map(integer, stride)) + b"t\x89" + call("collections", "OrderedDict") + b"tR")


def zip_with(stream, data=bytes(16), others=None, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, content in {"data.pkl": stream, "data/0": data, **(others or {})}.items():
            archive.writestr(f"a/{name}", content)
    return buffer.getvalue()


@pytest.mark.parametrize(("body", "message"), [
    (tensor(4, [10**18], [1]), "claims 1000000000000000000 elements"), (tensor(4, [10**18], [0]), "claims 1000000000000000000 elements"),
    (tensor(4, [2**32, 2**32], [0, 0]), "claims"), (tensor(10**18, [4], [1]), "claims a storage|claims 4000000000000000000 bytes"),
    (tensor(4, [4], [1], 10**18), "outside a storage"), (tensor(4, [-1], [1]), "negative|elements"), (tensor(4, [4], [-1], 3), "strides that do not exist"),
    (tensor(4, [1] * 100, [1] * 100), "dimensions|strides"), (tensor(-4, [1], [1]), "no storage"), (tensor(4, [5], [1]), "outside a storage"),
    (tensor(4, [4], [2**62]), "outside a storage|does not fit"),
])
def test_tensors_that_claim_too_much(body, message):
    with pytest.raises(serialization.FileError, match=message):
        tg.load(io.BytesIO(zip_with(wrap_protocol(body))))
    streams = in_streams(wrap_protocol(body))[:-len(pickle.dumps([], 2))] + pickle.dumps(["0"], 2) + struct.pack("<q", 4) + bytes(16)
    with pytest.raises(serialization.FileError, match=message + "|ends within|has 4 elements"):
        tg.load(io.BytesIO(streams))


def bounded(function, megabytes=200, seconds=10.0):
    """Runs in a process with a limit of memory: what takes more is a MemoryError there. seconds: of the processor's time."""
    import resource

    child = os.fork()
    if child == 0:
        code = 1
        try:
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20),) * 2)
            begin = time.process_time()
            try:
                function()
            except serialization.FileError as error:
                code = 0 if "Memory" not in str(error) and time.process_time() - begin < seconds else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


BOMBS = {
    "an entry of zeros, squeezed a thousandfold": lambda: zip_with(wrap_protocol(tensor(1 << 28, [1 << 28], [1])), bytes(1 << 24), compression=zipfile.ZIP_DEFLATED),
    "a table of contents of zeros": lambda: zip_with(bytes(1 << 26), compression=zipfile.ZIP_DEFLATED),
    "millions of sets": lambda: in_zip(wrap_protocol(b"\x8f" * 8_000_000)), "millions of dictionaries": lambda: in_zip(wrap_protocol(b"}" * 8_000_000)),
    "a memo of millions": lambda: in_zip(wrap_protocol(b"N" + b"\x94" * 8_000_000, 4)),
    "a place in the memo of four billion": lambda: in_zip(wrap_protocol(b"Nr\xff\xff\xff\xff0N")[:-1] + b"K"),
    "bytes that are not there": lambda: in_zip(wrap_protocol(b"\x8e" + struct.pack("<Q", 1 << 40) + b"abc", 4)),
    "a text that is not there": lambda: in_streams(b"\x80\x02X\xff\xff\xff\x7fabc"),
    "an array that is not there": lambda: in_zip(wrap_protocol(b"\x96" + struct.pack("<Q", 1 << 40), 5)),
    "a number of millions of digits": lambda: in_zip(b"\x80\x02\x8b" + struct.pack("<i", 1 << 25) + b"\x01" * (1 << 25) + b"."),
    "digits": lambda: in_zip(b"I" + b"9" * 60_000 + b"\n."),
    "a key that holds itself a billion times": lambda: in_zip(wrap_protocol(b"}" + b"K\x01\x85" + b"2\x86" * 40 + b"Ns")),
    "a key of lists": lambda: in_zip(wrap_protocol(b"}]Ns")),
    "400 MB of zeros for a table of contents": lambda: zip_with(bytes(400_000_000), compression=zipfile.ZIP_DEFLATED),
    "millions of tuples, squeezed": lambda: zip_with(b"\x80\x02N" + b"\x85" * 8_000_000 + b".", compression=zipfile.ZIP_DEFLATED),
    "dictionaries, squeezed": lambda: zip_with(b"\x80\x02" + b"}" * 1_300_000, compression=zipfile.ZIP_DEFLATED),
    "texts, squeezed": lambda: zip_with(b"\x80\x04" + b"\x8c\x02ab" * 100_000_000, compression=zipfile.ZIP_DEFLATED),
    "an order of bytes of zeros": lambda: zip_with(wrap_protocol(tensor(4, [4], [1])), bytes(16), {"byteorder": bytes(1 << 28)}, compression=zipfile.ZIP_DEFLATED),
    "a storage that is not there": lambda: in_streams(wrap_protocol(tensor(1 << 38, [1], [1]))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name):
    raw = BOMBS[name]()
    bounded(lambda: tg.load(io.BytesIO(raw)))


def test_squeezed_archives_that_are_none():
    """What compresses well because its names are alike is read as ever; of damage to it, the checksum tells."""
    tensors = {f"transformer.layers.{i}.attention.query.weight": tg.full((2,), float(i)) for i in range(20_000)}
    plain = io.BytesIO()
    tg.save(tensors, plain, format="torch")
    with zipfile.ZipFile(plain) as archive:
        parts = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    raw = zip_with(parts.pop("data.pkl"), parts.pop("data/0"), parts, compression=zipfile.ZIP_DEFLATED, compresslevel=9)
    assert len(raw) < len(plain.getvalue())
    back = tg.load(io.BytesIO(raw))
    assert list(back) == list(tensors)
    assert back["transformer.layers.19999.attention.query.weight"].tolist() == [19999.0] * 2
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        entry = archive.getinfo("a/data.pkl")
    at = entry.header_offset + 30 + len("a/data.pkl") + entry.compress_size // 2
    with pytest.raises(serialization.FileError, match="damaged"):
        tg.load(io.BytesIO(raw[:at] + bytes([raw[at] ^ 0x55]) + raw[at + 1:]))


def test_overlapping_entries():
    """Many entries of a table of contents that are the same bytes of the file: quadratic, where it is believed."""
    size = 1 << 16
    raw = bytearray(zip_with(wrap_protocol(tensor(size // 4, [4], [1])), bytes(size)))
    end = raw.rindex(b"PK\x05\x06")
    begin = struct.unpack_from("<I", raw, end + 16)[0]
    table = bytes(raw[begin:end])
    second = table.index(b"PK\x01\x02", 4)
    entries = [table[:second]]
    for n in range(300):
        entry = bytearray(table[second:])
        name = f"a/data/{n}".encode()
        struct.pack_into("<II", entry, 20, size, size)
        struct.pack_into("<H", entry, 28, len(name))
        entries.append(bytes(entry[:46]) + name)
    joined = b"".join(entries)
    tail = bytearray(raw[end:])
    struct.pack_into("<HHI", tail, 8, len(entries), len(entries), len(joined))
    with pytest.raises(serialization.FileError, match="entries overlap"):
        tg.load(io.BytesIO(bytes(raw[:begin]) + joined + bytes(tail)))


def test_depth():
    """Lists in each other, however deep, are lists; only what walks through them by itself would mind."""
    value = tg.load(io.BytesIO(in_zip(wrap_protocol(b"]" * 100_000 + b"a" * 99_999))))
    depth = 0
    while value:
        value, depth = value[0], depth + 1
    assert depth == 99_999


def test_shared_data_are_not_copied():
    """A list that holds a list twice, fifty times over, is fifty lists, not a quadrillion."""
    stream = wrap_protocol(b"]" + b"q\x00h\x00\x86" * 50)
    value = tg.load(io.BytesIO(in_zip(stream)))
    assert len(value) == 2
    assert value[0] is value[1]
