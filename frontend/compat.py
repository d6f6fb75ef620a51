"""Everything private of torch that the frontend uses, in one place, each with a check or a way around.

Written against torch 2.13. `check()` runs every self-test and says what is missing; callers use the functions, which
degrade: without the composite override, composites are recognised from their parts. What concerns tensors in memory is
in `compat_memory.py`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition

from .compat_memory import empty_strided, fast_reinterpret, reinterpret, tensor_offset, version_slot

__all__ = ["aot_module_simplified", "empty_strided", "fast_reinterpret", "tensor_offset", "version_slot"]


def allows_tf32() -> bool:
    """True if f32 products of a GPU may be in TF32: `set_float32_matmul_precision("high")` or one of its newer names."""
    setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None)  # since torch 2.9; the older one may raise
    return setting == "tf32" if setting is not None else torch.backends.cuda.matmul.allow_tf32


def in_torch(file: str) -> bool:
    """True for a source file of torch, of this installation or of the one that a program comes from."""
    return re.search(r"[/\\](site|dist)-packages[/\\]torch[/\\]", file) is not None


@functools.cache
def float8_saturates() -> bool:
    """True if torch makes 448 of what is too large for a float8_e4m3fn; before torch 2.13 that was NaN."""
    with real_tensors():
        return not torch.full((1,), 1e6).to(torch.float8_e4m3fn).isnan().any().item()


def in_guarded_forward_mode() -> bool:
    """True inside `forward_ad.dual_level()`. Dynamo will call what it compiles now at this level only, where it can be told so.

    It guards on the level itself only if the program that it compiles enters one.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from torch._dynamo.guards import GuardBuilder
        from torch._dynamo.source import GlobalStateSource
        from torch._guards import TracingContext

        if context := TracingContext.try_get():
            context.guards_context.dynamo_guards.add(GlobalStateSource().make_guard(GuardBuilder.DUAL_LEVEL))
    return torch.autograd.forward_ad._current_level >= 0


def forward_metadata() -> Any | None:
    """AOTAutograd's view and mutation metadata of the graph being compiled, or None if it cannot be had."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    return getattr(context, "fw_metadata", None)


def direct_call_is_safe(metadata: Any) -> bool:
    """True if AOTAutograd's runtime wrapper would do nothing for this inference graph but count what it writes.

    Then the wrapper may be left out, if `count_writes` is called for the inputs of `counted_writes`.
    """
    try:
        return (
            metadata.num_mutated_inp_runtime_indices == 0
            and metadata.num_intermediate_bases == 0
            and metadata.num_outputs_aliased == 0
            and not metadata.tokens
            and metadata.grad_enabled_mutation is None
            and not metadata.is_rng_op_functionalized
            and all(type(s).__name__ == "PlainTensorMeta" for s in metadata.subclass_inp_meta)
            and not any(o.dynamic_dims for o in metadata.output_info)
        )
    except AttributeError:
        return False  # another torch: keep the wrapper


def counted_writes(metadata: Any) -> tuple[int, ...]:
    """The numbers of the graph inputs that the graph writes to and whose version counter must say so."""
    return tuple(metadata.mutated_graph_handled_indices_seen_by_autograd)


count_writes = torch.autograd.graph.increment_version  # public, but only meant for AOTAutograd


def own_tensors(gm: torch.fx.GraphModule) -> list[torch.Tensor]:
    """The tensors that a Dynamo graph holds itself (an optimiser's parameters and state): its first arguments to AOTAutograd."""
    found: list[torch.Tensor] = [t for _, t in gm.named_parameters(remove_duplicate=False)]
    return found + [t for _, t in gm.named_buffers(remove_duplicate=False)]


def minimal_cut(joint: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
    """Forward and backward graph by torch's minimal cut, which may compute again also what a backward product reads.

    Without that setting torch keeps both what an activation function takes and what it gives.
    """
    with contextlib.ExitStack() as stack:
        if hasattr(functorch_config, "ban_recompute_materialized_backward"):
            stack.enter_context(functorch_config.patch(ban_recompute_materialized_backward=False))
        return min_cut_rematerialization_partition(joint, inputs, **options)


def has_composed_tensors(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """True if an argument or result of a Dynamo graph is made of other tensors, as a DTensor is."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    results = [n.meta.get("example_value") for n in gm.graph.output_node().all_input_nodes]
    return any(is_traceable_wrapper_subclass(v) for v in (*inputs, *own_tensors(gm), *results))


def static_inputs(metadata: Any) -> frozenset[int]:
    """The numbers of the graph inputs that are parameters or buffers; empty if unknown."""
    return frozenset(getattr(metadata, "static_input_indices", None) or ())


# Composites that are one op of ours; decomposed, they would have to be recognised from their parts.
COMPOSITES = (
    torch.ops.aten.linear.default,
    torch.ops.aten.scaled_dot_product_attention.default,
    torch.ops.aten.rms_norm.default,
)
# The same where all sizes are known: torch's decomposition picks elements by places that it computes, and in f32.
STATIC_COMPOSITES = tuple(
    getattr(torch.ops.aten, f"{stem}{n}d").vec
    for stem in ("upsample_nearest", "_upsample_nearest_exact")
    for n in (1, 2, 3)
)


def composites(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Those that stay whole in a graph with these example inputs."""
    return COMPOSITES if any(isinstance(x, torch.SymInt) for x in inputs) else COMPOSITES + STATIC_COMPOSITES


@contextlib.contextmanager
def composites_kept(ops: Sequence[Any] = COMPOSITES) -> Iterator[bool]:
    """Trace with composite `ops` left whole; yields False where torch offers no way to.

    Only for inference: kept composites have no backward, and gradients would be dropped **silently**.
    """
    try:
        from torch.export.exported_program import _override_composite_implicit_decomp as override
    except ImportError:
        yield False
        return
    with override({op: _not_implemented for op in ops}):
        yield True


@contextlib.contextmanager
def recurrent_cells_decomposed() -> Iterator[bool]:
    """Trace LSTMs as the steps they consist of, not as oneDNN's op; yields False where torch decides elsewhere."""
    from torch._decomp import decompositions as module

    choose = getattr(module, "select_one_layer_lstm_function", None)
    if choose is None or not hasattr(module, "one_layer_lstm"):
        yield False
        return
    module.select_one_layer_lstm_function = lambda *_: module.one_layer_lstm
    try:
        yield True
    finally:
        module.select_one_layer_lstm_function = choose


@contextlib.contextmanager
def all_frames_traced() -> Iterator[bool]:
    """Trace with the lines of what a `forward` calls, not of `forward`s alone; yields False where torch decides elsewhere.

    Without them every op of a plain function is at the line of the module that calls it.
    """
    from torch.fx.proxy import TracerBase

    choose = getattr(TracerBase, "_filter_traceback_frames", None)
    if choose is None:
        yield False
        return

    def from_forward_on(tracer: Any, frames: traceback.StackSummary) -> traceback.StackSummary:
        usual = choose(tracer, frames)
        inner = itertools.dropwhile(lambda f: f.name != "forward", frames)
        return traceback.StackSummary.from_list([f for f in inner if f in usual or not in_torch(f.filename)])

    TracerBase._filter_traceback_frames = from_forward_on  # type: ignore[method-assign]
    try:
        yield True
    finally:
        TracerBase._filter_traceback_frames = choose  # type: ignore[method-assign]


@contextlib.contextmanager
def real_tensors() -> Iterator[None]:
    """Work on real tensors inside AOTAutograd's callbacks, where operations would make fake ones."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily(), torch.no_grad():
        yield


def fake_mode(graph: torch.fx.Graph) -> contextlib.AbstractContextManager[Any]:
    """The mode that made the fake values of a graph; entered, it makes those of new nodes."""
    values = (n.meta.get("val") for n in graph.nodes)
    found = (v.fake_mode for v in values if isinstance(v, torch.Tensor) and hasattr(v, "fake_mode"))
    return next(found, None) or contextlib.nullcontext()


def _not_implemented(*_args: Any, **_kwargs: Any) -> Any:
    return NotImplemented


def bind_eager(op: Any) -> Callable[..., Any]:
    """What calls `op` fastest from Python: the C++ function below an OpOverload, else `op`."""
    if isinstance(op, torch._ops.OpOverload):
        return getattr(op, "_op", op)
    return op


def symbol_range(symint: torch.SymInt, name: str) -> tuple[int, int | None]:
    """Inclusive bounds that torch knows for symbol `name` of `symint`'s ShapeEnv, which is a size; None: unbounded."""
    low, high = known_range(symint, name)
    return max(low or 0, 0), high


def known_range(symint: torch.SymInt, name: str) -> tuple[int | None, int | None]:
    """The same for a symbol that may be negative."""
    env = symint.node.shape_env
    try:
        return _bounds(next(r for s, r in env.var_to_range.items() if s.name == name))
    except (AttributeError, StopIteration):
        return None, None


def bounds(known: Any) -> tuple[int, int | None]:
    """Inclusive bounds of a size from torch's ValueRanges; None: unbounded."""
    low, high = _bounds(known)
    return max(low or 0, 0), high


def _bounds(known: Any) -> tuple[int | None, int | None]:
    # "unbounded" is int_oo, sympy's oo or a number near 2**63
    low, high = (
        int(x) if getattr(x, "is_Integer", False) and abs(int(x)) < 2**48 else None for x in (known.lower, known.upper)
    )
    return low, high


def storage_key(tensor: torch.Tensor) -> int:
    """What is equal for two (fake) tensors exactly when one storage backs both."""
    return tensor.untyped_storage()._cdata


# Ops whose fake kernels give other strides than their CPU kernels (roll of a channels-last tensor; torch 2.13).
UNSURE_STRIDES = (torch.ops.aten.roll.default,)


def written_inputs(metadata: Any) -> frozenset[int]:
    """The numbers of the graph inputs whose data the graph writes."""
    infos = getattr(metadata, "input_info", ())
    return frozenset(i for i, info in enumerate(infos) if info.mutates_data)


def is_effect(target: Any) -> bool:
    """True if calls of `target` must keep their order: random numbers, asserts, prints, higher-order ops with tokens."""
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(target, torch._ops.HigherOrderOperator)
    if torch.Tag.nondeterministic_seeded in target.tags:
        return True
    return target.namespace not in ("aten", "prims") or "assert" in target.name() or not target._schema.returns


def is_mutation(target: Any) -> bool:
    """True if `target` writes to an argument."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def is_tangent(node: fx.Node) -> bool:
    """True for an input of a joint or backward graph that is a gradient of a result; AOTAutograd tells them by name only."""
    return node.op == "placeholder" and node.name.startswith("tangents")


def check() -> dict[str, bool]:
    """Run the self-tests: name of the private API -> whether it is there and behaves."""
    with composites_kept([]) as kept, recurrent_cells_decomposed() as cells, all_frames_traced() as frames:
        pass
    return {
        "all_frames_traced": frames,
        "composites_kept": kept,
        "recurrent_cells_decomposed": cells,
        "fast_reinterpret": fast_reinterpret is not reinterpret,
        "empty_strided": empty_strided((2,), (1,), torch.float32).shape == (2,),
        "tensor_offset": tensor_offset() is not None,
        "version_slot": version_slot() is not None,
        "static_inputs": _has_static_inputs(),
        "minimal_cut": hasattr(functorch_config, "ban_recompute_materialized_backward"),
    }


def _has_static_inputs() -> bool:
    from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta

    return "static_input_indices" in ViewAndMutationMeta.__dataclass_fields__
