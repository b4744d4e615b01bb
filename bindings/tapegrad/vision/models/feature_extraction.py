"""Intermediate activations of networks."""

from ._utils import create_feature_extractor

__all__ = ["create_feature_extractor"]
