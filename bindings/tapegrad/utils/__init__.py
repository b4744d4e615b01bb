"""Utilities: data loading, hooks."""
