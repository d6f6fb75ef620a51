"""Instructions of NVIDIA's GPUs on a stage: shared memory by address, barriers, bulk copies, warpgroup products.

    ptx = Ptx(stage)
    ptx.tma_load(ptx.shared(0), descriptor, (k, m), full)       # coordinates innermost first
    sums = ptx.wgmma(sums, a, b, 128, ("bf16", "bf16"))

Sizes, offsets and coordinates are `Dim`s over the builder's symbols; the instructions themselves take i32 and i64. An
instruction that MLIR has no op for, or whose op hides a dependence, is inline assembly.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import GpuStage
from ..llvm_ops import byte_address, inline_assembly

TICKS = 10_000_000  # how long a try_wait may sleep before it looks again
WARPGROUP = 128
FULL_MASK = -1


class Ptx:
    """Writes instructions at the end of the stage's innermost scope."""

    def __init__(self, stage: GpuStage):
        self.stage, self.b = stage, stage.b
        self.pointer = ir.Type.parse("!llvm.ptr<3>")
        self._base: ir.Value | None = None

    # -- numbers ---------------------------------------------------------------------------------------------------
    def i32(self, value: Dim | ir.Value) -> ir.Value:
        """A size or an index value as an i32."""
        b = self.b
        if isinstance(value, int):
            return b.constant(value, b.i32)
        found = b.dim(value) if isinstance(value, dims.Expr) else value
        return found if found.type == b.i32 else b.value("arith.index_cast", (found,), b.i32)

    def index(self, value: ir.Value) -> ir.Value:
        """An i32 as an index."""
        return self.b.value("arith.index_cast", (value,), self.b.index)

    def compare(self, predicate: str, a: Dim, c: Dim) -> ir.Value:
        """`a == c`, `a != c`, `a < c` or `a >= c` (`eq`, `ne`, `slt`, `sge`)."""
        return self.b.compare(predicate, a, c)

    def quad_transpose(self, words: Sequence[ir.Value], quad: ir.Value) -> list[ir.Value]:
        """Transpose 4 x 4 i32 in each four lanes: lane `q` (its number in `quad`) gets word `q` of the four lanes in order.

        The sums of a product lie in pairs of columns, four lanes side by side; afterwards a lane has eight columns.
        """
        b = self.b
        w = list(words)
        for distance, pairs in ((1, ((0, 1), (2, 3))), (2, ((0, 2), (1, 3)))):
            bit = b.value("arith.andi", (quad, b.constant(distance, b.i32)), b.i32)
            odd = b.compare("ne", bit, b.constant(0, b.i32))
            for x, y in pairs:
                sent = self.shuffle("bfly", b.select(odd, w[x], w[y]), distance)
                w[x], w[y] = (
                    b.select(odd, sent, w[x]),
                    b.select(odd, w[y], sent),
                )
        return w

    def all(self, conditions: Sequence[ir.Value]) -> ir.Value:
        """True where all conditions (at least one) hold."""
        found = conditions[0]
        for c in conditions[1:]:
            found = self.b.value("arith.andi", (found, c), self.b.i1)
        return found

    def within(self, place: Dim, first: Dim | None, end: Dim | None) -> list[ir.Value]:
        """The conditions `place >= first` and `place < end`, where these are given."""
        low = [] if first is None else [self.compare("sge", place, first)]
        return low if end is None else [*low, self.compare("slt", place, end)]

    def inline(
        self, text: str, constraints: str, operands: Sequence[ir.Value], result: ir.Type | None = None
    ) -> ir.Value | None:
        """Inline PTX with side effects; returns its result, if it has one."""
        op = inline_assembly(self.b, text, constraints, operands, [] if result is None else [result])
        return None if result is None else op.result

    # -- threads ---------------------------------------------------------------------------------------------------
    def warpgroup(self) -> ir.Value:
        """The number of this thread's warpgroup, the same register in a whole warp: branches on it are uniform."""
        b = self.b
        own = self.i32(b.binary("arith.divui", self.stage.thread(), b.constant(WARPGROUP, b.index)))
        return self.index(self.shuffle("idx", own, 0))

    def shuffle(self, kind: str, value: ir.Value, lane: int | ir.Value) -> ir.Value:
        """An i32 or f32 of lane `lane` (`idx`) or of lane `own xor lane` (`bfly`)."""
        b = self.b
        operands = [x if isinstance(x, ir.Value) else b.constant(x, b.i32) for x in (FULL_MASK, lane, 31)]
        return b.value(
            "nvvm.shfl.sync",
            (operands[0], value, operands[1], operands[2]),
            value.type,
            kind=b.attribute(f"#nvvm<shfl_kind {kind}>"),
        )

    def registers(self, action: str, count: int) -> None:
        """Give registers of this warpgroup back (`decrease`) or take some (`increase`), to have `count` a thread."""
        attributes = {
            "action": self.b.attribute(f"#nvvm<action {action}>"),
            "regCount": self.b.number(count, self.b.i32),
        }
        self.b.op("nvvm.setmaxregister", (), attributes=attributes)

    def barrier(self, number: Dim, threads: int, action: str = "sync") -> None:
        """Wait for `threads` threads at named barrier `number` (1 to 15), or only `arrive` there."""
        self.inline(f"bar.{action} $0, {threads};", "r,~{memory}", (self.i32(number),))

    # -- shared memory ---------------------------------------------------------------------------------------------
    def shared(self, offset: Dim) -> ir.Value:
        """The address of a byte of dynamic shared memory."""
        b = self.b
        if self._base is None:
            symbol = self.stage.kernel.dynamic_shared()
            with b.at_level(0):
                self._base = b.value("llvm.mlir.addressof", (), self.pointer, global_name=symbol)
        level = b.level_of([offset])
        key = ("shared", offset)
        cache = b.scopes[level].cache
        if key not in cache:
            with b.at_level(level):
                cache[key] = byte_address(b, self._base, self.i32(offset))
        return cache[key]

    def shared_number(self) -> ir.Value:
        """The address of dynamic shared memory as an i32."""
        return self.b.value("llvm.ptrtoint", (self.shared(0),), self.b.i32)

    # -- mbarriers -------------------------------------------------------------------------------------------------
    def mbarrier_init(self, barrier: ir.Value, arrivals: int) -> None:
        """Make a barrier whose phase ends after `arrivals` arrivals."""
        self.b.op("nvvm.mbarrier.init", (barrier, self.i32(arrivals)))

    def mbarrier_fence(self) -> None:
        """Show initialised barriers to the copy engine."""
        self.b.op("nvvm.fence.mbarrier.init", ())

    def mbarrier_wait(self, barrier: ir.Value, phase: ir.Value) -> None:
        """Wait until the phase of parity `phase` has ended."""
        self.b.op("nvvm.mbarrier.try_wait.parity", (barrier, phase, self.i32(TICKS)))

    def mbarrier_expect(self, barrier: ir.Value, size: Dim) -> None:
        """Arrive, and expect `size` bytes from the copy engine in this phase."""
        attributes = {
            "relaxed": self.b.attribute("false"),
            "scope": self.b.attribute("#nvvm.mem_scope<cta>"),
        }
        self.b.op("nvvm.mbarrier.arrive.expect_tx", (barrier, self.i32(size)), attributes=attributes)

    def mbarrier_arrive(self, barrier: ir.Value, when: ir.Value) -> None:
        """Arrive where the i1 `when` holds: a predicate, since a branch in a hot loop costs uniform registers."""
        text = "{ .reg .pred p; setp.ne.b32 p, $1, 0; @p mbarrier.arrive.shared::cta.b64 _, [$0]; }"
        flag = self.b.value("arith.extui", (when,), self.b.i32)
        self.inline(text, "r,r,~{memory}", (barrier, flag))

    # -- bulk copies -----------------------------------------------------------------------------------------------
    def tma_load(
        self, to: ir.Value, descriptor: ir.Value, coordinates: Sequence[Dim], barrier: ir.Value, offsets: Sequence[Dim] = ()
    ) -> None:  # fmt: skip
        """Copy the descriptor's box at `coordinates` (innermost first) to shared memory; the barrier counts its bytes.

        With `offsets`, of the spatial dimensions, the descriptor is one in im2col mode.
        """
        rank, b = len(coordinates), self.b
        places = ", ".join(f"${3 + i}" for i in range(rank))
        moved = ", ".join(f"${3 + rank + i}" for i in range(len(offsets)))
        mode, moved = ("im2col.", f", {{{moved}}}") if offsets else ("", "")
        i16 = ir.IntegerType.get_signless(16)
        words = [b.value("arith.trunci", (self.i32(o),), i16) for o in offsets]
        self.inline(
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}mbarrier::complete_tx::bytes "
            f"[$0], [$1, {{{places}}}], [$2]{moved};",
            "r,l,r" + ",r" * rank + ",h" * len(words) + ",~{memory}",
            (to, descriptor, barrier, *(self.i32(c) for c in coordinates), *words),
        )

    # -- products of a warpgroup -----------------------------------------------------------------------------------
    def wgmma_fence(self) -> None:
        """Order register and shared memory accesses before the products that follow."""
        self.b.op("nvvm.wgmma.fence.aligned", ())

    def wgmma_commit(self) -> None:
        """End a group of products."""
        self.b.op("nvvm.wgmma.commit.group.sync.aligned", ())

    def wgmma_wait(self, pending: int, sums: Sequence[ir.Value] = (), kept: Sequence[ir.Value] = ()) -> list[ir.Value]:
        """Wait until at most `pending` groups are under way.

        The sums that are read next go through the wait: nothing else tells LLVM that they were not there before it,
        nor that the operands in registers, `kept`, were read until then.
        """
        if not sums:
            group = ir.IntegerAttr.get(self.b.i64, pending)
            self.b.op("nvvm.wgmma.wait.group.sync.aligned", (), attributes={"group": group})
            return []
        parts = [x for s in sums for x in self.unpack(s)]
        count = len(parts)
        given = [str(i) for i in range(count)] + ["r"] * len(kept)
        constraints = ",".join(["=f"] * count + given + ["~{memory}"])
        waited = self.inline(
            f"wgmma.wait_group.sync.aligned {pending};", constraints, [*parts, *kept], self.struct([self.b.f32] * count)
        )
        assert waited is not None
        done = self.unpack(waited)
        size = count // len(sums)
        return [self.pack(done[i : i + size]) for i in range(0, count, size)]

    def wgmma(
        self, sums: ir.Value, a: ir.Value, c: ir.Value, n: int, dtypes: tuple[str, str],
        turned: tuple[bool, bool] = (False, False), fresh: bool = False,
    ) -> ir.Value:  # fmt: skip
        """`sums + A B` of 64 x n in f32; `a` and `c` describe A and B in shared memory, `turned` says which are K by rows.

        If `fresh` it is `A B`, whatever the sums were. `dtypes` of A and B differ for floats of 8 bits only.
        """
        b, k = self.b, {"bf16": 16, "f16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32}[dtypes[0]]
        one = b.attribute("#nvvm.wgmma_scale_in<one>")
        return b.value(
            "nvvm.wgmma.mma_async",
            (sums, a, c),
            sums.type,
            shape=b.attribute(f"#nvvm.shape<m = 64, n = {n}, k = {k}>"),
            typeA=b.attribute(f"#nvvm.wgmma_type<{dtypes[0]}>"),
            typeB=b.attribute(f"#nvvm.wgmma_type<{dtypes[1]}>"),
            typeD=b.attribute("#nvvm.wgmma_type<f32>"),
            scaleA=one,
            scaleB=one,
            scaleD=b.attribute(f"#nvvm.wgmma_scale_out<{'zero' if fresh else 'one'}>"),
            layoutA=b.attribute(f"#nvvm.mma_layout<{'col' if turned[0] else 'row'}>"),
            layoutB=b.attribute(f"#nvvm.mma_layout<{'row' if turned[1] else 'col'}>"),
        )

    def wgmma_registers(self, sums: ir.Value, a: Sequence[ir.Value], c: ir.Value, n: int, dtype: str) -> ir.Value:
        """`sums + A B` of 64 x n x 16, A in four i32 of pairs a thread, B in shared memory, K by rows.

        Pair `h + 2 j` of a thread is of row `r + 8 h`, columns `8 j + 2 quad`: where sums of 64 x 16 lie, too.
        """
        parts = self.unpack(sums)
        count = len(parts)
        names = ", ".join(f"${i}" for i in range(count))
        words = ", ".join(f"${2 * count + i}" for i in range(4))
        text = (
            f"{{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} "
            f"{{{names}}}, {{{words}}}, ${2 * count + 4}, p, 1, 1, 1; }}"
        )
        constraints = ",".join(["=f"] * count + [str(i) for i in range(count)] + ["r"] * 4 + ["l"])
        made = self.inline(text, constraints, [*parts, *a, c], sums.type)
        assert made is not None
        return made

    # -- structs ---------------------------------------------------------------------------------------------------
    def struct(self, types: Sequence[ir.Type]) -> ir.Type:
        """An LLVM struct type."""
        return ir.Type.parse(f"!llvm.struct<({', '.join(map(str, types))})>")

    def pack(self, values: Sequence[ir.Value]) -> ir.Value:
        """Values as a struct."""
        type = self.struct([v.type for v in values])
        made = self.b.value("llvm.mlir.undef", (), type)
        for i, v in enumerate(values):
            made = self.b.value("llvm.insertvalue", (made, v), type, position=ir.DenseI64ArrayAttr.get([i]))
        return made

    def unpack(self, value: ir.Value) -> list[ir.Value]:
        """The parts of a struct of equal types."""
        text = str(value.type)
        parts = text[text.index("(") + 1 : text.rindex(")")].split(", ")
        type = ir.Type.parse(parts[0])
        return [
            self.b.value("llvm.extractvalue", (value,), type, position=ir.DenseI64ArrayAttr.get([i]))
            for i in range(len(parts))
        ]


def round_up(value: Dim, multiple: int) -> Dim:
    """The next multiple of `multiple`."""
    return dims.ceildiv(value, multiple) * multiple
