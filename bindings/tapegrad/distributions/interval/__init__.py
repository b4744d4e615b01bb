"""Distributions of numbers in an interval, most of them [0, 1]."""
