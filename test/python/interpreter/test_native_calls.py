"""Functions of the extension module, called wrongly: an exception with a message, and never the end of the process."""

import pytest
from interpreter.programs import run
from tapegrad import _C

store = _C._hash_store()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: store.set("k"), "set() takes exactly 2 arguments (1 given)"),
        (lambda: store.get(), "get() takes at least 1 argument (0 given)"),
        (lambda: store.get("k", "x"), "'str' object cannot be interpreted as an integer"),
        (lambda: store.num_keys(1), "_Store.num_keys() takes no arguments (1 given)"),
        (lambda: store.set("k", 1), "set: a value must be bytes or a str: got int"),
        (lambda: _C._engine_is_available(3), "_engine_is_available() argument 1 must be str, not int"),
        (lambda: _C._autograd.run_backward([], (), (), False, False), "run_backward() argument must be tuple, not list"),
        (lambda: _C._autocast_enabled(), "set_autocast_enabled: expected 2 arguments: got 0"),
    ],
)
def test_a_wrong_call_is_a_type_error(call, text):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value).removeprefix("tapegrad._C.") == text


def test_no_function_ends_the_process(tmp_path):
    """Every function of tapegrad._C with up to six arguments of a kind."""
    assert run("""
        import os
        import sys
        import types
        import warnings
        from tapegrad import _C
        warnings.simplefilter("ignore")
        os.chdir(sys.argv[1])  # a file store makes a file
        # What changes the process or waits.
        left_out = {"_end_with", "_set_where", "_set_root_name", "_record_lines", "_profiler_start", "_profiler_stop",
                    "wait", "get", "barrier", "queue_pop", "close"}
        called = 0
        for owner in (_C, _C._autograd, _C._hash_store(), _C.default_generator):
            for name in dir(owner):
                f = getattr(owner, name, None)
                if not isinstance(f, types.BuiltinFunctionType) or name in left_out or name.startswith("__"):
                    continue
                for make in (object, lambda: None, lambda: "x", lambda: -7, lambda: 1.5):
                    for n in range(7):
                        try:
                            f(*[make() for _ in range(n)])
                        except Exception:
                            pass
                called += 1
        print(called > 150)
    """, tmp_path) == "True\n"
