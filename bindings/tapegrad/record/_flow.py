"""Where a number goes that a function has read of a tensor: by the function's bytecode, followed from the call until each use.

Results of a recorded step may be such numbers, and the step may compare them with constants. What is not understood is not followed:
`uses` says None then. Values on the stack are followed within runs of instructions without jumps; local variables wherever they are read."""

from __future__ import annotations

import builtins
import dis
import math
import sys
from bisect import bisect_right
from collections import defaultdict
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import NamedTuple

_SEES_LOCALS = frozenset("locals vars eval exec dir globals _getframe currentframe breakpoint set_trace".split())
_TESTS = {id(math.isfinite): "finite", id(math.isinf): "infinite", id(math.isnan): "nan"}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_LARGEST = 2 ** 53  # below it integers are floats exactly

# How many entries an instruction takes from the stack, and how many it puts there.
_SIMPLE = {
    **dict.fromkeys("NOP RESUME PRECALL KW_NAMES EXTENDED_ARG CACHE DELETE_FAST DELETE_NAME DELETE_GLOBAL DELETE_DEREF SETUP_ANNOTATIONS MAKE_CELL "
                    "COPY_FREE_VARS JUMP_FORWARD JUMP_BACKWARD JUMP_ABSOLUTE JUMP_BACKWARD_NO_INTERRUPT RETURN_CONST GEN_START".split(), (0, 0)),
    **dict.fromkeys("LOAD_FAST LOAD_FAST_CHECK LOAD_CONST LOAD_NAME LOAD_DEREF LOAD_CLOSURE LOAD_CLASSDEREF PUSH_NULL LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS "
                    "IMPORT_FROM".split(), (0, 1)),
    **dict.fromkeys("STORE_FAST STORE_NAME STORE_GLOBAL STORE_DEREF POP_TOP RETURN_VALUE LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE LIST_APPEND SET_ADD "
                    "POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE "
                    "POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE "
                    "POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE".split(), (1, 0)),
    **dict.fromkeys("UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT UNARY_INVERT TO_BOOL GET_ITER FORMAT_SIMPLE CONVERT_VALUE".split(), (1, 1)),
    **dict.fromkeys("BINARY_OP BINARY_SUBSCR COMPARE_OP IS_OP CONTAINS_OP IMPORT_NAME FORMAT_WITH_SPEC".split(), (2, 1)),
    **dict.fromkeys("STORE_ATTR DELETE_SUBSCR MAP_ADD".split(), (2, 0)),
    "BINARY_SLICE": (3, 1), "STORE_SUBSCR": (3, 0), "STORE_SLICE": (4, 0), "DELETE_ATTR": (1, 0), "BEFORE_WITH": (1, 2),
}
_BUILD = {"BUILD_TUPLE": 1, "BUILD_LIST": 1, "BUILD_SET": 1, "BUILD_STRING": 1, "BUILD_SLICE": 1, "BUILD_MAP": 2}


def _effect(i: dis.Instruction) -> tuple[int, int] | None:
    name, n = i.opname, i.arg or 0
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name in _BUILD:
        return n * _BUILD[name], 1
    if name == "BUILD_CONST_KEY_MAP":
        return n + 1, 1
    if name.startswith(("BINARY_", "INPLACE_")):  # of 3.10
        return 2, 1
    if name == "LOAD_GLOBAL":
        return 0, 2 if _has_null(i) else 1
    if name == "LOAD_METHOD":
        return 1, 2
    if name == "LOAD_ATTR":
        return 1, 2 if _has_null(i) else 1
    if name in ("CALL", "CALL_METHOD"):
        return n + 2, 1
    if name == "CALL_FUNCTION":
        return n + 1, 1
    if name == "CALL_FUNCTION_KW":
        return n + 2, 1
    if name == "CALL_FUNCTION_EX":
        return (2 if sys.version_info < (3, 11) else 3) + (n & 1), 1
    if name == "CALL_KW":
        return n + 3, 1
    if name == "UNPACK_SEQUENCE":
        return 1, n
    if name == "FORMAT_VALUE":
        return 2 if n & 4 else 1, 1
    return None


def _has_null(i: dis.Instruction) -> bool:
    """Whether a load puts two entries on the stack, as the beginning of a call. Globals since CPython 3.11, attributes since 3.12."""
    return bool(i.arg & 1) and (i.opname == "LOAD_GLOBAL" and sys.version_info >= (3, 11) or i.opname == "LOAD_ATTR" and sys.version_info >= (3, 12))


class _Entry(NamedTuple):
    """What lies on the stack: which instruction has put it there, and which of its entries it is."""

    made: int
    part: int = 0


_UNKNOWN = _Entry(-1)


class _Code:
    """Of each instruction which entries it takes; of each entry who takes it; and which entries are lost sight of."""

    def __init__(self, code: CodeType) -> None:
        self.list = list(_split(dis.get_instructions(code)))
        self.offsets = [i.offset for i in self.list]
        self.sizes: dict[tuple[int, bool], list] = {}  # what size_uses has found, and what it has asked the frame for it
        self.taken: list[list[_Entry]] = []
        self.uses: dict[int, list[tuple[int, int]]] = defaultdict(list)  # which instruction takes it, and where it lay, from below
        self.lost: set[int] = set()
        self.loads: dict[str, list[int]] = defaultdict(list)
        self.changed = {i.argval for i in self.list if i.opname.startswith(("STORE_", "DELETE_", "LOAD_FAST_AND_CLEAR", "IMPORT_")) and isinstance(i.argval, str)}
        self.cleared = {i.argval for i in self.list if i.opname == "LOAD_FAST_AND_CLEAR"}
        # Where jumps backwards come from, and to.
        self.back = [(k, i.argval) for k, i in enumerate(self.list) if "BACKWARD" in i.opname or i.opname == "JUMP_ABSOLUTE"]
        starts = [(begin, line) for begin, _, line in code.co_lines()]
        begins = [begin for begin, _ in starts]
        self.lines = [starts[bisect_right(begins, i.offset) - 1][1] for i in self.list]
        targets = {i.argval for i in self.list if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs}
        handlers = {e.target for e in dis._parse_exception_table(code)} if hasattr(dis, "_parse_exception_table") else set()
        stack: list[_Entry] = []
        for k, i in enumerate(self.list):
            if i.offset in targets or i.offset in handlers or i.is_jump_target:
                self._lose(stack)
            stack = self._step(k, i, stack)
            if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs or i.opname in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"):
                self._lose(stack)

    def _lose(self, stack: list[_Entry]) -> None:
        self.lost.update(e.made for e in stack)
        stack.clear()

    def _step(self, k: int, i: dis.Instruction, stack: list[_Entry]) -> list[_Entry]:
        name, n = i.opname, i.arg or 0
        self.taken.append([])
        moves = {"SWAP": n, "COPY": n, "DUP_TOP": 1, "DUP_TOP_TWO": 2, "ROT_TWO": 2, "ROT_THREE": 3, "ROT_FOUR": 4, "ROT_N": n}
        if name in moves:
            depth = moves[name]
            stack[:0] = [_UNKNOWN] * (depth - len(stack))
            if name == "SWAP":
                stack[-1], stack[-n] = stack[-n], stack[-1]
            elif name == "COPY":
                stack.append(stack[-n])
            elif name.startswith("DUP"):
                stack += stack[-depth:]
            else:
                stack.insert(len(stack) - depth, stack.pop())
            return stack
        effect = _effect(i)
        if effect is None:
            self._lose(stack)
            return stack
        pops, pushes = effect
        stack[:0] = [_UNKNOWN] * (pops - len(stack))
        taken = stack[len(stack) - pops:]
        del stack[len(stack) - pops:]
        self.taken[k] = taken
        for place, entry in enumerate(taken):
            self.uses[entry.made].append((k, place))
        stack += [_Entry(k, part) for part in range(pushes)]
        if name.startswith("LOAD_FAST"):
            self.loads[i.argval].append(k)
        return stack

    def now(self, frame: FrameType) -> int:
        """Which instruction runs. Behind it may be its caches: a caller stands at the last of them."""
        return max(bisect_right(self.offsets, frame.f_lasti) - 1, 0)

    def function(self, k: int) -> int | None:
        """Of a call: which instruction loads the function."""
        alone = self.list[k].opname == "CALL_FUNCTION" or self.list[k].opname == "CALL_FUNCTION_EX" and sys.version_info < (3, 11)
        for at, part in self.taken[k][:1 if alone else 2]:
            if at < 0 or self.list[at].opname == "PUSH_NULL":
                continue
            if _effect(self.list[at])[1] == 2 and part == (1 if self.list[at].opname != "LOAD_GLOBAL" or sys.version_info >= (3, 13) else 0):
                continue  # what the method is of, or nothing
            return at
        return None

    def callee(self, k: int):
        """Of a call: the function as a chain of names ("math", "isfinite"), or None."""
        at, names = self.function(k), []
        while at is not None and at >= 0 and self.list[at].opname in ("LOAD_METHOD", "LOAD_ATTR"):
            names.append(self.list[at].argval)
            at = self.taken[at][0].made
        return (self.list[at].argval, *reversed(names)) if at is not None and at >= 0 and self.list[at].opname == "LOAD_GLOBAL" else None


def _split(instructions):
    """Instructions of two local variables, since CPython 3.13, one by one."""
    for i in instructions:
        parts = i.opname.split("_")
        if i.opname in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"):
            first, second = ("_".join(parts[:2]), i.argval[0]), ("_".join(parts[2:]), i.argval[1])
            for name, variable in (first, second):
                yield i._replace(opname=name, opcode=dis.opmap[name], argval=variable)
        else:
            yield i


class Uses(NamedTuple):
    returned: bool
    tests: tuple[tuple[str, float], ...]  # by what it is told apart: ("<", 3.0), ("finite", 0.0), ("true", 0.0)


_codes: dict[int, tuple[CodeType, _Code | None]] = {}  # by id: the hash of code is one of all that is in it


def uses(frame: FrameType, what: str) -> Uses | None:
    """What a function that runs does with the number, or the list, that the call that it makes now, one of `what` ("item", "tolist", "float"),
    gives: all that it does, or None. With "" for `what`: of any call, which gives no number itself. Globals and attributes count as what they
    are now."""
    parsed = _parsed(frame.f_code)
    return _uses(parsed, parsed.now(frame), what, frame) if parsed is not None else None


def _parsed(code: CodeType) -> _Code | None:
    if (known := _codes.get(id(code))) is not None:
        return known[1]
    # Generators and coroutines; instructions that are not known here.
    hidden = code.co_flags & 0x2A0 or _SEES_LOCALS.intersection(code.co_names) or sys.version_info >= (3, 14)
    parsed = None if hidden else _Code(code)
    _codes[id(code)] = code, parsed
    if len(_codes) > 1000:
        del _codes[next(iter(_codes))]
    return parsed


_identity: dict[CodeType, bool] = {}


def tells_apart(code: CodeType) -> bool:
    """Whether code may tell objects apart by identity, other than None."""
    if code not in _identity:
        instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")] if dis.opmap["IS_OP"] in code.co_code[::2] else []
        _identity[code] = "id" in code.co_names or any(
            i.opname == "IS_OP" and not (k > 0 and instructions[k - 1].opname == "LOAD_CONST") for k, i in enumerate(instructions))
        if len(_identity) > 1000:
            del _identity[next(iter(_identity))]
    return _identity[code]


def size_uses(frame: FrameType, several: bool) -> tuple[tuple[int, int, int], ...] | None:
    """What a function that runs does with sizes that it reads now, one (`x.size(0)`) or several (`x.shape`): which calls, subscripts and operators
    are given them, or what was computed from them, each as the bytes where it is and its line; or None: not all is understood. A number knows
    what is computed from it and how it compares where it is the first operand, or the other one is an integer; tensors say what they are given."""
    code = _parsed(frame.f_code)
    if code is None:
        return None
    known = code.sizes.setdefault((code.now(frame), several), [])
    for asked, found in known:
        for ask, at, answer in asked:
            if ask(code, at, frame) is not answer:
                break
        else:
            return found
    asked: list[tuple] = []

    def is_so(ask, at: int) -> bool:
        asked.append((ask, at, ask(code, at, frame)))
        return asked[-1][2]

    given = _size_uses(code, code.now(frame), several, is_so)
    found = None if given is None else tuple((code.offsets[k], code.offsets[k + 1], code.lines[k] or 0) for k in sorted(given))
    known[7:] = []
    known.insert(0, (asked, found))
    return found


def _is_integer(code: _Code, at: int, frame: FrameType) -> bool:
    return at >= 0 and type(_constant(code, at, frame)) is int


def _is_tuple(code: _Code, at: int, frame: FrameType) -> bool:
    return type(_constant(code, at, frame)) is tuple


def _asks_for_type(code: _Code, k: int, frame: FrameType) -> bool:
    """Whether a call is one of `type`, or of a function that calls it."""
    function = _called(code, k, frame)
    return function is type or type(function) is FunctionType and "type" in function.__code__.co_names


def _size_uses(code: _Code, start: int, several: bool, is_so) -> set[int] | None:
    """Which instructions; what depends on the frame is asked by `is_so` alone."""
    # By a tensor itself: another function may read sizes of its own accord, and give what it has made of them.
    by = code.function(start) if code.list[start].opname.startswith("CALL") else start
    if by is None or code.list[by].argval not in ("shape", "size", "numel", "nelement"):
        return None
    given: set[int] = set()
    compared: list[_Entry] = []  # with what, where that comes first
    added: list[_Entry] = []  # to what several are added
    others: list[tuple[int, int]] = []  # first operands of operators, which are these numbers or tensors
    seen: set[tuple[int, bool]] = set()
    waiting = [(start, several)]  # and whether it is a tuple, or a list, of them
    while waiting:
        made, several = waiting.pop()
        if (made, several) in seen:
            continue
        seen.add((made, several))
        if made in code.lost:
            return None
        for k, place in code.uses[made]:
            i, taken = code.list[k], code.taken[k]
            name = i.opname
            if name == "STORE_FAST":
                if i.argval in code.cleared:
                    return None
                waiting += [(load, several) for load in code.loads[i.argval]]
            elif name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SLICE"):
                waiting.append((k, True))
            elif name == "UNPACK_SEQUENCE" or name == "UNARY_NEGATIVE" and not several:
                waiting.append((k, False))
            elif name in ("BINARY_SUBSCR", "BINARY_SLICE") and place == 0:
                if not several or not all(_is_constant_index(code, e.made) for e in taken[1:]):
                    return None
                waiting += [(k, False), (k, True)]
            elif name in ("BINARY_SUBSCR", "BINARY_SLICE") or name == "STORE_SUBSCR" and place == 2:
                if _in_loop(code, k):  # of a tensor once, and of a list another time
                    return None
                given.add(k)
            elif name == "COMPARE_OP":
                if place == 1:
                    compared.append(taken[0])
            elif name == "BINARY_OP" or name.startswith(("BINARY_", "INPLACE_")):
                constant = place == 1 and is_so(_is_integer, taken[0].made)
                if place == 0 or several or constant:
                    waiting.append((k, several))
                if place == 1 and several:
                    added.append(taken[0])
                elif place == 1 and not constant:
                    others.append((taken[0].made, k))
            elif name in ("CALL", "CALL_METHOD", "CALL_KW") and place >= 2 or name in ("CALL_FUNCTION", "CALL_FUNCTION_KW") and place >= 1:
                if _may_vary(code, k) or is_so(_asks_for_type, k):
                    return None
                given.add(k)
            elif name not in ("POP_TOP", "TO_BOOL", "UNARY_NOT", "FORMAT_VALUE", "FORMAT_SIMPLE") and not name.startswith("POP_JUMP"):
                return None
    for entry in compared:
        if entry.made < 0 or (entry.made, False) not in seen and (entry.made, True) not in seen and not is_so(_is_integer, entry.made):
            return None
    for entry in added:
        if entry.made < 0 or (entry.made, True) not in seen and not is_so(_is_tuple, entry.made):
            return None
    for made, k in others:
        if (made, False) not in seen:
            if _in_loop(code, k):
                return None
            given.add(k)
    return given


def _in_loop(code: _Code, k: int) -> bool:
    return any(at > k and target <= code.offsets[k] for at, target in code.back)


def _may_vary(code: _Code, k: int) -> bool:
    """Whether a call may be of one function first and then of another one, which is not seen: calls of types are not."""
    at = code.function(k)
    return _in_loop(code, k) and (at is None or not code.list[at].opname.startswith("LOAD_") or code.list[at].argval in code.changed)


def _is_constant_index(code: _Code, at: int) -> bool:
    if at < 0:
        return False
    if code.list[at].opname == "BUILD_SLICE":
        return all(_is_constant_index(code, e.made) for e in code.taken[at])
    return code.list[at].opname == "LOAD_CONST"


def _number(code: _Code, entry: _Entry, frame: FrameType):
    """A number that is the same all the time while the function runs, as far as it changes nothing that is watched; or None: a constant, an argument,
    a global, an attribute of one of these."""
    value = _constant(code, entry.made, frame) if entry.made >= 0 else None
    return float(value) if type(value) in (int, float) and abs(value) < _LARGEST else None


def _constant(code: _Code, at: int, frame: FrameType):
    i = code.list[at]
    if i.opname == "LOAD_CONST":
        return i.argval
    if i.opname == "LOAD_FAST" and i.argval not in code.changed:
        return frame.f_locals.get(i.argval)
    if i.opname == "LOAD_GLOBAL" and i.argval not in code.changed:
        return frame.f_globals.get(i.argval, vars(builtins).get(i.argval))
    if i.opname == "LOAD_ATTR" and not _has_null(i) and code.taken[at][0].made >= 0 and i.argval not in code.changed:
        owner = _constant(code, code.taken[at][0].made, frame)
        # Of an instance with a dictionary, and by no code of the program.
        if type(owner).__getattribute__ is object.__getattribute__ and not issubclass(type(owner), (type, ModuleType)) and _of_class(owner, i.argval) is None:
            return _variables(owner).get(i.argval)
    return None


def _of_class(owner, name: str):
    return next((vars(cls)[name] for cls in type(owner).__mro__ if name in vars(cls)), None)


def _variables(owner) -> dict:
    try:
        return object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}


def calls_directly(frame: FrameType, callee: CodeType) -> bool:
    """Whether what the frame calls now is a plain function of this code, with no other code between them."""
    code = _parsed(frame.f_code)
    if code is None or code.list[code.now(frame)].opname not in ("CALL", "CALL_METHOD", "CALL_FUNCTION", "CALL_FUNCTION_EX"):
        return False
    function = _called(code, code.now(frame), frame)
    return type(function) is FunctionType and function.__code__ is callee


def _called(code: _Code, k: int, frame: FrameType):
    """The function that is called, where that is one all the time; or None."""
    at = code.function(k)
    if at is None:
        return None
    i, function = code.list[at], None
    if i.opname == "LOAD_DEREF" and i.argval in frame.f_code.co_freevars and i.argval not in code.changed:
        function = frame.f_locals.get(i.argval)
    elif i.opname in ("LOAD_METHOD", "LOAD_ATTR") and code.taken[at] and code.taken[at][0].made >= 0:
        owner = _constant(code, code.taken[at][0].made, frame)
        if type(owner).__getattribute__ is object.__getattribute__ and i.argval not in _variables(owner):
            function = _of_class(owner, i.argval)
    else:
        function = _constant(code, at, frame)
    return function


def _uses(code: _Code, start: int, what: str, frame: FrameType) -> Uses | None:
    variables = frame.f_globals
    call, taken = code.list[start], code.taken[start]
    if not taken or (call.opname not in ("CALL", "CALL_METHOD", "CALL_FUNCTION") if what else not call.opname.startswith("CALL")):
        return None
    if not what:
        pass
    elif what == "float":
        if call.arg != 1 or code.callee(start) != ("float",) or variables.get("float", float) is not float or builtins.float is not float:
            return None
    else:
        loaded = code.list[taken[0].made] if taken[0].made >= 0 else None
        if call.arg != 0 or loaded is None or loaded.opname not in ("LOAD_METHOD", "LOAD_ATTR") or loaded.argval != what:
            return None
    returned, tests = False, set()
    seen: set[tuple[int, bool]] = set()
    waiting = [(start, what in ("item", "float"))]  # and whether it is the number itself
    while waiting:
        made, number = waiting.pop()
        if (made, number) in seen:
            continue
        seen.add((made, number))
        if made in code.lost:
            return None
        for k, place in code.uses[made]:
            i, last = code.list[k], len(code.taken[k]) - 1
            name = i.opname
            if name == "STORE_FAST":
                if i.argval in code.cleared:
                    return None
                waiting += [(load, number) for load in code.loads[i.argval]]
            elif name == "RETURN_VALUE":
                returned = True
            elif name == "POP_TOP":
                pass
            elif name in ("BUILD_TUPLE", "BUILD_LIST") or name == "BUILD_MAP" and place % 2 == 1 or name == "BUILD_CONST_KEY_MAP" and place < last:
                waiting.append((k, False))
            elif not number:
                return None
            elif name == "COMPARE_OP":
                other = _number(code, code.taken[k][1 - place], frame)
                if other is None or i.argval not in _MIRRORED:
                    return None
                tests.add((i.argval if place == 0 else _MIRRORED[i.argval], other))
            elif name == "TO_BOOL" or name == "UNARY_NOT" or name.startswith("POP_JUMP") and "NONE" not in name:
                tests.add(("true", 0.0))
            elif name.startswith("CALL") and i.arg == 1 and place == last and (function := code.callee(k)) is not None:
                found = variables.get(function[0])
                if found is math and len(function) == 2:
                    found = vars(math).get(function[1])
                elif len(function) != 1:
                    return None
                if name in ("CALL_KW", "CALL_FUNCTION_KW", "CALL_FUNCTION_EX") or id(found) not in _TESTS:
                    return None
                tests.add((_TESTS[id(found)], 0.0))
            else:
                return None
    return Uses(returned, tuple(sorted(tests)))
