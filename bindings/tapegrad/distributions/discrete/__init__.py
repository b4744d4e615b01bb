"""Distributions of counts, of outcomes and of categories."""
