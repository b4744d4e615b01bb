"""Models of texts: a translator of LSTM layers, GPT, BERT, a language model of LSTM layers."""

from .sizes import Sizes


def words_of(s: Sizes) -> int:
    return s.of(32000, 40)


def gnmt(lib, s: Sizes):
    """In the manner of GNMT: four layers of LSTM on each side, 1024 wide (512 on a CPU), the first of the encoder in both
    directions; attention by products."""
    nn, width, words = lib.nn, s.of(1024, 8, cpu=512), words_of(s)

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
            self.both = nn.LSTM(width, width, bidirectional=True)
            self.encoder = nn.ModuleList([nn.LSTM(2 * width if i == 0 else width, width) for i in range(3)])
            self.first = nn.LSTM(width, width)
            self.decoder = nn.ModuleList([nn.LSTM(2 * width, width) for _ in range(3)])
            self.words = nn.Linear(width, words)

        def forward(self, source, target):
            x = self.both(self.source(source))[0]
            for i, layer in enumerate(self.encoder):
                y = layer(x)[0]
                x = y if i == 0 else x + y
            y = self.first(self.target(target))[0]
            scores = lib.bmm(y.transpose(0, 1), x.permute(1, 2, 0)) * width**-0.5
            seen = lib.bmm(scores.softmax(-1), x.transpose(0, 1)).transpose(0, 1)
            for i, layer in enumerate(self.decoder):
                z = layer(lib.cat([y, seen], 2))[0]
                y = z if i == 0 else y + z
            return self.words(y)

    return Translator()


def Block(lib, width: int, heads: int, causal: bool = False):
    """A block of a transformer whose norms stand first; GPT's with tanh in its GELU."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = (y.view(n, t, heads, width // heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, width))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh" if causal else "none"))

    return Block()


def gpt(lib, words: int, width: int, heads: int, blocks: int, length: int):
    """The table of words is used at both ends."""
    nn, F = lib.nn, lib.nn.functional

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks, self.ln = nn.Sequential(*[Block(lib, width, heads, True) for _ in range(blocks)]), nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
            return F.linear(self.ln(self.blocks(x)), self.tokens.weight)

    return GPT()


def gpt2_small(lib, s: Sizes):
    """Twelve blocks of width 768 with twelve heads."""
    return gpt(lib, s.of(50257, 40), s.of(768, 16), s.of(12, 2), 12, 1024)


def gpt_small(lib, s: Sizes):
    """A model of characters: four blocks of width 128 with four heads."""
    return gpt(lib, 65, s.of(128, 16), s.of(4, 2), 4, 64)


def bert_small(lib, s: Sizes):
    """BERT-small (Turc et al., 2019): four layers of width 512 with eight heads; texts of several lengths, of which some words
    are guessed. Made of the library's own layers."""
    nn, F, words, width = lib.nn, lib.nn.functional, s.of(30522, 40), s.of(512, 16)

    class BERT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places, self.kinds = nn.Embedding(words, width), nn.Embedding(512, width), nn.Embedding(2, width)
            self.ln = nn.LayerNorm(width)
            layer = nn.TransformerEncoderLayer(width, s.of(8, 2), 4 * width, 0.0, "gelu", batch_first=True)
            self.blocks = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head, self.head_ln, self.bias = nn.Linear(width, width), nn.LayerNorm(width), nn.Parameter(lib.zeros(words))

        def forward(self, tokens, padding):
            x = self.ln(self.tokens(tokens) + self.places.weight[: tokens.shape[1]] + self.kinds.weight[0])
            x = self.head_ln(F.gelu(self.head(self.blocks(x, src_key_padding_mask=padding))))
            return F.linear(x, self.tokens.weight, self.bias)

    return BERT()


def lstm_words(lib, s: Sizes):
    """The medium language model of Zaremba et al. (2014): two layers of 650, 10,000 words."""
    nn, words, width = lib.nn, s.of(10000, 40), s.of(650, 8)

    class LanguageModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.lstm, self.words = nn.Embedding(words, width), nn.LSTM(width, width, 2), nn.Linear(width, words)

        def forward(self, x):
            return self.words(self.lstm(self.table(x))[0])

    return LanguageModel()
