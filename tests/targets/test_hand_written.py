"""Products tell LLVM to leave the addresses of their register tiles alone; generated loops do not."""

import pytest
from mlir import ir
from support.tile_kernels import kernel, tensor

from lamina.compiler import levels
from lamina.dialects.mlir_context import context
from lamina.targets import get_target
from lamina.targets.llvm import HAND_WRITTEN

X = tensor("f32", (32, 32))
BODIES = {
    "matmul": f'%y = "lamina.matmul"(%0, %1) : ({X}, {X}) -> {X}\nreturn %y : {X}',
    "loops": f"%y = linalg.add ins(%0, %1 : {X}, {X}) outs(%0 : {X}) -> {X}\nreturn %y : {X}",
}


@pytest.mark.parametrize("kind", BODIES)
def test_only_products_are_marked(kind: str) -> None:
    text = kernel(kind, [("f32", (32, 32))] * 2, [("f32", (32, 32))], BODIES[kind])
    with context():
        module = ir.Module.parse(text)
        # the plain pipeline takes any linalg op as the loops of a "loops" kernel
        code = levels.lower_kernel(module, get_target("x86-64-v3"), kind, kind == "loops", "linalg", "llvmir")
    assert (HAND_WRITTEN in code) == (kind == "matmul")
