"""Write the tour of ARCHITECTURE.md: one attention block through every level, as the compiler really prints it.

`python docs/tour.py` rewrites the text between the markers; `tests/test_tour.py` checks that it is current.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

import lamina

ARCHITECTURE = Path(__file__).parent.parent / "ARCHITECTURE.md"
BEGIN, END = "<!-- tour:begin (written by docs/tour.py) -->", "<!-- tour:end -->"
TARGET = "x86-64-v3"
# Lines of a listing that are shown; the rest is counted.
SHOWN = 40

CHAPTERS = (
    (
        "lamina",
        "The graph as it was captured: one function of `lamina` ops. Composites are whole, every op has a location"
        " (not printed here), weights are symbols and their data is elsewhere.",
    ),
    (
        "kernels",
        "Ops grouped into kernels. `@main` only launches; `@init` does once what depends on weights alone, such as packing"
        " the matrices. Views are inside the kernels that read through them; equal kernels are one function.",
    ),
    ("linalg", "One kernel, the layer norm, in upstream's linalg: reductions and maps on tensors, nothing decided yet."),
    ("loops", "The same kernel as loops over flat buffers; `%begin` and `%end` are the rows that a thread was given."),
    ("llvm", "In the LLVM dialect, with the kernel ABI around it."),
    ("asm", "And what the processor runs: the inner loop that sums the squares, eight rows of lanes at a time."),
)


class Attention(torch.nn.Module):
    """Pre-norm self-attention with a residual: the block that the tour follows."""

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


def listing(compiled, level: str) -> str:
    """The text of one level, cut to the chapter's subject and length."""
    text = compiled.asm() if level == "asm" else compiled.ir(level)
    if level in ("linalg", "loops", "llvm", "asm"):
        text = subject(text, level)
    lines = [re.sub(r" loc\(.*\)$", "", line)[:180] for line in text.splitlines() if not line.startswith("#loc")]
    if len(lines) > SHOWN:
        lines = lines[:SHOWN] + [f"… {len(lines) - SHOWN} more lines"]
    return "\n".join(lines)


def subject(text: str, level: str) -> str:
    """The part of a level's text that is about the layer norm kernel."""
    parts = re.split(r"(?m)^(?=// -----)", text) if level != "asm" else re.split(r"(?m)^(?=\t\.globl)", text)
    return next((p for p in parts if "layer_norm" in p), parts[0])


def tour() -> str:
    torch.manual_seed(0)
    compiled = lamina.compile(Attention().eval(), (torch.randn(2, 16, 64),), target=TARGET)
    chapters = []
    for number, (level, words) in enumerate(CHAPTERS, 1):
        fence = "asm" if level == "asm" else "mlir"
        chapters += [f"### {number}. `{level}`", "", words, "", f"```{fence}", listing(compiled, level), "```", ""]
    return "\n".join(chapters)


def rewritten(text: str) -> str:
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tour()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    ARCHITECTURE.write_text(rewritten(ARCHITECTURE.read_text()))
