"""What LLVM makes of our loops for x86-64."""

import pytest
from support.assembly import assembly
from support.tile_kernels import kernel

TYPE = "tensor<64x64x9xf32>"
TURNED = f"""
  %e = tensor.empty() : {TYPE}
  %y = linalg.generic {{indexing_maps = [affine_map<(a, b, c) -> (b, a, -c + 8)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}} ins(%0 : {TYPE}) outs(%e : {TYPE}) {{
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32 }} -> {TYPE}
  return %y : {TYPE}"""


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "x86-64-v4+vnni"])
def test_weights_are_turned_without_scatters(target):
    """As the gradient of a convolution's input needs them."""
    text = assembly(kernel("loops", [("f32", (64, 64, 9))], [("f32", (64, 64, 9))], TURNED), target, "loops")
    assert "scatter" not in text
