"""Small models of the kinds that public scripts train, written once for a library that is passed in.

Each function takes the library (tapegrad or torch), its nn and nn.functional, and the data, and gives the modules and a function of the step's number that gives the loss.
Data come from NumPy, weights from the test; nothing draws from the libraries' generators while training.
"""

import math

import numpy as np


class Data:
    """Numbers that are the same for both libraries."""

    def __init__(self, lib, dtype):
        self.lib, self.dtype, self.generator = lib, dtype, np.random.default_rng(7)

    def normal(self, *shape):
        return self.lib.tensor(self.generator.standard_normal(shape).astype(self.dtype))

    def uniform(self, *shape):
        return self.lib.tensor(self.generator.random(shape).astype(self.dtype))

    def integers(self, high, *shape):
        return self.lib.tensor(self.generator.integers(0, high, shape))


def classifier(lib, nn, F, data):
    """Image classification: residual blocks with batch norm, as in ResNet."""

    class Block(nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            self.first, self.norm1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
            self.second, self.norm2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
            self.shortcut = nn.Sequential()
            if stride != 1 or inside != outside:
                self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

        def forward(self, x):
            y = self.norm2(self.second(F.relu(self.norm1(self.first(x)), inplace=True)))
            return F.relu(y + self.shortcut(x))

    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Block(8, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    x, y = data.normal(8, 3, 12, 12), data.integers(5, 8)
    return [net], lambda step: F.cross_entropy(net(x), y, label_smoothing=0.1)


def detector(lib, nn, F, data):
    """Detection: a backbone, a pyramid, and heads for classes and boxes over a grid, with a focal and an IoU loss."""
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.SiLU())
    deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1), nn.SiLU())
    classes, boxes = nn.Conv2d(16, 3, 1), nn.Conv2d(16, 4, 1)
    x = data.normal(2, 3, 16, 16)
    wanted, corners = data.uniform(2, 3, 4, 4), data.uniform(2, 4, 4, 4)

    def loss(step):
        fine = backbone(x)
        features = fine + F.interpolate(deep(fine), scale_factor=2, mode="nearest")
        logits, ltrb = classes(features), F.softplus(boxes(features))
        target = (wanted > 0.8).to(x.dtype)
        p = lib.sigmoid(logits)
        ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        focal = ((0.25 * target + 0.75 * (1 - target)) * ce * (1 - (p * target + (1 - p) * (1 - target))) ** 2).mean()
        overlap = lib.minimum(ltrb, corners).clamp(min=0)
        inter = (overlap[:, 0] + overlap[:, 2]) * (overlap[:, 1] + overlap[:, 3])
        area = [(b[:, 0] + b[:, 2]) * (b[:, 1] + b[:, 3]) for b in (ltrb, corners)]
        return focal + (1 - inter / (area[0] + area[1] - inter + 1e-6)).mean()

    return [backbone, deep, classes, boxes], loss


def segmenter(lib, nn, F, data):
    """Segmentation: a U-Net with skips by concatenation, cross entropy and the Dice loss."""

    def double(inside, outside):
        return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
                             nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.down = double(1, 8), nn.Sequential(nn.MaxPool2d(2), double(8, 16))
            self.up, self.leave, self.out = nn.ConvTranspose2d(16, 8, 2, 2), double(16, 8), nn.Conv2d(8, 3, 1)

        def forward(self, x):
            skip = self.enter(x)
            y = self.up(self.down(skip))
            y = F.pad(y, [0, skip.shape[3] - y.shape[3], 0, skip.shape[2] - y.shape[2]])
            return self.out(self.leave(lib.cat([skip, y], dim=1)))

    net, x, mask = UNet(), data.normal(2, 1, 9, 9), data.integers(3, 2, 9, 9)

    def loss(step):
        out = net(x)
        p, hot = F.softmax(out, 1), F.one_hot(mask, 3).permute(0, 3, 1, 2).to(x.dtype)
        dice = 1 - (2 * (p * hot).sum((0, 2, 3)) + 1) / (p.sum((0, 2, 3)) + hot.sum((0, 2, 3)) + 1)
        return F.cross_entropy(out, mask) + dice.mean()

    return [net], loss


def gan(lib, nn, F, data):
    """A generator and a critic that train in turns, with spectral norm and detached fakes."""
    generator = nn.Sequential(nn.ConvTranspose2d(6, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                              nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 1, 4, 1, 0), nn.Flatten())
    noise, real = data.normal(4, 6, 1, 1), data.normal(4, 1, 8, 8)

    def loss(step):
        fake = generator(noise)
        ones, zeros = lib.ones(4, 1, dtype=real.dtype), lib.zeros(4, 1, dtype=real.dtype)
        if step % 2:
            return F.binary_cross_entropy_with_logits(critic(fake), ones)
        return F.binary_cross_entropy_with_logits(critic(real), ones) + F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)

    return [generator, critic], loss


def vae(lib, nn, F, data):
    """A variational autoencoder: reparameterised noise, reconstruction and Kullback-Leibler terms."""
    encoder, mean, spread = nn.Sequential(nn.Linear(20, 16), nn.ReLU()), nn.Linear(16, 4), nn.Linear(16, 4)
    decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 20), nn.Sigmoid())
    x, noise = data.uniform(6, 20), data.normal(8, 6, 4)

    def loss(step):
        h = encoder(x)
        mu, logvar = mean(h), spread(h)
        out = decoder(mu + noise[step] * lib.exp(0.5 * logvar))
        return F.binary_cross_entropy(out, x, reduction="sum") - 0.5 * lib.sum(1 + logvar - mu.pow(2) - logvar.exp())

    return [encoder, mean, spread, decoder], loss


def lstm_language_model(lib, nn, F, data):
    """A word-level language model: embedding, two layers of LSTM, tied weights, state carried over and detached."""
    embedding, lstm, out = nn.Embedding(11, 8), nn.LSTM(8, 8, num_layers=2), nn.Linear(8, 11)
    out.weight = embedding.weight
    text, state = data.integers(11, 49, 3), []

    def loss(step):
        part, after = text[6 * step:6 * step + 6], text[6 * step + 1:6 * step + 7]
        before = state[-1] if state else (lib.zeros(2, 3, 8, dtype=embedding.weight.dtype),) * 2
        y, new = lstm(embedding(part), before)
        state.append(tuple(s.detach() for s in new))
        return F.nll_loss(F.log_softmax(out(y).view(-1, 11), dim=1), after.reshape(-1))

    return [embedding, lstm, out], loss


def gpt(lib, nn, F, data):
    """A decoder-only transformer: causal attention by a kept mask, GELU, weight decay by groups is the test's."""

    class Attention(nn.Module):
        def __init__(self, width, heads, length):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.register_buffer("mask", lib.tril(lib.ones(length, length)).view(1, 1, length, length))

        def forward(self, x):
            b, t, c = x.size()
            q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = F.softmax(att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")), dim=-1)
            return self.out((att @ v).transpose(1, 2).contiguous().view(b, t, c))

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, 2, 8), nn.LayerNorm(width)
            self.mlp = nn.ModuleDict({"up": nn.Linear(width, 4 * width), "act": nn.GELU(), "down": nn.Linear(4 * width, width)})

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.mlp["down"](self.mlp["act"](self.mlp["up"](self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(13, 16), nn.Embedding(8, 16)
            self.blocks, self.norm, self.head = nn.ModuleList(Block(16) for _ in range(2)), nn.LayerNorm(16), nn.Linear(16, 13, bias=False)

        def forward(self, index):
            x = self.tokens(index) + self.places(lib.arange(index.shape[1], dtype=lib.long).unsqueeze(0))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    net, text = GPT(), data.integers(13, 4, 9)
    return [net], lambda step: F.cross_entropy(net(text[:, :-1]).view(-1, 13), text[:, 1:].reshape(-1), ignore_index=-1)


def bert(lib, nn, F, data):
    """A masked language model: nn.TransformerEncoder with a padding mask, loss at the masked places only."""
    tokens = nn.Embedding(15, 16, padding_idx=0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    head = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 15))
    text, masked = data.integers(14, 4, 7) + 1, data.uniform(4, 7) < 0.3

    def loss(step):
        padding = lib.arange(7).unsqueeze(0) >= lib.tensor([7, 6, 5, 7]).unsqueeze(1)
        labels = text.masked_fill(~masked | padding, -100)
        given = text.masked_fill(masked, 1).masked_fill(padding, 0)
        return F.cross_entropy(head(encoder(tokens(given), src_key_padding_mask=padding)).transpose(1, 2), labels)

    return [tokens, encoder, head], loss


def translation(lib, nn, F, data):
    """Sequence to sequence: a packed bidirectional GRU reads, a GRU cell with additive attention writes."""
    source, target = nn.Embedding(9, 6), nn.Embedding(10, 6)
    reader, cell = nn.GRU(6, 5, bidirectional=True, batch_first=True), nn.GRUCell(6 + 10, 10)
    query, key, score, out = nn.Linear(10, 7), nn.Linear(10, 7), nn.Linear(7, 1, bias=False), nn.Linear(20, 10)
    given, wanted, lengths = data.integers(9, 3, 6), data.integers(10, 3, 5), [6, 4, 3]

    def loss(step):
        packed = nn.utils.rnn.pack_padded_sequence(source(given), lengths, batch_first=True)
        states, last = nn.utils.rnn.pad_packed_sequence(reader(packed)[0], batch_first=True)[0], None
        mask = lib.arange(6)[None, :] >= lib.tensor(lengths)[:, None]
        last, total = states.mean(1), 0.0
        for i in range(4):
            weights = score(lib.tanh(query(last).unsqueeze(1) + key(states))).squeeze(-1).masked_fill(mask, float("-inf"))
            context = lib.bmm(F.softmax(weights, dim=-1).unsqueeze(1), states).squeeze(1)
            last = cell(lib.cat([target(wanted[:, i]), context], dim=-1), last)
            total = total + F.cross_entropy(out(lib.cat([last, context], 1)), wanted[:, i + 1])
        return total / 4

    return [source, target, reader, cell, query, key, score, out], loss


def recommender(lib, nn, F, data):
    """Recommendation: embeddings of fields, a factorisation machine, a deep part, an embedding bag."""
    fields, first, bag = nn.Embedding(30, 6), nn.Embedding(30, 1), nn.EmbeddingBag(12, 6, mode="mean")
    deep = nn.Sequential(nn.Linear(24, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    index, history, clicked = data.integers(10, 8, 3), data.integers(12, 20), (data.uniform(8) > 0.5)
    offsets = lib.tensor([0, 3, 3, 7, 9, 12, 15, 18])

    def loss(step):
        rows = index + lib.tensor([0, 10, 20])
        e = lib.cat([fields(rows), bag(history, offsets).unsqueeze(1)], dim=1)
        pairs = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
        logit = first(rows).sum(1) + pairs + deep(e.flatten(1))
        return F.binary_cross_entropy_with_logits(logit.squeeze(1), clicked.to(e.dtype))

    return [fields, first, bag, deep], loss


def policy_gradient(lib, nn, F, data):
    """Reinforcement learning: discounted returns, log probabilities of taken actions, a baseline, an entropy bonus."""
    body, policy, value = nn.Sequential(nn.Linear(4, 16), nn.Tanh()), nn.Linear(16, 3), nn.Linear(16, 1)
    states, actions, rewards = data.normal(10, 4), data.integers(3, 10), data.normal(10)

    def loss(step):
        h = body(states)
        logp, v = F.log_softmax(policy(h), dim=-1), value(h).squeeze(-1)
        returns, total = [], 0.0
        for r in rewards.flip(0):
            total = r + 0.9 * total
            returns.insert(0, total)
        returns = lib.stack(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        advantage = (returns - v).detach()
        ratio = lib.exp(logp.gather(1, actions[:, None]).squeeze(1) - logp.gather(1, actions[:, None]).squeeze(1).detach())
        clipped = lib.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return -clipped + 0.5 * F.smooth_l1_loss(v, returns) + 0.01 * (logp.exp() * logp).sum(-1).mean()

    return [body, policy, value], loss


def graph_attention(lib, nn, F, data):
    """A graph attention network over edges, with scattered softmax, and a dense one with a mask."""
    linear, left, right, out = nn.Linear(5, 8, bias=False), nn.Parameter(data.normal(8)), nn.Parameter(data.normal(8)), nn.Linear(8, 3)
    holder = nn.Module()
    holder.left, holder.right = left, right
    x, y, edges = data.normal(7, 5), data.integers(3, 7), data.integers(7, 2, 20)
    adjacency = (data.uniform(7, 7) > 0.5)

    def loss(step):
        h, (source, target) = linear(x), edges
        e = F.leaky_relu((h * left).sum(-1)[source] + (h * right).sum(-1)[target], 0.2)
        e = (e - e.max().detach()).exp()
        norm = lib.zeros(7, dtype=h.dtype).index_add_(0, target, e)
        a = e / (norm[target] + 1e-16)
        summed = lib.zeros_like(h).scatter_add_(0, target[:, None].expand(-1, 8), a[:, None] * h[source])
        scores = lib.where(adjacency, summed @ h.t(), lib.full((), -9e15, dtype=h.dtype))
        return F.nll_loss(F.log_softmax(out(F.elu(F.softmax(scores, dim=1) @ summed)), dim=1), y)

    return [linear, holder, out], loss


def diffusion(lib, nn, F, data):
    """DDPM: noise of a drawn step is predicted from the noisy image and a sinusoidal embedding of the step."""
    embed, enter, leave = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)
    norm = nn.GroupNorm(2, 8)
    x, noise, times = data.normal(4, 1, 6, 6), data.normal(8, 4, 1, 6, 6), data.integers(20, 8, 4)

    def loss(step):
        betas = lib.linspace(1e-4, 0.02, 20, dtype=x.dtype)
        kept = lib.cumprod(1.0 - betas, dim=0)[times[step]].view(-1, 1, 1, 1)
        noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise[step]
        rates = lib.exp(lib.arange(4, dtype=x.dtype) * -(math.log(10000) / 3))
        angles = times[step][:, None].to(x.dtype) * rates[None, :]
        t = embed(lib.cat((angles.sin(), angles.cos()), dim=-1))
        return F.mse_loss(leave(F.silu(norm(enter(noisy) + t[:, :, None, None]))), noise[step])

    return [embed, enter, leave, norm], loss


def vision_transformer(lib, nn, F, data):
    """ViT: patches by unfolding, a class token, scaled_dot_product_attention, nn.MultiheadAttention."""
    holder, patches, head = nn.Module(), nn.Linear(48, 16), nn.Linear(16, 4)
    holder.token, holder.places = nn.Parameter(data.normal(1, 1, 16)), nn.Parameter(data.normal(1, 10, 16))
    attention, qkv, norm = nn.MultiheadAttention(16, 4, batch_first=True), nn.Linear(16, 48, bias=False), nn.RMSNorm(16)
    x, y = data.normal(3, 3, 12, 12), data.integers(4, 3)

    def loss(step):
        p = F.unfold(x, 4, stride=4).transpose(1, 2)
        h = lib.cat((holder.token.expand(3, -1, -1), patches(p)), dim=1) + holder.places
        h = h + attention(norm(h), norm(h), norm(h), need_weights=False)[0]
        q, k, v = qkv(norm(h)).reshape(3, 10, 3, 2, 8).permute(2, 0, 3, 1, 4)
        h = h + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return F.cross_entropy(head(h[:, 0]), y)

    return [holder, patches, head, attention, qkv, norm], loss


def wavenet(lib, nn, F, data):
    """Audio: dilated causal convolutions with gates, residuals and skips, weight norm."""
    enter, out = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 16, 1)
    gates = nn.ModuleList(nn.utils.weight_norm(nn.Conv1d(8, 16, 2, dilation=2 ** i)) for i in range(3))
    mixes = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3))
    wave = data.uniform(2, 1, 24) * 2 - 1

    def loss(step):
        levels = ((wave.sign() * lib.log1p(15 * wave.abs()) / math.log(16) + 1) / 2 * 15 + 0.5).to(lib.int64).squeeze(1)
        x, skips = enter(wave), 0
        for i, (gate, mix) in enumerate(zip(gates, mixes)):
            a, b = gate(F.pad(x, (2 ** i, 0))).chunk(2, dim=1)
            y = mix(lib.tanh(a) * lib.sigmoid(b))
            x, skips = x + y, skips + y
        return F.cross_entropy(out(F.relu(skips))[:, :, :-1], levels[:, 1:])

    return [enter, out, gates, mixes], loss


def siamese(lib, nn, F, data):
    """Metric learning: one net for three images, triplet and contrastive losses, normalised embeddings."""
    net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 8))
    a, p, n = data.normal(5, 1, 8, 8), data.normal(5, 1, 8, 8), data.normal(5, 1, 8, 8)

    def loss(step):
        ea, ep, en = (F.normalize(net(v), dim=1) for v in (a, p, n))
        logits = ea @ ep.t() / 0.1
        distance = F.pairwise_distance(ea, en)
        return (F.triplet_margin_loss(ea, ep, en, margin=0.5) + F.cross_entropy(logits, lib.arange(5)) + F.relu(1 - distance).pow(2).mean() +
                F.cosine_embedding_loss(ea, ep, lib.ones(5, dtype=a.dtype)))

    return [net], loss


def flow(lib, nn, F, data):
    """A normalising flow: affine couplings with masks, an invertible linear map and its log determinant."""
    nets = nn.ModuleList(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)) for _ in range(3))
    mix = nn.Module()
    mix.weight = nn.Parameter(lib.eye(4, dtype=data.normal(1).dtype) + 0.1 * data.normal(4, 4))
    x = data.normal(12, 4)

    def loss(step):
        z, logdet = x, 0.0
        for i, net in enumerate(nets):
            mask = (lib.arange(4) % 2 == i % 2).to(x.dtype)
            shift, scale = net(z * mask).chunk(2, dim=1)
            scale = lib.tanh(scale) * (1 - mask)
            z = z * mask + (1 - mask) * (z * lib.exp(scale) + shift)
            logdet = logdet + scale.sum(1)
        z = z @ mix.weight
        logdet = logdet + lib.linalg.slogdet(mix.weight)[1]
        return (0.5 * (z ** 2).sum(1) + 2 * math.log(2 * math.pi) - logdet).mean()

    return [nets, mix], loss


def mixture_of_experts(lib, nn, F, data):
    """A layer of experts: the two best by a gate, tokens sent to them by index, a loss of balance."""
    gate, experts = nn.Linear(6, 4, bias=False), nn.ModuleList(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6)) for _ in range(4))
    x, y = data.normal(16, 6), data.normal(16, 6)

    def loss(step):
        p = F.softmax(gate(x), dim=-1)
        weights, chosen = p.topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = lib.zeros_like(x)
        for i, expert in enumerate(experts):
            token, slot = lib.where(chosen == i)
            if token.numel():
                out = out.index_add(0, token, expert(x[token]) * weights[token, slot, None])
        share = F.one_hot(chosen, 4).to(x.dtype).mean((0, 1))
        return F.mse_loss(out, y) + 0.01 * 4 * (share * p.mean(0)).sum()

    return [gate, experts], loss


def speech(lib, nn, F, data):
    """Speech: convolutions over time, a bidirectional LSTM, the CTC loss over padded texts."""
    conv, lstm, out = nn.Conv1d(5, 8, 3, stride=2, padding=1), nn.LSTM(8, 6, bidirectional=True, batch_first=True), nn.Linear(12, 6)
    norm = nn.InstanceNorm1d(8, affine=True)
    x, texts = data.normal(3, 5, 24), data.integers(5, 3, 4) + 1

    def loss(step):
        h = F.hardtanh(norm(conv(x)), 0, 20).transpose(1, 2)
        logp = F.log_softmax(out(lstm(h)[0]), dim=-1).transpose(0, 1)
        return F.ctc_loss(logp, texts, lib.tensor([12, 11, 10]), lib.tensor([4, 3, 2]), zero_infinity=True)

    return [conv, lstm, out, norm], loss


def super_resolution(lib, nn, F, data):
    """Super-resolution: convolutions, PixelShuffle, a bicubic skip, a total variation term."""
    net = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2))
    x, y = data.uniform(2, 1, 6, 6), data.uniform(2, 1, 12, 12)

    def loss(step):
        out = net(x) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        variation = (out[..., 1:] - out[..., :-1]).abs().mean() + (out[..., 1:, :] - out[..., :-1, :]).pow(2).mean()
        return F.l1_loss(out, y) + 0.1 * variation

    return [net], loss


def style_transfer(lib, nn, F, data):
    """Style transfer: reflection padding, instance norm, upsampling; Gram matrices of a fixed net."""
    fixed = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 3, padding=1))
    net = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 6, 3, 2), nn.InstanceNorm2d(6, affine=True), nn.ReLU(),
                        nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(6, 3, 3, padding=1))
    content, style = data.uniform(2, 3, 8, 8), data.uniform(1, 3, 8, 8)

    def gram(y):
        b, c, h, w = y.size()
        features = y.view(b, c, h * w)
        return features.bmm(features.transpose(1, 2)) / (c * h * w)

    def loss(step):
        for p in fixed.parameters():
            p.requires_grad_(False)
        y = net(content)
        with lib.no_grad():
            wanted, wanted_style = fixed(content), gram(fixed(style))
        seen = fixed(y)
        return F.mse_loss(seen, wanted) + 1e2 * F.mse_loss(gram(seen), wanted_style.expand(2, -1, -1))

    return [net, fixed], loss


KINDS = {f.__name__: f for f in (
    classifier, detector, segmenter, gan, vae, lstm_language_model, gpt, bert, translation, recommender, policy_gradient, graph_attention,
    diffusion, vision_transformer, wavenet, siamese, flow, mixture_of_experts, speech, super_resolution, style_transfer)}


def make(kind: str, lib, dtype):
    """The modules of a kind and its loss."""
    return KINDS[kind](lib, lib.nn, lib.nn.functional, Data(lib, dtype))
