"""Emit kernels of kind `loops` and `concat` for a GPU: from linalg on tensors to the stages of a `gpu.module`.

Results of one size are computed together. If what they depend on holds reductions, these are

* done by each thread for its own element, where they are short (a pooling window);
* done by the threads of a row together, where the result has that row's length or none (softmax, a sum);
* else computed first, by stages of their own that leave them in scratch memory (sums over other dimensions).
"""

from __future__ import annotations

from functools import partial

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.evaluate_accesses import Accesses, Reduction
from ...loops.kernel_functions import kernels
from ...loops.loop_nest import Space
from ...loops.plan_nests import result_loops, results_by_size
from ...loops.tensor_graph import Generic, TensorGraph
from ...registry import register
from ..combine import is_combinable
from ..gpu_kernel import WARP, GpuKernel
from ..probe import Probe
from .emit_gathers import are_gathered_columns, emit_gathers
from .emit_pointwise import emit_pointwise
from .emit_reductions import begin_anywhere, emit_reductions, fits
from .emit_rows import emit_rows
from .emit_tiles import Turn, find_cross
from .joint_reductions import Joint, passes, position
from .row_plan import FEW_ROWS, REGISTER_ROW, RowPlan, cluster_threads
from .stored import Stored
from .symbolic_rows import emit_symbolic_rows

SHORT = 64  # elements that one thread reduces for itself
MANY = 1 << 16  # results
SHORT_ROW = 16  # and where they are contiguous


@register
def emit_gpu_loops(
    module: ir.Module,
    wave: int = WARP,
    divide: str = "",
    exp2: str = "",
    largest: str = "",
    stream: bool = False,
    aligned: bool = False,
    clusters: bool = False,
    overlaps: bool = False,
) -> None:
    """Replace each linalg-level kernel by its form for a GPU with waves of `wave` lanes (docs/contracts.md, section 11).

    `divide` is the LLVM intrinsic of an f32 quotient within 2 ulp, for what need not round correctly, `exp2` that of a
    power of two, for exponentials that need not be right to the last bits, `largest` that of the largest i32 of a wave's
    lanes. `stream`: large inputs of reductions are read
    by PTX's loads with a cache hint. `aligned`: the machine loads vectors from multiples of their size only.
    `clusters`: blocks can share their shared memories. `overlaps`: launches may begin while the one before ends.

    Before:
    ```mlir
    func.func private @k(%x: tensor<8xf32>) -> tensor<8xf32> { ... linalg.generic ... return %y : tensor<8xf32> }
    ```
    After:
    ```mlir
    gpu.module @k { gpu.func @k_0(%x: memref<8xf32, #gpu.address_space<global>>, %y: ...) kernel { ... } }
    ```
    """
    with module.context, ir.Location.unknown():
        for op in kernels(module):
            graph = TensorGraph(op)
            kernel = GpuKernel(graph, wave, divide, exp2, largest, stream, aligned, clusters, overlaps)
            _emit(kernel)
            kernel.finish()
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()


def _emit(kernel: GpuKernel) -> None:
    graph, stored = kernel.graph, Stored()
    plans: list[tuple[RowPlan, list[int]]] = []
    for numel, results in results_by_size(graph):
        if any(_join(graph, plan, numel, results) for plan, _ in plans):
            continue
        while True:
            look = lambda ranges: Probe(graph, ranges, stored.values)
            space, accesses = result_loops(graph, numel, results, look, lambda probe: bool(probe.reductions))
            plan = _row_plan(space, accesses, results, stored)
            if plan is not None and kernel.clusters and _takes_cluster(kernel, stored, space, accesses, plan):
                plan = None
            if plan is not None:
                plans.append((plan, results))
                break
            long = [r for r in accesses.reductions if not _is_short(r.generic, numel)]
            crossing = find_cross(space, accesses, kernel.aligned)
            if crossing is not None:
                Turn(kernel, stored, results, space, *crossing).emit()
                break
            short = _short_columns(kernel, stored, space, accesses) if not long else None
            if short is not None:
                emit_reductions(kernel, stored, short, results)
                break
            if not long and are_gathered_columns(kernel, stored, results, space):
                emit_gathers(kernel, stored, results, space)
                break
            if not long:
                emit_pointwise(kernel, stored, results, numel, space)
                break
            first, *others = passes(graph, stored.values, long, partial(fits, kernel, stored))
            if not others and _is_only(space, accesses, long):
                emit_reductions(kernel, stored, first, results)
                break
            emit_reductions(kernel, stored, first)
    for plan, _ in plans:
        emit = emit_rows if isinstance(plan.length, int) else emit_symbolic_rows
        emit(kernel, stored, plan)


def _length(g: Generic) -> Dim:
    return dims.product(g.extents[d] for d in g.reductions)


def _is_short(g: Generic, numel: Dim = MANY) -> bool:
    """True for what one thread reduces for itself: little, or somewhat more where there are many to do it."""
    length = _length(g)
    most = SHORT if not isinstance(numel, int) or numel >= MANY else SHORT_ROW
    return (isinstance(length, int) and length <= most) or not is_combinable(g)


def _short_columns(kernel: GpuKernel, stored: Stored, space: Space, accesses: Probe) -> Joint | None:
    """The reductions that the results are, where a thread for each would read vectors that begin anywhere in two parts."""
    reductions = accesses.reductions
    if not reductions or not all(is_combinable(r.generic) for r in reductions):
        return None
    joint, *others = passes(accesses.graph, stored.values, reductions, partial(fits, kernel, stored))
    only = not others and _is_only(space, accesses, reductions)
    return joint if only and begin_anywhere(kernel, stored, joint) else None


def _is_only(space: Space, accesses: Probe, long: list[Reduction]) -> bool:
    """True if the results need these reductions at their own flat position only."""
    if accesses.branches or len({tuple(position(accesses.graph, r)) for r in long}) != 1:
        return False
    g = long[0].generic
    shape = [g.extents[t[1]] if t[0] == "d" else 1 for t in g.maps[len(g.inputs)]]
    if dims.product(l.extent for l in space.loops) == dims.product(shape) == 1:
        return True
    return accesses.ranges.linearize(long[0].index, shape) == accesses.ranges.simplify(space.values["f"])


def _row_plan(space: Space, accesses: Probe, results: list[int], stored: Stored) -> RowPlan | None:
    """The rows that the results consist of, or None if they are no rows of one length read in order."""
    if not accesses.reductions or accesses.branches:
        return None
    names = {l.name for l in space.loops}
    used = {s for r in accesses.reductions for i in r.index if not isinstance(i, int) for s in dims.symbols(i)}
    if any(s.startswith(("q", "v")) for s in used):
        return None
    outer = [l for l in space.loops if l.name in used & names]
    inner = [l for l in space.loops if l.name not in used]
    if [l.name for l in space.loops] != [l.name for l in [*outer, *inner]]:
        return None
    full = dims.product(l.extent for l in inner)
    if inner and full == 1:
        outer, inner = [*outer, *inner], []
    lengths = {_length(r.generic) for r in accesses.reductions}
    length = full if inner else max(lengths, key=lambda n: n if isinstance(n, int) else 1 << 62)
    together = [r for r in accesses.reductions if _length(r.generic) == length]
    rest = [r for r in accesses.reductions if _length(r.generic) != length]
    if not together or not all(_is_short(r.generic) for r in rest):
        return None
    if not all(is_combinable(r.generic) for r in together) or not _in_order(accesses, together):
        return None
    if length == 0 or (not inner and isinstance(length, int) and length <= SHORT_ROW):
        return None
    keys = [[g.arguments[-1] for g in j.generics] for j in passes(accesses.graph, stored.values, together)]
    plan = RowPlan(space, outer, inner, length, keys)
    if _too_few(plan):
        return None
    (plan.full if inner else plan.rows).extend(results)
    return plan


def _too_few(plan: RowPlan) -> bool:
    """True for so few and so long rows that a block for each would leave most of the machine idle."""
    count, length = plan.count, plan.length
    long = not isinstance(length, int) or length > REGISTER_ROW // 4
    return isinstance(count, int) and count < FEW_ROWS // 4 and long


def _takes_cluster(kernel: GpuKernel, stored: Stored, space: Space, accesses: Probe, plan: RowPlan) -> bool:
    """True for rows that a block could take, of which only what one pass makes is wanted, and that a cluster takes sooner."""
    if plan.inner or cluster_threads(plan.count, plan.length, 1) is None:
        return False
    reductions = [r for r in accesses.reductions if r.generic.arguments[-1] in plan.keys]
    made = passes(accesses.graph, stored.values, reductions, partial(fits, kernel, stored))
    return len(made) == 1 and _is_only(space, accesses, reductions)


def _in_order(accesses: Accesses, reductions: list[Reduction]) -> bool:
    """True if the rows are read with step 1 (or not at all) in the last reduced dimension."""
    for r in reductions:
        last = r.names[max(r.names)]
        steps = [dims.linear_coefficient(offset, last) for _, offset in accesses.loads]
        if any(s is not None and s not in (0, 1) for s in steps):
            return False
    return True


def _join(graph: TensorGraph, plan: RowPlan, numel: Dim, results: list[int]) -> bool:
    """Let the stage of `plan` write results of its number of rows too, if they reduce what it reduces."""
    if plan.count != numel or not plan.inner:
        return False
    ranges = Space.of([("f", numel, False)]).ranges()
    for i in results:
        accesses = Accesses(graph, ranges)
        value = graph.results[i]
        accesses.at(value, accesses.ranges.delinearize(dims.symbol("f"), graph.shape(value)))
        keys = {r.generic.arguments[-1] for r in accesses.reductions}
        if not keys or not keys <= set(plan.keys) or accesses.branches:
            return False
    plan.rows += results
    return True
