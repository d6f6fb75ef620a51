"""Write the tables that the registries hold: `docs/ops.md` (ops and ATen converters) and `docs/passes.md`.

`python docs/tables.py` rewrites both; `tests/test_docs.py` checks that they are current.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import lamina
from lamina.compiler.levels import GRAPH_PIPELINE
from lamina.dialects.op import CATEGORIES, Field, Op, OptionalOperand, Variadic, all_ops
from lamina.frontend.aten.registry import converters
from lamina.passes import pipeline, registry
from lamina.targets import all_targets

DOCS = Path(__file__).parent
ROOT = Path(lamina.__file__).parent


def ops_page() -> str:
    """Every op by category, then every ATen overload by the file that converts it."""
    ops = {name: op for name, op in all_ops().items() if op.__module__.startswith("lamina.")}  # no toys of tests
    parts = [
        "# Ops",
        "Written by `docs/tables.py` from the registry: do not edit. `lamina ops NAME` shows one op in full. *Numerics*:"
        " `exact` is bit for bit as eager, `bounded` at most 2 ulp, `order` within twice eager's error against float64"
        " (sums may be in another order). `?` marks an operand that may be absent, `…` any number of them.",
    ]
    for category in CATEGORIES:
        members = [op for op in ops.values() if op.category == category]
        rows = [(f"`{signature(op)}`", results(op), op.numerics, summary(op)) for op in members]
        parts += [f"## {category}", table(("op", "results", "numerics", "meaning"), rows)]
    names: dict[str, list[str]] = {}
    for name, converter in converters().items():
        names.setdefault(source(converter), []).append(name.removeprefix("aten.").removesuffix(".default"))
    rows = [(f"`{file}`", ", ".join(f"`{n}`" for n in sorted(names[file]))) for file in sorted(names)]
    parts += ["## ATen overloads that are converted", table(("file", f"{len(converters())} overloads"), rows)]
    return "\n\n".join(parts) + "\n"


def passes_page() -> str:
    """Every pass of ours: name, options, file, first sentence; and which pipelines it is in."""
    parts = [
        "# Passes",
        "Written by `docs/tables.py` from the registry: do not edit. The examples in the docstrings show each pass"
        " before and after. `lamina opt FILE --passes …` runs any of them, and MLIR's own beside them.",
        "## Whole graph: `lamina` → `kernels`",
        "In this order (`GRAPH_PIPELINE` in `compiler/levels.py`):",
    ]
    functions = {name: registry.passes()[name] for name in pipeline.load_passes()}
    listed = list(dict.fromkeys(GRAPH_PIPELINE))
    parts.append(table(_HEAD, [_row(name, functions[name]) for name in listed]))
    rest = [name for name in functions if name not in listed]
    parts += ["## One kernel, and others", table(_HEAD, [_row(name, functions[name]) for name in rest])]
    parts += ["## Pipelines of `x86-64-v3` from `linalg` to `llvm`", *_pipelines()]
    return "\n\n".join(parts) + "\n"


_HEAD = ("pass", "options", "file", "what it does")


def _row(name: str, function: Callable[..., None]) -> tuple[str, ...]:
    options = ", ".join(f"`{k.replace('_', '-')}={str(v).lower()}`" for k, v in registry.options(name).items())
    return f"`{name}`", options, f"`{source(function)}`", first_sentence(function.__doc__)


def _pipelines() -> list[str]:
    """The steps up to the kernel ABI of a few kinds, then those that all share."""
    target, parts = all_targets()["x86-64-v3"], []
    kinds = (("`loops`", "loops", False), ("`matmul`", "matmul", False), ("Any kind, plain", "loops", True))
    for title, kind, plain in kinds:
        steps = target.pipeline(kind, plain)
        split = steps.index("lamina-kernel-abi")
        parts += [f"{title}:", "```\n" + "\n".join(steps[:split]) + "\n```"]
    return [*parts, "Then, for all:", "```\n" + "\n".join(steps[split:]) + "\n```"]


def signature(op: type[Op]) -> str:
    """`name(operands){attributes}` with defaults."""
    attributes = ", ".join(f.name + ("" if f.default is ... else f"={f.default}") for f in op.attributes)
    return f"{op.name}({', '.join(map(_operand, op.operands))})" + (f"{{{attributes}}}" if attributes else "")


def _operand(field: Field) -> str:
    return field.name + {OptionalOperand: "?", Variadic: "…"}.get(field.kind, "")


def results(op: type[Op]) -> str:
    """The names of the results if there are several."""
    return "" if op.single_result else ", ".join(f.name for f in op.results)


def summary(op: type[Op]) -> str:
    """The first paragraph of the docstring, as one line."""
    return " ".join(inspect.cleandoc(op.__doc__ or "").split("\n\n")[0].split())


def first_sentence(doc: str | None) -> str:
    """The first sentence of a docstring, as one line."""
    text = " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".") + "."


def source(function: Callable[..., object]) -> str:
    """The file that defines `function`, from the repository's root."""
    return function.__module__.removeprefix("lamina.").replace(".", "/") + ".py"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


PAGES = {"ops.md": ops_page, "passes.md": passes_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
