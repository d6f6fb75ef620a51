"""torch.export programs and .pt2 files to a graph record with its weights.

    exported = from_program(torch.export.export(model, args))      # Exported: graph, weights, state, names
    exported = from_file("model.pt2")

There is no eager to fall back to: ops that we do not have are one ExportError that lists them all with source lines.
Parameters and constant buffers are weights; buffers that the graph writes (KV caches, running statistics) are inputs
with an initial value (`state`) tied to the outputs that replace them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from ..dialects.record import Graph, Location
from . import compat, values
from .aten.registry import converters
from .complex_pairs.split_complex import hold_parts, split_complex
from .convert import convert
from .higher_order.expand import expand
from .part import Naming, Part
from .partition import classify, is_size

# Checks of what the record states itself: element types and the ranges of its symbols.
_CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")


class ExportError(ValueError):
    """A program that cannot be compiled ahead of time; the message lists every reason."""


@dataclass
class Exported:
    """A program as data: `weights` and `state` by input name; `results` says how outputs come back.

    A result is an output's number, an input's name (returned as it is) or ("constant", value), per leaf of the
    program's output tree. `constants` are the arguments that are no tensors, by number: values, or a size.
    """

    graph: Graph
    part: Part
    weights: dict[str, torch.Tensor]
    state: dict[str, torch.Tensor]
    inputs: list[str]
    results: list[Any]
    in_spec: Any = None
    out_spec: Any = None
    unused: list[str] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)

    def arrays(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
        """Tensors as row-major numpy arrays."""
        return {name: to_numpy(t) for name, t in tensors.items()}


def from_file(path: str | Path) -> Exported:
    """Read a .pt2 file; ExportError if it is none."""
    return from_program(_load(path), Path(path).stem)


def missing_ops(path: str | Path) -> dict[str, list[Location]]:
    """The ops of a .pt2 file that cannot be compiled, each with the places where it is used."""
    missing: dict[str, list[Location]] = {}
    for node, reason in _functional(_load(path))[1].items():
        if reason:
            missing.setdefault(str(node.target), []).append(values.location(node))
    return missing


def _load(path: str | Path) -> ExportedProgram:
    if not zipfile.is_zipfile(path):  # torch says so in forty lines of its log
        raise ExportError(f"{path} is not a torch.export program: it is no zip archive")
    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises many kinds for a file that is no program
        raise ExportError(f"{path} is not a torch.export program: {error}") from error


def from_program(
    program: ExportedProgram, name: str = "main", symbols: Mapping[str, str] | None = None, strided: bool = False
) -> Exported:
    """Turn an ExportedProgram into a record; `symbols` maps torch's names of dynamic sizes to the user's.

    Inputs, weights and results are row-major, as numpy has them; with `strided` they lie in memory as eager's tensors do,
    except results with gaps between their elements, which are row-major. ExportError lists what cannot be compiled.
    """
    functional, refused = _functional(program)
    _refuse(refused)
    gm = functional.graph_module
    signature = functional.graph_signature
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    kinds = {s.arg.name: s for s in signature.input_specs}
    mutated = _mutations(functional, placeholders)
    names = {n: kinds[n.name].target or n.name for n in placeholders}
    users = [n for n in placeholders if kinds[n.name].kind is InputKind.USER_INPUT]
    weights, state = {}, {}
    for node in placeholders:
        if node not in users:
            (state if node in mutated else weights)[names[node]] = _held(functional, kinds[node.name], node)
    results, outputs, labels = _results(functional, gm)
    nodes = [n for n in gm.graph.nodes if n.op == "call_function" and not is_size(n)]
    order = [n for n in users if isinstance(n.meta.get("val"), torch.Tensor)]
    constant = [n for n in placeholders if n not in mutated and n not in users]
    # what the program promises: sizes of 1 too, which tracing leaves out of a symbol's range
    ranges = {str(s): compat.bounds(r) for s, r in program.range_constraints.items()}
    naming = Naming(name, names, order, labels, dict(symbols or {}), ranges)
    try:
        for node in order:  # those that nothing reads too
            where = f"input '{names[node]}'"
            values.dtype_name(node.meta["val"].dtype)
        where = f"'{name}'"
        part = convert(nodes, outputs, list(mutated.items()), constant, naming, strided, close_gaps=True)
    except values.NotOurs as error:
        raise ExportError(f"{where} cannot be compiled ahead of time: {error}") from None
    used = {i.name for i in part.graph.inputs}
    return Exported(
        part.graph,
        part,
        {k: v for k, v in weights.items() if k in used},
        {k: v for k, v in state.items() if k in used},
        [names[n] for n in users],
        results,
        program.call_spec.in_spec,
        program.call_spec.out_spec,
        sorted((weights.keys() | state.keys()) - used),
        {i: n.meta.get("val") for i, n in enumerate(users) if not isinstance(n.meta.get("val"), torch.Tensor)},
    )


def _functional(program: ExportedProgram) -> tuple[ExportedProgram, dict[fx.Node, str]]:
    """The program without mutations and checks, and what of it cannot be compiled.

    Composites stay whole where we have them; torch takes apart those we lack (`diff`, `lstm`), and what those consist of.
    """
    table = torch.export.default_decompositions()
    apart = {op: table[op] for op in _lacking(program) if op in table}
    while True:
        with compat.recurrent_cells_decomposed():
            functional = program.run_decompositions(dict(apart))
        _drop_checks(functional.graph_module)
        expand(functional.graph_module, branches=True)
        split_complex(functional.graph_module, transforms=True)
        hold_parts(functional.graph_module.graph, _constants(functional))
        refused = classify(functional.graph_module)
        more = {n.target: table[n.target] for n in refused if n.target in table and n.target not in apart}
        if not more:
            return functional, refused
        apart.update(more)


def _constants(program: ExportedProgram) -> list[fx.Node]:
    """The placeholders of parameters, constants, and buffers that nothing writes."""
    kept = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    names = {s.arg.name for s in program.graph_signature.input_specs if s.kind in kept}
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    written = _mutations(program, placeholders)
    return [n for n in placeholders if n.name in names and n not in written]


def _lacking(program: ExportedProgram) -> set[Any]:
    """The functional ops of a program that have no converter."""
    ours = converters()
    targets = {n.target for n in program.graph.nodes if n.op == "call_function"}
    return {t for t in targets if str(t) not in ours and not compat.is_mutation(t)}


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as a row-major array, without copying where it is one on the CPU."""
    tensor = tensor.detach().cpu().contiguous()
    plain = values.bits(tensor)
    if plain is tensor:
        return tensor.numpy()
    from ..dialects.interpret import numpy_dtype

    return plain.numpy().view(numpy_dtype(values.dtype_name(tensor.dtype)))


def symbol_names(program: ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """torch's symbol names to the user's, read from `dynamic_shapes` as given to torch.export ({} where it is not)."""
    if not dynamic_shapes:
        return {}
    from torch.utils._pytree import tree_leaves

    users = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    by_name = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    shapes = dynamic_shapes.values() if isinstance(dynamic_shapes, dict) else dynamic_shapes
    leaves = tree_leaves(list(shapes), is_leaf=lambda s: s is None or _is_shape(s))
    found: dict[str, str] = {}
    for name, shape in zip(users, leaves):
        fake = by_name[name].meta.get("val")
        if not isinstance(fake, torch.Tensor) or shape is None:
            continue
        for dim, wanted in shape.items() if isinstance(shape, dict) else enumerate(shape):
            size, label = fake.shape[dim], getattr(wanted, "__name__", "")
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and label.isidentifier():
                found.setdefault(size.node.expr.name, label)
    return found


def _is_shape(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, int) for k in value)
    return isinstance(value, (list, tuple)) and not any(isinstance(v, (dict, list, tuple)) for v in value)


def _drop_checks(gm: fx.GraphModule) -> None:
    for node in reversed(list(gm.graph.nodes)):
        if node.op == "call_function" and not node.users:
            name = str(node.target)
            if any(f"aten.{check}" in name for check in _CHECKS) or is_size(node) or _is_condition(node):
                gm.graph.erase_node(node)


def _is_condition(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymBool)


def _refuse(eager: Mapping[fx.Node, str]) -> None:
    """Raise one error for all ops that are not ours."""
    lines = [f"  {node.target} at {values.location(node)}: {reason}" for node, reason in eager.items() if reason]
    if lines:
        raise ExportError(
            f"{len(lines)} ops cannot be compiled ahead of time (torch.compile runs them in eager):\n"
            + "\n".join(lines)
        )


def _mutations(program: ExportedProgram, placeholders: list[fx.Node]) -> dict[fx.Node, fx.Node]:
    """The inputs that are written, with the nodes of their new values."""
    signature = program.graph_signature
    by_target = {s.target: s.arg.name for s in signature.input_specs if s.target}
    inputs = {n.name: n for n in placeholders}
    found = {}
    for spec, value in zip(signature.output_specs, _returned(program.graph_module)):
        if spec.kind is OutputKind.BUFFER_MUTATION:
            found[inputs[by_target[spec.target]]] = value
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            found[inputs[spec.target]] = value
        elif spec.kind is not OutputKind.USER_OUTPUT:
            raise ExportError(f"output '{spec.arg.name}' is a {spec.kind.name}, which a program cannot give")
    return found


def _returned(gm: fx.GraphModule) -> Sequence[Any]:
    """What the graph returns, in the order of the signature's specs, whose names are those before we rewrote nodes."""
    return gm.graph.output_node().args[0]  # type: ignore[return-value]


def _stored(program: ExportedProgram, spec: Any) -> torch.Tensor | None:
    if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and spec.target in program.state_dict:
        return program.state_dict[spec.target]
    return program.constants.get(spec.target)


def _held(program: ExportedProgram, spec: Any, node: fx.Node) -> torch.Tensor:
    """The tensor of an input that the program holds; a complex one as pairs where its parts are computed with."""
    tensor = _stored(program, spec)
    if tensor is None:
        raise ExportError(f"input '{node.name}' is a {spec.kind.name}, which a program cannot hold")
    if tensor.is_complex() and not node.meta["val"].is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.detach()


def _results(program: ExportedProgram, gm: fx.GraphModule) -> tuple[list[Any], list[fx.Node], list[str]]:
    """How each user output comes back; the nodes that are outputs of the record; their names."""
    results: list[Any] = []
    outputs: list[fx.Node] = []
    for spec, value in zip(program.graph_signature.output_specs, _returned(gm)):
        if spec.kind is not OutputKind.USER_OUTPUT:
            continue
        if not isinstance(value, fx.Node):
            results.append(("constant", value))
        elif not isinstance(value.meta.get("val"), torch.Tensor):
            raise ExportError(f"output '{value.name}' is a {type(value.meta.get('val')).__name__}, not a tensor")
        else:
            results.append(len(outputs))
            outputs.append(value)
    return results, outputs, [f"output{i}" for i in range(len(outputs))]
