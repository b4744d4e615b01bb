"""Sample inputs of operators: one function per name that a row's `test.samples` mentions.

Each takes `make` (see rows.Make) and returns a list of `(args, kwargs)`.
"""
