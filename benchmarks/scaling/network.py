"""A network of machines with a link each: events in simulated time, and transfers that share links fairly.

Rates are in bytes per second, times in seconds. A link is full duplex: what goes out and what comes in do not hinder each other. Of
the transfers on a link each gets an equal share, and what one of them cannot use, because its other end is busier, goes to the others
(max-min fairness: Bertsekas and Gallager, Data Networks, 1992, section 6.5). A change of the set of transfers costs O(links + transfers).
"""

import heapq
import itertools

import numpy as np


def fair_rates(out: np.ndarray, into: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """The rate of each transfer, which goes through the links out[i] and into[i], by progressive filling."""
    rates = np.zeros(len(out))
    left = capacity.astype(float).copy()
    open_ = np.ones(len(out), bool)
    while open_.any():
        users = np.bincount(out[open_], minlength=len(left)) + np.bincount(into[open_], minlength=len(left))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(users > 0, left / users, np.inf)
        least = share.min()
        full = share <= least * (1 + 1e-9)
        done = open_ & (full[out] | full[into])
        rates[done] = least
        for link in (out, into):
            np.subtract.at(left, link[done], least)
        np.maximum(left, 0, out=left)
        open_ &= ~done
    return rates


class Network:
    """Simulated time, and machines 0 .. n-1 that send each other bytes.

    `rate`: of every machine's link, or one for each; `latency`: of a message; a machine that has failed sends and receives nothing.
    """

    def __init__(self, machines: int, rate, latency: float = 0.0):
        self.now, self.latency = 0.0, latency
        rates = np.broadcast_to(np.asarray(rate, float), (machines,))
        self._capacity = np.concatenate([rates, rates])  # out, then in
        self._machines = machines
        self._events: list = []
        self._order = itertools.count()
        self._moving: list = []  # [out link, in link, bytes left, what is called at the end]
        self._rates = np.zeros(0)
        self._busy_until = np.zeros(machines)
        self.failed: set[int] = set()

    def after(self, seconds: float, call) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), call))

    def work(self, machine: int, seconds: float, call) -> None:
        """The machine's processor does one thing after the other; call() when this one is done."""
        self._busy_until[machine] = max(self._busy_until[machine], self.now) + seconds
        self.after(self._busy_until[machine] - self.now, call)

    def send(self, source: int, target: int, nbytes: float, call) -> None:
        """call() when the bytes have arrived."""
        def start():
            if source in self.failed or target in self.failed:
                return
            if nbytes <= 0 or source == target:
                call()
                return
            self._moving.append([source, self._machines + target, float(nbytes), call])
            self._rates = None
        self.after(self.latency, start)

    def run(self, until: float = np.inf) -> float:
        """Goes on until nothing is left to happen; the time then."""
        while self._events or self._moving:
            if self._rates is None:
                table = np.array([[m[0], m[1]] for m in self._moving], int).reshape(-1, 2)
                self._rates = fair_rates(table[:, 0], table[:, 1], self._capacity)
            ends = np.inf
            if self._moving:
                remaining = np.array([m[2] for m in self._moving])
                ends = self.now + (remaining / self._rates).min()
            event = self._events[0][0] if self._events else np.inf
            then = min(ends, event)
            if then > until:
                self.now = until
                break
            if self._moving:
                remaining -= self._rates * (then - self.now)
                for moving, left in zip(self._moving, remaining):
                    moving[2] = left
            self.now = then
            if event <= ends:
                while self._events and self._events[0][0] <= self.now:
                    heapq.heappop(self._events)[2]()
            else:
                done = [m for m in self._moving if m[2] <= 1e-6 * self._capacity.max() * 1e-3]
                self._moving = [m for m in self._moving if m[2] > 1e-6 * self._capacity.max() * 1e-3]
                self._rates = None
                for moving in done:
                    moving[3]()
        return self.now
