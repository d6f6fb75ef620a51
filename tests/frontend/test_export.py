"""torch.export programs: weights, state, names, dynamic sizes, errors; lamina.compile and lamina.export."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lamina
from lamina.compiler.options import OptionError
from lamina.dialects import interpret
from lamina.frontend.export import ExportError, from_file, from_program, missing_ops, symbol_names
from lamina.runtime.errors import LaminaRuntimeError


class Doubled(nn.Module):
    """A layer of torch's, called on a line of this file."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * 2


class Counting(nn.Module):
    """A linear layer, a buffer that is written, an input that is written, and a constant result."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.register_buffer("seen", torch.zeros(5))
        self.register_buffer("scale", torch.full((5,), 2.0))

    def forward(self, x):
        y = self.linear(x) * self.scale
        self.seen.add_(y.sum(0))
        x.mul_(2)
        return {"y": y + self.seen, "n": 3, "x": x}


def program(model, *args, **options):
    return torch.export.export(model, args, strict=False, **options)


def test_weights_state_and_names():
    exported = from_program(program(Counting(), torch.randn(3, 4)))
    assert set(exported.weights) == {"linear.weight", "linear.bias", "scale"} and set(exported.state) == {"seen"}
    kinds = {i.name: i.kind for i in exported.graph.inputs}
    assert kinds == {
        "x": "input",
        "linear.weight": "weight",
        "linear.bias": "weight",
        "scale": "weight",
        "seen": "input",
    }
    assert {o.mutates for o in exported.graph.outputs} == {None, "seen", "x"}


def test_record_computes_what_eager_does():
    model = Counting()
    x = torch.randn(3, 4)
    exported = from_program(program(model, x.clone()))
    arrays = {**exported.arrays(exported.weights), **exported.arrays(exported.state), "x": x.numpy().copy()}
    results = interpret.run(exported.graph, [arrays[i.name] for i in exported.graph.inputs])
    expected = model(x)
    named = {o.mutates or o.name: r for o, r in zip(exported.graph.outputs, results)}
    np.testing.assert_allclose(named["seen"], model.seen.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(named["x"], x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[0], expected["y"].detach(), rtol=1e-5, atol=1e-6)
    assert exported.results == [0, ("constant", 3), 1]


def test_users_names_of_dynamic_sizes():
    shapes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    exported_program = program(nn.Linear(4, 5), torch.randn(3, 4), dynamic_shapes={"input": shapes["x"]})
    exported = from_program(exported_program, "f", symbol_names(exported_program, {"input": shapes["x"]}))
    (symbol,) = exported.graph.symbols
    assert (symbol.name, symbol.minimum, symbol.maximum, symbol.dim) == ("batch", 2, 64, 0)


def test_unsupported_ops_are_one_error():
    def f(x):
        return torch.linalg.svd(x)[0] + torch.linalg.qr(x)[0]

    class Module(nn.Module):
        def forward(self, x):
            return f(x)

    with pytest.raises(ExportError, match="cannot be compiled ahead of time") as error:
        from_program(program(Module(), torch.randn(3, 3)))
    assert (
        "linalg_svd" in str(error.value) and "linalg_qr" in str(error.value) and "test_export.py:" in str(error.value)
    )


def test_files(tmp_path):
    path = tmp_path / "model.pt2"
    torch.export.save(program(nn.Linear(4, 5), torch.randn(3, 4)), path)
    assert from_file(path).graph.name == "model"
    assert missing_ops(path) == {}
    (tmp_path / "other.pt2").write_bytes(b"no")
    with pytest.raises(ExportError, match="is not a torch.export program"):
        from_file(tmp_path / "other.pt2")


def test_compile_a_function():
    def f(x, y):
        return F.gelu(x @ y), x.sum()

    x, y = torch.randn(4, 8), torch.randn(8, 3)
    compiled = lamina.compile(f, (x, y))
    torch.testing.assert_close(compiled(x, y), f(x, y))
    assert "lamina.gelu" in compiled.ir() and "linalg.generic" in compiled.ir("linalg") and "ret" in compiled.asm()
    with pytest.raises(TypeError, match="compiled for"):
        compiled(x)


def test_compile_with_dynamic_sizes_and_changing_weights():
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    compiled = lamina.compile(model, (torch.randn(4, 8),), dynamic_shapes=({0: torch.export.Dim("n", max=100)},))
    for n in (2, 7, 7, 50):
        x = torch.randn(n, 8)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
            model[0].weight.mul_(1.5)


def test_a_size_that_is_only_part_of_a_size():
    """`8 k` and `3 k + 1` tell `k`, which is no size itself; what is no `8 k` is refused."""

    def f(a, b):
        return a.view(-1, 8).sum(1), b.sum(0) + a.view(8, -1).mean()

    k = torch.export.Dim("k", min=2, max=100)
    compiled = lamina.compile(f, (torch.randn(16), torch.randn(7, 3)), dynamic_shapes=({0: 8 * k}, {0: 3 * k + 1}))
    for n in (2, 9, 100):
        a, b = torch.randn(8 * n), torch.randn(3 * n + 1, 3)
        torch.testing.assert_close(compiled(a, b), f(a, b))
    for sizes, text in [
        ((20, 7), r"\[20\] and must have \[16\]"),
        ((16, 8), r"\[8, 3\] and must"),
        ((808, 304), "2..100"),
    ]:
        with pytest.raises(LaminaRuntimeError, match=text):
            compiled(torch.randn(sizes[0]), torch.randn(sizes[1], 3))


def test_calls_that_were_not_compiled_for_are_errors():
    """Nothing but the callable itself looks at its arguments: no byte outside them may be read."""
    n = torch.export.Dim("n", min=4, max=64)
    compiled = lamina.compile(torch.add, (torch.ones(8, 3), torch.ones(8, 3)), dynamic_shapes=({0: n}, {0: n}))
    good = torch.ones(8, 3)
    torch.testing.assert_close(compiled(good, good), good + good)
    for bad, text in [
        (torch.ones(5, 3), r"input 'args_1' has sizes \[5, 3\] and must have \[8, 3\]"),
        (torch.ones(8, 2), r"sizes \[8, 2\]"),
        (good.double(), "float64 of 2 dims on cpu; it was compiled for torch.float32"),
        (torch.ones(3), "of 1 dims"),
    ]:
        with pytest.raises(LaminaRuntimeError, match=text):
            compiled(good, bad)
    for size in (2, 65):
        with pytest.raises(LaminaRuntimeError, match=f"'n' is {size} and must be 4..64"):
            compiled(torch.ones(size, 3), torch.ones(size, 3))


def test_inputs_of_a_plain_function_have_the_names_of_its_arguments():
    n = torch.export.Dim("n", max=64)
    compiled = lamina.compile(
        lambda x, *rest, scale: (x + sum(rest)) * scale,
        (torch.ones(4), torch.ones(4), torch.ones(4)),
        kwargs={"scale": torch.ones(1)},
        dynamic_shapes={"x": {0: n}, "rest": ({0: n}, {0: n}), "scale": None},
    )
    assert [i.name for i in compiled.exported.graph.inputs] == ["x", "rest_0", "rest_1", "scale"]
    with pytest.raises(LaminaRuntimeError, match=r"input 'rest_1' has sizes \[3\] and must have \[5\]"):
        compiled(torch.ones(5), torch.ones(5), torch.ones(3), scale=torch.ones(1))
    torch.testing.assert_close(compiled(*[torch.ones(5)] * 3, scale=torch.full((1,), 2.0)), torch.full((5,), 6.0))


def test_calls_of_another_structure_are_errors():
    x = torch.ones(8, 3)
    compiled = lamina.compile(torch.add, (x, x))
    with pytest.raises(LaminaRuntimeError, match="is a ndarray; pass a torch.Tensor"):
        compiled(x, x.numpy())
    with pytest.raises(TypeError, match=r"called with \(_, _, alpha=_\), but compiled for \(_, _\)"):
        compiled(x, x, alpha=2)


def test_arguments_that_are_no_tensors_are_part_of_the_code():
    """A call with another number ran the code of the first."""
    x = torch.randn(3, 8)
    scaled = lamina.compile(
        lambda x, by, more: x * by["factor"] + (0 if more is None else more), (x, {"factor": 3}, None)
    )
    torch.testing.assert_close(scaled(x, {"factor": 3}, None), x * 3)
    for given, more, shown in [
        (4, None, "4"),
        (3.0, None, "3.0"),
        (True, None, "True"),
        (x, None, "a Tensor"),
        (3, x, "a Tensor"),
    ]:
        with pytest.raises(
            LaminaRuntimeError, match=f"is {shown}; it was compiled for {'3' if more is None else 'None'}"
        ):
            scaled(x, {"factor": given}, more)
    padded = lamina.compile(lambda x, mode: F.pad(x, (1, 1), mode=mode), (x, "constant"))
    with pytest.raises(LaminaRuntimeError, match="input 'mode' is 'reflect'; it was compiled for 'constant'"):
        padded(x, "reflect")
    nothing = lamina.compile(lambda x, least: x.clamp(min=least), (x, float("nan")))
    torch.testing.assert_close(nothing(x, float("nan")), x.clamp(min=float("nan")), equal_nan=True)


def test_numbers_that_are_sizes_must_be_those():
    """Such a number was taken from the sizes, whatever the call said."""
    sizes = ({0: torch.export.Dim("n", max=50)}, torch.export.Dim.DYNAMIC)
    compiled = lamina.compile(lambda x, k: x.view(k, -1) * k, (torch.ones(3, 8), 3), dynamic_shapes=sizes)
    torch.testing.assert_close(compiled(torch.ones(5, 8), 5), torch.full((5, 8), 5.0))
    with pytest.raises(LaminaRuntimeError, match="input 'k' is 6 and must be 3, by the sizes"):
        compiled(torch.ones(3, 8), 6)


def test_wrong_arguments_of_compile_and_export():
    x = torch.ones(8, 3)
    with pytest.raises(TypeError, match=r"args is a tensor; it is a sequence with every argument: \(x,\)"):
        lamina.compile(torch.neg, x)
    with pytest.raises(TypeError, match=r"program is a ReLU; pass torch.export.export\(model, args\)"):
        lamina.export(nn.ReLU())
    with pytest.raises(OptionError, match="there is no option 'numeric'; options are "):
        lamina.compile(torch.neg, (x,), options={"numeric": "fast"})
    assert lamina.compile(torch.neg, (x,), options={"numerics": "fast"}).options == lamina.Options(numerics="fast")
    assert list(lamina.export(program(nn.ReLU(), x), targets="x86-64-v3").programs) == ["x86-64-v3"]


def test_places_are_the_users_lines_and_not_those_of_torch():
    exported = from_program(program(nn.Sequential(Doubled()), torch.randn(3, 4)))
    (linear,) = (n for n in exported.graph.nodes if n.op == "linear")
    assert linear.location.file == __file__


def test_places_in_a_plain_function_are_its_lines_and_those_of_what_it_calls():
    def inner(x):
        return x.exp()

    def outer(x):
        return inner(x).neg()

    first = inner.__code__.co_firstlineno
    nodes = lamina.compile(outer, (torch.randn(3),)).exported.graph.nodes
    found = {n.op: (n.location.file, n.location.line - first) for n in nodes}
    assert found == {"exp": (__file__, 1), "neg": (__file__, 4)}


def test_an_op_without_a_line_of_the_user_is_at_none_of_ours():
    (node,) = lamina.compile(torch.exp, (torch.randn(3),)).exported.graph.nodes
    assert node.location.file == ""


def test_export_to_an_artifact(tmp_path):
    model = Counting()
    exported = lamina.export(program(model, torch.randn(3, 4)))
    path = exported.save(tmp_path / "model.lamina")
    loaded = lamina.load(path)
    x = torch.randn(3, 4)
    given = x.numpy().copy()
    session = loaded.session()
    result = session(given)
    expected = model(x)
    first = result[0] if isinstance(result, (list, tuple)) else next(iter(result.values()))
    np.testing.assert_allclose(first, expected["y"].detach(), rtol=1e-4, atol=1e-5)


def test_composites_that_we_lack_are_taken_apart(tmp_path):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x):
            return torch.diff(self.lstm(x)[0], dim=1), F.linear(x, self.lstm.weight_ih_l0)

    model, x = Module(), torch.randn(2, 5, 3)
    path = tmp_path / "model.pt2"
    torch.export.save(program(model, x), path)
    assert missing_ops(path) == {}
    exported = from_file(path)
    assert "linear" in {n.op for n in exported.graph.nodes}
    arrays = {**exported.arrays(exported.weights), "x": x.numpy()}
    results = interpret.run(exported.graph, [arrays[i.name] for i in exported.graph.inputs])
    for got, expected in zip(results, model(x)):
        np.testing.assert_allclose(got, expected.detach(), rtol=1e-5, atol=1e-6)


def test_arrays_of_an_artifact_are_row_major_whatever_strides_the_example_had(tmp_path):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randn(3, 4).t())
            self.register_buffer("last", torch.zeros(5, 2).t())

        def forward(self, x):
            self.last.copy_(x.sum(2))
            return (x @ self.weight).transpose(0, 1) + 1, self.weight * 2

    model, x = Module(), torch.randn(5, 2, 4).transpose(0, 1)
    path = lamina.export(program(model, x)).save(tmp_path / "model.lamina")
    loaded = lamina.load(path)
    session = loaded.session()
    for got, expected in zip(session(x.numpy()), model(x)):
        assert got.shape == expected.shape and got.flags.c_contiguous
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(session.state["last"], model.last, rtol=1e-5, atol=1e-6)
    loaded.swap_weights({"weight": np.ones((4, 3), np.float32)})
    np.testing.assert_array_equal(loaded(x.numpy())[1], np.full((4, 3), 2.0))


class Alternate(nn.Module):
    def forward(self, x):
        return (x * 2)[:, ::2], x[:, 1:3]


def test_results_with_gaps_come_without():
    x = torch.randn(4, 6)
    made = lamina.compile(Alternate(), (x,))(x)
    for y, expected in zip(made, Alternate()(x), strict=True):
        assert torch.equal(y, expected) and y.is_contiguous()


@pytest.mark.parametrize(
    "view",
    [lambda t, n: t.expand(n, -1, -1), lambda t, n: t.transpose(1, 2)[:, :3].expand(n, -1, 5), lambda t, n: t[:, :, ::2].expand(n, -1, -1).repeat(1, 1, 2)],
)  # fmt: skip
def test_views_with_gaps_in_a_program_that_was_saved(view, tmp_path):
    """Loaded, a program does not say which tensors share memory."""

    class Token(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.token = torch.nn.Parameter(torch.randn(1, 5, 16))

        def forward(self, x):
            token = view(self.token, x.shape[0])
            return torch.cat([token, x[..., : token.shape[-1]]], 1) * 2

    model, x = Token().eval(), torch.randn(4, 3, 16)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "m.pt2")
    lamina.export(torch.export.load(tmp_path / "m.pt2")).save(tmp_path / "m.lamina")
    made = lamina.load(tmp_path / "m.lamina")(x.numpy())
    torch.testing.assert_close(torch.as_tensor(np.asarray(made)), model(x).detach())
