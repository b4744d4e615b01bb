"""Synchronous steps of which the first m gradients of n workers count (section 6.3 of the paper: "backup workers").

A worker's time is 1 with a spread, and now and then, where the machine does something else, a multiple of it.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Stragglers:
    """`spread`: standard deviation of the logarithm of a time; `share` of the times are `factor` times as long, more or less."""

    spread: float
    share: float
    factor: float

    def draw(self, rng: np.random.Generator, shape) -> np.ndarray:
        times = np.exp(rng.normal(0.0, self.spread, shape))
        slow = rng.random(shape) < self.share
        return times * np.where(slow, 1 + rng.exponential(self.factor - 1, shape), 1.0)


def step_times(workers: int, backup: int, stragglers: Stragglers, load: float = 0.0, steps: int = 20_000, seed: int = 0) -> np.ndarray:
    """Times of steps that end with the gradient of number `workers` among workers + backup; `load`: how much longer each worker beyond makes all."""
    rng = np.random.default_rng(seed)
    times = stragglers.draw(rng, (steps, workers + backup))
    return np.partition(times, workers - 1, axis=1)[:, workers - 1] * (1 + load * backup)


def gain(workers: int, backup: int, stragglers: Stragglers, **how) -> float:
    """The paper's normalised speed-up: t(0) / t(b) times the share of machines that count."""
    mean = [step_times(workers, b, stragglers, **how).mean() for b in (0, backup)]
    return mean[0] / mean[1] * workers / (workers + backup)
