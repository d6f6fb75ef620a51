"""Lamina compiles PyTorch graphs through MLIR to machine code.

    model = torch.compile(model, backend="lamina")                      # same values as eager
    f = lamina.compile(model, (x,));  f(x);  f.ir("linalg")             # one whole function, and its IR
    lamina.export(program, targets=["x86-64-v3"]).save("model.lamina")  # a torch.export program, ahead of time
    y = lamina.load("model.lamina")(x)                                  # numpy, no torch

Everything is loaded on first use: `import lamina` imports neither numpy, torch nor MLIR.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors: what __getattr__ gives at run time
    from .compiler.errors import CompileError as CompileError
    from .compiler.options import Options as Options
    from .frontend.api import compile as compile
    from .frontend.api import export as export
    from .frontend.export import ExportError as ExportError
    from .frontend.stats import stats as stats
    from .frontend.weights import invalidate as invalidate
    from .runtime.api import load as load
    from .runtime.errors import ArtifactError as ArtifactError
    from .runtime.errors import LaminaRuntimeError as LaminaRuntimeError

__version__ = "0.1.0"

# public name -> module that defines it
_PUBLIC = {
    "compile": ".frontend.api",
    "export": ".frontend.api",
    "load": ".runtime.api",
    "stats": ".frontend.stats",
    "invalidate": ".frontend.weights",
    "Options": ".compiler.options",
    "CompileError": ".compiler.errors",
    "ExportError": ".frontend.export",
    "LaminaRuntimeError": ".runtime.errors",
    "ArtifactError": ".runtime.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lamina' has no attribute '{name}'; it has {', '.join(__dir__())}")
    value = getattr(import_module(_PUBLIC[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *_PUBLIC]
