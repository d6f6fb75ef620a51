"""Programs other compilers got wrong, by subject; `CASES` holds them all."""

from . import control, memory, numerics  # noqa: F401
from .case import CASES

__all__ = ["CASES"]
