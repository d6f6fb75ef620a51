"""How eager rounds numbers and 0-d tensors on a GPU, decided in the record, which the CPU runs: no GPU is needed."""

import numpy as np
import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from lamina.dialects import interpret
from lamina.frontend.context import Context

aten = torch.ops.aten
X = torch.linspace(-3, 3, 4001).bfloat16()
F, R = X.float(), torch.tensor(0.1).bfloat16().float()


def converted(target, device, *others, **kwargs):
    """`target(x, *others)` on `device`, where `x` is bf16 there and a name stands for a 0-d f32 of 0.1 ("host" or "device")."""
    graph, root, mode = fx.Graph(), torch.nn.Module(), FakeTensorMode()
    root.register_buffer("host", torch.tensor(0.1))

    def note(node, shape, dtype, device):
        with mode:
            node.meta["val"] = torch.empty(shape, dtype=dtype, device=device)
        return node

    x = note(graph.placeholder("x"), X.shape, torch.bfloat16, device)
    given = []
    for other in others:
        if other == "host":
            other = note(graph.get_attr("host"), (), torch.float32, "cpu")
        elif other == "device":
            other = note(graph.placeholder("s"), (), torch.float32, device)
        given.append(other)
    made = note(graph.call_function(target, (x, *given), kwargs), X.shape, torch.bfloat16, device)
    graph.output(made)
    fx.GraphModule(root, graph)
    c = Context("main")
    c.convert(made)
    c.graph.add_output(c.value(made).id)
    arrays = {"x": X.view(torch.int16).numpy(), "s": np.float32(0.1)}
    inputs = [interpreted(arrays[node.name]) for node in c.inputs]
    (result,) = interpret.run(c.graph, inputs)
    return torch.from_numpy(np.ascontiguousarray(result).view(np.int16)).view(torch.bfloat16)


def interpreted(array):
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16) if array.dtype == np.int16 else array


NUMBERS = [
    (aten.add.Tensor, "cuda", 0.1, F + 0.1),
    (aten.sub.Tensor, "cuda", 0.1, F - 0.1),
    (aten.mul.Tensor, "cuda", 0.1, F * 0.1),
    (aten.add.Tensor, "cuda", "host", F + 0.1),
    (aten.mul.Tensor, "cuda", "host", F * 0.1),
    (aten.add.Tensor, "cuda", "device", F + R),
    (aten.mul.Tensor, "cuda", "device", F * R),
    (aten.maximum.default, "cuda", "device", torch.maximum(F, R)),
]


@pytest.mark.parametrize("target, device, other, wide", NUMBERS, ids=lambda v: str(v) if isinstance(v, str) else None)
def test_numbers_and_what_lies_on_the_cpu_are_not_rounded(target, device, other, wide):
    """As measured on an H200; 0-d tensors that lie there are rounded as others are."""
    made = converted(target, device, other)
    assert torch.equal(made, wide.bfloat16()), (made != wide.bfloat16()).sum()


def test_a_factor_is_not_rounded_either():
    made = converted(aten.add.Tensor, "cuda", "device", alpha=0.3)
    assert torch.equal(made, (F.double() + R.double() * np.float64(np.float32(0.3))).bfloat16())
    made = converted(aten.add.Tensor, "cuda", "host", alpha=0.3)
    assert torch.equal(made, (F.double() + np.float64(np.float32(0.1)) * np.float64(np.float32(0.3))).bfloat16())


@pytest.mark.parametrize("op", [torch.add, torch.sub, torch.mul, torch.div])
def test_on_a_cpu_as_eager_does_there(op):
    name = {"add": aten.add, "sub": aten.sub, "mul": aten.mul, "div": aten.div}[op.__name__].Tensor
    assert torch.equal(converted(name, "cpu", 0.1), op(X, 0.1))
    assert torch.equal(converted(name, "cpu", "device"), op(X, torch.tensor(0.1)))
