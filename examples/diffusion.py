"""Learns to take noise away from digits, and makes digits of noise: `python examples/diffusion.py --help`.

A small U-shaped network sees an image with noise and the share of it, and says which noise it is (Ho et al., 2020). New digits come of pure noise
that is taken away in a few dozen steps without drawing more (Song et al., DDIM, 2020), with weights averaged over the run. The distance from real
digits is that of dcgan.py. `--resume` goes on bit for bit.
"""

import copy
import math

import common
import tapegrad as tg
from dcgan import Distance
from tapegrad import nn
from tapegrad.nn import functional as F


class Block(nn.Module):
    """Two convolutions around what is known of the noise, with a way past them."""

    def __init__(self, inputs: int, outputs: int, known: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(min(8, inputs), inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.known = nn.Linear(known, outputs)
        self.past = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x, known):
        h = self.conv1(F.silu(self.norm1(x))) + self.known(known)[:, :, None, None]
        return self.past(x) + self.conv2(F.silu(self.norm2(h)))


class Denoiser(nn.Module):
    """Noisy images (N, 1, 28, 28) and the logarithms of their signal-to-noise ratios (N) to the noise in them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w, known = width, 4 * width
        self.frequencies = nn.Buffer(tg.linspace(0, math.log(100), width).exp() / 10, persistent=False)
        self.time = nn.Sequential(nn.Linear(2 * width, known), nn.SiLU(), nn.Linear(known, known), nn.SiLU())
        self.start, self.end = nn.Conv2d(1, w, 3, padding=1), nn.Conv2d(w, 1, 3, padding=1)
        self.down1, self.down2, self.middle = Block(w, w, known), Block(w, 2 * w, known), Block(2 * w, 2 * w, known)
        self.up2, self.up1 = Block(4 * w, w, known), Block(2 * w, w, known)
        nn.init.zeros_(self.end.weight)

    def forward(self, x, ratio):
        angles = ratio[:, None] * self.frequencies
        known = self.time(tg.cat([angles.sin(), angles.cos()], 1))
        first = self.down1(self.start(x), known)                    # 28 x 28
        second = self.down2(F.avg_pool2d(first, 2), known)          # 14 x 14
        deep = self.middle(F.avg_pool2d(second, 2), known)          # 7 x 7
        back = self.up2(tg.cat([F.interpolate(deep, scale_factor=2.0), second], 1), known)
        return self.end(self.up1(tg.cat([F.interpolate(back, scale_factor=2.0), first], 1), known))


def amounts(time):
    """(share of the image, share of the noise, logarithm of the ratio of their squares) at times from 0 (clean) to 1 (noise): the cosine schedule."""
    angle = (0.008 + time * 0.98) * math.pi / 2
    signal, noise = angle.cos(), angle.sin()
    return signal, noise, 2 * (signal / noise).log()


@tg.no_grad()
def draw(model, noise, steps: int, keep: int = 0):
    """Images from noise, and `keep` stages on the way."""
    x, stages, times = noise, [], tg.linspace(1, 0, steps + 1)
    for i in range(steps):
        (signal, share, ratio), (next_signal, next_share, _) = amounts(times[i]), amounts(times[i + 1])
        found = model(x, ratio.expand(len(x)))
        image = ((x - share * found) / signal).clamp(-1, 1)
        found = (x - signal * image) / share  # the noise that goes with the image between its bounds
        if keep and i % max(1, steps // keep) == 0:
            stages.append(x)
        x = next_signal * image + next_share * found
    return x.clamp(-1, 1), [*stages, x]


def parse(arguments=None):
    return common.arguments(__doc__, "diffusion", steps=1200, batch_size=64, width=16, lr=2e-3, denoise=(30, "steps from noise to an image"),
                            judged=(500, "images whose distance from real ones is measured")).parse_args(arguments)


@common.stoppable
def main(arguments=None):
    options = parse(arguments)
    tg.manual_seed(options.seed)
    real = common.digits() * 2 - 1
    model = Denoiser(options.width)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = tg.optim.AdamW(model.parameters(), lr=options.lr)
    schedule = tg.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=options.steps + 1, pct_start=0.1)
    run = common.Run(options, ("steps", "batch_size", "width"), model=model, average=average, optimizer=optimizer, schedule=schedule)
    print(f"{len(real):,} images, {sum(p.numel() for p in model.parameters()):,} parameters, {tg.get_num_threads()} threads")
    for step in run.rounds(options.steps, "step", save_every=200):
        images = real[tg.randint(0, len(real), (options.batch_size,))]
        noise = tg.randn_like(images)
        signal, share, ratio = amounts(tg.rand(len(images)))
        mixed = signal[:, None, None, None] * images + share[:, None, None, None] * noise
        loss = F.mse_loss(model(mixed, ratio), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        with tg.no_grad():
            for mean, p in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(p, 1 / min(step + 1, max(10, options.steps // 6)))
        run.record(loss=loss.item())
    numbers = tg.Generator().manual_seed(options.seed)
    noise = tg.randn(options.judged, 1, 28, 28, generator=numbers)
    distance = Distance(real[:2000])
    new = tg.cat([draw(average, part, options.denoise)[0] for part in noise.split(100)])
    before, after = distance(noise.clamp(-1, 1)), distance(new)
    with common.picture(options.picture, 13, 4.5, 1, 3) as drawing:
        if drawing:
            curve, way, made = drawing[1][0]
            common.draw_curve(curve, run.history["loss"], "error of the noise", yscale="log")
            stages = draw(average, noise[:8], options.denoise, keep=6)[1]
            common.draw_images(way, tg.cat(stages) / 2 + 0.5, "from noise (top) to digits")
            common.draw_images(made, new[:64] / 2 + 0.5, "new digits")
    print(f"distance from real digits: {before:.1f} of noise, {after:.1f} of what is made of it")
    return before, after


if __name__ == "__main__":
    main()
