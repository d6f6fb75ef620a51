"""From a kernels-level module (docs/contracts.md §4) to the plan and the host program. Runs in the compile worker.

`@main` and `@init` are walked once, in order: a launch becomes a row of the plan, `lamina.weight` and
`lamina.persistent` name buffers, view ops become offsets and strides.
"""

from __future__ import annotations

from typing import Any

from mlir import ir

from ..dialects.mlir_ops import PREFIX, attributes_of, op_class
from ..dialects.mlir_types import parse_dim, python_attribute, python_location, type_of
from ..dialects.op import load_all
from ..dialects.record import TensorType
from ..passes.graph.dataflow import launched
from .native.host_ir import host_ir
from .plan import PlanBuilder, PlanError, Value, whole_plan


def build_host_program(module: ir.Module) -> tuple[dict[str, Any], str]:
    """Return the plan (plain data, goes to the manifest) and LLVM IR text of the host program of `module`.

    PlanError if `@main` or `@init` holds what no plan can say.
    """
    load_all()
    functions = {_string(op.attributes["sym_name"]): op for op in module.body.operations if "sym_name" in op.attributes}
    if "main" not in functions:
        raise PlanError("the module has no function @main")
    labels = {n: _string(f.attributes["lamina.label"]) for n, f in functions.items() if "lamina.label" in f.attributes}
    weights: dict[str, TensorType] = {}
    main = _Walk(functions["main"].operation, labels)
    init = _Walk(functions["init"].operation, labels) if "init" in functions else None
    for walk in (main, init):
        for name, buffer in walk.builder.weights.items() if walk else ():
            weights.setdefault(name, buffer.type)
    numbers = {name: i for i, name in enumerate(weights)}
    for walk in (main, init):
        for name, buffer in walk.builder.weights.items() if walk else ():
            buffer.index = numbers[name]
    init_plan = init.builder.finish_init(init.returned) if init else None
    plan = whole_plan(main.main_plan(), init_plan, _symbols(module), main.builder.inputs, weights)
    return plan, host_ir(plan)


class _Walk:
    """One function on its way into a plan."""

    def __init__(self, function: ir.Operation, labels: dict[str, str]):
        self.function, self.labels = function, labels
        self.builder = PlanBuilder()
        self.values: dict[ir.Value, Value] = {}
        self.returned: list[Value] = []
        block = function.regions[0].blocks[0]
        names = self._strings("lamina.arg_names", [f"arg{i}" for i in range(len(block.arguments))])
        kinds = self._strings("lamina.arg_kinds", ["input"] * len(names))
        for argument, name, kind in zip(block.arguments, names, kinds):
            self.values[argument] = self.builder.argument(name, type_of(argument), kind)
        for op in block.operations:
            self._visit(op.operation)

    def main_plan(self) -> dict[str, Any]:
        """The plan of this function as `@main`."""
        names = self._strings("lamina.result_names", [f"output{i}" for i in range(len(self.returned))])
        mutates = self._strings("lamina.mutates", [""] * len(names))
        return self.builder.finish(list(zip(names, self.returned, mutates)))

    def _visit(self, op: ir.Operation) -> None:
        if op.name == "func.return":
            self.returned = [self.values[v] for v in op.operands]
        elif op.name == "lamina.launch":
            self._launch(op)
        elif op.name == "lamina.weight":
            self.values[op.results[0]] = self.builder.weight(_string(op.attributes["symbol"]), type_of(op.results[0]))
        elif op.name == "lamina.persistent":
            index = ir.IntegerAttr(op.attributes["index"]).value
            self.values[op.results[0]] = self.builder.stored(index, type_of(op.results[0]))
        else:
            cls = op_class(op)
            if cls is None or cls.category != "view":
                raise PlanError(f"'{op.name}' stands in @main outside of a kernel", [python_location(op.location)])
            operand = self.values[op.operands[0]]
            name = op.name[len(PREFIX) :]
            self.values[op.results[0]] = self.builder.view(name, attributes_of(op), operand, type_of(op.results[0]))

    def _launch(self, op: ir.Operation) -> None:
        kernel = launched(op)
        sizes = [parse_dim(_string(d)) for d in ir.ArrayAttr(op.attributes["dims"])] if "dims" in op.attributes else []
        pairs = list(python_attribute(op.attributes["inplace"])) if "inplace" in op.attributes else []
        results = self.builder.launch(
            kernel,
            [self.values[v] for v in op.operands],
            [type_of(r) for r in op.results],
            sizes,
            dict(zip(pairs[1::2], pairs[::2])),
            python_location(op.location),
            self.labels.get(kernel, ""),
        )
        self.values.update(zip(op.results, results))

    def _strings(self, name: str, default: list[str]) -> list[str]:
        if name not in self.function.attributes:
            return default
        return [_string(a) for a in ir.ArrayAttr(self.function.attributes[name])]


def _symbols(module: ir.Module) -> list[dict[str, Any]]:
    """`lamina.symbols` as data; absent bounds are None."""
    attributes = module.operation.attributes
    if "lamina.symbols" not in attributes:
        return []
    symbols = []
    for entry in ir.ArrayAttr(attributes["lamina.symbols"]):
        given = {named.name: python_attribute(named.attr) for named in ir.DictAttr(entry)}
        default = {"name": "", "min": 0, "max": None, "multiple_of": 1, "input": -1, "dim": -1}
        symbols.append({key: given.get(key, value) for key, value in default.items()})
    return symbols


def _string(attribute: ir.Attribute) -> str:
    return ir.StringAttr(attribute).value
