"""Losses of detection."""

import math

from ... import maximum, minimum, no_grad
from ...nn import functional as F

__all__ = ["complete_box_iou_loss", "distance_box_iou_loss", "generalized_box_iou_loss", "sigmoid_focal_loss"]


def _reduced(loss, reduction: str):
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean() if loss.numel() > 0 else 0.0 * loss.sum()
    if reduction == "sum":
        return loss.sum()
    raise ValueError(f"Invalid Value for arg 'reduction': '{reduction} \n Supported reduction modes: 'none', 'mean', 'sum'")


def sigmoid_focal_loss(inputs, targets, alpha: float = 0.25, gamma: float = 2, reduction: str = "none"):
    """Binary cross-entropy that turns away from what is well known: times alpha_t (1 - p_t)^gamma (Lin et al., 2017).

    inputs: scores of any shape; targets: 0 or 1 of the same shape; alpha: the weight of ones (negative: none).
    """
    if not (0 <= alpha <= 1) and alpha != -1:
        raise ValueError(f"Invalid alpha value: {alpha}. alpha must be in the range [0,1] or -1 for ignore.")
    p = inputs.sigmoid()
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    known = p * targets + (1 - p) * (1 - targets)
    loss = loss * (1 - known) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return _reduced(loss, reduction)


def _pairwise(boxes1, boxes2, eps):
    """(IoU, area of the union, smallest and largest corner of the hull) of boxes with the same number."""
    low, high = maximum(boxes1[..., :2], boxes2[..., :2]), minimum(boxes1[..., 2:], boxes2[..., 2:])
    sides = (high - low).clamp(min=0)
    common = sides[..., 0] * sides[..., 1]
    areas = [(b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1]) for b in (boxes1, boxes2)]
    union = areas[0] + areas[1] - common
    return common / (union + eps), union, minimum(boxes1[..., :2], boxes2[..., :2]), maximum(boxes1[..., 2:], boxes2[..., 2:])


def generalized_box_iou_loss(boxes1, boxes2, reduction: str = "none", eps: float = 1e-7):
    """1 - generalised IoU of each box with the one of the same number (Rezatofighi et al., 2019)."""
    iou, union, low, high = _pairwise(boxes1, boxes2, eps)
    hull = (high[..., 0] - low[..., 0]) * (high[..., 1] - low[..., 1])
    return _reduced(1 - (iou - (hull - union) / (hull + eps)), reduction)


def _distance(boxes1, boxes2, eps):
    iou, _, low, high = _pairwise(boxes1, boxes2, eps)
    diagonal = (high - low).square().sum(-1) + eps
    apart = ((boxes1[..., :2] + boxes1[..., 2:]) / 2 - (boxes2[..., :2] + boxes2[..., 2:]) / 2).square().sum(-1)
    return 1 - iou + apart / diagonal, iou


def distance_box_iou_loss(boxes1, boxes2, reduction: str = "none", eps: float = 1e-7):
    """1 - IoU + squared distance of the centres in units of the hull's diagonal (Zheng et al., 2019)."""
    return _reduced(_distance(boxes1, boxes2, eps)[0], reduction)


def complete_box_iou_loss(boxes1, boxes2, reduction: str = "none", eps: float = 1e-7):
    """distance_box_iou_loss and a penalty for other proportions (Zheng et al., 2019)."""
    loss, iou = _distance(boxes1, boxes2, eps)
    angle1, angle2 = (((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])).atan() for b in (boxes1, boxes2))
    v = 4 / math.pi**2 * (angle2 - angle1).square()
    with no_grad():
        alpha = v / (1 - iou + v + eps)
    return _reduced(loss + alpha * v, reduction)
