"""Random torch programs as text: views, writes through views, reductions, products, indices, mixed dtypes.

    def f(x0, x1, x2):
        v0 = x0.transpose(0, 1)
        v0[:, 1:] += 2
        v1 = torch.softmax(v0, 0)
        return (v1, v0)

Every line has run in eager, which decides what fits; one that raises is left out. No op is discontinuous in a float, so that
rounding differently does not show.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

SIZES = (1, 2, 3, 5, 8, 17)
ELEMENTS = 20_000  # of the largest value
UNARY = "torch.neg torch.abs torch.sin torch.tanh torch.sigmoid torch.relu torch.exp F.gelu F.silu F.softplus".split()
BINARY = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "torch.maximum({0}, {1})",
    "torch.where({1} != 0, {0}, {1})",
    "{0} / 3",
)
INTEGER = ("{0} // 3", "{0} % 4", "{0} & 6", "{0} > 2", "~{0}", "{0}.to(torch.int8)", "{0}.bool()", "{0} == {0}.max()")
ROWS = ("{0}.sum({d})", "{0}.mean({d}, keepdim=True)", "{0}.amax({d})", "{0}.cumsum({d})", "{0}.var({d}, correction=0)",
        "torch.softmax({0}, {d})", "torch.logsumexp({0}, {d})", "F.layer_norm({0}, ({0}.shape[-1],))", "{0}.sum()")  # fmt: skip
VIEWS = ("{0}.transpose({d}, 0)", "{0}.reshape({0}.shape[0], -1)", "{0}.flatten()", "{0}.unsqueeze({d})", "{0}[{k}]", "{0}[..., ::2]",
         "{0}[1:]", "{0}[..., :-1]", "{0}.unsqueeze(0).expand(3, *{0}.shape)", "{0}.flip({d})", "{0}.unfold({d}, 2, 1)",
         "torch.diagonal({0})", "{0}.roll(1, {d})", "{0}.contiguous()", "{0}.clone()", "F.pad({0}, (1, 2))")  # fmt: skip
INDICES = ("{0}[torch.tensor([0, -1, 0], device={0}.device)]", "torch.index_select({0}, {d}, torch.tensor([0, 0], device={0}.device))", "{0}[{i} % {0}.shape[0]]",
           "{0}.scatter_add({d}, torch.zeros_like({0}, dtype=torch.int64), {0})", "torch.tril({0})")  # fmt: skip
JOINS = ("torch.cat([{0}, {0}, {0}], {d})", "torch.stack([{0}, {0}], {d})", "{0}.repeat_interleave(2, {d})")
PRODUCTS = ("{0} @ {0}.transpose(-1, -2)", "torch.einsum('...ij,...ik->...jk', {0}, {0})", "F.linear({0}, {0}.reshape(-1, {0}.shape[-1])[:4])",
            "F.scaled_dot_product_attention({0}, {0}, {0})", "F.avg_pool1d({0}, 2, 1)", "F.conv1d({0}, {0}[:1, :, :2])")  # fmt: skip
WRITES = ("{0}.add_({1})", "{0}.mul_(2)", "{0}[0] = 1", "{0}[..., 1:] += 2", "{0}.transpose(0, -1).mul_(0.5)",
          "{0}.masked_fill_({1} > 0, 3)", "{0}.view(-1)[:2].zero_()", "{0}.copy_({1})")  # fmt: skip
KINDS = (
    (UNARY, 4),
    (BINARY, 5),
    (INTEGER, 2),
    (ROWS, 4),
    (VIEWS, 6),
    (INDICES, 2),
    (JOINS, 2),
    (PRODUCTS, 3),
    (WRITES, 3),
)


class Program:
    """A program of `lines` lines and its inputs: floats (turned, or with gradients), integers, a bool."""

    def __init__(self, seed: int, grad: bool = False, lines: int = 8):
        self.random, self.lines = random.Random(seed), []
        torch.manual_seed(seed)
        n, m, k = self.random.sample(SIZES, 3)
        self.inputs = [
            torch.randn(m, n, k).transpose(0, 1).requires_grad_(grad),
            torch.randn(n, 1, k).requires_grad_(grad),
            torch.randint(-9, 9, (n, m)),
            torch.randn(m, k) > 0,
        ]
        self.values: dict[str, Any] = {f"x{i}": x.detach().clone() for i, x in enumerate(self.inputs)}
        for name, x in zip(list(self.values), self.inputs):
            self.values[name].requires_grad_(x.requires_grad)
        self.scope = {"torch": torch, "F": F, **self.values}
        with torch.set_grad_enabled(grad):
            while len(self.lines) < lines:
                self._try_line()
        names = list(self.values)
        differentiable = [n for n in names if self.values[n].requires_grad]
        self.results = dict.fromkeys([*names[-2:], self.random.choice(names), *differentiable[-1:]])

    @property
    def source(self) -> str:
        """The program as a function `f`."""
        body = [*self.lines, f"return ({', '.join(self.results)},)"]
        return f"def f({', '.join(f'x{i}' for i in range(len(self.inputs)))}):\n" + "".join(f"    {l}\n" for l in body)

    @property
    def function(self) -> Callable[..., Any]:
        """The program itself."""
        scope: dict[str, Any] = {"torch": torch, "F": F}
        exec(self.source, scope)
        return scope["f"]

    def _try_line(self) -> None:
        kinds, weights = zip(*KINDS)
        kind = self.random.choices(kinds, weights)[0]
        x, y = (self.random.choice(list(self.values)[-6:]) for _ in range(2))
        text = self.random.choice(kind)
        text = text if "{" in text else text + "({0})"
        text = text.format(x, y, d=self.random.choice([0, -1]), k=self.random.choice([0, -1]), i="x2")
        name = f"v{len(self.lines)}"
        line = text if kind is WRITES else f"{name} = {text}"
        floats = self.values[x].is_floating_point()
        if kind is INTEGER and floats or kind is WRITES and self.values[x].requires_grad:
            return
        if kind is WRITES and "{1} > 0" in text and self.values[y].is_floating_point():
            return
        try:
            exec(line, self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return
        if kind is not WRITES:
            if self.scope[name].numel() > ELEMENTS:
                return
            self.values[name] = self.scope[name]
        self.lines.append(line)
