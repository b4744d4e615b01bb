"""Trains a word-level LSTM language model on Shakespeare: `python examples/lstm.py --help`.

Long rows of text are read from left to right, a few words at a time, with the state carried along (Zaremba et al., 2014). The perplexity
of the held-out text is compared with what the frequencies of words alone would give. `--resume` goes on bit for bit.
"""

import collections
import math
import re

import common
import tapegrad as tg
from tapegrad import nn
from tapegrad.nn import functional as F


class Words:
    """The text as numbers of words; rare ones are <unk>, the last tenth is held out."""

    def __init__(self, size: int) -> None:
        text = re.findall(r"[A-Za-z']+|[.,:;!?\n-]", common.shakespeare().lower())
        cut = len(text) * 9 // 10
        counts = collections.Counter(text[:cut])
        self.words = ["<unk>", *(w for w, _ in counts.most_common(size - 1))]
        self.number = {w: i for i, w in enumerate(self.words)}
        numbers = tg.tensor([self.number.get(w, 0) for w in text])
        self.train, self.held_out = numbers[:cut], numbers[cut:]

    def unigram_perplexity(self) -> float:
        """The perplexity of the held-out text when only the words' frequencies are known."""
        chances = tg.bincount(self.train, minlength=len(self.words)).double() + 1
        return math.exp(-(chances / chances.sum()).log()[self.held_out].mean().item())


class LanguageModel(nn.Module):
    """Words (L, N) and a state to scores (L, N, words) and the state after them; one table serves both ends."""

    def __init__(self, words: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout if layers > 1 else 0.0)
        self.drop = nn.Dropout(dropout)
        self.bias = nn.Parameter(tg.zeros(words))
        nn.init.uniform_(self.table.weight, -0.1, 0.1)

    def forward(self, x, state=None):
        out, state = self.lstm(self.drop(self.table(x)), state)
        return F.linear(self.drop(out), self.table.weight, self.bias), state


def rows(numbers, count: int):
    """The text cut into count rows: (length, count)."""
    length = len(numbers) // count
    return numbers[:length * count].view(count, length).t().contiguous()


@tg.no_grad()
def perplexity(model, numbers) -> float:
    """exp of the mean of -ln p(word), read in one go from ten places."""
    model.eval()
    text, state, total = rows(numbers, 10), None, 0.0
    for begin in range(0, len(text) - 1, 100):
        part = text[begin:begin + 101]
        scores, state = model(part[:-1], state)
        total += F.cross_entropy(scores.flatten(0, 1), part[1:].flatten(), reduction="sum").item()
    model.train()
    return math.exp(total / ((len(text) - 1) * text.shape[1]))


@tg.no_grad()
def write(model, words, count: int, generator) -> str:
    """`count` words that follow a new line."""
    model.eval()
    word, state, text = tg.tensor([[words.number["\n"]]]), None, []
    for _ in range(count):
        scores, state = model(word, state)
        scores[..., 0] = -math.inf  # no <unk>
        word = tg.multinomial((scores[0] / 0.9).softmax(-1), 1, generator=generator)
        text.append(words.words[word.item()])
    model.train()
    return re.sub(r" ([.,:;!?\n-])", r"\1", " ".join(text))


def parse(arguments=None):
    return common.arguments(__doc__, "lstm", steps=3000, batch_size=(20, "rows of text that are read side by side"),
                            length=(35, "words through which gradients flow back"), words=(4000, "size of the vocabulary"), width=200,
                            layers=2, dropout=0.2, lr=3e-3).parse_args(arguments)


@common.stoppable
def main(arguments=None):
    options = parse(arguments)
    tg.manual_seed(options.seed)
    words = Words(options.words)
    model = LanguageModel(len(words.words), options.width, options.layers, options.dropout)
    optimizer = tg.optim.Adam(model.parameters(), lr=options.lr)
    schedule = tg.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - 0.95 * step / options.steps)
    run = common.Run(options, ("steps", "batch_size", "length", "words", "width", "layers"), model=model, optimizer=optimizer,
                     schedule=schedule)
    text = rows(words.train, options.batch_size)
    known = words.unigram_perplexity()
    print(f"{len(words.train):,} words to train, {len(words.held_out):,} held out, {len(words.words):,} different ones; "
          f"perplexity of their frequencies: {known:.1f}")
    every, pieces = max(1, options.steps // 10), (len(text) - 1) // options.length
    for step in run.rounds(options.steps, "step", save_every=every):
        begin = step % pieces * options.length
        state = run.extra.get("state") if begin else None
        scores, state = model(text[begin:begin + options.length], None if state is None else tuple(state))
        loss = F.cross_entropy(scores.flatten(0, 1), text[begin + 1:begin + options.length + 1].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        run.extra = {"state": [s.detach() for s in state]}
        run.record(loss=loss.item())
        if (step + 1) % every == 0:
            run.record(held_out=perplexity(model, words.held_out))
    result = perplexity(model, words.held_out)
    generator = tg.Generator()
    generator.manual_seed(options.seed)
    print(f"--- it writes:\n{write(model, words, 80, generator)}\n---")
    with common.picture(options.picture, 10, 4, 1, 2) as drawing:
        if drawing:
            common.draw_curve(drawing[1][0, 0], run.history["loss"], "loss of a word (nats)")
            axis = drawing[1][0, 1]
            axis.plot([every * (i + 1) for i in range(len(run.history["held_out"]))], run.history["held_out"], "o-", label="LSTM")
            axis.axhline(known, ls="--", color="gray", label="frequencies of words")
            axis.set(title="perplexity of the held-out text", xlabel="step")
            axis.legend()
    print(f"held-out perplexity: {result:.1f} (frequencies alone: {known:.1f})")
    return known, result


if __name__ == "__main__":
    main()
