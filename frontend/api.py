"""`lamina.compile` and `lamina.export`: whole functions and exported programs, ahead of time, without eager parts.

f = lamina.compile(model, (x,));   f(x);   print(f.ir("linalg"), f.asm())
lamina.export(torch.export.export(model, (x,)), targets=["x86-64-v3", "aarch64"]).save("model.lamina")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ..compiler.api import Program, compile_graph, show_ir
from ..compiler.options import Options
from ..dialects import dims
from ..runtime.errors import LaminaRuntimeError
from . import compat
from .calls import launcher
from .calls.signature import Signature
from .export import Exported, ExportError, from_program, symbol_names
from .part import Part
from .sizes import to_dim


class Compiled:
    """A compiled function of tensors, called like the original; `exported` is its record."""

    def __init__(self, exported: Exported, target: str, options: Options):
        self.exported, self.target, self.options = exported, target, options
        self._solved = [_solution(exported.part, name) for name in exported.part.symbols]
        self._call = launcher.compile_part(exported.part, options, target)
        by_name = {**exported.weights, **exported.state}
        order = [i.name for i in exported.graph.inputs if i.kind != "scalar"]
        self._fixed = [by_name.get(name) for name in order]
        self._from_user = [exported.inputs.index(n) if n in exported.inputs else -1 for n in order]
        users = [i for i, where in enumerate(self._from_user) if where >= 0]
        self._kinds = [(i, exported.part.inputs[i].meta["val"]) for i in users]
        self._signature = Signature(exported.part)
        self._ranges = list(zip(exported.graph.symbols, self._signature.sources))
        self._numbers = {i: to_dim(v) for i, v in exported.constants.items() if isinstance(v, torch.SymInt)}
        self._constants = {i: v for i, v in exported.constants.items() if i not in self._numbers}
        # how many arguments there are if each is a leaf, and whether the result is one: nothing to take apart then
        count = exported.in_spec.num_leaves if exported.in_spec is not None else -1
        self._leaves = count if exported.in_spec == pytree.tree_structure(((0,) * count, {})) else -1
        self._single = exported.out_spec == pytree.tree_structure(0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves: Sequence[Any] = args
        if kwargs or len(args) != self._leaves or not all(isinstance(a, torch.Tensor) for a in args):
            leaves, spec = pytree.tree_flatten((args, kwargs))
            if self.exported.in_spec is not None and spec != self.exported.in_spec:
                raise TypeError(f"called with {_shown(spec)}, but compiled for {_shown(self.exported.in_spec)}")
        tensors: list[Any] = [leaves[i] if i >= 0 else fixed for i, fixed in zip(self._from_user, self._fixed)]
        self._check_constants(leaves)
        self._check_kinds(tensors)
        numbers = [(tensors[i].shape[dim] - offset) // factor for i, dim, factor, offset in self._solved]
        self._check_ranges([*tensors, *numbers])
        self._check_numbers(leaves, [*tensors, *numbers])
        made = self._call(*tensors, *numbers)
        results = [made[r] if isinstance(r, int) else r[1] for r in self.exported.results]
        return results[0] if self._single else pytree.tree_unflatten(results, self.exported.out_spec)

    def _check_constants(self, leaves: Sequence[Any]) -> None:
        """Raise LaminaRuntimeError for another number, text or None than the one that the code was compiled with."""
        for i, value in self._constants.items():
            given = leaves[i]
            if given is not value and (type(given) is not type(value) or repr(given) != repr(value)):
                shown = f"a {type(given).__name__}" if isinstance(given, torch.Tensor) else repr(given)
                raise LaminaRuntimeError(
                    f"input '{self.exported.inputs[i]}' is {shown}; it was compiled for {value!r}, as what is no tensor is part"
                    " of the code: compile once for each value"
                )

    def _check_numbers(self, leaves: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Raise LaminaRuntimeError for a number that the sizes of the tensors say is another."""
        if not self._numbers:
            return
        known = self._signature.named(self._signature.symbols(arguments))
        for i, number in self._numbers.items():
            if dims.symbols(number) <= known.keys() and leaves[i] != dims.evaluate(number, known):
                wanted = dims.evaluate(number, known)
                raise LaminaRuntimeError(
                    f"input '{self.exported.inputs[i]}' is {leaves[i]} and must be {wanted}, by the sizes"
                )

    def _check_kinds(self, tensors: Sequence[Any]) -> None:
        """Raise LaminaRuntimeError for an argument of another kind than the example: there are no guards as under torch.compile."""
        for i, example in self._kinds:
            given = tensors[i]
            if not isinstance(given, torch.Tensor):
                raise LaminaRuntimeError(
                    f"input '{self.exported.graph.inputs[i].name}' is a {type(given).__name__}; pass a torch.Tensor"
                )
            if given.dtype is not example.dtype or given.dim() != example.dim() or given.is_cuda != example.is_cuda:
                kind = f"{given.dtype} of {given.dim()} dims on {given.device}"
                wanted = f"{example.dtype} of {example.dim()} dims on {example.device}"
                name = self.exported.graph.inputs[i].name
                raise LaminaRuntimeError(f"input '{name}' is {kind}; it was compiled for {wanted}")

    def _check_ranges(self, arguments: Sequence[Any]) -> None:
        """Raise LaminaRuntimeError for a symbol out of its range. The call itself looks at all sizes."""
        for symbol, (i, dim) in self._ranges:
            size, high = arguments[i] if dim < 0 else arguments[i].shape[dim], symbol.maximum
            if size < symbol.minimum or (high is not None and size > high):
                allowed = f"{symbol.minimum} or more" if high is None else f"{symbol.minimum}..{high}"
                raise LaminaRuntimeError(f"'{symbol.name}' is {size} and must be {allowed}: compile for a wider range")

    def ir(self, level: str = "lamina") -> str:
        """The IR at a level: lamina, kernels, linalg, loops, llvm, llvmir or asm."""
        return show_ir(self.exported.graph, level, self.target, self.options)

    def asm(self) -> str:
        """The assembly of all kernels."""
        return self.ir("asm")


def _solution(part: Part, name: str) -> tuple[int, int, int, int]:
    """The tensor and dim whose size is `factor s + offset` of the symbol `name`, with both; ExportError if there is none."""
    for number, node in enumerate(part.inputs):
        for dim, size in enumerate(node.meta["val"].shape):
            whole = to_dim(size)
            factor = dims.linear_coefficient(whole, name)
            offset = whole - factor * dims.symbol(name) if isinstance(factor, int) and factor > 0 else None
            if isinstance(factor, int) and isinstance(offset, int):
                return number, dim, factor, offset
    raise ExportError(f"no size of an input tells the size {name}; make one that is {name} or a multiple of it dynamic")


class Export:
    """A program compiled for several targets, to be saved as one artifact."""

    def __init__(self, exported: Exported, programs: dict[str, Program]):
        self.exported, self.programs = exported, programs

    def save(self, path: str | Path) -> Path:
        """Write the artifact and return its path."""
        from ..compiler import artifact

        e = self.exported
        return artifact.save(path, self.programs, e.arrays(e.weights), e.arrays(e.state))


def compile(  # noqa: A001
    function: Callable[..., Any],
    args: Sequence[Any],
    target: str = "native",
    dynamic_shapes: Any = None,
    kwargs: dict[str, Any] | None = None,
    options: Options | Mapping[str, Any] = Options(),
) -> Compiled:
    """Compile a function or module for arguments like `args` and `kwargs`; the result is called like the original.

    ```python
    f = lamina.compile(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch", max=64)}})
    y = f(x)                       # eager's values, for every batch up to 64
    print(f.ir("linalg"), f.asm())
    ```

    `target` is a name that `lamina targets` lists, or "native": this machine. `dynamic_shapes` is torch.export's, by the
    function's own arguments; all other sizes, and arguments that are no tensors, are those of `args`. Parameters are used
    as they are at each call, and nothing is differentiated.
    ExportError lists what cannot be compiled, with source lines; CompileError says which kernel failed and why.
    """
    if isinstance(args, torch.Tensor):
        raise TypeError("args is a tensor; it is a sequence with every argument: (x,)")
    module = function if isinstance(function, torch.nn.Module) else _Function(function, args, kwargs or {})
    launcher.prepare(any(isinstance(a, torch.Tensor) and a.is_cuda for a in args))
    with torch.no_grad(), compat.all_frames_traced():
        program = torch.export.export(module, tuple(args), kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    name, symbols = getattr(function, "__name__", "main"), symbol_names(program, dynamic_shapes)
    exported = from_program(program, name, symbols, strided=True)
    return Compiled(exported, target, Options.of(options))


def export(
    program: ExportedProgram,
    targets: str | Sequence[str] = ("native",),
    dynamic_shapes: Any = None,
    options: Options | Mapping[str, Any] = Options(),
) -> Export:
    """Compile an exported program for all `targets`, ahead of time, with its weights and state.

    ```python
    program = torch.export.export(model, (x,))
    lamina.export(program, targets=["x86-64-v3", "aarch64", "sm_90a"]).save("model.lamina")
    ```

    `dynamic_shapes` are those that `program` was exported with: they give its sizes the names that callers see.
    ExportError lists what cannot be compiled, with source lines; CompileError says which kernel failed and why.
    """
    if not isinstance(program, ExportedProgram):
        raise TypeError(f"program is a {type(program).__name__}; pass torch.export.export(model, args)")
    exported = from_program(program, "main", symbol_names(program, dynamic_shapes))
    names, chosen = [targets] if isinstance(targets, str) else targets, Options.of(options)
    return Export(exported, {t: compile_graph(exported.graph, t, chosen) for t in names})


def _shown(spec: Any) -> str:
    """The structure of a call's arguments: `(_, {'mask': _}, scale=_)`."""
    args, kwargs = pytree.tree_unflatten([_Leaf()] * spec.num_leaves, spec)
    return f"({', '.join([*map(str, args), *(f'{name}={value}' for name, value in kwargs.items())])})"


class _Leaf:
    def __repr__(self) -> str:
        return "_"


class _Function(torch.nn.Module):
    """A plain function as a module, for torch.export; its arguments have the names that the function has for them."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]):
        super().__init__()

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        forward.__signature__ = _signature(function, args, kwargs)  # type: ignore[attr-defined]
        self.forward = forward


def _signature(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.Signature:
    """What a function says of its arguments; for one that says nothing, as most of torch's, those of a call."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        by_place = [inspect.Parameter(f"args_{i}", inspect.Parameter.POSITIONAL_OR_KEYWORD) for i in range(len(args))]
        by_name = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kwargs]
        return inspect.Signature(by_place + by_name)
