"""A replay that lacks memory at its first, second ... result, and one in a child process. An error in any call is in test/cpp/nn/record_memory_test.cpp, Ctrl-C in
test_surroundings.py, test_reads.py, test_memory.py and test_sizes.py."""

import subprocess
import sys

import pytest


def run(program, timeout=120):
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=timeout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


# Each result takes so much that the limit decides how many there are; before each the step has written to a weight and a buffer.
SCARCE = """
import os, resource, sys
import tapegrad as tg
tg.set_num_threads(1)
SIZE, RESULTS = 1 << 22, 5  # elements
weight = tg.zeros(8)
counts = tg.zeros(1)

def step(x):
    made = []
    for i in range(RESULTS):
        weight.add_(1)
        made.append(x.expand(SIZE) * (i + 1))
        counts.add_(weight[:1])
    return made

recorded = tg.record(step, graphs=False)
x = tg.ones(1)
for _ in range(4):
    recorded(x)
assert recorded._replays.count == 2, recorded.summary()

def state():
    return weight.tolist(), counts.tolist()

def reset():
    weight.zero_(), counts.zero_()

def limited(call, left):
    reset()
    tg.cpu.empty_cache() if hasattr(tg.cpu, "empty_cache") else tg._C._empty_cache()
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + left, resource.RLIM_INFINITY))
    try:
        call(x)
        return None
    except tg.OutOfMemoryError:
        return state()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

found = []
for n in range(RESULTS + 1):
    left = n * SIZE * 4 + SIZE * 2
    eager, replayed = limited(step, left), limited(recorded, left)
    assert eager == replayed, (n, eager, replayed)  # what an eager run has done up to there
    found.append(eager)
    before = recorded._replays.count
    reset()
    assert [t[0].item() for t in recorded(x)] == [1, 2, 3, 4, 5] and state() == ([5.0] * 8, [15.0]), n
    assert recorded._replays.count == before + 1, recorded.summary()
assert sum(f is not None for f in found) >= RESULTS - 1 and len({str(f) for f in found}) >= RESULTS - 1, found
print("done")
"""


def test_no_memory_for_any_of_the_results():
    assert run(SCARCE) == "done\n"


CHILD = """
import os, sys, threading
import tapegrad as tg
tg.set_num_threads({threads})
net = tg.nn.Sequential(tg.nn.Linear(64, 64), tg.nn.GELU(), tg.nn.Dropout(0.3), tg.nn.Linear(64, 64))
twin = tg.nn.Sequential(tg.nn.Linear(64, 64), tg.nn.GELU(), tg.nn.Dropout(0.3), tg.nn.Linear(64, 64))
twin.load_state_dict(net.state_dict())

def training(net):
    optimizer = tg.optim.Adam(net.parameters())
    def step(x):
        optimizer.zero_grad()
        mask = (tg.arange(0, 64) > 3).float()
        loss = ((net(x) * mask).square() + (net(x) * mask).abs()).mean()
        loss.backward()
        optimizer.step()
        return loss
    return step

step, eager = tg.record(training(net)), training(twin)
chain = tg.record(lambda x: ((x * 1.5 + 1).sin() * x).abs() - 0.5)

def check(seed, times):
    for k in range(times):
        tg.manual_seed(seed + k)
        x = tg.randn(300, 64)
        long = tg.randn(300_000)
        expected = eager(x)
        tg.manual_seed(seed + k)
        tg.randn(300, 64), tg.randn(300_000)
        step._replays.scribble()
        assert tg.equal(step(x), expected), (seed, k)
        assert all(tg.equal(p, q) for p, q in zip(net.parameters(), twin.parameters()))
        assert tg.equal(chain(long), chain.function(long))

check(0, 5)
assert step._replays.count > 0 and chain._replays.count > 0, step.summary() + chain.summary()
stop = threading.Event()
def busy():  # another step is replayed by a thread while the process forks
    other = tg.record(lambda x: ((x * 2 + 1).cos() * x).exp())
    x = tg.randn(200_000)
    while not stop.is_set():
        other(x)
thread = threading.Thread(target=busy)
thread.start()
children = []
for n in range(4):
    child = os.fork()
    if child == 0:
        try:
            check(100 + n, 14)  # through an audit
            fresh = tg.record(lambda x: (x * 3 + 1).tanh() * (x * 3 + 1))
            for _ in range(5):
                assert tg.equal(fresh(tg.ones(100_000)), fresh.function(tg.ones(100_000)))
            assert step._replays.count > 10 and fresh._replays.count > 1, step.summary()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    children.append(child)
check(50, 5)
stop.set()
thread.join()
codes = [os.waitpid(child, 0)[1] for child in children]
assert codes == [0] * 4, codes
check(60, 5)
print("done")
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_replays_in_forked_children(threads):
    assert run(CHILD.format(threads=threads)) == "done\n"
