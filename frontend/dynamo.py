"""The torch.compile backend: `torch.compile(model, backend="lamina")`.

    FX graph of Dynamo → AOTAutograd (functional ATen, forward and backward) → classify → schedule → parts → glue

* Composites (linear, attention, rms_norm) stay whole in inference. In training graphs that would drop gradients
  silently, so a graph that turns out to need gradients is traced again without.
* A graph that is all compiled needs none of AOTAutograd's runtime wrapper when its results alias no input; then Dynamo
  gets our function itself, which counts its writes to inputs. With eager ops inside, the wrapper stays: it sets the modes they run under.
* What cannot be compiled runs in eager, op by op; what fails to compile, too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..compiler import pool
from . import compat, eager_layouts, glue, recomputed, values
from .aten.registry import Unsupported
from .calls import launcher
from .complex_pairs.split_complex import split_complex
from .convert import convert
from .equal_sizes import unify
from .hazards import lost_writes, makes_something_of_nothing
from .higher_order.bodies import compiled_bodies
from .higher_order.expand import expand
from .host_constants import fold_host_constants
from .interpreted import interpret
from .list_arguments import has_lists, of_lists, take_apart
from .options import BackendOptions, backend_options
from .part import Part
from .partition import Step, classify, is_size, schedule
from .stats import COUNTERS
from .values import NotOurs

_aten = torch.ops.aten


class _NeedsGradients(Exception):
    """AOTAutograd wants a forward and a backward graph: trace again with composites decomposed."""


class _Compilation:
    """One call of the backend: what its graphs share, and what is known about the result."""

    def __init__(self, options: BackendOptions):
        self.options = options
        self.direct: Callable[..., Any] | None = None
        self.metadata: Any = None

    def compiler(self, kind: str, whole: bool) -> Callable[..., Any]:
        """AOTAutograd's callback for the graph of `kind`: "forward", "backward" or "inference"."""

        def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            if whole and kind != "inference":
                raise _NeedsGradients
            metadata = compat.forward_metadata()
            if kind != "backward":
                self.metadata = metadata
            weights: frozenset[int] = frozenset()
            if kind == "inference" and not torch.is_grad_enabled():
                weights = compat.static_inputs(metadata)
            expand(gm)
            split_complex(gm, transforms=False)
            if kind != "backward":
                _refuse_empty(gm)
                unify(gm)
            made = build(gm, self.options, weights)
            COUNTERS.add("training_graphs" if kind != "inference" else "graphs")
            if kind == "inference" and made.all_compiled and compat.direct_call_is_safe(metadata):
                self.direct = made.function(boxed=False, written=compat.counted_writes(metadata))
            call = made.function(boxed=True)
            return torch.compiler.disable(call) if kind == "backward" else call

        # Backward graphs are compiled and called by autograd, perhaps in a frame that Dynamo would look into.
        return torch.compiler.disable(compile_graph) if kind == "backward" else compile_graph


def backend(gm: fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any) -> Callable[..., Any]:
    """Compile one Dynamo graph; `mode` and `options` are checked (options.py)."""
    options = backend_options(keywords)
    if has_lists(example_inputs):
        flat = take_apart(gm, example_inputs)
        if flat is None:
            COUNTERS.failure(
                "a graph runs in eager: a list of tensors is an argument, and more than its elements are read"
            )
            return gm.forward
        return of_lists(backend(*flat, **keywords))
    if lost := lost_writes(gm):
        COUNTERS.failure(f"a graph runs in eager: AOTAutograd would lose its writes {lost}")
        return gm.forward
    if compat.in_guarded_forward_mode():  # AOTAutograd would drop the tangents
        COUNTERS.failure("a graph runs in eager: derivatives in forward mode; call torch.func.jvp in what is compiled")
        return gm.forward
    if not _interpreting():
        launcher.prepare(any(isinstance(e, torch.Tensor) and e.is_cuda for e in example_inputs))
    gradients = torch.is_grad_enabled() and any(_requires_grad(e) for e in example_inputs)
    try:
        if not gradients:
            try:
                with compat.composites_kept(compat.composites(example_inputs)):
                    return _trace(gm, example_inputs, options, whole=True)
            except _NeedsGradients:
                pass
        return _trace(gm, example_inputs, options, whole=False)
    except Exception as error:
        if type(error).__module__.startswith("torch._dynamo"):
            raise  # how Dynamo asks for another attempt, and its own errors
        if os.environ.get("LAMINA_STRICT", "") not in ("", "0"):
            raise
        # AOTAutograd cannot trace this graph. If the program is wrong, eager raises what eager raises.
        COUNTERS.failure(f"a graph runs in eager: {type(error).__name__}: {error}")
        return gm.forward


def _trace(gm: fx.GraphModule, inputs: Sequence[Any], options: BackendOptions, whole: bool) -> Callable[..., Any]:
    compilation = _Compilation(options)
    with compat.recurrent_cells_decomposed():
        wrapped = compat.aot_module_simplified(
            gm,
            inputs,
            fw_compiler=compilation.compiler("forward", whole),
            bw_compiler=compilation.compiler("backward", whole),
            inference_compiler=compilation.compiler("inference", whole),
            partition_fn=recomputed.partition,
            decompositions=eager_layouts.decompositions() | ({} if whole else recomputed.decompositions()),
            keep_inference_input_mutations=True,
        )
    if compat.has_composed_tensors(gm, inputs):
        return wrapped  # the wrapper takes them apart, and `metadata` is about the parts
    if compilation.direct is not None:
        COUNTERS.add("direct")
        own = compat.own_tensors(gm)
        wrapped = functools.partial(compilation.direct, *own) if own else compilation.direct
    return _guard_overlap(wrapped, gm, inputs, compilation.metadata)


def _guard_overlap(
    compiled: Callable[..., Any], gm: fx.GraphModule, inputs: Sequence[Any], metadata: Any
) -> Callable[..., Any]:
    """`compiled`, or eager for a call in which an argument that is written shares its storage with another.

    torch's guards do not look at that unless arguments overlapped at the first call, and what is traced then loses
    views of written arguments. Parameters and buffers are left out: they do not come from the caller.
    """
    own = len(compat.own_tensors(gm))
    static, written = (
        {i - own for i in numbers} for numbers in (compat.static_inputs(metadata), compat.written_inputs(metadata))
    )
    watched = [i for i, t in enumerate(inputs) if isinstance(t, torch.Tensor) and i not in static]
    if len(watched) < 2 or not written.intersection(watched):
        return compiled

    def call(*args: Any) -> Any:
        storages = [compat.storage_key(args[i]) for i in watched]
        if len(set(storages)) < len(storages):
            return gm.forward(*args)
        return compiled(*args)

    return call


def _refuse_empty(gm: fx.GraphModule) -> None:
    """Leave a graph that makes something of empty arguments to eager, whose checks AOTAutograd's decompositions lose."""
    if any(makes_something_of_nothing(n) for n in gm.graph.nodes if n.op == "call_function"):
        raise ValueError("something is made of an empty tensor")


class Built:
    """A graph with its compiled parts."""

    def __init__(self, made: glue.Glue, all_compiled: bool):
        self.glue, self.all_compiled = made, all_compiled

    def function(self, boxed: bool, written: Sequence[int] = ()) -> Callable[..., Any]:
        """The callable of the whole graph; it counts its writes to the inputs `written`."""
        return self.glue.function(boxed, written)


def build(gm: fx.GraphModule, options: BackendOptions, weights: frozenset[int] = frozenset()) -> Built:
    """Partition a functional ATen graph and compile its parts; nodes that fail to compile are retried in eager."""

    def compile_body(body: fx.GraphModule) -> Callable[..., Any]:
        expand(body)
        split_complex(body, transforms=False)
        return build(body, options).function(boxed=False)

    bodies = compiled_bodies(gm, compile_body)
    fold_host_constants(gm)
    eager = classify(gm)
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    written = {n.args[0] for n in gm.graph.nodes if n.op == "call_function" and compat.is_mutation(n.target)}
    constant = {n for i, n in enumerate(placeholders) if i in weights and n not in written}
    while True:
        steps = schedule(gm, eager)
        maker = _PartMaker(options, constant)
        try:
            made = glue.Glue(gm, steps, maker, bodies)
            break
        except _PartFailed as failed:
            eager.update(dict.fromkeys(failed.nodes, failed.reason))
        except glue.Unbound as unbound:
            eager.update(dict.fromkeys(unbound.nodes, str(unbound)))
    _count(steps, eager)
    for program in maker.programs:
        launcher.count(program)
    return Built(made, all_compiled=all(s.compiled or all(map(is_size, s.nodes)) for s in steps))


class _PartFailed(Exception):
    """Nodes that have to run in eager after all."""

    def __init__(self, nodes: Sequence[fx.Node], reason: str):
        super().__init__(reason)
        self.nodes, self.reason = list(nodes), reason


class _PartMaker:
    """Converts and compiles the nodes of one step, as glue asks for it."""

    def __init__(self, options: BackendOptions, weights: set[fx.Node]):
        self.options, self.weights = options, weights
        self.programs: list[Any] = []

    def __call__(
        self,
        number: int,
        nodes: list[fx.Node],
        outputs: list[fx.Node],
        mutations: list[tuple[fx.Node, fx.Node]],
    ) -> glue.BoundPart:
        try:
            part = convert(nodes, outputs, mutations, self.weights)
        except (Unsupported, NotOurs) as error:
            raise _PartFailed(_all_nodes(nodes, mutations), str(error)) from error
        return glue.BoundPart(self._load(part, nodes, mutations), part.inputs, part.symbols)

    def _load(self, part: Part, nodes: list[fx.Node], mutations: list[Any]) -> Callable[..., Any]:
        from ..compiler.errors import CompileError

        if _interpreting():
            return interpret(part)
        try:
            compile = self.options.compile.with_tf32() if compat.allows_tf32() else self.options.compile
            given = (compile, self.options.target, self.options.freeze, self.options.graphs)
            return launcher.compile_part(part, *given, made=self.programs.append)
        except CompileError as error:
            COUNTERS.failure(str(error))
            places = set(error.nodes)
            failed = [n for n in nodes if values.location(n) in places]
            raise _PartFailed(failed or _all_nodes(nodes, mutations), f"compilation failed: {error}") from error


def _all_nodes(nodes: list[fx.Node], mutations: list[tuple[fx.Node, fx.Node]]) -> list[fx.Node]:
    copies = [u for target, _ in mutations for u in target.users if u.target is _aten.copy_.default]
    return [*nodes, *copies]


def _count(steps: Sequence[Step], eager: dict[fx.Node, str]) -> None:
    for step in steps:
        if step.compiled:
            COUNTERS.add("parts")
            COUNTERS.add("compiled_nodes", len(step.nodes))
    for node, reason in eager.items():
        if reason:
            COUNTERS.add("eager_nodes")
            COUNTERS.fallback(str(node.target), reason, values.location(node))


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _interpreting() -> bool:
    """True if LAMINA_INTERPRET asks to run records by the ops' references."""
    return os.environ.get("LAMINA_INTERPRET", "") not in ("", "0")


def register() -> None:
    """Make `backend="lamina"` known to torch also where the package's entry points are not installed.

    Who asks for the backend is about to compile: workers begin to start while Dynamo traces.
    """
    from torch._dynamo.backends import registry

    if "lamina" not in registry._BACKENDS:
        registry.register_backend(backend, name="lamina")
    if not _interpreting():
        pool.start()


register()
