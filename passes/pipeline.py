"""Pipelines as values: a tuple of steps that prints as MLIR's pipeline syntax and parses back from it.

A step is one of our passes (a function in the registry, `lamina-<name>`) or the text of an upstream MLIR pass. Both take
options in MLIR's form and both nest under an anchor:

    lamina-cse,canonicalize{max-iterations=3},func.func(cse,lamina-tile{size=8 fuse=true})

Python passes cannot be registered with MLIR by name, so the text is parsed here. `parse` needs no MLIR: upstream names
are checked when the pipeline is built (`pass_manager.run`). A nested group is kept as one step per pass, so that each
pass can be timed and dumped; MLIR puts neighbours of one anchor together again.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import registry

MODULE = "builtin.module"
# Upstream passes worth suggesting for a misspelt name: MLIR does not list its own to Python.
UPSTREAM = (
    "arith-expand affine-loop-fusion affine-loop-unroll affine-super-vectorize buffer-deallocation-simplification "
    "buffer-hoisting buffer-loop-hoisting canonicalize convert-arith-to-llvm convert-bufferization-to-memref "
    "convert-cf-to-llvm convert-func-to-llvm convert-index-to-llvm convert-linalg-to-affine-loops "
    "convert-linalg-to-loops convert-math-to-libm convert-math-to-llvm convert-scf-to-cf convert-ub-to-llvm "
    "convert-vector-to-llvm convert-vector-to-scf cse drop-equivalent-buffer-results eliminate-empty-tensors "
    "empty-tensor-to-alloc-tensor expand-strided-metadata finalize-memref-to-llvm fold-memref-alias-ops inline "
    "linalg-fuse-elementwise-ops linalg-generalize-named-ops loop-invariant-code-motion lower-affine "
    "lower-vector-mask one-shot-bufferize reconcile-unrealized-casts remove-dead-values sccp symbol-dce "
    "transform-interpreter"
).split()
_ELEMENT = re.compile(r"([A-Za-z_][\w.\-]*)\s*(?:\((.*)\))?\s*(?:\{(.*)\})?", re.S)
_OPENERS, _CLOSERS = "({[<", ")}]>"


class PipelineError(ValueError):
    """A pipeline text that does not parse or names something unknown."""


@dataclass(frozen=True)
class OurPass:
    """A pass of `passes/registry.py` with the options that differ from their defaults, as (name, value) pairs."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    anchor: str = MODULE

    @property
    def function(self) -> Callable[..., None]:
        return registry.passes()[self.name]

    def __str__(self) -> str:
        options = " ".join(f"{k.replace('_', '-')}={_option_text(v)}" for k, v in self.options)
        return _under(self.anchor, self.name + (f"{{{options}}}" if options else ""))


@dataclass(frozen=True)
class UpstreamPass:
    """One pass of MLIR with its options, as text that MLIR's own parser reads."""

    text: str
    anchor: str = MODULE

    @property
    def name(self) -> str:
        return self.text.partition("{")[0].strip()

    def __str__(self) -> str:
        return _under(self.anchor, self.text)


Step = OurPass | UpstreamPass
Pipeline = tuple[Step, ...]


def parse(text: str | Iterable[str]) -> Pipeline:
    """Parse pipeline text, or several texts in a row; a PipelineError names the element that is wrong."""
    texts = [text] if isinstance(text, str) else list(text)
    return tuple(step for t in texts for step in _parse(t, MODULE))


def to_text(pipeline: Iterable[Step]) -> str:
    """Print a pipeline; `parse(to_text(p)) == p`."""
    return ",".join(map(str, pipeline))


def find_pass(name: str) -> Callable[..., None]:
    """Return our pass called `lamina-…`, importing its module; an unknown name is a PipelineError with near ones.

    The pass `lamina-fold-add-zero` is defined in a file `fold_add_zero.py` below `passes/`; other modules are imported
    only if there is none.
    """
    if name not in registry.passes():
        file = name.removeprefix("lamina-").replace("-", "_") + ".py"
        here = Path(__file__).parent
        for path in here.glob(f"*/**/{file}"):
            importlib.import_module("." + ".".join(path.relative_to(here).with_suffix("").parts), __package__)
    if name not in registry.passes():
        broken = _import_all(stop=lambda: name in registry.passes())
        if name not in registry.passes():
            near = difflib.get_close_matches(name, registry.passes(), 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(sorted(registry.passes()))}"
            raise PipelineError("; ".join([f"there is no pass '{name}'", hint, *broken]))
    return registry.passes()[name]


def our_names() -> list[str]:
    """The names of our passes, read from the files that define them: unlike `load_passes` it needs no MLIR."""
    files = sorted(Path(__file__).parent.glob("*/**/*.py"))
    return ["lamina-" + p.stem.replace("_", "-") for p in files if f"@register\ndef {p.stem}(" in p.read_text()]


def load_passes(without: str = "") -> list[str]:
    """Import every module of `passes/`, which fills the registry, but those of a folder; return the names of our passes."""
    _import_all(without)
    return sorted(registry.passes())


def _import_all(without: str = "", stop: Callable[[], bool] = lambda: False) -> list[str]:
    """Import the modules of `passes/` until `stop()`; says which do not import, so that one cannot hide the others."""
    broken = []
    package = importlib.import_module(__package__ or "")
    for module in pkgutil.walk_packages(package.__path__, f"{__package__}."):
        if stop():
            break
        if without and module.name.startswith(f"{__package__}.{without}."):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            broken.append(f"{module.name} does not import: {error}")
    return broken


def near_names(name: str) -> list[str]:
    """Names of passes, ours and the upstream ones that our pipelines use, that look like `name`."""
    return difflib.get_close_matches(name, [*load_passes(), *UPSTREAM], 3)


def _parse(text: str, anchor: str) -> list[Step]:
    steps: list[Step] = []
    for element in _split(text):
        match = _ELEMENT.fullmatch(element)
        if not match:
            raise PipelineError(f"cannot read pipeline element '{element}'; write name, name{{option=1}} or anchor(…)")
        name, nested, options = match.groups()
        if nested is not None:
            if anchor != MODULE:
                raise PipelineError(f"'{element}' nests twice; one anchor such as func.func(…) is supported")
            steps += _parse(nested, name)
        elif name.startswith("lamina-"):
            find_pass(name)
            steps.append(OurPass(name, _options(name, options or ""), anchor))
        else:
            steps.append(UpstreamPass(element, anchor))
    return steps


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotes."""
    parts, start, stack, quote = [], 0, [], ""
    for i, ch in enumerate(text):
        if quote:
            quote = "" if ch == quote else quote
        elif ch in "'\"":
            quote = ch
        elif ch in _OPENERS:
            stack.append(ch)
        elif ch in _CLOSERS:
            if not stack or _OPENERS.index(stack.pop()) != _CLOSERS.index(ch):
                raise PipelineError(f"unbalanced '{ch}' after '{text[:i][-30:]}'")
        elif ch == "," and not stack:
            parts.append(text[start:i])
            start = i + 1
    if stack or quote:
        raise PipelineError(f"'{quote or stack[-1]}' is never closed in '{text}'")
    parts.append(text[start:])
    stripped = [p.strip() for p in parts]
    if stripped == [""]:
        return []
    if "" in stripped:
        raise PipelineError(f"an element is missing between the commas of '{text}'")
    return stripped


def _options(name: str, text: str) -> tuple[tuple[str, Any], ...]:
    """Read `a=1,2 b=x flag` by the types of the pass's defaults; options equal to their default are left out."""
    defaults = registry.options(name)
    found: dict[str, Any] = {}
    for item in text.split():
        key, equals, value = item.partition("=")
        key = key.replace("-", "_")
        if key not in defaults:
            known = ", ".join(k.replace("_", "-") for k in defaults) or "none"
            raise PipelineError(f"pass '{name}' has no option '{key.replace('_', '-')}'; it has {known}")
        if not equals and not isinstance(defaults[key], bool):
            raise PipelineError(f"option '{key}' of pass '{name}' needs a value: {key}=…")
        try:
            found[key] = _value(value, defaults[key])
        except ValueError:
            kind = type(defaults[key]).__name__
            raise PipelineError(f"option '{key}' of pass '{name}' is not a {kind}: '{value}'") from None
    return tuple((k, v) for k, v in sorted(found.items()) if v != defaults[k])


def _value(text: str, default: Any) -> Any:
    """Convert an option's text to the type of `default`; a list may hold ints or words."""
    if isinstance(default, bool):
        if text not in ("", "true", "false", "1", "0"):
            raise ValueError(text)
        return text in ("", "true", "1")
    if isinstance(default, (tuple, list)):
        return tuple(int(x) if x.lstrip("-").isdigit() else x for x in text.split(",") if x)
    if isinstance(default, (int, float)):
        return type(default)(text)
    return text


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return str(value)


def _under(anchor: str, text: str) -> str:
    return text if anchor == MODULE else f"{anchor}({text})"
