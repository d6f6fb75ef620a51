"""When the kernel of a product computes an operand while it packs it, rather than reading it from memory.

Tiles of a CPU pack B, and copy A where it is not in place, so a producer costs no more there than the load it replaces, and
what it makes is never in memory. How often an element is evaluated:

    matmul, linear         B once; A once for each `COPIED_COLUMNS` columns, or where it is only cast to a wider type
    packed_linear          A the same
    attention              q once; k and v once for each query head that reads them
    conv, packed_conv      x once for each block of positions whose windows reach it, once or twice: cheap ops only

Everything else is stored by a kernel of its own. With 768 columns, relu of A twice took 12 % more time than stored.
"""

from __future__ import annotations

from ..tiles.matmul import COPIED_COLUMNS
from .dataflow import Node
from .kernel_costs import WINDOWED, is_cheap, is_widening
from .kernel_groups import Group
from .kernel_rules import Rules

_MEMBERS = 8  # ops of a producer: what a load may cost


def is_packed(rules: Rules, target: Group, group: Group, node: Node, dtypes: frozenset[str]) -> bool:
    """True if `group`, which feeds the root `node` of `target`, becomes part of packing its operand.

    `dtypes` are those whose operands the target's tiles pack.
    """
    if group.kind != "pointwise" or len(group.members) > _MEMBERS or not rules.only_read_by(group, node, target):
        return False
    if any(n.category != "pointwise" or n.name in WINDOWED for n in group.members):
        return False
    read = rules.inside(node, group)
    widens = len(group.members) == 1 and is_widening(group.members[0], rules.flow.types)
    if len(read) != 1 or read[0] not in _packed(rules, node, all(map(is_cheap, group.members)), widens):
        return False
    value = node.operands[read[0]]
    assert value is not None
    type = rules.flow.types[value]
    if type.dtype not in dtypes or rules.uses.stretches(value, group.members, type):
        return False
    axes = rules.axes(value, group)  # None where a view moves elements: neighbours may not be so in memory
    if axes is None:
        return False
    return read[0] != 0 or axes[-1] == len(group.space) - 1


def _packed(rules: Rules, node: Node, cheap: bool, widens: bool) -> tuple[int, ...]:
    """The operands of a root whose elements are evaluated once, or a little more often if that is `cheap`.

    A cast that `widens` is read in place, or costs less than reading what it makes.
    """
    match node.name:
        case "matmul" | "linear" | "packed_linear":
            columns = rules.shape(node.results[0])[-1]
            first = (0,) if widens or (isinstance(columns, int) and columns <= COPIED_COLUMNS) else ()
            return first if node.name == "packed_linear" else (*first, 1)
        case "attention":
            return (0, 1, 2) if node.attributes["gqa"] == 1 else (0,)
        case "conv":
            return (0,) if cheap and not node.attributes["transposed"] else ()
        case "packed_conv" | "packed_last_conv":
            return (0,) if cheap else ()
    return ()
