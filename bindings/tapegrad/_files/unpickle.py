"""An interpreter of pickle streams that builds data only: it makes containers, numbers and texts itself and hands every name that the
stream contains to a table. What the table does not know is refused, so that no stream can run code.

Unlike Python's own unpickler it is bounded: memory grows with the bytes that are there (not with the sizes that they claim), and
keys of dictionaries have fast hashes.
"""

import codecs
import pickle
import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import deque

from .errors import FileError
from .objects import check_key
from .source import read_exactly

_MOST_DIGITS = 4096  # bytes of a whole number
_FREE = 64 << 20     # bytes of memory that every stream may take, and how many for each of its bytes
_RATIO = 48
_SQUEEZED = 8        # so many bytes count for each one of the file, where the stream is compressed,
_OPERATION = 64      # and so much memory for each operation, whatever it does: many are in few bytes there
_TURN = 4096         # operations
_MARK = object()


class Placeholder(dict):
    """Stands for an object of the program's classes in a pass that only looks for storages."""

    __hash__ = object.__hash__


class Unpickler:
    """`find_class(module, name)` gives a value; `calls` (id of such a value -> function) says which of them can be called.

    `build(instance, state)` sets an object's state, `new(cls, args)` makes one; `persistent_load(id)` gives what lies outside of
    the stream. `file` has read and readline. `packed`: how many bytes the stream was inflated from, if it was.
    """

    def __init__(self, file, find_class, calls, new, build, persistent_load, encoding: str = "utf-8", errors: str = "strict",
                 packed: int | None = None) -> None:
        self.read_some, self.readline = file.read, file.readline
        self.find_class, self.calls, self.new, self.build, self.persistent_load = find_class, calls, new, build, persistent_load
        self.encoding, self.errors = encoding, errors
        self.stack: list = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}
        self.protocol = 0
        self.read_bytes = self.cost = 0
        self.most_bytes, self.per_turn = (float("inf"), 0) if packed is None else (_SQUEEZED * packed, _OPERATION * _TURN)

    # Bytes.
    def read(self, n: int) -> bytes:
        data = self.read_some(n) if n <= 1 << 16 else read_exactly(_Reader(self.read_some), n, "its table of contents")
        if len(data) != n:
            raise FileError("load: the file ends within its table of contents")
        self.read_bytes += n
        return data

    def line(self) -> bytes:
        line = self.readline(1 << 16)
        if line[-1:] != b"\n":
            raise FileError("load: the file ends within its table of contents, or a line of it is too long")
        self.read_bytes += len(line)
        return line[:-1]

    def number(self, form: str) -> int:
        return struct.unpack(form, self.read(struct.calcsize(form)))[0]

    def spend(self, n: int) -> None:
        self.cost += n
        if self.cost > _FREE + _RATIO * min(self.read_bytes, self.most_bytes):
            raise FileError("load: the table of contents would take far more memory than it has bytes")

    # The machine.
    def load(self):
        read, table, stack = self.read, _OPERATIONS, self.stack
        code = b""
        while code != pickle.STOP:
            self.spend(self.per_turn)
            for _ in range(_TURN):
                code = read(1)
                if code == pickle.STOP:
                    break
                operation = table.get(code)
                if operation is None:
                    raise FileError(f"load: the table of contents holds what only a running program could make (operation {code[0]})")
                operation(self)
        if len(stack) != 1 or self.marks:
            raise FileError("load: the table of contents is damaged: it ends in the middle")
        return stack[0]

    def pop(self):
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise FileError("load: the table of contents is damaged: a value is missing")
        return self.stack.pop()

    def top(self):
        if not self.stack:
            raise FileError("load: the table of contents is damaged: a value is missing")
        return self.stack[-1]

    def pop_mark(self) -> list:
        if not self.marks:
            raise FileError("load: the table of contents is damaged: a mark is missing")
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def put(self, key: int) -> None:
        self.spend(96)
        self.memo[key] = self.top()

    def get(self, key: int) -> None:
        if key not in self.memo:
            raise FileError("load: the table of contents is damaged: it refers to a value that is not there")
        self.stack.append(self.memo[key])

    def text(self, data: bytes):
        return data if self.encoding == "bytes" else data.decode(self.encoding, self.errors)

    def push_line_text(self) -> None:
        line = self.line()
        if len(line) < 2 or line[:1] not in b"\"'" or line[-1:] != line[:1]:
            raise FileError("load: the table of contents is damaged: a text has no quotes")
        self.stack.append(self.text(codecs.escape_decode(line[1:-1])[0]))

    def long(self, n: int) -> None:
        if not 0 <= n <= _MOST_DIGITS:
            raise FileError(f"load: the table of contents holds a number of {n} bytes")
        self.stack.append(int.from_bytes(self.read(n), "little", signed=True))

    def integer_line(self) -> None:
        line = self.line()
        self.stack.append({b"00": False, b"01": True}[line] if line in (b"00", b"01") else int(line))

    def long_line(self) -> None:
        self.stack.append(int(self.line().rstrip(b"L")))

    def array(self, form: str) -> None:
        self.stack.append(bytearray(self.read(self.number(form))))

    # Containers.
    def empty(self, make, cost: int) -> None:
        self.spend(cost)
        self.stack.append(make())

    def append(self, values: list) -> None:
        target = self.top()
        if type(target) not in (list, deque):
            if type(target) is Placeholder:
                return
            raise FileError(f"load: the table of contents appends to a {type(target).__name__}")
        target.extend(values)

    def appends(self) -> None:
        values = self.pop_mark()
        self.append(values)

    def set_items(self, values: list) -> None:
        target = self.top()
        if not isinstance(target, dict) or len(values) % 2:
            raise FileError(f"load: the table of contents sets an item of a {type(target).__name__}")
        for k in range(0, len(values), 2):
            if type(values[k]) is not str:
                check_key(values[k])
            target[values[k]] = values[k + 1]

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def add_items(self) -> None:
        values = self.pop_mark()
        target = self.top()
        if type(target) is not set:
            if type(target) is Placeholder:
                return
            raise FileError(f"load: the table of contents adds to a {type(target).__name__}")
        for value in values:
            check_key(value)
            target.add(value)

    def make_dict(self) -> None:
        values = self.pop_mark()
        self.spend(64)
        self.stack.append({})
        self.set_items(values)

    def make_tuple(self, n: int) -> None:
        values = [self.pop() for _ in range(n)]
        self.stack.append(tuple(reversed(values)))

    def make_frozenset(self) -> None:
        values = self.pop_mark()
        for value in values:
            check_key(value)
        self.spend(216)
        self.stack.append(frozenset(values))

    # Names and objects.
    def name(self, module, name) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise FileError("load: the table of contents is damaged: a name is not a text")
        if self.protocol < 3:
            module, name = modern_name(module, name)
        self.stack.append(self.find_class(module, name))

    def stack_name(self) -> None:
        name, module = self.pop(), self.pop()
        self.name(module, name)

    def call(self, function, args) -> None:
        if type(args) is not tuple:
            raise FileError("load: the table of contents is damaged: arguments are no tuple")
        known = self.calls.get(id(function))
        if known is None:
            raise FileError(f"load: the table of contents calls {str(function)[:100] if isinstance(function, type) else type(function).__name__}"
                            ": only what makes tensors and plain data is called")
        self.spend(200)
        self.stack.append(known(*args))

    def reduce(self) -> None:
        args, function = self.pop(), self.pop()
        self.call(function, args)

    def make_object(self, cls, args, keywords) -> None:
        if type(args) is not tuple or keywords:
            raise FileError("load: the table of contents makes an object in a way that is not read")
        self.spend(200)
        self.stack.append(self.new(cls, args))

    def new_object(self, with_keywords: bool = False) -> None:
        keywords = self.pop() if with_keywords else None
        args, cls = self.pop(), self.pop()
        self.make_object(cls, args, keywords)

    def old_object(self) -> None:
        cls, *args = self.pop_mark() or [None]
        self.make_object(cls, tuple(args), None)

    def old_instance(self) -> None:
        module, name = self.line().decode(), self.line().decode()
        args = self.pop_mark()
        self.name(module, name)
        self.make_object(self.pop(), tuple(args), None)

    def set_state(self) -> None:
        state = self.pop()
        self.build(self.top(), state)

    def persistent(self, key) -> None:
        self.stack.append(self.persistent_load(key))

    def set_protocol(self) -> None:
        self.protocol = self.read(1)[0]
        if self.protocol > 5:
            raise FileError(f"load: the table of contents has protocol {self.protocol}: up to 5 are read")


def modern_name(module: str, name: str) -> tuple[str, str]:
    """What Python 3 calls a name of Python 2."""
    return NAME_MAPPING.get((module, name)) or (IMPORT_MAPPING.get(module, module), name)


class _Reader:
    def __init__(self, read) -> None:
        self.read = read


def _constant(value):
    return lambda m: m.stack.append(value)


def _of(form: str):
    size = struct.calcsize(form)
    unpack = struct.Struct(form).unpack

    def push(m) -> None:
        m.stack.append(unpack(m.read(size))[0])
    return push


_OPERATIONS = {
    pickle.MARK: Unpickler.mark,
    pickle.POP: lambda m: m.pop() if len(m.stack) > (m.marks[-1] if m.marks else 0) else m.pop_mark(),
    pickle.POP_MARK: Unpickler.pop_mark,
    pickle.DUP: lambda m: m.stack.append(m.top()),
    pickle.PROTO: Unpickler.set_protocol,
    pickle.FRAME: lambda m: m.read(8),
    pickle.NONE: _constant(None), pickle.NEWTRUE: _constant(True), pickle.NEWFALSE: _constant(False),
    pickle.INT: Unpickler.integer_line, pickle.LONG: Unpickler.long_line,
    pickle.BININT: _of("<i"), pickle.BININT1: _of("<B"), pickle.BININT2: _of("<H"),
    pickle.LONG1: lambda m: m.long(m.number("<B")), pickle.LONG4: lambda m: m.long(m.number("<i")),
    pickle.FLOAT: lambda m: m.stack.append(float(m.line())), pickle.BINFLOAT: _of(">d"),
    pickle.STRING: Unpickler.push_line_text,
    pickle.BINSTRING: lambda m: m.stack.append(m.text(m.read(m.number("<I")))),
    pickle.SHORT_BINSTRING: lambda m: m.stack.append(m.text(m.read(m.number("<B")))),
    pickle.UNICODE: lambda m: m.stack.append(str(m.line(), "raw-unicode-escape")),
    pickle.BINUNICODE: lambda m: m.stack.append(str(m.read(m.number("<I")), "utf-8", "surrogatepass")),
    pickle.SHORT_BINUNICODE: lambda m: m.stack.append(str(m.read(m.number("<B")), "utf-8", "surrogatepass")),
    pickle.BINUNICODE8: lambda m: m.stack.append(str(m.read(m.number("<Q")), "utf-8", "surrogatepass")),
    pickle.BINBYTES: lambda m: m.stack.append(m.read(m.number("<I"))),
    pickle.SHORT_BINBYTES: lambda m: m.stack.append(m.read(m.number("<B"))),
    pickle.BINBYTES8: lambda m: m.stack.append(m.read(m.number("<Q"))),
    pickle.BYTEARRAY8: lambda m: m.array("<Q"),
    pickle.EMPTY_LIST: lambda m: m.empty(list, 64), pickle.EMPTY_DICT: lambda m: m.empty(dict, 72),
    pickle.EMPTY_SET: lambda m: m.empty(set, 224), pickle.EMPTY_TUPLE: _constant(()),
    pickle.LIST: lambda m: (m.spend(64), m.stack.append(m.pop_mark())), pickle.DICT: Unpickler.make_dict,
    pickle.TUPLE: lambda m: (m.spend(64), m.stack.append(tuple(m.pop_mark()))),
    pickle.TUPLE1: lambda m: m.make_tuple(1), pickle.TUPLE2: lambda m: m.make_tuple(2), pickle.TUPLE3: lambda m: m.make_tuple(3),
    pickle.FROZENSET: Unpickler.make_frozenset,
    pickle.APPEND: lambda m: m.append([m.pop()]), pickle.APPENDS: Unpickler.appends,
    pickle.SETITEM: Unpickler.set_item, pickle.SETITEMS: lambda m: m.set_items(m.pop_mark()), pickle.ADDITEMS: Unpickler.add_items,
    pickle.PUT: lambda m: m.put(int(m.line())), pickle.BINPUT: lambda m: m.put(m.read(1)[0]),
    pickle.LONG_BINPUT: lambda m: m.put(m.number("<I")), pickle.MEMOIZE: lambda m: m.put(len(m.memo)),
    pickle.GET: lambda m: m.get(int(m.line())), pickle.BINGET: lambda m: m.get(m.read(1)[0]),
    pickle.LONG_BINGET: lambda m: m.get(m.number("<I")),
    pickle.GLOBAL: lambda m: m.name(m.line().decode(), m.line().decode()), pickle.STACK_GLOBAL: Unpickler.stack_name,
    pickle.REDUCE: Unpickler.reduce, pickle.BUILD: Unpickler.set_state, pickle.INST: Unpickler.old_instance,
    pickle.OBJ: Unpickler.old_object, pickle.NEWOBJ: Unpickler.new_object, pickle.NEWOBJ_EX: lambda m: m.new_object(True),
    pickle.PERSID: lambda m: m.persistent(m.line().decode("ascii")), pickle.BINPERSID: lambda m: m.persistent(m.pop()),
}
