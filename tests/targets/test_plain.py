"""The plain pipeline end to end: linalg text to machine code, called through the kernel ABI."""

import numpy as np
import pytest
import torch
from support.run_kernel import KernelFailed, compile_kernel

GATHER = """
#m = affine_map<(d0, d1) -> (d0, d1)>
#r = affine_map<(d0, d1) -> (d0)>
func.func private @gather(%x: tensor<?x64xf32>, %i: tensor<?xi64>, %d0: index, %d1: index) -> tensor<?x64xf32>
  attributes {lamina.kind = "loops", lamina.symbols = ["d0", "d1"], lamina.label = "gather",
    lamina.arg_dims = [["d0", "64"], ["d1"]], lamina.result_dims = [["d1", "64"]],
    lamina.arg_dtypes = ["f32", "i64"], lamina.result_dtypes = ["f32"]} {
  %e = tensor.empty(%d1) : tensor<?x64xf32>
  %y = linalg.generic {indexing_maps = [#r, #m], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<?xi64>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%a: i64, %o: f32):
    %j = linalg.index 1 : index
    %c0 = arith.constant 0 : index
    %k = arith.index_cast %a : i64 to index
    %ok = arith.cmpi ult, %k, %d0 : index
    cf.assert %ok, "index out of range"
    %kk = arith.select %ok, %k, %c0 : index
    %v = tensor.extract %x[%kk, %j] : tensor<?x64xf32>
    linalg.yield %v : f32
  } -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
"""

# softmax of the rows of a dynamic matrix, and their sums in f64
SOFTMAX = """
#m = affine_map<(d0, d1) -> (d0, d1)>
#r = affine_map<(d0, d1) -> (d0)>
func.func private @softmax(%x: tensor<?x?xf32>, %d0: index, %d1: index) -> (tensor<?x?xf32>, tensor<?xf32>)
  attributes {lamina.kind = "loops", lamina.symbols = ["d0", "d1"], lamina.label = "softmax",
    lamina.arg_dims = [["d0", "d1"]], lamina.result_dims = [["d0", "d1"], ["d0"]],
    lamina.arg_dtypes = ["f32"], lamina.result_dtypes = ["f32", "f32"]} {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty(%d0) : tensor<?xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%e0 : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %v = arith.maximumf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<?xf32>
  %e1 = tensor.empty(%d0, %d1) : tensor<?x?xf32>
  %p = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%e1 : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.subf %a, %b : f32
    %w = math.exp %v : f32
    linalg.yield %w : f32
  } -> tensor<?x?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<?x?xf32>) outs(%s0 : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %v = arith.addf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = ["parallel", "parallel"]}
      ins(%p, %s : tensor<?x?xf32>, tensor<?xf32>) outs(%e1 : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.divf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<?x?xf32>
  return %y, %s : tensor<?x?xf32>, tensor<?xf32>
}
"""

BOTH = pytest.mark.parametrize("plain", [True, False], ids=["plain", "loops"])


@BOTH
def test_gather_reads_rows(plain):
    x, i = np.random.default_rng(0).standard_normal((10, 64), np.float32), np.array([3, 4, 9, 0, 0])
    kernel = compile_kernel(GATHER, plain)
    np.testing.assert_array_equal(kernel(x, i, sizes={"d0": 10, "d1": 5}), x[i])


@BOTH
@pytest.mark.parametrize("bad", [10, -1])
def test_gather_reports_an_index_out_of_range(plain, bad):
    kernel = compile_kernel(GATHER, plain)
    with pytest.raises(KernelFailed, match="status 1"):
        kernel(np.zeros((10, 64), np.float32), np.array([1, bad, 2]), sizes={"d0": 10, "d1": 3})


@BOTH
@pytest.mark.parametrize("shape", [(5, 37), (1, 1), (3, 1000), (0, 4), (4, 0)])
def test_softmax_equals_float64(plain, shape):
    x = np.random.default_rng(0).standard_normal(shape, np.float32) * 8
    y, s = compile_kernel(SOFTMAX, plain)(x, sizes={"d0": shape[0], "d1": shape[1]})
    expected = torch.softmax(torch.tensor(x, dtype=torch.float64), 1).numpy()
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-30)
    if shape[1]:
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        np.testing.assert_allclose(s, e.sum(1), rtol=1e-5)
