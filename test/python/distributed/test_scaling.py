"""The simulator of benchmarks/scaling against formulas, and against the paper's figures that it was not fitted to."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[3]))
from benchmarks.scaling import __main__ as figures  # noqa: E402
from benchmarks.scaling import backup, engines, local  # noqa: E402
from benchmarks.scaling.network import Network, fair_rates  # noqa: E402
from benchmarks.scaling.parameter_server import Cluster, step_time  # noqa: E402


def test_links_are_shared_fairly():
    # Transfers a and b leave link 0, c leaves link 1; b and c arrive at link 3, which is slow: b and c get half of it, a the rest of link 0.
    rates = fair_rates(np.array([0, 0, 1]), np.array([2, 3, 3]), np.array([10.0, 10, 10, 4]))
    assert rates.tolist() == [8, 2, 2]
    assert fair_rates(np.array([], int), np.array([], int), np.array([1.0])).tolist() == []


def test_transfers_take_their_time():
    net, ends = Network(3, rate=100.0, latency=0.5), {}
    net.send(0, 2, 100, lambda: ends.setdefault("a", net.now))
    net.send(1, 2, 100, lambda: ends.setdefault("b", net.now))  # shares the way into 2
    net.send(2, 0, 100, lambda: ends.setdefault("c", net.now))  # and the way out of it is free
    net.after(4.0, lambda: net.send(0, 1, 50, lambda: ends.setdefault("d", net.now)))
    assert net.run() == pytest.approx(5.0)
    assert ends == pytest.approx({"a": 2.5, "b": 2.5, "c": 1.5, "d": 5.0})


def test_a_transfer_goes_on_alone_when_another_ends():
    net, ends = Network(3, rate=100.0), []
    net.send(0, 2, 50, lambda: ends.append(net.now))
    net.send(1, 2, 100, lambda: ends.append(net.now))
    net.run()
    assert ends == pytest.approx([1.0, 1.5])


@pytest.mark.parametrize("workers", [1, 4, 32])
def test_a_step_is_bound_by_links(workers):
    cluster = Cluster(rate=1e9, latency=0.0, servers=8)
    busiest = max(1.0, workers / 8)  # of a worker's link, or of a server's
    assert step_time(cluster, workers, 8e8) == pytest.approx(2 * 0.8 * busiest, rel=1e-6)


def test_what_is_calculated_and_requests_add_up():
    cluster = Cluster(rate=1e9, latency=0.01, request=0.001, fixed=0.1, servers=1)
    assert step_time(cluster, 1, 1e8, compute=lambda worker, step: 0.2) == pytest.approx(0.1 + 0.1 + 0.1 + 0.2 + 2 * 0.01 + 2 * 0.001)


def test_processes_of_one_machine_share_its_cores():
    cluster = Cluster(rate=1.0, servers=1, request=0.001, fixed=0.01, byte=1e-9, step_byte=2e-9, worker_byte=4e-9, cores=1)
    server, worker, step = 2 * (0.001 + 0.1), 0.01 + 0.4, 0.2
    for workers in (1, 2, 5):  # one core: everything one after the other, whoever does it
        assert step_time(cluster, workers, 1e8) == pytest.approx(workers * (server + worker) + step, rel=1e-6)
    many = Cluster(**{**vars(cluster), "cores": 64})  # each process has its own, and the server is the narrow place
    assert step_time(many, 1, 1e8) == pytest.approx(server + worker + step, rel=1e-6)
    assert 5 * server + step < step_time(many, 5, 1e8) <= 5 * server + step + worker + 1e-6


def test_late_gradients_do_not_count_for_the_next_step():
    cluster = Cluster(rate=1.0, servers=1, step_byte=1e-8, worker_byte=1e-9, cores=8)
    slow = lambda worker, step: 0.5 if worker == 2 else 0.0  # noqa: E731
    assert step_time(cluster, 3, 1e8, compute=slow, needed=2) == pytest.approx(0.1 + 1.0, rel=1e-6)  # it comes while the step is made


@pytest.mark.long
def test_costs_of_a_parameter_server_are_found_again():
    made = Cluster(rate=1.0, servers=1, cores=2, request=3e-4, fixed=1e-3, byte=2e-9, step_byte=1e-9, worker_byte=4e-9)
    times = {w: {n: step_time(made, w, n, steps=4) for n in local.SIZES.values()} for w in (1, 2, 3)}
    found = local.fit({w: times[w] for w in (1, 2)}, 2)
    for n, seconds in times[3].items():
        assert step_time(found, 3, n, steps=4) == pytest.approx(seconds, rel=0.1)


def test_backup_workers_cover_for_slow_and_failed_ones():
    cluster = Cluster(rate=1e9, latency=0.0, servers=2)
    slow = lambda worker, step: 9.0 if worker == 0 else 1.0  # noqa: E731
    assert step_time(cluster, 4, 1e6, compute=slow) > 9
    assert step_time(cluster, 4, 1e6, compute=slow, needed=3) < 1.1
    assert step_time(cluster, 4, 1e6, compute=lambda worker, step: 1.0, needed=3, failed=[2]) < 1.1
    with pytest.raises(ValueError, match="between 1 and 3: got 4"):
        step_time(cluster, 4, 1e6, needed=4, failed=[2])
    even = backup.Stragglers(0.0, 0.0, 1.0)
    assert backup.step_times(5, 2, even, steps=10).tolist() == [1.0] * 10 and backup.gain(5, 0, even, steps=10) == 1


@pytest.mark.long
def test_the_paper_s_figures():
    # Fitted to one worker and to the scalar of a hundred; the others are predictions.
    steps = figures.null_steps()
    for name, (one, hundred) in figures.PAPER.items():
        assert steps[name][0] == pytest.approx(one, rel=0.02) and steps[name][-1] == pytest.approx(hundred, rel=0.25), name
    numbers = figures.backup_workers()
    assert min(numbers, key=lambda n: n[1])[0] == 4 and 1.08 < max(gain for _, _, gain in numbers) < 1.12


def test_costs_are_found_again():
    costs = engines.Costs(2e-5, 3e-10, 1e-10, 1e-5, 1e-4)
    made = {ranks: {n: engines.call_time(costs, ranks, n, 2) for n in (64, 4096, 1 << 16, 1 << 20, 1 << 25)} for ranks in (2, 3, 4)}
    found = engines.fit(made, 2)
    for ranks in made:
        for n, seconds in made[ranks].items():
            assert engines.call_time(found, ranks, n, 2) == pytest.approx(seconds, rel=0.05)
