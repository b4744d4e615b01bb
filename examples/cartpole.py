"""Teaches a network to balance a pole on a cart, by proximal policy optimisation: `python examples/cartpole.py --help`.

The environment is Barto, Sutton and Anderson's (1983), computed for many carts at once; the method is Schulman et al.'s (2017), with
generalised advantages. `--resume` goes on bit for bit.
"""

import math

import common
import tapegrad as tg
from tapegrad import nn


class CartPole:
    """`count` carts of 1 kg on a rail, each with a pole of 0.1 kg and 1 m; the state is (x, x', angle, angle') in SI units.

    Each step of 0.02 s pushes with 10 N to the left (0) or to the right (1) and earns 1. It ends beyond 2.4 m or 12 degrees, or after
    `limit` steps.
    """

    gravity, cart, pole, half, force, tick, limit = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02, 500

    def __init__(self, count: int) -> None:
        self.state = self._fresh(count)
        self.steps = tg.zeros(count)

    @staticmethod
    def _fresh(count: int):
        return (tg.rand(count, 4) - 0.5) * 0.1

    def step(self, actions):
        """(state after the step, bool of those that fell, bool of those at the limit); both begin anew afterwards."""
        x, v, angle, turn = self.state.unbind(1)
        force = self.force * (2.0 * actions - 1.0)
        sine, cosine = angle.sin(), angle.cos()
        total = self.cart + self.pole
        push = (force + self.pole * self.half * turn * turn * sine) / total
        turning = (self.gravity * sine - cosine * push) / (self.half * (4.0 / 3.0 - self.pole * cosine * cosine / total))
        moving = push - self.pole * self.half * turning * cosine / total
        after = tg.stack([x + self.tick * v, v + self.tick * moving, angle + self.tick * turn, turn + self.tick * turning], 1)
        self.steps = self.steps + 1
        fell = (after[:, 0].abs() > 2.4) | (after[:, 2].abs() > math.radians(12))
        ended = ~fell & (self.steps >= self.limit)
        over = (fell | ended).unsqueeze(1)
        self.state = tg.where(over, self._fresh(len(after)), after)
        self.steps = tg.where(over.squeeze(1), 0.0, self.steps)
        return after, fell, ended


class Policy(nn.Module):
    """States (..., 4) to (scores of the two actions, value of the state)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        self.critic = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        for net, last in ((self.actor, 0.01), (self.critic, 1.0)):
            for i in (0, 2, 4):
                nn.init.orthogonal_(net[i].weight, last if i == 4 else math.sqrt(2))
                nn.init.zeros_(net[i].bias)

    def forward(self, state):
        return self.actor(state).log_softmax(-1), self.critic(state).squeeze(-1)


@tg.no_grad()
def play(world, policy, steps: int, discount: float, smoothing: float):
    """`steps` steps of all carts: states, actions, their log-probabilities, advantages and returns, each (steps, carts, ...)."""
    states, actions, chances, values, nexts, falls, ends = [], [], [], [], [], [], []
    for _ in range(steps):
        scores, value = policy(world.state)
        action = tg.multinomial(scores.exp(), 1)
        states.append(world.state)
        actions.append(action.squeeze(1))
        chances.append(scores.gather(1, action).squeeze(1))
        values.append(value)
        after, fell, ended = world.step(action.squeeze(1))
        nexts.append(policy(after)[1])
        falls.append(fell)
        ends.append(ended)
    advantages, advantage = [], tg.zeros_like(values[0])
    for t in reversed(range(steps)):  # a fallen cart earns no more; one at the limit would have gone on
        surprise = 1.0 + discount * nexts[t] * ~falls[t] - values[t]
        advantage = surprise + discount * smoothing * advantage * ~(falls[t] | ends[t])
        advantages.append(advantage)
    advantages = tg.stack(advantages[::-1])
    return tg.stack(states), tg.stack(actions), tg.stack(chances), advantages, advantages + tg.stack(values)


def improve(policy, optimizer, played, options) -> float:
    """A few passes over what was played; steps away from the old policy earn nothing beyond `clip`."""
    states, actions, chances, advantages, returns = (t.flatten(0, 1) for t in played)
    total = 0.0
    for _ in range(options.passes):
        for chosen in tg.randperm(len(states)).split(options.batch_size):
            scores, values = policy(states[chosen])
            ratio = (scores.gather(1, actions[chosen].unsqueeze(1)).squeeze(1) - chances[chosen]).exp()
            good = advantages[chosen]
            good = (good - good.mean()) / (good.std() + 1e-8)
            gain = tg.minimum(ratio * good, ratio.clamp(1 - options.clip, 1 + options.clip) * good).mean()
            doubt = -(scores.exp() * scores).sum(-1).mean()
            loss = -gain + 0.5 * nn.functional.smooth_l1_loss(values, returns[chosen]) - 0.01 * doubt
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
            total += loss.item()
    return total


@tg.no_grad()
def evaluate(policy, count: int = 50) -> float:
    """The mean number of steps that the more likely actions hold the pole up, at most 500."""
    world = CartPole(count)
    lengths, alive = tg.zeros(count), tg.ones(count, dtype=tg.bool)
    while alive.any():
        _, fell, ended = world.step(policy(world.state)[0].argmax(1))
        lengths += alive
        alive = alive & ~(fell | ended)
    return lengths.mean().item()


def parse(arguments=None):
    return common.arguments(__doc__, "cartpole", rounds=60, carts=32, steps=(64, "steps of each cart in a round"), batch_size=256,
                            passes=4, width=64, lr=2.5e-3, clip=0.2).parse_args(arguments)


@common.stoppable
def main(arguments=None):
    options = parse(arguments)
    tg.manual_seed(options.seed)
    world, policy = CartPole(options.carts), Policy(options.width)
    optimizer = tg.optim.Adam(policy.parameters(), lr=options.lr, eps=1e-5)
    run = common.Run(options, ("rounds", "carts", "steps", "width"), policy=policy, optimizer=optimizer)
    before = evaluate(policy)
    for number in run.rounds(options.rounds, "round"):
        if number and "state" in run.extra:  # the carts go on where they were, here and after --resume
            world.state, world.steps = run.extra["state"], run.extra["steps"]
        for group in optimizer.param_groups:
            group["lr"] = options.lr * (1 - number / options.rounds)
        played = play(world, policy, options.steps, 0.99, 0.95)
        run.extra = {"state": world.state, "steps": world.steps}
        run.record(loss=improve(policy, optimizer, played, options), held_up=evaluate(policy))
    after = evaluate(policy)
    with common.picture(options.picture, 10, 4, 1, 2) as drawing:
        if drawing:
            common.draw_curve(drawing[1][0, 0], run.history["held_up"], "steps that the pole stays up (of 500)", "round")
            common.draw_curve(drawing[1][0, 1], run.history["loss"], "loss", "round")
    print(f"the pole stays up for {before:.0f} steps at first, {after:.0f} of 500 now")
    return before, after


if __name__ == "__main__":
    main()
