"""Write the tour of ARCHITECTURE.md: one attention block through every level, as the compiler really prints it.

`python docs/tour.py` rewrites the text between the markers; `tests/test_docs.py` checks that it is current. Left
out of the compiler's text are hashes in the names of kernels, locations, and, marked by `…`, types of operands (each
is stated where the value is made) and what a chapter is not about. Long lines are broken.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import lamina
from lamina.compiler.api import compile_graph

ARCHITECTURE = Path(__file__).parent.parent / "ARCHITECTURE.md"
BEGIN, END = "<!-- tour:begin (written by docs/tour.py) -->", "<!-- tour:end -->"
TARGET = "x86-64-v3"
WIDTH = 130  # columns of a listing


class Attention(torch.nn.Module):
    """Self-attention after a layer norm, and around both a residual."""

    def __init__(self, width: int = 64, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Chapter(NamedTuple):
    """`lines` are what it shows of the texts of LEVELS and the plan."""

    title: str
    words: str
    language: str
    lines: Callable[[dict[str, Any]], Iterator[str]]


def tour() -> str:
    """All chapters, in order."""
    torch.manual_seed(0)
    compiled = lamina.compile(Attention().eval(), (torch.randn(2, 16, 64),), target=TARGET)
    shown: dict[str, Any] = {level: compiled.ir(level) for level in LEVELS}
    shown["plan"] = compile_graph(compiled.exported.graph, TARGET).manifest["plan"]
    parts = []
    for number, chapter in enumerate(CHAPTERS):
        lines = [part for line in chapter.lines(shown) for part in wrapped(line)]
        parts += [f"### {number}. {chapter.title}", "", chapter.words, "", f"```{chapter.language}", *lines, "```", ""]
    return "\n".join(parts)


# -- what is shown of a level ------------------------------------------------------------------------------------------
def wrapped(line: str) -> Iterator[str]:
    """`line` without hashes in names, in as many lines as its length needs."""
    line = re.sub(r"_[0-9a-f]{16}\b", "", line).rstrip()
    indent = " " * (len(line) - len(line.lstrip()) + 6)
    while len(line) > WIDTH and (cut := line.rfind(" ", len(indent) + 1, WIDTH)) > 0:
        yield line[:cut]
        line = indent + line[cut + 1 :]
    yield line


def graph_lines(text: str, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """The functions of a `lamina` or `kernels` module but those called `skip`, without attributes of functions,
    locations and operand types."""
    skipping = False
    for line in text.splitlines():
        if re.match(r"module|#|\}", line):
            continue
        line = re.sub(r" loc\([^()]*(\(.*\))?\)", "", line.removeprefix("  "))
        if line.startswith("func.func"):
            skipping = any(f"@{name}(" in line for name in skip)
            line = re.sub(r" attributes \{.*\} \{$", _kind, line)
        if skipping:
            continue
        line = re.sub(r"(, )?operandSegmentSizes = array<[^>]*>", "", line)
        yield re.sub(r" : \(([^()]+)\) -> ", " : (…) -> ", line)


def _kind(attributes: re.Match[str]) -> str:
    kind = re.search(r'lamina\.kind = "\w+"', attributes[0])
    return f" attributes {{{kind[0]}, …}} {{" if kind else " {"


def kernel(text: str, name: str) -> list[str]:
    """The lines about the first kernel whose name starts with `name`."""
    parts = re.split(r"(?m)^(?://|#) -{20} ", text)
    return next(p for p in parts if p.startswith(name)).splitlines()[1:]


def function(lines: list[str], name: str) -> list[str]:
    """The function called `name` in the lines of one kernel, up to its closing brace."""
    plain = [re.sub(r"_[0-9a-f]{16}\b", "", line) for line in lines]
    start = next(i for i, line in enumerate(plain) if f"func @{name}(" in line)
    end = next(i for i in range(start, len(plain)) if plain[i] == "  }")
    return lines[start : end + 1]


def clipped(lines: list[str], first: str, count: int) -> Iterator[str]:
    """At most `count` lines from the first that has `first` in it; the function's attributes are left out."""
    start = next(i for i, line in enumerate(lines) if first in line)
    shown = [line.removeprefix("  ") for line in lines[start:] if line not in ("", "}", "module {")]
    for line in shown[:count]:
        yield re.sub(r" attributes \{.*\} \{$", " attributes {…} {", line)
    if len(shown) > count:
        yield f"  … {len(shown) - count} more lines"


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """The basic blocks of assembly that jump to their own label: innermost loops."""
    label, block = "", []
    for line in lines:
        if re.match(r"[.\w]+:", line):
            label, block = line.partition(":")[0], [line]
        elif label and not line.startswith("\t."):
            block.append(line.expandtabs(4))
            if re.match(rf"\s+j\w+\s+{re.escape(label)}$", line):
                yield block
                label = ""


def inner_loops(lines: list[str], entry: str) -> Iterator[str]:
    """The innermost loops of the function whose label (but for the hash) is `entry`."""
    plain = [re.sub(r"_[0-9a-f]{16}\b", "", line) for line in lines]
    start = plain.index(entry)
    end = next(i for i in range(start, len(lines)) if plain[i].startswith(".Lfunc_end"))
    for block in blocks(lines[start + 1 : end]):
        yield from block


def widest_loop(lines: list[str], instruction: str) -> Iterator[str]:
    """The innermost loop in which `instruction` has most results."""

    def results(block: list[str]) -> int:
        return len({line.split()[-1] for line in block if instruction in line})

    yield from max(blocks(lines), key=results)


def plan_lines(plan: dict[str, Any]) -> Iterator[str]:
    """The launches of a plan, each with the names of its buffers."""
    names = {
        "input": [i["name"] for i in plan["inputs"]],
        "weight": [w["name"] for w in plan["weights"]],
        "output": [o["name"] for o in plan["outputs"]],
    }
    for title, part in (("init, once", plan["init"]), ("main, each call", plan)):
        yield f"{title}:"
        for launch in part["launches"]:
            arguments = [names[s][i] if s in names else f"{s}{i}" for s, i in launch["args"]]
            yield f"    {launch['label']}({', '.join(arguments)})"
        yield from (
            f"    arena{i}: {a['bytes']} bytes, launches {a['first']} to {a['last']}"
            for i, a in enumerate(part["arena"])
        )


# -- the chapters ----------------------------------------------------------------------------------------------------
LEVELS = ("lamina", "kernels", "linalg", "loops", "llvm", "asm")
CHAPTERS = (
    Chapter(
        "The program",
        "What the user writes; `docs/tour.py` compiles it for an input of 2 × 16 × 64.",
        "python",
        lambda _: iter(inspect.getsource(Attention.forward).rstrip().splitlines()),
    ),
    Chapter(
        "`lamina`: the graph",
        "One function of `lamina` ops, as the frontend captured it. `layer_norm`, `linear` and `attention` are whole; views are"
        " ops; weights are symbols, whose data stay outside the IR.",
        "mlir",
        lambda t: graph_lines(t["lamina"]),
    ),
    Chapter(
        "`kernels`: what is launched",
        "After [the graph passes](docs/passes.md). `@main` only launches. `@init` runs once per version of the weights, here to"
        " pack both matrices for the register tile. Views are in the kernels that read through them, and will be index maps. The"
        " residual has joined the second projection, whose epilogue it is. (`@k1` and `@k5` are like `@k3` and `@k4`.)",
        "mlir",
        lambda t: graph_lines(t["kernels"], skip=("k1", "k5")),
    ),
    Chapter(
        "`linalg`: one kernel",
        "From here on every kernel goes alone. This is the layer norm: the op's own `lower` wrote reductions and maps on"
        " tensors, and has decided nothing about loops. The mean, and what its distance from it is for each element:",
        "mlir",
        lambda t: clipped(kernel(t["linalg"], "layer_norm"), "#map", 28),
    ),
    Chapter(
        "`loops`: the same kernel",
        "`lamina-emit-loops` has asked for the value of each output element and inlined what it needs: three loops over a row"
        " and no temporary. `%arg5` and `%arg6` are the rows that this thread was given; buffers are flat.",
        "mlir",
        lambda t: clipped(kernel(t["loops"], "layer_norm"), "func.func", 60),
    ),
    Chapter(
        "`llvm`: the kernel ABI",
        "In the LLVM dialect. The body has bare `noalias` pointers; `@layer_norm.range` takes them from the array of buffers"
        " ([contracts §7](docs/contracts.md)), and `@layer_norm` hands ranges to `ctx->parallel_for`, or the whole range where it is one grain.",
        "mlir",
        lambda t: clipped(function(kernel(t["llvm"], "layer_norm"), "layer_norm.range"), "llvm.func", 30),
    ),
    Chapter(
        "`asm`: what the processor runs",
        "The innermost loops of the layer norm (sum, sum of squares, output: eight floats at a time):",
        "asm",
        lambda t: inner_loops(kernel(t["asm"], "layer_norm"), "layer_norm.body:"),
    ),
    Chapter(
        "`asm` of a matrix product",
        "And of the first projection: one step along K in its register tile, 6 rows by 2 vectors of sums, as `lamina-emit-matmul`"
        " wrote it: a fetch of the next panel, two vectors of the packed matrix, then an element of each row times both.",
        "asm",
        lambda t: widest_loop(kernel(t["asm"], "packed_linear"), "vfmadd"),
    ),
    Chapter(
        "The plan",
        "What the host program does in one call, as data in the artifact's manifest; `lamina_main` is the same as native code.",
        "text",
        lambda t: plan_lines(t["plan"]),
    ),
)


def rewritten(text: str) -> str:
    """`text` with the tour between its markers."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tour()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    ARCHITECTURE.write_text(rewritten(ARCHITECTURE.read_text()))
