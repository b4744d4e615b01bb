"""Boxes: (N, 4) tensors of (x1, y1, x2, y2) with x1 <= x2 and y1 <= y2, unless said otherwise."""

import math

import numpy as np

from ... import cat, from_numpy, int64, is_tensor, no_grad, ones_like, stack, zeros
from ... import maximum as _max
from ... import minimum as _min

__all__ = ["batched_nms", "box_area", "box_convert", "box_iou", "clip_boxes_to_image", "complete_box_iou", "distance_box_iou",
           "generalized_box_iou", "masks_to_boxes", "nms", "remove_small_boxes"]


@no_grad()
def nms(boxes, scores, iou_threshold: float):
    """Numbers of the boxes that stay, best first: each one drops those with lower scores that overlap it by more than iou_threshold.

    boxes: (N, 4); scores: (N). Equal scores keep their order.
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise RuntimeError(f"nms: boxes should be a 2d tensor with 4 columns: got shape {tuple(boxes.shape)}")
    if scores.ndim != 1 or scores.shape[0] != boxes.shape[0]:
        raise RuntimeError(f"nms: scores should have one element for each of the {boxes.shape[0]} boxes: got shape {tuple(scores.shape)}")
    order = scores.argsort(descending=True, stable=True).cpu().numpy()
    sorted_boxes = boxes.detach().float().cpu().numpy()[order] if boxes.dtype.itemsize < 8 else boxes.detach().cpu().numpy()[order]
    x1, y1, x2, y2 = np.ascontiguousarray(sorted_boxes.T)
    areas = (x2 - x1) * (y2 - y1)
    dropped = np.zeros(len(order), bool)
    kept = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for i in range(len(order)):
            if dropped[i]:
                continue
            kept.append(i)
            rest = slice(i + 1, None)
            width = np.minimum(x2[i], x2[rest]) - np.maximum(x1[i], x1[rest])
            height = np.minimum(y2[i], y2[rest]) - np.maximum(y1[i], y1[rest])
            common = np.maximum(width, 0) * np.maximum(height, 0)
            dropped[rest] |= common / (areas[i] + areas[rest] - common) > iou_threshold
    return from_numpy(order[kept].astype(np.int64)).to(boxes.device)


def batched_nms(boxes, scores, idxs, iou_threshold: float):
    """nms within each category; idxs: (N) numbers of the categories."""
    if boxes.numel() == 0:
        return zeros(0, dtype=int64)
    # Shifted so far that boxes of two categories never meet.
    shift = idxs.to(boxes.dtype) * (boxes.max() + 1)
    return nms(boxes + shift[:, None], scores, iou_threshold)


def remove_small_boxes(boxes, min_size: float):
    """Numbers of the boxes whose sides are both at least min_size."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return ((sides[:, 0] >= min_size) & (sides[:, 1] >= min_size)).nonzero().squeeze(1)


def clip_boxes_to_image(boxes, size):
    """Boxes cut to an image of size (height, width)."""
    height, width = size
    x, y = boxes[..., 0::2].clamp(min=0, max=width), boxes[..., 1::2].clamp(min=0, max=height)
    return stack((x, y), dim=boxes.ndim).reshape(boxes.shape)


def box_convert(boxes, in_fmt: str, out_fmt: str):
    """Boxes (..., 4) in another format: xyxy (two corners), xywh (corner and size) or cxcywh (centre and size)."""
    known = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in known or out_fmt not in known:
        raise ValueError(f"Unsupported Bounding Box Conversions for given in_fmt {in_fmt} and out_fmt {out_fmt}")
    if in_fmt == out_fmt:
        return boxes.clone()
    first, second = boxes[..., :2], boxes[..., 2:]
    if in_fmt == "xywh":
        second = first + second
    elif in_fmt == "cxcywh":
        first, second = first - 0.5 * second, first + 0.5 * second
    if out_fmt == "xyxy":
        return cat((first, second), -1)
    size = second - first
    return cat((first if out_fmt == "xywh" else (first + second) / 2, size), -1)


def _wide(boxes):
    """Boxes in a dtype in which areas do not overflow."""
    if boxes.is_floating_point():
        return boxes if boxes.dtype.itemsize >= 4 else boxes.float()
    return boxes if boxes.dtype.itemsize >= 4 else boxes.int()


def box_area(boxes):
    """The area of each box."""
    boxes = _wide(boxes)
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _overlap(first, second):
    """(common area, area of the union) of each pair: (N, M)"""
    low = _max(first[..., None, :2], second[..., None, :, :2])
    high = _min(first[..., None, 2:], second[..., None, :, 2:])
    sides = _wide(high - low).clamp(min=0)
    common = sides[..., 0] * sides[..., 1]
    return common, box_area(first)[..., None] + box_area(second)[..., None, :] - common


def box_iou(boxes1, boxes2):
    """The intersection over the union of each pair of boxes: (N, M)."""
    common, union = _overlap(boxes1, boxes2)
    return common / union


def _hull_sides(boxes1, boxes2):
    low = _min(boxes1[:, None, :2], boxes2[:, :2])
    high = _max(boxes1[:, None, 2:], boxes2[:, 2:])
    return _wide(high - low).clamp(min=0)


def generalized_box_iou(boxes1, boxes2):
    """Rezatofighi et al.'s (2019): box_iou less the share of the hull that belongs to neither box."""
    common, union = _overlap(boxes1, boxes2)
    sides = _hull_sides(boxes1, boxes2)
    hull = sides[..., 0] * sides[..., 1]
    return common / union - (hull - union) / hull


def distance_box_iou(boxes1, boxes2, eps: float = 1e-7):
    """Zheng et al.'s (2019): box_iou less the squared distance of the centres, in units of the hull's diagonal."""
    sides = _hull_sides(boxes1, boxes2)
    diagonal = sides.square().sum(-1) + eps
    centres1, centres2 = (boxes1[:, :2] + boxes1[:, 2:]) / 2, (boxes2[:, :2] + boxes2[:, 2:]) / 2
    return box_iou(boxes1, boxes2) - (centres1[:, None] - centres2).square().sum(-1) / diagonal


def complete_box_iou(boxes1, boxes2, eps: float = 1e-7):
    """distance_box_iou less a penalty for other proportions (Zheng et al., 2019)."""
    iou = box_iou(boxes1, boxes2)
    angle1, angle2 = (((b[:, 2] - b[:, 0]) / (b[:, 3] - b[:, 1])).atan() for b in (boxes1, boxes2))
    v = 4 / math.pi**2 * (angle1[:, None] - angle2).square()
    with no_grad():
        alpha = v / (1 - iou + v + eps)
    return distance_box_iou(boxes1, boxes2, eps) - alpha * v


def masks_to_boxes(masks):
    """The smallest box (N, 4) around each of the masks (N, H, W)."""
    if masks.numel() == 0:
        return zeros(0, 4)
    boxes = zeros(masks.shape[0], 4)
    for i, mask in enumerate(masks):
        y, x = mask.nonzero(as_tuple=True)
        boxes[i] = stack((x.min(), y.min(), x.max(), y.max())).float()
    return boxes


def as_rois(boxes):
    """(K, 5) of (number of the image, x1, y1, x2, y2) from such a tensor or a list of (L, 4), one for each image."""
    if is_tensor(boxes):
        if boxes.ndim != 2 or boxes.shape[1] != 5:
            raise AssertionError(f"The boxes tensor shape is not correct as Tensor[K, 5]: got {tuple(boxes.shape)}")
        return boxes
    for b in boxes:
        if b.shape[1] != 4:
            raise AssertionError("The shape of the tensor in the boxes list is not correct as List[Tensor[L, 4]]")
    return cat([cat((ones_like(b[:, :1]) * i, b), 1) for i, b in enumerate(boxes)])
