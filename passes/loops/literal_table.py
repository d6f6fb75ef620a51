"""A dense constant as a table that kernel code reads: a private `memref.global` beside the kernel.

    table = literal_table(constant, "kernel.table0", ip)             # memref<6xf32> for tensor<2x3xf32>, row-major
    table_type(table), table.attributes["sym_name"]                  # for memref.get_global

Loops, tiles and threads of a GPU read it by `memref.get_global`.
"""

from __future__ import annotations

from mlir import ir

MAX_LITERAL = 1 << 16  # elements of a dense constant that we put into a CPU's code


def literal_table(
    constant: ir.Operation,
    name: str,
    ip: ir.InsertionPoint,
    limit: int = MAX_LITERAL,
    memory_space: ir.Attribute | None = None,
) -> ir.Operation:
    """Write the global `name` with the elements of an `arith.constant`.

    NotImplementedError for more than `limit` elements: such a constant belongs to the weights, not into the code.
    """
    tensor = ir.RankedTensorType(constant.results[0].type)
    total = 1
    for d in tensor.shape:
        total *= d
    if total > limit:
        raise NotImplementedError(f"a literal of {total} elements; at most {limit} go into the code")
    type = ir.MemRefType.get([total], tensor.element_type, memory_space=memory_space)
    return ir.Operation.create(
        "memref.global",
        attributes={
            "sym_name": ir.StringAttr.get(name),
            "sym_visibility": ir.StringAttr.get("private"),
            "type": ir.TypeAttr.get(type),
            "initial_value": _flat(constant.attributes["value"], total, tensor.element_type),
            "constant": ir.UnitAttr.get(),
        },
        ip=ip,
    )


def table_type(table: ir.Operation) -> ir.Type:
    """The memref type of a table."""
    return ir.TypeAttr(table.attributes["type"]).value


def _flat(attribute: ir.Attribute, total: int, element: ir.Type) -> ir.Attribute:
    """A dense attribute with a flat shape."""
    text = str(attribute)
    flat = text[: text.rindex(":")]
    values = flat[flat.index("<") + 1 : flat.rindex(">")]
    if not values.lstrip().startswith('"'):
        values = "[" + values.replace("[", "").replace("]", "") + "]"
    return ir.Attribute.parse(f"dense<{values}> : tensor<{total}x{element}>")
