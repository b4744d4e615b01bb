"""Engines of quantised layers: there are none."""

engine = "none"
supported_engines = ["none"]
