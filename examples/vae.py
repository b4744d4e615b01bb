"""Trains a variational autoencoder on handwritten digits: `python examples/vae.py --help`.

A digit becomes a small Gaussian cloud in a space of a few dimensions and is drawn again from a point of it (Kingma and Welling, 2013). The
picture shows digits, what is left of them, and digits that never were. `--resume` goes on bit for bit.
"""

import common
import tapegrad as tg
from tapegrad import nn
from tapegrad.nn import functional as F


class VAE(nn.Module):
    """Images (N, 1, 28, 28) to codes of `codes` numbers and back."""

    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.codes = codes
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 2 * codes))
        self.decoder = nn.Sequential(nn.Linear(codes, width), nn.ReLU(), nn.Linear(width, 784), nn.Unflatten(1, (1, 28, 28)))

    def forward(self, images):
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        code = mean + tg.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def loss_terms(images, scores, mean, log_variance):
    """(nats to describe the image, nats to describe its code) of each image: their sum bounds -ln p(image) from above."""
    image = F.binary_cross_entropy_with_logits(scores, images, reduction="none").sum((1, 2, 3))
    code = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
    return image, code


@tg.no_grad()
def evaluate(model, images) -> float:
    """The bound in nats for each image, with one draw of the code."""
    model.eval()
    image, code = loss_terms(images, *model(images))
    model.train()
    return (image + code).mean().item()


def parse(arguments=None):
    return common.arguments(__doc__, "vae", epochs=30, batch_size=64, codes=(16, "numbers in a code"), width=400,
                            lr=1e-3).parse_args(arguments)


@common.stoppable
def main(arguments=None) -> float:
    options = parse(arguments)
    tg.manual_seed(options.seed)
    train, test = common.digits(), common.digits(train=False)
    model = VAE(options.codes, options.width)
    optimizer = tg.optim.Adam(model.parameters(), lr=options.lr)
    run = common.Run(options, ("epochs", "batch_size", "codes", "width"), model=model, optimizer=optimizer)
    for _ in run.rounds(options.epochs, "epoch"):
        images_nats = codes_nats = 0.0
        for chosen in tg.randperm(len(train)).split(options.batch_size):
            images = train[chosen]
            image, code = (t.mean() for t in loss_terms(images, *model(images)))
            optimizer.zero_grad()
            (image + code).backward()
            optimizer.step()
            images_nats += image.item() * len(chosen) / len(train)
            codes_nats += code.item() * len(chosen) / len(train)
        run.record(image=images_nats, code=codes_nats, held_out=evaluate(model, test))
    bound = evaluate(model, test)
    with common.picture(options.picture, 13, 4.5, 1, 3) as drawing:
        if drawing:
            curve, again, new = drawing[1][0]
            for name in ("image", "code", "held_out"):
                common.draw_curve(curve, run.history[name], "nats for a digit", "epoch", label=name.replace("_", " "))
            curve.legend()
            with tg.no_grad():
                some = test[:32]
                common.draw_images(again, tg.cat([p for pair in zip(some.split(8), model(some)[0].sigmoid().split(8), strict=True) for p in pair]),
                                   "digits, and drawn again from their codes")
                common.draw_images(new, model.decoder(tg.randn(64, options.codes)).sigmoid(), "new digits")
    print(f"held-out bound: {bound:.2f} nats a digit")
    return bound


if __name__ == "__main__":
    main()
