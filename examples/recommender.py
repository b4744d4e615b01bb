"""Learns tastes from ratings, by matrix factorisation with sparse embeddings: `python examples/recommender.py --help`.

A rating is a mean, what the user and the film add to it, and the product of their vectors (Koren et al., 2009). The ratings are made from
known vectors and noise, so that it is known how good a recommendation can be: the error cannot fall below the noise. Gradients of the tables are
sparse, and only the rows of a batch are touched. `--resume` goes on bit for bit.
"""

import common
import tapegrad as tg
from tapegrad import nn

NOISE = 0.3


class Factorisation(nn.Module):
    """Numbers of users and films to ratings."""

    def __init__(self, users: int, films: int, width: int, mean: float) -> None:
        super().__init__()
        self.users, self.films = nn.Embedding(users, width, sparse=True), nn.Embedding(films, width, sparse=True)
        self.user_bias, self.film_bias = nn.Embedding(users, 1, sparse=True), nn.Embedding(films, 1, sparse=True)
        self.mean = mean
        for table in (self.users, self.films):
            nn.init.normal_(table.weight, std=0.1)
        for table in (self.user_bias, self.film_bias):
            nn.init.zeros_(table.weight)

    def forward(self, user, film):
        match = (self.users(user) * self.films(film)).sum(-1)
        return self.mean + match + (self.user_bias(user) + self.film_bias(film)).squeeze(-1)


def make_ratings(users: int, films: int, count: int, seed: int):
    """(user, film, rating) of `count` different pairs: three hidden tastes, biases, and noise."""
    generator = tg.Generator()
    generator.manual_seed(1000 + seed)

    def normal(*size):
        return tg.randn(*size, generator=generator)

    taste, kind = normal(users, 3) * 0.6, normal(films, 3) * 0.6
    pairs = tg.randperm(users * films, generator=generator)[:count]
    user, film = pairs // films, pairs % films
    rating = 3.5 + (taste[user] * kind[film]).sum(-1) + 0.4 * normal(users)[user] + 0.4 * normal(films)[film]
    return user, film, rating + NOISE * normal(count)


def parse(arguments=None):
    return common.arguments(__doc__, "recommender", epochs=15, users=2000, films=1000, ratings=200_000, width=(4, "numbers in a vector"),
                            batch_size=500, lr=0.01).parse_args(arguments)


@common.stoppable
def main(arguments=None):
    options = parse(arguments)
    tg.manual_seed(options.seed)
    user, film, rating = make_ratings(options.users, options.films, options.ratings, options.seed)
    cut = options.ratings * 9 // 10
    mean = rating[:cut].mean().item()
    model = Factorisation(options.users, options.films, options.width, mean)
    optimizer = tg.optim.SparseAdam(model.parameters(), lr=options.lr)
    schedule = tg.optim.lr_scheduler.StepLR(optimizer, max(1, options.epochs // 3), 0.3)
    run = common.Run(options, ("epochs", "users", "films", "ratings", "width", "batch_size"), model=model, optimizer=optimizer,
                     schedule=schedule)

    @tg.no_grad()
    def error() -> float:
        """The root of the mean squared error of the held-out ratings."""
        return (model(user[cut:], film[cut:]) - rating[cut:]).square().mean().sqrt().item()

    guess = (rating[cut:] - mean).square().mean().sqrt().item()
    for _ in run.rounds(options.epochs, "epoch"):
        total = 0.0
        for chosen in tg.randperm(cut).split(options.batch_size):
            loss = nn.functional.mse_loss(model(user[chosen], film[chosen]), rating[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen) / cut
        schedule.step()
        run.record(training=total**0.5, held_out=error())
    result = error()
    with common.picture(options.picture, 10, 4, 1, 2) as drawing:
        if drawing:
            curve, match = drawing[1][0]
            for name in ("training", "held_out"):
                common.draw_curve(curve, run.history[name], "error of a rating", "epoch", label=name.replace("_", " "))
            curve.axhline(NOISE, ls="--", color="gray", label="noise")
            curve.legend()
            with tg.no_grad():
                match.plot(rating[cut:cut + 2000].numpy(), model(user[cut:cut + 2000], film[cut:cut + 2000]).numpy(), ".", ms=2)
            match.set(title="held-out ratings", xlabel="given", ylabel="expected")
    print(f"held-out error: {result:.3f} (the mean alone: {guess:.3f}, the noise: {NOISE})")
    return guess, result


if __name__ == "__main__":
    main()
