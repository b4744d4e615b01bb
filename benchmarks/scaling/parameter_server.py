"""Steps of workers that fetch parameters from servers and push gradients back, as in TensorFlow's paper (section 6.2: no computation).

Machines 0 .. servers-1 hold a part of the model each. A step of a worker: a request to each server, the part's bytes back, the worker's
own time, a gradient of as many bytes to each server. A server gives the parameters of the next step when it has the gradients of
`needed` workers; later ones of that step are dropped.

With `cores` all of them are processes of one machine: there is no link, bytes cost processor time, and processes that want to work share the
cores (local.py). A processor's time is moved through two "links" of the network then: the process's own, of one second a second, and the machine's.
"""

from dataclasses import dataclass

from .network import Network


@dataclass
class Cluster:
    """What was measured of a cluster: rates in bytes per second, times in seconds."""

    rate: float
    latency: float = 50e-6
    request: float = 0.0  # of a server's processor, for each request or gradient
    fixed: float = 0.0  # of a worker, for each step
    servers: int = 16
    byte: float = 0.0  # of a server's processor, for each byte of a part that it sends or gets
    step_byte: float = 0.0  # of a server's processor, for each byte of its part when a step is made
    worker_byte: float = 0.0  # of a worker's processor, for each byte of the model in each step
    cores: int | None = None  # that all processes share; None: machines of their own


def step_time(cluster: Cluster, workers: int, model_bytes: float, compute=None, needed: int | None = None, steps: int = 3, failed=()) -> float:
    """Seconds of a step, the mean of all but the first.

    `compute(worker, step)`: seconds of the worker's own time, default none; `needed`: gradients that make a step, default all of those
    workers that have not failed (`failed`: numbers of workers). Raises ValueError where that many can never come.
    """
    alive = workers - len(set(failed))
    needed = alive if needed is None else needed
    if not 1 <= needed <= alive:
        raise ValueError(f"step_time: the number of gradients that make a step must be between 1 and {alive}: got {needed}")
    n, part = cluster.servers, model_bytes / cluster.servers
    host = n + workers
    if cluster.cores:
        net, moved = Network(host + 1, [1.0] * host + [float(cluster.cores)]), 0.0
    else:
        net, moved = Network(host, cluster.rate, cluster.latency), part
    net.failed = {n + w for w in failed}
    version = [0] * n  # of each server's part
    come = [0] * n  # gradients of that version
    waiting: list = [[] for _ in range(n)]  # requests for the next version
    finished = {}  # version: when all servers had it
    state = [{"step": 0, "have": 0} for _ in range(workers)]

    def work(machine, seconds, call):
        """call() when the machine's processor has worked for so long."""
        if cluster.cores:
            net.send(machine, host, seconds, call)
        elif machine < n:
            net.work(machine, seconds, call)
        else:
            net.after(seconds, call)

    def ask(w, server, step):
        def serve():
            if version[server] < step:
                waiting[server].append(serve)
            else:
                work(server, cluster.request + cluster.byte * part, lambda: net.send(server, n + w, moved, lambda: arrived(w, step)))
        net.send(n + w, server, 0, serve)

    def arrived(w, step):
        state[w]["have"] += 1
        if state[w]["have"] == n:
            state[w]["have"] = 0
            work(n + w, cluster.fixed + cluster.worker_byte * model_bytes + (compute(w, step) if compute else 0.0), lambda: push(w, step))

    def push(w, step):
        # A worker that is late by whole steps goes on with the newest parameters.
        for server in range(n):
            net.send(n + w, server, moved, lambda server=server: work(server, cluster.request + cluster.byte * part, lambda: take(server, step)))
        then = max(step + 1, min(version))
        if then < steps:
            state[w]["step"] = then
            for server in range(n):
                ask(w, server, then)

    def take(server, step):
        if step != version[server]:
            return
        come[server] += 1
        if come[server] == needed:
            work(server, cluster.step_byte * part, lambda: made(server))

    def made(server):
        come[server] = 0
        version[server] += 1
        if min(version) == version[server]:
            finished[version[server]] = net.now
        ready, waiting[server] = waiting[server], []
        for serve in ready:
            serve()

    for w in range(workers):
        for server in range(n):
            ask(w, server, 0)
    net.run()
    return (finished[steps] - finished[1]) / (steps - 1) if steps > 1 else finished[1]
