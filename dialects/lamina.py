"""Where MLIR's bindings look for op wrapper classes of the `lamina` dialect: there are none, and that is the point.

Iterating over ops asks for the wrapper class of each; without an importable module of the dialect's name that is a
failed import per op (25 µs). `irdl.py` registers this package as the place to look.
"""
