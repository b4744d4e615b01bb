"""Reads the op table (aten/ops/*.toml) and writes everything that follows from it.

`model.py` reads and validates rows, `cpp_types.py` says how each argument type is spelled in each language, one
`emit_*.py` writes each kind of output. Run as `python -m aten.gen --ops aten/ops --out build/gen`.
"""
