"""Kernels that add up what others have one of for each row join them: a mean of losses, of rows of logits.

    loss = rows(logits, target)     [8192, 4096] -> [8192]
    mean = sum(loss) / count        one kernel: no loss is written, and nothing waits for all of them but what blocks add up to

Only on GPUs, whose stages of rows can do that (`passes/gpu/loops/row_totals.py`), and where there are many rows.
"""

from __future__ import annotations

from ...dialects.dims import product
from .dataflow import Node
from .kernel_groups import Group
from .kernel_rules import Rules
from .kernel_spaces import covers_rows

MANY_ROWS, SHORT_ROW = 1024, 16  # so many rows at least, of more elements: others are reduced in other ways
TOTALS = ("sum", "mean")


def adds_rows(rules: Rules, total: Group, rows: Group) -> bool:
    """True if `total` only reduces, to one element each, what it reads element by element from `rows` and elsewhere."""
    if (
        total.kind != "rows"
        or rows.kind != "rows"
        or not rows.reduced
        or rows.rows_only
        or total.concats
        or rows.concats
    ):
        return False
    count = product(d for i, d in enumerate(rows.space) if i not in rows.reduced)
    length = product(d for i, d in enumerate(rows.space) if i in rows.reduced)
    if not isinstance(count, int) or not isinstance(length, int) or count < MANY_ROWS or length <= SHORT_ROW:
        return False
    if product(total.space) != count or not _are_totals(rules, total):
        return False
    if any(rules.read_outside(r, (total, rows)) for n in rows.members for r in n.results):
        return False
    return all(
        _lies_in_rows(rules, v, rows) for n in total.members for v in n.inputs if rules.uses.reads_from(v, rows.members)
    )


def _are_totals(rules: Rules, total: Group) -> bool:
    """True if no reduction in `total` needs another, and what others read of it has one element."""
    reduced = set[int]()
    for node in sorted(total.members, key=lambda n: n.index):
        needs = any(rules.uses.reads_from(v, _makers(rules, reduced)) for v in node.inputs)
        if node.category in ("reduction", "row"):
            if node.name not in TOTALS or needs or product(rules.shape(node.results[0])) != 1:
                return False
        if needs or node.category == "reduction":
            reduced.update(node.results)
        if any(rules.read_outside(r, (total,)) and product(rules.shape(r)) != 1 for r in node.results):
            return False
    return bool(reduced)


def _makers(rules: Rules, values: set[int]) -> list[Node]:
    found = (rules.flow.producer[v] for v in values)
    return [n for n in found if n is not None]


def _lies_in_rows(rules: Rules, value: int, rows: Group) -> bool:
    """True if `value` has one element for each row of `rows`, in their order."""
    axes = rules.axes(value, rows)
    return (
        axes is not None
        and rows.reduced is not None
        and covers_rows(axes, rows.space, rows.reduced, rules.shape(value))
    )
