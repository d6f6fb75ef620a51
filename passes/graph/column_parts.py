"""When the kernel of a product also computes what reads the product in equal parts of its columns.

    g = x @ w.T  [M, parts * n];   y = f(g[:, :n], g[:, n : 2 * n], ...)  [M, n]

as an LSTM's state is made of gates, and a gated linear unit of two halves. Tiles keep the same columns of all parts until
their last is summed up (`tiles/column_parts.py`), so `g` is never in memory.
"""

from __future__ import annotations

from ...dialects.dims import Dim
from .kernel_costs import WINDOWED, reads_buffer
from .kernel_groups import Group
from .kernel_rules import Rules
from .kernel_spaces import Axes, covers_space, full_axes, pointwise_axes, through_view

_MOST_COLUMNS = 128  # of a panel of each part, as COLUMN_BLOCK of tiles/gemm.py


def read_in_parts(rules: Rules, product: Group) -> Group | None:
    """The pointwise kernel that alone reads `product`, in parts of its columns, if tiles can hold all parts."""
    results = [r for n in product.members for r in n.results]
    readers = {rules.groups.of.get(user) for r in results for user in rules.uses.strict[r]} - {product}
    if len(readers) != 1 or any(r in rules.uses.returned for r in results):
        return None
    (reader,) = readers
    if (
        reader is None
        or reader.kind != "pointwise"
        or not reader.space
        or not _fits_tiles(rules, product, reader.space[-1])
    ):
        return None
    if any(n.category != "pointwise" or n.name in WINDOWED for n in reader.members):
        return None
    return reader if all(_reads_parts(rules, node, product, reader) for node in reader.members) else None


def _fits_tiles(rules: Rules, product: Group, part: Dim) -> bool:
    """True if the columns of a product by packed weights consist of parts of whole panels, not too many."""
    root = next(n for n in product.members if n.category == "matmul")
    columns = product.space[-1] if product.space else 0
    if root.name != "packed_linear" or root.attributes["depth"] != 1:
        return False
    weight = rules.flow.types[root.inputs[1]]
    if weight.dtype not in ("f32", "f64") or not isinstance(columns, int) or not isinstance(part, int):
        return False
    panel = weight.shape[-1]
    assert isinstance(panel, int)
    if part == 0 or columns == part or columns % part or part % panel:
        return False
    return columns // part * panel <= _MOST_COLUMNS


def _reads_parts(rules: Rules, node, product: Group, reader: Group) -> bool:
    """True if `node` reads nothing of `product`, or parts where it writes an element of the reader's space."""
    inside = rules.inside(node, product)
    if not inside:
        return True
    if any(reads_buffer(node, i) or not all(r in reader.axes for r in node.results) for i in inside):
        return False
    result = rules.shape(node.results[0])
    read = []
    for i in inside:
        value = node.operands[i]
        axes = _part_axes(rules, value, product, reader.space)
        if axes is None:
            return False
        read.append((axes, rules.shape(value)))
    merged = pointwise_axes(read, result)
    return merged is not None and covers_space(merged, reader.space, result)


def _part_axes(rules: Rules, value: int, product: Group, space: tuple[Dim, ...]) -> Axes | None:
    """The axes in `space` of a value that is a part of a product's columns, or a view of it."""
    view = rules.flow.producer[value]
    if view is None or view.category != "view":
        return None
    source, shape = view.inputs[0], rules.shape(value)
    if view.name != "slice" or shape == rules.shape(source):
        axes = _part_axes(rules, source, product, space)
        return None if axes is None else through_view(view, axes, rules.shape(source), shape)
    whole = rules.axes(source, product)
    if whole is None or not covers_space(whole, product.space, rules.shape(source)):
        return None
    *lead, first = view.attributes["starts"]
    inner = any(lead) or not isinstance(first, int) or any(s != 1 for s in view.attributes["steps"])
    if inner or shape != space or shape[:-1] != product.space[:-1] or first % shape[-1]:
        return None
    return full_axes(space)
