"""Losses over very many classes that look at a sample of them: sampled softmax and noise-contrastive estimation, as in TensorFlow."""

import math

from .. import cat, int64, rand, randperm, tensor
from . import functional as F

__all__ = ["log_uniform_candidates", "nce_loss", "sampled_softmax_loss"]


def log_uniform_candidates(labels, count: int, classes: int, *, unique: bool = True, generator=None) -> tuple:
    """`count` classes drawn with P(k) = log((k + 2) / (k + 1)) / log(classes + 1): for classes in the order of their frequency.

    Gives (sampled (count,), the expected number of times that each of `labels` is in a sample, the same of each sampled class). unique: no
    class twice; the expectation is then 1 - (1 - P)^tries, with the number of draws that it took. Raises ValueError where count is not
    positive, or more than there are classes of which each may come once.
    """
    if not 0 < count or (unique and count > classes):
        raise ValueError(f"log_uniform_candidates: count must be between 1 and the number of classes, {classes}: got {count}")

    def probability(ids):
        return ((ids + 2.0) / (ids + 1.0)).log() / math.log(classes + 1)

    if unique and count == classes:
        sampled = randperm(classes, generator=generator)
        return sampled, labels * 0 + 1.0, sampled * 0 + 1.0
    found: dict[int, None] = {}
    tries = 0
    while len(found) < count:
        drawn = ((rand(max(count, 64), generator=generator).double() * math.log(classes + 1)).exp() - 1).long().clamp(0, classes - 1).tolist()
        for k in drawn:
            tries += 1
            found[k if unique else tries] = k
            if len(found) == count:
                break
    sampled = tensor(list(found.values()), dtype=int64)
    if not unique:
        return sampled, probability(labels) * count, probability(sampled) * count

    def expected(ids):
        return -(tries * (-probability(ids)).log1p()).expm1()

    return sampled, expected(labels), expected(sampled)


def _scores(op: str, weight, bias, input, labels, candidates, remove_hits: bool, sparse: bool):
    """Scores of the labels (N,) and of the sampled classes (N, S), each less the logarithm of its expected number."""
    if labels.dim() != 1 or input.dim() != 2 or len(labels) != len(input):
        raise ValueError(f"{op}: expected input (N, D) and labels (N,): got {list(input.shape)} and {list(labels.shape)}")
    sampled, expected_of_labels, expected = candidates
    ids = cat([labels, sampled])
    rows = weight(ids) if callable(weight) else F.embedding(ids, weight, sparse=sparse)
    own = (input * rows[:len(labels)]).sum(1)
    others = input @ rows[len(labels):].t()
    if bias is not None:
        shift = bias(ids) if callable(bias) else bias[ids]
        own, others = own + shift[:len(labels)], others + shift[len(labels):]
    own, others = own - expected_of_labels.to(own.dtype).log(), others - expected.to(own.dtype).log()
    if remove_hits:
        others = others.masked_fill(sampled.unsqueeze(0) == labels.unsqueeze(1), -math.inf)
    return own, others


def _reduced(op: str, loss, reduction: str):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{op}: reduction is 'none', 'mean' or 'sum': got {reduction!r}")
    return loss if reduction == "none" else getattr(loss, reduction)()


def sampled_softmax_loss(weight, bias, input, labels, candidates, *, remove_hits: bool = True, sparse: bool = False, reduction: str = "mean"):
    """Cross-entropy of each label among itself and the sampled classes, for training over very many classes (Jean et al. 2015, arXiv:1412.2007).

    weight: (classes, D), or a function that gives rows (n, D) for ids (n,), such as a distributed.embedding.ShardedEmbedding; bias:
    (classes,), such a function or None; input (N, D); labels (N,) of int64. candidates: (sampled, expected of labels, expected of sampled),
    as log_uniform_candidates gives them; the scores are lowered by the logarithm of the expectations. remove_hits: a label that was
    sampled, too, does not stand against itself. sparse: the gradient of `weight` has the rows that were used. Raises ValueError for
    other shapes.
    """
    own, others = _scores("sampled_softmax_loss", weight, bias, input, labels, candidates, remove_hits, sparse)
    return _reduced("sampled_softmax_loss", cat([own.unsqueeze(1), others], 1).logsumexp(1) - own, reduction)


def nce_loss(weight, bias, input, labels, candidates, *, remove_hits: bool = False, sparse: bool = False, reduction: str = "mean"):
    """Logistic loss that tells each label from the sampled classes: noise-contrastive estimation (Gutmann and Hyvarinen 2010; Mnih and Teh 2012).

    The arguments are those of sampled_softmax_loss. The sum over the sampled classes is part of each example's loss.
    """
    own, others = _scores("nce_loss", weight, bias, input, labels, candidates, remove_hits, sparse)
    return _reduced("nce_loss", F.softplus(-own) + F.softplus(others).sum(1), reduction)
