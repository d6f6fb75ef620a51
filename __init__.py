"""Lamina compiles PyTorch graphs through MLIR to machine code.

The public face. Everything is loaded on first use: `import lamina` imports neither numpy, torch nor MLIR.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# public name -> module that defines it
_PUBLIC = {
    "compile": ".frontend.api",
    "export": ".frontend.api",
    "load": ".runtime.api",
    "stats": ".frontend.stats",
    "invalidate": ".frontend.weights",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:  # for type checkers and editors: what __getattr__ gives at run time
    from .frontend.api import compile, export
    from .frontend.stats import stats
    from .frontend.weights import invalidate
    from .runtime.api import load


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lamina' has no attribute '{name}'; it has {', '.join(__all__)}")
    value = getattr(import_module(_PUBLIC[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
