"""Distributions of numbers that no interval bounds on both sides: on the whole line, on the positive numbers, of angles."""
