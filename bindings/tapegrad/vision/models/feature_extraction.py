"""What networks know on the way."""

from ._utils import create_feature_extractor

__all__ = ["create_feature_extractor"]
