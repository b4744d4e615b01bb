"""A second import, in a subinterpreter or after entries of sys.modules were deleted, is refused in one sentence; the first
one stays whole."""

import sys

import pytest
from interpreter.programs import run

CHECK = """
def check(tg):
    assert str(tg.arange(3)) == "tensor([0, 1, 2])", str(tg.arange(3))
    assert "Linear" in repr(tg.nn.Linear(2, 2))
    x = tg.ones(3, requires_grad=True)
    (tg.nn.functional.relu(x) * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    y = tg.rand(300_000) + 1      # gives the GIL away
    tg.rand(200, 200) @ tg.rand(200, 200)
    try:
        tg.add(1, "a")
    except TypeError:
        pass
    assert tg.save and tg.load and tg.linalg.det(tg.eye(2)) == 1
    assert tg.autograd.grad(x.sum(), x)[0].tolist() == [1, 1, 1]
"""

SUBINTERPRETER = """
import tapegrad as tg
check(tg)
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
def make():
    try:
        return interpreters.create(isolated=False)
    except TypeError:
        return interpreters.create("legacy")
for _ in range(2):
    sub = make()
    program = '''
try:
    import {module}
except ImportError as error:
    assert str(error).startswith("tapegrad"), error
else:
    raise AssertionError("imported")
'''
    raised = interpreters.run_string(sub, program)
    assert raised is None, raised
    check(tg)
    interpreters.destroy(sub)
    check(tg)
print("whole")
"""


@pytest.mark.parametrize("module", ["tapegrad", "tapegrad._C", "tapegrad.nn"])
@pytest.mark.skipif(sys.version_info < (3, 10), reason="there is no module of subinterpreters")
def test_in_a_subinterpreter(module):
    assert run(CHECK + SUBINTERPRETER.replace("{module}", module)) == "whole\n"


def test_first_in_a_subinterpreter():
    """Refused there, and the main interpreter may still import it."""
    program = SUBINTERPRETER.replace("import tapegrad as tg\ncheck(tg)", "tg = None").replace("{module}", "tapegrad")
    program = program.replace("    check(tg)\n", "").replace('print("whole")', "import tapegrad as tg\ncheck(tg)\nprint('whole')")
    assert run(CHECK + program) == "whole\n"


@pytest.mark.parametrize("gone", ["all", "package", "native"])
def test_after_entries_were_deleted(gone):
    program = CHECK + """
import sys
import tapegrad as tg
import tapegrad.nn, tapegrad.linalg
check(tg)
names = [n for n in sys.modules if n == "tapegrad" or n.startswith("tapegrad.")]
wanted = {"all": names, "package": ["tapegrad"], "native": ["tapegrad", "tapegrad._C"]}[sys.argv[1]]
kept = {n: sys.modules[n] for n in names}
for _ in range(2):
    for n in wanted:
        sys.modules.pop(n, None)
    try:
        import tapegrad
    except ImportError as error:
        assert str(error).count("tapegrad") and "\\n" not in str(error), error
        print(error)
    else:
        raise AssertionError("imported")
    check(tg)
sys.modules.update(kept)  # as monkeypatch.undo() does
import tapegrad
assert tapegrad is tg
check(tapegrad)
"""
    expected = "tapegrad: cannot be imported a second time: its first import is still in use; start a new interpreter instead\n"
    assert run(program, gone) == 2 * expected


def test_reload():
    program = CHECK + """
import importlib
import tapegrad as tg
check(tg)
before = dict(vars(tg))
for _ in range(2):
    try:
        importlib.reload(tg)
    except ImportError as error:
        assert "second time" in str(error), error
    else:
        raise AssertionError("reloaded")
    check(tg)
assert tg.Tensor is before["Tensor"] and tg.zeros is before["zeros"]
import tapegrad
assert tapegrad is tg
print("whole")
"""
    assert run(program) == "whole\n"


def test_an_import_that_was_interrupted_may_be_repeated():
    program = CHECK + """
import builtins, sys
real = builtins.__import__
def stops(name, globals=None, locals=None, fromlist=(), level=0):
    if level and name == "_root.settings":
        raise KeyboardInterrupt
    return real(name, globals, locals, fromlist, level)
builtins.__import__ = stops
try:
    import tapegrad
except KeyboardInterrupt:
    print("interrupted")
builtins.__import__ = real
import tapegrad as tg
check(tg)
"""
    assert run(program) == "interrupted\n"
