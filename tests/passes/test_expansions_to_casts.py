"""Reshapes whose sizes are not known, by the plain pipeline: MLIR's own lowering ends the process for several in a group."""

import numpy as np
import pytest
from support.run_kernel import compile_kernel
from support.tile_kernels import kernel, tensor

from lamina.dialects import dims
from lamina.dialects.mlir_context import context


@pytest.mark.parametrize(
    "flat, groups, shape",
    [
        (("d0*d1",), [[0, 1]], ("d0", "d1")),
        (("d0*d1", 4), [[0, 1], [2]], ("d0", "d1", 4)),
        (("d0", "3*d0*d1"), [[0], [1, 2, 3]], ("d0", "d0", 3, "d1")),
        (("d0*d1", "d1*d2"), [[0, 1], [2, 3]], ("d0", "d1", "d1", "d2")),
        (("3*d0", 2), [[0, 1], [2]], ("d0", 3, 2)),
    ],
)
def test_groups_of_unknown_sizes(flat, groups, shape):
    names = ("d0", "d1", "d2")
    given = ", ".join(f"%{d}" if isinstance(d, str) else str(d) for d in shape)
    unknown = ", ".join(f"%{d}" for d in shape if isinstance(d, str))
    source, result = tensor("f32", flat), tensor("f32", shape)
    axes = ", ".join(f"i{n}" for n in range(len(shape)))
    map = f"affine_map<({axes}) -> ({axes})>"
    body = f"""
  %e = tensor.expand_shape %0 {groups} output_shape [{given}] : {source} into {result}
  %o = tensor.empty({unknown}) : {result}
  %r = linalg.generic {{indexing_maps = [{map}, {map}], iterator_types = {str(["parallel"] * len(shape)).replace("'", '"')}}}
      ins(%e : {result}) outs(%o : {result}) {{
  ^bb0(%a: f32, %b: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32 }} -> {result}
  return %r : {result}"""
    compiled = compile_kernel(
        kernel("loops", [("f32", flat)], [("f32", shape)], body, names), plain=True, context=context()
    )
    sizes = {"d0": 2, "d1": 5, "d2": 3}
    real = lambda given: tuple(dims.evaluate(dims.parse(str(d)), sizes) for d in given)
    x = np.random.default_rng(0).standard_normal(real(flat)).astype(np.float32)
    np.testing.assert_array_equal(compiled(x, sizes=sizes), -x.reshape(real(shape)))
