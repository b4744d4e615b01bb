"""Samples of the losses."""

import tapegrad


def _reductions(pairs, **kwargs):
    return [(args, {"reduction": r, **kwargs}) for args in pairs for r in ("none", "mean", "sum")]


def _labels(shape, classes, ignored=None):
    n = 1
    for s in shape:
        n *= s
    labels = tapegrad.arange(n) * 7 % classes
    if ignored is not None and n:
        labels[0] = ignored
    return labels.reshape(shape)


def pair_loss(make):
    pairs = [(make((3, 4)), make((3, 4))), (make(()), make(())), (make((0, 2)), make((0, 2))), (make((4, 3)).t(), make((3, 4)))]
    return _reductions(pairs)


def huber_samples(make):
    return _reductions([(make((3, 4), low=-3, high=3), make((3, 4)))], delta=0.7)


def bce_samples(make):
    pairs = [(make((3, 4), low=0.1, high=0.9), make((3, 4), low=0.1, high=0.9))]
    return _reductions(pairs) + [(p, {"weight": make((3, 4), low=0.1, high=2)}) for p in pairs]


def bce_logits_samples(make):
    pairs = [(make((3, 4), low=-4, high=4), make((3, 4), low=0, high=1))]
    return _reductions(pairs) + [(p, {"weight": make((4,), low=0.1, high=2), "pos_weight": make((4,), low=0.5, high=2)}) for p in pairs]


def kl_samples(make):
    pairs = [(make((3, 4), low=-3, high=-0.5), make((3, 4), low=0.1, high=0.9))]
    return _reductions(pairs) + [(p, {"reduction": "batchmean"}) for p in pairs] + _reductions(
        [(make((2, 3), low=-3, high=-0.5), make((2, 3), low=-3, high=-0.5))], log_target=True)


def nll_samples(make):
    pairs = [(make((4, 3), low=-3, high=0), _labels((4,), 3)), (make((2, 3, 2, 2), low=-3, high=0), _labels((2, 2, 2), 3)),
             (make((3,), low=-3, high=0), tapegrad.tensor(1))]
    weighted = [(p, {"weight": make((3,), low=0.1, high=2), "reduction": r}) for p in pairs[:2] for r in ("none", "mean", "sum")]
    ignored = [((make((4, 3)), _labels((4,), 3, -100)), {"reduction": r}) for r in ("none", "mean", "sum")]
    return _reductions(pairs) + weighted + ignored


def cross_entropy_samples(make):
    samples = nll_samples(make)
    samples += [(args, {**kwargs, "label_smoothing": 0.1}) for args, kwargs in nll_samples(make)]
    probabilities = make((4, 3), low=0.1, high=0.9)
    samples += _reductions([(make((4, 3)), probabilities), (make((3,)), probabilities[0])])
    samples += [((make((4, 3)), probabilities), {"weight": make((3,), low=0.1, high=2), "label_smoothing": 0.2})]
    return samples + [((make((3, 700), low=-9, high=9), _labels((3,), 700)), {})]


def ranking_samples(make):
    sign = tapegrad.tensor([[1.0, -1.0, 1.0, -1.0]]).to(make.dtype)
    return _reductions([(make((3, 4)), make((3, 4)), sign)], margin=0.2)


def hinge_samples(make):
    sign = tapegrad.tensor([1.0, -1.0, 1.0, -1.0]).to(make.dtype)
    return _reductions([(make((4,)), sign)])


def cosine_samples(make):
    return [((make((3, 4)), make((3, 4))), {}), ((make((3, 4)), make((1, 4))), {"dim": -1}), ((make((2, 3, 4)), make((2, 3, 4))), {"dim": 2})]


def cosine_embedding_samples(make):
    sign = tapegrad.tensor([1.0, -1.0, 1.0]).to(make.dtype)
    return _reductions([(make((3, 4)), make((3, 4)), sign)], margin=0.1)


def distance_samples(make):
    return [((make((3, 4)), make((3, 4))), {}), ((make((3, 4)), make((3, 4))), {"p": 1.0, "keepdim": True})]


def triplet_samples(make):
    triple = (make((3, 4)), make((3, 4)), make((3, 4)))
    return _reductions([triple]) + [(triple, {"swap": True, "margin": 0.5})]


def poisson_samples(make):
    return _reductions([(make((3, 4)), make((3, 4), low=0.2, high=4))]) + [
        ((make((3, 4), low=0.1, high=2), make((3, 4), low=0.2, high=4)), {"log_input": False, "full": True})]


def gaussian_samples(make):
    return _reductions([(make((3, 4)), make((3, 4)), make((3, 4), low=0.2, high=2)), (make((3, 4)), make((3, 4)), make((3, 1), low=0.2, high=2))]) + [
        ((make((3, 4)), make((3, 4)), make((3, 4), low=0.2, high=2)), {"full": True})]


def soft_margin_samples(make):
    sign = tapegrad.tensor([1.0, -1.0, 1.0, -1.0]).to(make.dtype)
    return _reductions([(make((3, 4)), sign.expand(3, 4))])


def multilabel_samples(make):
    return _reductions([(make((3, 4)), make((3, 4), low=0, high=1))]) + [
        ((make((3, 4)), make((3, 4), low=0, high=1)), {"weight": make((4,), low=0.1, high=2)})]


def multi_margin_samples(make):
    return _reductions([(make((4, 3)), _labels((4,), 3))]) + [
        ((make((4, 3)), _labels((4,), 3)), {"p": 2, "margin": 0.5, "weight": make((3,), low=0.1, high=2)})]


def multilabel_margin_samples(make):
    import tapegrad
    target = tapegrad.tensor([[3, 0, -1, 1], [0, -1, -1, -1], [1, 2, 3, 0]])
    return [((make((3, 4)), target), {}), ((make((3, 4)), target), {"reduction": "none"}), ((make((4,)), target[0]), {"reduction": "sum"}), ((make((2, 3)), tapegrad.full((2, 3), -1)), {})]


def ctc_loss(make):
    import tapegrad
    targets = tapegrad.tensor([[1, 2, 2, 1], [3, 1, 2, 0], [2, 2, 2, 3]])
    probs = make((9, 3, 4)).log_softmax(2)
    lists = ((9, 8, 9), (4, 2, 3))
    return [((probs, targets, *lists), {}), ((probs, targets, *lists), {"reduction": "none"}), ((probs, targets, *lists), {"reduction": "sum", "blank": 0}),
            ((probs, tapegrad.tensor([1, 2, 2, 1, 3, 1, 2, 2, 2]), tapegrad.tensor([9, 8, 9]), tapegrad.tensor([4, 2, 3])), {}),
            ((probs, tapegrad.tensor([[0, 1, 2], [1, 1, 1], [2, 0, 0]]), (9, 9, 3), (3, 3, 0)), {"blank": 3, "reduction": "none"}),
            ((make((3, 2, 4)).log_softmax(2), tapegrad.tensor([[1, 1, 1], [1, 2, 3]]), (3, 3), (3, 3)), {"zero_infinity": True, "reduction": "none"}),
            ((make((5, 4)).log_softmax(1), tapegrad.tensor([1, 2]), tapegrad.tensor(5), tapegrad.tensor(2)), {"reduction": "none"})]
