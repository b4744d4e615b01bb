"""Recursion through the library ends with RecursionError while there is stack left: each case runs in threads of several
stacks and with a recursion limit that Python itself would never reach."""

import re
import textwrap

import pytest
from interpreter.programs import run

# Whose backward pass calls itself.
AGAIN = """
        class Again(tg.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1
            @staticmethod
            def backward(ctx, g):
                enter()
                return g
        @tg.enable_grad()
        def enter():
            x = tg.ones(2, requires_grad=True)"""
# What calls itself through the library, for ever: `enter(n)`, where n counts the calls.
ENDLESS = {
    "backward in backward": AGAIN + """
            Again.apply(x).sum().backward()""",
    "grad in backward": AGAIN + """
            tg.autograd.grad(Again.apply(x).sum(), x)""",
    "forward in forward": """
        class Again(tg.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return Again.apply(x)
            @staticmethod
            def backward(ctx, g):
                return g
        def enter():
            Again.apply(tg.ones(2, requires_grad=True))""",
    "hooks": """
        @tg.enable_grad()
        def enter(*_):
            x = tg.ones(2, requires_grad=True)
            y = x * 2
            y.register_hook(enter)
            y.sum().backward()""",
    "hooks of leaves": """
        @tg.enable_grad()
        def enter(*_):
            x = tg.ones(2, requires_grad=True)
            x.register_post_accumulate_grad_hook(enter)
            x.sum().backward()""",
    "hooks of nodes": """
        @tg.enable_grad()
        def enter(*_):
            x = tg.ones(2, requires_grad=True)
            y = x * 2
            y.grad_fn.register_prehook(enter)
            y.sum().backward()""",
    "packing": """
        @tg.enable_grad()
        def enter(*_):
            with tg.autograd.graph.saved_tensors_hooks(enter, enter):
                x = tg.ones(2, requires_grad=True)
                x.exp()""",
    "modules": """
        class Again(tg.nn.Module):
            def forward(self, x):
                return self(x)
        def enter():
            Again()(tg.ones(2))""",
    "modules with hooks": """
        class Plain(tg.nn.Module):
            def forward(self, x):
                return x
        def enter(*_):
            m = Plain()
            m.register_forward_hook(enter)
            m(tg.ones(2))""",
    "overrides": """
        class Mine(tg.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))
        def enter():
            tg.ones(2).as_subclass(Mine) + 1""",
    "modes": """
        from tapegrad.overrides import TorchFunctionMode
        class Mine(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                with Mine():
                    return func(*args, **(kwargs or {}))
        def enter():
            with Mine():
                tg.ones(2) + 1""",
    "sequences": """
        class Again:
            def __len__(self):
                tg.tensor(self)
                return 1
            def __getitem__(self, i):
                return 1.0
        def enter():
            tg.tensor(Again())""",
    "numbers": """
        class Again:
            def __index__(self):
                return tg.ones(2).select(0, self)
        def enter():
            tg.ones(2).select(0, Again())""",
    "attributes": """
        class Again(tg.nn.Module):
            def __getattr__(self, name):
                return getattr(self, name)
        def enter():
            Again().missing""",
    "vmap in vmap": """
        def enter():
            tg.func.vmap(lambda x: enter())(tg.ones(2))""",
    "grad in grad": """
        def enter():
            return tg.func.grad(lambda x: enter())(tg.tensor(1.0))""",
    "checkpoints": """
        def enter(*_):
            return checkpoint(enter, tg.ones(2, requires_grad=True), use_reentrant=True)""",
    "operators as callbacks": """
        class Again(float):
            def __float__(self):
                return tg.add(tg.ones(2), self).sum().item()
        class Key:
            def __eq__(self, other):
                return tg.ones(2)[self]
            def __index__(self):
                return tg.ones(2)[self]
            __hash__ = None
        def enter():
            tg.ones(2)[Key()]""",
}

PROGRAM = """
import sys, threading
import tapegrad as tg
import tapegrad.func
from tapegrad.utils.checkpoint import checkpoint
sys.setrecursionlimit(10**6)
{body}
def run():
    for _ in range(2):
        try:
            enter()
        except RecursionError:
            pass
        except RuntimeError as error:
            assert "nested more than" in str(error), error
        else:
            raise AssertionError("it ended")
    x = tg.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2] and tg.is_grad_enabled()
    print("whole", flush=True)
if {stack}:
    threading.stack_size({stack})
    t = threading.Thread(target=run)
    t.start()
    t.join()
else:
    run()
"""


@pytest.mark.parametrize("stack", [0, 256 << 10, 1 << 20], ids=["main", "256 kB", "1 MB"])
@pytest.mark.parametrize("name", ENDLESS)
def test_endless(name, stack):
    assert run(PROGRAM.format(body=textwrap.dedent(ENDLESS[name]), stack=stack), timeout=120) == "whole\n"


def test_how_deep_backward_goes():
    """What the issue of deep programs asks: hundreds of runs within each other, on the stack that every program has."""
    program = """
        import sys
        import tapegrad as tg
        sys.setrecursionlimit(10**6)
        class Again(tg.autograd.Function):
            @staticmethod
            def forward(ctx, x, n):
                ctx.n = n
                return x * 1
            @staticmethod
            def backward(ctx, g):
                return (deeper(ctx.n - 1) if ctx.n else g * 3), None
        @tg.enable_grad()
        def deeper(n):
            x = tg.ones(2, requires_grad=True)
            Again.apply(x, n).sum().backward()
            return x.grad
        print(deeper(800).tolist())
        try:
            deeper(6000)
        except RecursionError as error:
            print(error)
        """
    shallow, refused = run(program).splitlines()
    assert shallow == "[3.0, 3.0]"
    assert re.fullmatch(r"\w+: nested too deeply: 1[0-5]\d of \d+ kB of stack are left", refused)


# Long chains of objects that own each other: let go without recursion.
CHAINS = {
    "attributes of tensors": """
        for _ in range(n):
            t = tg.ones(1)
            t.previous = last
            last = t""",
    "attributes of contexts": """
        class Keeps(tg.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.x = x
                return x + 1
            @staticmethod
            def backward(ctx, g):
                return g
        last = tg.ones(1, requires_grad=True)
        for _ in range(n):
            last = Keeps.apply(last)""",
    "hooks that keep tensors": """
        last = tg.ones(1, requires_grad=True)
        for _ in range(n):
            t = last * 2
            t.register_hook(lambda g, keep=last: None)
            last = t""",
    "metadata of nodes": """
        last = tg.ones(1, requires_grad=True)
        for _ in range(n):
            t = last * 2
            t.grad_fn.metadata["keep"] = last
            last = t""",
    "gradients of gradients": """
        last = None
        for _ in range(n):
            t = tg.ones(1)
            t.grad = last
            last = t""",
    "parameters that keep": """
        last = None
        for _ in range(n):
            t = tg.nn.Parameter(tg.ones(1))
            t.previous = last
            last = t""",
    "modules in modules": """
        last = tg.nn.ReLU()
        for _ in range(n):
            last = tg.nn.Sequential(last)""",
    "views of views": """
        last = tg.ones(2, requires_grad=True) * 1
        for _ in range(n):
            last = last.view(2)""",
    "arrays over tensors over arrays": """
        last = tg.ones(2)
        for _ in range(n):
            last = tg.from_numpy(last.numpy())""",
    "buffers of tensors": """
        last = tg.ones(2)
        for _ in range(n):
            last = tg.frombuffer(memoryview(last), dtype=tg.float32)""",
    "capsules of tensors": """
        last = tg.ones(2)
        for _ in range(n):
            last = tg.from_dlpack(last)""",
    "saved tensors that are packed": """
        last = tg.ones(2, requires_grad=True)
        with tg.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda t: t[0]):
            for _ in range(n):
                last = last.exp()""",
    "second derivatives": """
        x = tg.ones(2, requires_grad=True)
        last = x
        for _ in range(n):
            last = last * x
        last = tg.autograd.grad(last.sum(), x, create_graph=True)""",
}


@pytest.mark.parametrize("name", CHAINS)
def test_long_chains_are_freed(name):
    program = "import gc\nimport tapegrad as tg\nn = 100_000\nlast = None\n" + textwrap.dedent(CHAINS[name])
    program += "\ngc.collect()\ndel last\nt = x = None\ngc.collect()\nprint('freed')"
    assert run(program, timeout=120) == "freed\n"
