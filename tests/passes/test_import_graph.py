"""The record as MLIR: types with sizes, weights, locations, round trip, and what the verifier finds."""

import pytest
from mlir import ir

from lamina.dialects import dims
from lamina.dialects.mlir_ops import attributes_of, build, operands_of
from lamina.dialects.mlir_types import mlir_type, type_of, type_text
from lamina.dialects.op import OpError
from lamina.dialects.record import Graph, Location, RecordError, Symbol, TensorType
from lamina.passes.graph.import_graph import import_graph
from lamina.passes.graph.verify_lamina import VerifyError, verify_lamina

from . import toy_ops  # noqa: F401  (defines lamina.toy_* before any Context)

S = dims.symbol("s0")


def two_layer() -> Graph:
    g = Graph(symbols=[Symbol("s0", 1, 64, 1, 1, 0)])
    w = g.add_input("w", TensorType("f32", (8,)), "weight")
    x = g.add_input("x", TensorType("f32", (S, 8)))
    y = g.add("toy_add", x, w, location=Location("model.py", 31, "add"))
    g.add_output(g.add("toy_optional", y, None, w, location=Location("model.py", 32)), "y", mutates="x")
    return g


def test_module_text():
    text = str(import_graph(two_layer()))
    assert '"lamina.weight"() {dtype = f32, shape = ["8"], symbol = "w"} : () -> tensor<8xf32>' in text
    assert 'tensor<?x8xf32, ["s0", "8"]>' in text
    assert "operandSegmentSizes = array<i32: 1, 0, 1>" in text
    assert 'lamina.mutates = ["x"]' in text
    # `w` is no argument, so s0 is read from argument 0
    assert "dim = 0 : i64, input = 0 : i64" in text


def test_locations_are_source_lines():
    text = import_graph(two_layer()).operation.get_asm(enable_debug_info=True)
    assert 'loc("model.py":31:1)' in text and '"add"(#loc' in text


def test_text_round_trip_is_stable():
    module = import_graph(two_layer())
    text = module.operation.get_asm(enable_debug_info=True)
    with module.context:
        again = ir.Module.parse(text)
    assert again.operation.get_asm(enable_debug_info=True) == text
    verify_lamina(again)


def test_fields_by_name():
    module = import_graph(two_layer())
    op = module.body.operations[0].regions[0].blocks[0].operations[2]
    fields = operands_of(op)
    assert fields["b"] is None and fields["c"] is not None
    assert attributes_of(op) == {"scale": 1.0, "dims": (), "shape": (), "limit": None}


@pytest.mark.parametrize(
    "type",
    [
        TensorType("f32", ()),
        TensorType("bool", (2, 3)),
        TensorType("u8", (S, 4)),
        TensorType("bf16", (dims.floordiv(S, 2), dims.dim_max(S, 3), S * 2 + 1)),
    ],
    ids=str,
)
def test_types_round_trip(type):
    with import_graph(Graph()).context:
        assert type_of(mlir_type(type)) == type
        assert str(mlir_type(type)) == type_text(type)


@pytest.mark.parametrize("value", [3, -1, True, False, 0.5, -0.0, float("inf"), 2**63 + 5], ids=repr)
def test_scalars_round_trip(value):
    with import_graph(Graph()).context as ctx, ir.Location.unknown(ctx):
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            got = attributes_of(build("toy_scalar", [], {"value": value}))["value"]
    assert repr(got) == repr(value)


def test_dims_attribute_keeps_expressions():
    with import_graph(Graph()).context as ctx, ir.Location.unknown(ctx):
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            x = build("weight", [], {"symbol": "w", "shape": (2,), "dtype": "f32"}).result
            op = build("toy_optional", [x, None, None], {"shape": (S + 1, 4), "dims": (0, 1), "limit": 3})
    assert attributes_of(op) == {"scale": 1.0, "dims": (0, 1), "shape": (S + 1, 4), "limit": 3}


def test_build_reports_the_op_and_the_line():
    with import_graph(Graph()).context as ctx, ir.Location.unknown(ctx), ir.InsertionPoint(ir.Module.create().body):
        x, y = (build("weight", [], {"symbol": "w", "shape": (n,), "dtype": "f32"}).result for n in (2, 3))
        with pytest.raises(OpError, match=r"lamina.toy_add at model.py:31: cannot broadcast"):
            build("toy_add", [x, y], {}, Location("model.py", 31))


def test_a_record_with_wrong_types_is_refused():
    graph = two_layer()
    graph.types[graph.nodes[0].results[0]] = TensorType("f32", (S, 9))
    with pytest.raises(RecordError, match=r"lamina.toy_add at model.py:31 \(add\): the record says f32\[s0, 9\]"):
        import_graph(graph)


def test_verifier_lists_every_error_with_its_line():
    module = import_graph(two_layer())
    function = module.body.operations[0]
    with module.context:
        for op in list(function.regions[0].blocks[0].operations)[1:3]:
            op.operation.results[0].set_type(mlir_type(TensorType("f32", (dims.symbol("q"), 8))))
    with pytest.raises(VerifyError) as caught:
        verify_lamina(module)
    lines = str(caught.value).split("\n")
    assert lines[0] == "lamina.toy_add at model.py:31 (add): its result 'y' is f32[q, 8], but the op gives f32[s0, 8]"
    assert lines[1].endswith("result 'y' has the size symbol 'q', which is not declared")
    assert any(line.startswith("lamina.toy_optional at model.py:32: ") for line in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '"lamina.toy_ad"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>',
            "no such op; did you mean toy_add",
        ),
        ('"lamina.toy_add"(%x) : (tensor<2xf32>) -> tensor<2xf32>', "takes 2 operands, got 1"),
        ('"lamina.toy_scalar"() : () -> tensor<f64>', "attribute 'value' is missing"),
        ('"lamina.toy_scalar"() {value = "a"} : () -> tensor<f64>', "attribute 'value' cannot be \"a\""),
        ('"lamina.toy_scalar"() {value = 1, dim = 2} : () -> tensor<f64>', "unknown attribute 'dim'"),
        ("arith.constant dense<1.0> : tensor<2xf32>", "arith.constant at -:1: only lamina ops"),
        (
            '"lamina.launch"(%x) {kernel = @k9, dims = []} : (tensor<2xf32>) -> tensor<2xf32>',
            "there is no kernel '@k9'",
        ),
    ],
)
def test_verifier_names_what_is_wrong(text, message):
    module = ir.Module.parse(
        "func.func @main(%x: tensor<2xf32>) { %0 = " + text + "\n return }", import_graph(Graph()).context
    )
    with pytest.raises(VerifyError, match=message):
        verify_lamina(module)
