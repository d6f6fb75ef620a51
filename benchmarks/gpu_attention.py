"""Attention on a GPU against the backends of torch's SDPA: python benchmarks/gpu_attention.py [--only decode]

Each line is checked first: two heads against float64 on random inputs, all in memory that held NaN, and two runs to the
bit. Then CUDA graphs of all systems are replayed in turn; medians of rounds. `best` is the fastest backend of torch.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from gpu_timing import CACHE, Captured, Tensors, by_group, error, interleaved, save
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@dataclass(frozen=True)
class Case:
    """`heads` of `batch` rows of `width`, in bf16; `shared` heads of keys; `layout` of the tensors in memory.

    `mask`: `bias` (bf16, [1, 1, S, S]) or `padding` (bool, [B, 1, 1, S]).
    """

    batch: int
    heads: int
    queries: int
    width: int
    causal: bool = False
    shared: int = 0
    keys: int = 0
    layout: str = "bhsd"  # or bshd, or qkv: one packed projection
    mask: str = ""

    @property
    def name(self) -> str:
        heads = f"{self.heads}/{self.shared}" if self.shared else f"{self.heads}"
        length = f"{self.queries} x {self.keys}" if self.keys else f"{self.queries}"
        layout = "" if self.layout == "bhsd" else f" {self.layout}"
        kind = f" {self.mask}" if self.mask else " causal" if self.causal else ""
        return f"d{self.width} {self.batch} x {heads} x {length}{layout}{kind}"

    @property
    def work(self) -> float:
        """Operations of both products."""
        pairs = self.queries * (self.keys or self.queries)
        return 4 * self.batch * self.heads * pairs * self.width * (0.5 if self.causal else 1)


HEADS = {64: 32, 128: 16, 256: 8}
LONG = tuple(
    Case(max(1, 16384 // s), HEADS[d], s, d, causal)
    for d in HEADS
    for s in (512, 1000, 1024, 4096, 16384)
    for causal in (False, True)
)
OTHERS = tuple(
    case
    for causal in (False, True)
    for case in (
        Case(4, 16, 4097, 128, causal),
        Case(2, 32, 4096, 128, causal, shared=8),
        Case(8, 12, 512, 64, causal),
        Case(1, 16, 2048, 128, causal),
    )
)
LAYOUTS = tuple(
    case
    for causal in (False, True)
    for case in (Case(8, 16, 2048, 128, causal, layout="bshd"), Case(16, 12, 1024, 64, causal, layout="qkv"))
)
DECODE = tuple(
    Case(batch, heads, 1, width, shared=shared, keys=keys)
    for batch, heads, shared, keys, width in (
        (1, 32, 8, 4096, 128),
        (8, 32, 8, 4096, 128),
        (32, 32, 8, 8192, 128),
        (1, 32, 8, 32768, 128),
        (1, 32, 32, 4096, 128),
        (8, 32, 32, 4096, 64),
        (16, 16, 16, 2048, 64),
        (4, 8, 8, 4096, 256),
    )
)
MASKS = tuple(
    Case(batch, heads, length, width, mask=mask)
    for batch, heads, length, width in ((8, 12, 512, 64), (8, 16, 1024, 128), (2, 16, 4096, 128))
    for mask in ("bias", "padding")
)
GROUPS = {"long": LONG, "others": OTHERS, "layouts": LAYOUTS, "decode": DECODE, "masks": MASKS}


def operands(case: Case) -> Tensors:
    """Random tensors in the case's layout, and a mask."""
    c = case
    if c.mask:
        mask = torch.randn(1, 1, c.queries, c.queries, device="cuda").bfloat16()
        if c.mask == "padding":
            mask = torch.arange(c.queries, device="cuda") < torch.randint(
                1, c.queries, (c.batch, 1, 1, 1), device="cuda"
            )
        return [*operands(replace(c, mask="")), mask]
    make = lambda *shape: torch.randn(shape, device="cuda").bfloat16()
    if c.layout == "qkv":
        return [make(c.batch, c.queries, 3, c.heads, c.width)]
    sizes = [(c.heads, c.queries), *[(c.shared or c.heads, c.keys or c.queries)] * 2]
    if c.layout == "bshd":
        return [make(c.batch, s, h, c.width) for h, s in sizes]
    return [make(c.batch, h, s, c.width) for h, s in sizes]


def heads_of(case: Case, given: Tensors) -> Tensors:
    """q, k and v as [B, H, S, D], and the mask: views, as a model makes them."""
    if case.layout == "qkv":
        return given[0].permute(2, 0, 3, 1, 4).unbind(0)
    return [t.transpose(1, 2) for t in given] if case.layout == "bshd" else given


def exact(case: Case, given: Tensors, batch: int, head: int) -> torch.Tensor:
    """One head in float64."""
    group = case.heads // (case.shared or case.heads)
    q, k, v = (t[batch, h].double() for t, h in zip(heads_of(case, given), (head, head // group, head // group)))
    scores = q @ k.T * case.width**-0.5
    if case.mask == "bias":
        scores += given[3][0, 0].double()
    elif case.mask:
        scores.masked_fill_(~given[3][batch, 0], -math.inf)
    if case.causal:
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu_(1), -math.inf)
    return scores.softmax(-1) @ v


def check(case: Case, compiled: Callable[..., torch.Tensor], given: Tensors) -> float:
    """Our error against float64; an AssertionError if it is more than rounding weights and results gives."""
    result = compiled(*given)
    shape = result.shape
    del result
    poison = torch.full(shape, math.nan, device="cuda", dtype=torch.bfloat16)
    del poison  # the allocator gives this memory to the result
    made, again = compiled(*given), compiled(*given)
    assert torch.equal(made, again), f"{case.name}: two runs differ"
    places = ((0, 0), (case.batch - 1, case.heads - 1))
    worst = max(error(made[b, h], exact(case, given, b, h)) for b, h in places)
    assert worst <= 4e-3, f"{case.name}: error {worst:.1e}"
    return worst


def measure(case: Case) -> dict[str, Any]:
    """One line of the table."""
    torch._dynamo.reset()
    gqa = case.shared not in (0, case.heads)

    def attend(*given: torch.Tensor) -> torch.Tensor:
        tensors = heads_of(case, given)
        return F.scaled_dot_product_attention(*tensors, is_causal=case.causal, enable_gqa=gqa)

    def by(backend: SDPBackend) -> Callable[..., torch.Tensor]:
        def run(*tensors: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(backend):
                return attend(*tensors)

        return run

    with torch.no_grad():
        given = operands(case)
        started = time.perf_counter()
        compiled = torch.compile(attend, backend="lamina", dynamic=False)
        compiled(*given)
        seconds = time.perf_counter() - started
        worst = check(case, compiled, given)
        size = sum(t.numel() * t.element_size() for t in given)
        sets = [given, *(operands(case) for _ in range(min(5, CACHE // size)))]
        calls = max(2, min(40, int(4e-3 / (case.work / 4e14 + size / 4e12 + 3e-6))))
        captured = {"lamina": Captured(compiled, sets, calls)}
        for name, backend in BACKENDS.items():
            with contextlib.suppress(RuntimeError):  # not every backend has every case
                captured[name] = Captured(by(backend), sets, calls)
        times = interleaved(captured, rounds=9)
    best = min(t for n, t in times.items() if n != "lamina")
    return {
        "case": case.name,
        "us": {n: round(t, 1) for n, t in times.items()},
        "tflops": round(case.work / times["lamina"] / 1e6),
        "against best": round(best / times["lamina"], 3),
        "error": worst,
        "compile s": round(seconds, 2),
    }


def shown(line: dict[str, Any]) -> str:
    """A line for people."""
    times = "  ".join(f"{n} {t:8.1f}" for n, t in line["us"].items())
    ratio = f"{line['tflops']:4} TFLOP/s  of best {line['against best']:.2f}"
    return f"{line['case']:36}{times}  {ratio}  error {line['error']:.1e}  {line['compile s']} s"


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="", help="groups: long, others, layouts, decode, masks")
    parser.add_argument("--target", default="", help="code of another target that this GPU runs, as sm_80")
    given = parser.parse_args()
    import lamina
    import lamina.frontend.dynamo  # noqa: F401
    from lamina.frontend.calls import cuda_launcher

    if given.target:
        cuda_launcher.target_for = lambda index: given.target
    print(torch.cuda.get_device_name(0), torch.__version__)
    lines: list[dict[str, Any]] = []
    for group, found in by_group(GROUPS, given.only, measure, shown):
        lines += found
        ratios = [math.log(x["against best"]) for x in found]
        if ratios:
            print(f"{group}: geomean {math.exp(sum(ratios) / len(ratios)):.3f}, least {math.exp(min(ratios)):.2f}")
    print(lamina.stats()["fallback"], lamina.stats()["failures"])
    save(given.json, lines)


if __name__ == "__main__":
    main()
