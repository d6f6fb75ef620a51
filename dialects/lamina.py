"""Where MLIR's bindings look for op wrapper classes of the `lamina` dialect: there are none.

Iterating over ops asks for the wrapper class of each; without an importable module of the dialect's name that is a
failed import per op (25 µs, thirty times the rest). `mlir_context.py` makes this package a place to look.
"""
