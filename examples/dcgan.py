"""Trains two convolutional networks against each other until one of them draws digits: `python examples/dcgan.py --help`.

The generator turns noise into images, the critic tells them from real ones (Radford et al., 2015). The distance between the two sets of
images, a Fréchet distance in the space of their 32 strongest directions, says how far it has come. `--resume` goes on bit for bit.
"""

from __future__ import annotations

import common
import tapegrad as tg
from tapegrad import nn
from tapegrad.nn import functional as F


def build_generator(noise: int, width: int) -> nn.Module:
    """Noise (N, noise, 1, 1) to images (N, 1, 28, 28) from -1 to 1."""
    return nn.Sequential(
        nn.ConvTranspose2d(noise, 2 * width, 7, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(inplace=True),
        nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
        nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1), nn.Tanh())


def build_critic(width: int) -> nn.Module:
    """Images to scores (N): above 0 means real."""
    return nn.Sequential(
        nn.Conv2d(1, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, 2 * width, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(2 * width, 1, 7), nn.Flatten(0))


def start_small(module) -> None:
    """The paper's initial weights."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)


class Distance:
    """|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)) of two sets of images (Heusel et al., 2017), in 32 directions of the real ones."""

    def __init__(self, real) -> None:
        flat = real.flatten(1).double()
        self.middle = flat.mean(0)
        _, _, directions = tg.linalg.svd(flat - self.middle, full_matrices=False)
        self.directions = directions[:32]
        self.real = self._moments(real)

    def _moments(self, images):
        x = (images.flatten(1).double() - self.middle) @ self.directions.t()
        return x.mean(0), tg.cov(x.t())

    def __call__(self, images) -> float:
        (m1, c1), (m2, c2) = self.real, self._moments(images)
        values, vectors = tg.linalg.eigh(c1)
        root = vectors * values.clamp(min=0).sqrt() @ vectors.t()
        cross = tg.linalg.eigvalsh(root @ c2 @ root).clamp(min=0).sqrt().sum()
        return ((m1 - m2).square().sum() + c1.trace() + c2.trace() - 2 * cross).item()


def parse(arguments=None):
    return common.arguments(__doc__, "dcgan", steps=2000, batch_size=64, noise=64, width=32, lr=2e-4).parse_args(arguments)


@common.stoppable
def main(arguments=None):
    options = parse(arguments)
    tg.manual_seed(options.seed)
    real = common.digits() * 2 - 1
    distance = Distance(real[:2000])
    generator, critic = build_generator(options.noise, options.width).apply(start_small), build_critic(options.width).apply(start_small)
    optimizers = [tg.optim.Adam(net.parameters(), lr=options.lr, betas=(0.5, 0.999)) for net in (generator, critic)]
    run = common.Run(options, ("steps", "batch_size", "noise", "width"), generator=generator, critic=critic,
                     generator_optimizer=optimizers[0], critic_optimizer=optimizers[1])
    numbers = tg.Generator()
    numbers.manual_seed(options.seed)
    fixed = tg.randn(1000, options.noise, 1, 1, generator=numbers)  # the same noise shows how the drawings change

    @tg.no_grad()
    def draw(noise):
        generator.eval()
        images = generator(noise)
        generator.train()
        return images

    run.extra.setdefault("at first", distance(draw(fixed)))
    every = max(1, options.steps // 10)
    for step in run.rounds(options.steps, "step", save_every=every):
        images = real[tg.randint(0, len(real), (options.batch_size,))]
        drawn = generator(tg.randn(len(images), options.noise, 1, 1))
        critic_loss = F.softplus(-critic(images)).mean() + F.softplus(critic(drawn.detach())).mean()
        optimizers[1].zero_grad()
        critic_loss.backward()
        optimizers[1].step()
        generator_loss = F.softplus(-critic(drawn)).mean()
        optimizers[0].zero_grad()
        generator_loss.backward()
        optimizers[0].step()
        run.record(critic=critic_loss.item(), generator=generator_loss.item())
        if (step + 1) % every == 0:
            run.record(distance=distance(draw(fixed)))
    now = distance(draw(fixed))
    with common.picture(options.picture, 13, 4.5, 1, 3) as drawing:
        if drawing:
            curve, far, new = drawing[1][0]
            for name in ("critic", "generator"):
                common.draw_curve(curve, run.history[name], "losses", label=name)
            curve.legend()
            far.plot(range(0, options.steps + 1, every), [run.extra["at first"], *run.history["distance"]][:options.steps // every + 1], "o-")
            far.set(title="distance from real digits", xlabel="step", yscale="log")
            common.draw_images(new, draw(fixed[:64]) / 2 + 0.5, "digits drawn from noise")
    print(f"distance from real digits: {run.extra['at first']:.1f} at first, {now:.1f} now")
    return run.extra["at first"], now


if __name__ == "__main__":
    main()
