"""What LLVM is told of kernels: products leave it no addresses to rewrite, parts of a concatenation are loops."""

import pytest
from mlir import ir
from support.tile_kernels import kernel, tensor

from lamina.compiler import levels
from lamina.compiler.api import show_ir
from lamina.dialects.mlir_context import context
from lamina.dialects.record import Graph, TensorType
from lamina.targets import get_target
from lamina.targets.llvm import HAND_WRITTEN, PARTS

X = tensor("f32", (32, 32))
SUM = f"%y = linalg.add ins(%0, %1 : {X}, {X}) outs(%0 : {X}) -> {X}\nreturn %y : {X}"
BODIES = {
    "matmul": f'%y = "lamina.matmul"(%0, %1) : ({X}, {X}) -> {X}\nreturn %y : {X}',
    "concat": SUM,
    "loops": SUM,
}
MARKS = {"matmul": {HAND_WRITTEN}, "concat": {PARTS}, "loops": set()}


@pytest.mark.parametrize("kind", BODIES)
def test_kinds_are_marked(kind: str) -> None:
    text = kernel(kind, [("f32", (32, 32))] * 2, [("f32", (32, 32))], BODIES[kind])
    with context():
        module = ir.Module.parse(text)
        # the plain pipeline takes any linalg op as the loops of a "loops" kernel
        code = levels.lower_kernel(module, get_target("x86-64-v3"), kind, kind != "matmul", "linalg", "llvmir")
    assert {mark for mark in (HAND_WRITTEN, PARTS) if mark in code} == MARKS[kind]


def test_parts_of_a_concatenation_are_vectorised() -> None:
    """Rows at positions, beside others, squared: reading a position is safe in its own part only."""
    g = Graph()
    x = g.add_input("x", TensorType("f32", (4, 8, 128)))
    places = g.add_input("places", TensorType("i32", (16,)))
    other = g.add_input("other", TensorType("f32", (2, 16, 128)))
    joined = g.add("concat", g.add("index", x, places, dims=(1,), wrap=False, checked=False), other, dim=0)
    g.add_output(g.add("mul", joined, joined))
    assert "vmulps" in show_ir(g, "asm", "x86-64-v3")


def test_each_part_of_a_concatenation_is_a_loop() -> None:
    """As of the steps of a recurrent layer, which had the place of each element among 32 parts asked."""
    g = Graph()
    steps = [g.add_input(f"x{i}", TensorType("f32", (8, 1, 128))) for i in range(32)]
    g.add_output(g.add("concat", *steps, dim=1))
    assert show_ir(g, "loops", "x86-64-v3").count("scf.for") == 1 + 32
