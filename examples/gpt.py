"""Trains a small GPT on Shakespeare, letter by letter, and lets it write: `make demo-gpt`, or `python examples/gpt.py --help`.

A transformer of the kind of GPT-2 (Radford et al., 2019): causal attention, pre-normalisation, learnt positions, the table of letters used at
both ends. `--resume` goes on from the last checkpoint and ends with the same weights, bit for bit, as a run that was never stopped.
"""

from __future__ import annotations

import math
import textwrap

import common
import tapegrad as tg
from tapegrad import nn
from tapegrad.nn import functional as F


class Block(nn.Module):
    """Attention to the letters before, then two linear layers, each with a way around it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, 2))
        seen = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Letters (N, L) to scores (N, L, letters) of the next one; L is at most `length`."""

    def __init__(self, letters: int, length: int, layers: int, heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.length = length
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.ndim == 2:  # the ends of the residual branches are smaller, so that their sum has the same size for any depth
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if name.endswith(("out.weight", "down.weight")) else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, x):
        x = self.drop(self.letters(x) + self.places(tg.arange(x.shape[1])))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.letters.weight)

    @tg.no_grad()
    def write(self, start, count: int, temperature: float = 0.8, generator=None):
        """`count` more letters behind `start` (1, L)."""
        self.eval()
        text = start
        for _ in range(count):
            scores = self(text[:, -self.length:])[:, -1] / temperature
            text = tg.cat([text, tg.multinomial(scores.softmax(-1), 1, generator=generator)], 1)
        self.train()
        return text


class Text:
    """The text as numbers, the last tenth held out."""

    def __init__(self) -> None:
        text = common.shakespeare()
        self.letters = sorted(set(text))
        self.number = {c: i for i, c in enumerate(self.letters)}
        everything = self.encode(text)
        cut = len(text) * 9 // 10
        self.train, self.held_out = everything[:cut], everything[cut:]
        self.words = {w.strip(".,:;!?-'").lower() for w in text.split()}

    def encode(self, text: str):
        return tg.tensor([self.number[c] for c in text])

    def decode(self, numbers) -> str:
        return "".join(self.letters[i] for i in numbers.tolist())

    def real_words(self, text: str) -> float:
        """The share of the words in a text, of four letters or more, that Shakespeare knows."""
        words = [w for w in (w.strip(".,:;!?-'").lower() for w in text.split()) if len(w) >= 4]
        return sum(w in self.words for w in words) / max(1, len(words))


def batch(data, places, length: int):
    """Stretches of length letters that begin at places, and the same one letter later."""
    index = places.unsqueeze(1) + tg.arange(length + 1)
    part = data[index]
    return part[:, :-1], part[:, 1:]


@tg.no_grad()
def held_out_loss(model, text, options) -> float:
    """The mean of -ln p(letter) over stretches spread over the held-out text."""
    model.eval()
    places = tg.linspace(0, len(text.held_out) - options.length - 2, 64).long()
    losses = []
    for part in places.split(32):
        x, y = batch(text.held_out, part, options.length)
        losses.append(F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
    model.train()
    return sum(losses) / len(losses)


def learning_rate(step: int, options) -> float:
    """A short climb, then half a cosine down to a tenth."""
    climb = max(1, options.steps // 20)
    if step < climb:
        return options.lr * (step + 1) / climb
    share = (step - climb) / max(1, options.steps - climb)
    return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))


def update(model, optimizer, x, y, step: int, options) -> tg.Tensor:
    """One step on a batch; returns its loss."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, options)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def parse(arguments=None):
    return common.arguments(__doc__, "gpt", steps=1800, batch_size=16, length=(128, "letters that are seen at once"), layers=4, heads=4,
                            width=128, dropout=0.0, lr=2e-3, prompt=("ROMEO:\n", "the beginning of what is written"),
                            sample=(700, "letters to write at the end"), temperature=0.8).parse_args(arguments)


@common.stoppable
def main(arguments=None):
    options = parse(arguments)
    tg.manual_seed(options.seed)
    text = Text()
    model = GPT(len(text.letters), options.length, options.layers, options.heads, options.width, options.dropout)
    optimizer = tg.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
    run = common.Run(options, ("steps", "batch_size", "length", "layers", "heads", "width"), model=model, optimizer=optimizer)
    print(f"{len(text.train):,} letters to train, {len(text.held_out):,} held out, {len(text.letters)} different ones; "
          f"{sum(p.numel() for p in model.parameters()):,} parameters, {tg.get_num_threads()} threads")

    def sample(count: int) -> str:
        """The prompt and `count` letters behind it, drawn with numbers of their own, so that a run does not depend on what it shows."""
        generator = tg.Generator().manual_seed(options.seed)
        return text.decode(model.write(text.encode(options.prompt).unsqueeze(0), count, options.temperature, generator)[0])

    every = max(1, options.steps // 10)
    for step in run.rounds(options.steps, "step", save_every=every):
        x, y = batch(text.train, tg.randint(0, len(text.train) - options.length, (options.batch_size,)), options.length)
        run.record(loss=update(model, optimizer, x, y, step, options).item())
        if (step + 1) % every == 0:
            run.record(held_out=held_out_loss(model, text, options))
            if step + 1 < options.steps and not options.quiet:
                run.say(f"--- after {step + 1} steps, {run.history['held_out'][-1]:.3f} nats a letter, it writes:\n{sample(min(options.sample, 120))}\n")
    written = sample(options.sample)
    with common.picture(options.picture, 11, 4, 1, 2) as drawing:
        if drawing:
            axes = drawing[1][0]
            common.draw_curve(axes[0], run.history["loss"], "loss of a letter (nats)", label="training")
            held = run.history["held_out"]
            axes[0].plot([every * (i + 1) for i in range(len(held))], held, "o-", ms=4, label="held out")
            axes[0].legend()
            lines = [part for line in written.splitlines() for part in textwrap.wrap(line, 56) or [""]]
            axes[1].text(0, 1, "\n".join(lines[:20]), va="top", family="monospace", fontsize=10, transform=axes[1].transAxes)
            axes[1].set_title("it writes")
            axes[1].set_axis_off()
    loss = held_out_loss(model, text, options)
    print(f"--- it writes:\n{written}\n---")
    print(f"held-out loss: {loss:.4f} nats a letter; {100 * text.real_words(written):.0f} % of the longer words are Shakespeare's")
    return loss, written


if __name__ == "__main__":
    main()
