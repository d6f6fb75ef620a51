"""Plans read from kernels-level modules, and what is refused."""

import pytest
from mlir import ir

from lamina.compiler.host_program import build_host_program
from lamina.compiler.plan import PlanError
from lamina.dialects.mlir_context import context

MODULE = """
module attributes {lamina.symbols = [{name = "s0", min = 1 : i64, max = 64 : i64, multiple_of = 1 : i64, input = 0 : i64, dim = 0 : i64}]} {
  func.func private @k0(tensor<?x8xf32, ["d0", "8"]>, tensor<8x8xf32>) -> tensor<?x8xf32, ["d0", "8"]>
    attributes {lamina.kind = "matmul", lamina.label = "linear_relu", lamina.symbols = ["d0"]}
  func.func private @pack(tensor<8x8xf32>) -> tensor<8x8xf32> attributes {lamina.kind = "loops"}
  func.func private @init() -> tensor<8x8xf32> {
    %w = "lamina.weight"() {symbol = "w", shape = ["8", "8"], dtype = f32} : () -> tensor<8x8xf32>
    %p = "lamina.launch"(%w) {kernel = @pack, dims = []} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %p : tensor<8x8xf32>
  }
  func.func @main(%x: tensor<?x8xf32, ["s0", "8"]>) -> (tensor<8x?xf32, ["8", "s0"]>, tensor<?x8xf32, ["s0", "8"]>)
    attributes {lamina.arg_names = ["x"], lamina.arg_kinds = ["input"], lamina.result_names = ["y", "x_new"], lamina.mutates = ["", "x"]} {
    %w = "lamina.persistent"() {index = 0 : i64, shape = ["8", "8"], dtype = f32} : () -> tensor<8x8xf32>
    %h = "lamina.launch"(%x, %w) {kernel = @k0, dims = ["s0"]} : (tensor<?x8xf32, ["s0", "8"]>, tensor<8x8xf32>) -> tensor<?x8xf32, ["s0", "8"]>
    %y = "lamina.launch"(%h, %w) {kernel = @k0, dims = ["s0"]} : (tensor<?x8xf32, ["s0", "8"]>, tensor<8x8xf32>) -> tensor<?x8xf32, ["s0", "8"]> loc("model.py":7:1)
    %t = "lamina.permute"(%y) {dims = array<i64: 1, 0>} : (tensor<?x8xf32, ["s0", "8"]>) -> tensor<8x?xf32, ["8", "s0"]>
    return %t, %h : tensor<8x?xf32, ["8", "s0"]>, tensor<?x8xf32, ["s0", "8"]>
  }
}
"""


def plan_of(text):
    with context():
        return build_host_program(ir.Module.parse(text))


def test_plan():
    plan, text = plan_of(MODULE)
    assert plan["symbols"] == [{"name": "s0", "min": 1, "max": 64, "multiple_of": 1, "input": 0, "dim": 0}]
    assert plan["inputs"] == [{"name": "x", "kind": "input", "dtype": "f32", "shape": ["s0", 8], "mutated": True}]
    assert plan["weights"] == [{"name": "w", "dtype": "f32", "shape": [8, 8]}]
    assert plan["persistent"] == [{"dtype": "f32", "shape": [8, 8]}]
    assert plan["init"]["launches"][0]["args"] == [["weight", 0], ["persistent", 0]]
    first, second = plan["launches"]
    assert first["args"] == [["input", 0], ["persistent", 0], ["arena", 0]] and first["dims"] == ["s0"]
    assert second["args"] == [["arena", 0], ["persistent", 0], ["output", 0]]
    assert second["label"] == "linear_relu" and second["location"][:2] == ["model.py", 7]
    assert plan["arena"] == [{"bytes": "32*s0", "first": 0, "last": 2}]
    y, x_new = plan["outputs"]
    assert (y["shape"], y["strides"], y["storage"], y["offset"]) == ([8, "s0"], [1, 8], ["output", 0], 0)
    assert x_new["mutates"] == "x"
    assert plan["after"] == [{"to": ["input", 0], "from": ["arena", 0], "offset": 0, "bytes": "32*s0"}]
    assert 'declare i32 @"k0"(ptr, ptr, ptr)' in text


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('lamina.permute"(%y) {dims', 'lamina.relu"(%y) {dims', "'lamina.relu' stands in @main outside of a kernel"),
        ("@main(", "@other(", "no function @main"),
        ("return %t, %h : tensor<8x?xf32", """
    %c = "lamina.slice"(%y) {starts = ["0", "0"], sizes = ["s0", "1"], steps = array<i64: 1, 1>} : (tensor<?x8xf32, ["s0", "8"]>) -> tensor<?x1xf32, ["s0", "1"]>
    %e = "lamina.expand"(%c) {shape = ["s0", "8"]} : (tensor<?x1xf32, ["s0", "1"]>) -> tensor<?x8xf32, ["s0", "8"]>
    return %t, %e : tensor<8x?xf32""", "the new value of 'x' is a view"),
        ('{kernel = @k0, dims = ["s0"]} : (tensor<?x8xf32, ["s0", "8"]>, tensor<8x8xf32>) -> tensor<?x8xf32, ["s0", "8"]>\n    %y',
         '{kernel = @k0, dims = ["s0"], inplace = array<i64: 1, 0>} : (tensor<?x8xf32, ["s0", "8"]>, tensor<8x8xf32>) -> tensor<?x8xf32, ["s0", "8"]>\n    %y',
         "writes over a persistent buffer"),
    ],
)  # fmt: skip
def test_refused(old, new, message):
    text = MODULE.replace(old, new)
    assert text != MODULE
    with pytest.raises(PlanError, match=message):
        plan_of(text)
