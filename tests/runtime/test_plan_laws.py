"""Random programs mean what their functional reading means, whatever the plan does with storage."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.runtime.program import LoadedProgram

from .conftest import Function
from .test_program import call

N = 6
NUMPY = {
    "add": np.add,
    "mul": np.multiply,
    "twice": lambda x: x + x,
    "increment": lambda x: x + np.float32(1),
}


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_programs(compiled, data):
    names = ["a", "b", "c"][: data.draw(st.integers(1, 3))]
    steps = []  # (kernel, operands): values are numbered, inputs first
    for _ in range(data.draw(st.integers(0, 8))):
        kernel = data.draw(st.sampled_from(sorted(NUMPY)))
        known = st.integers(0, len(names) + len(steps) - 1)
        steps.append((kernel, [data.draw(known) for _ in range(2 if kernel in ("add", "mul") else 1)]))
    value = st.integers(0, len(names) + len(steps) - 1)
    mutated = {name: data.draw(value) for name in names if data.draw(st.booleans())}
    results = [(data.draw(value), data.draw(st.sampled_from(["whole", "transposed", "tail"]))) for _ in range(3)]
    inplace = _inplace(names, steps, mutated, [v for v, _ in results]) if data.draw(st.booleans()) else {}

    f = Function((2, 3))
    made = [f.input(n) for n in names]
    for number, (kernel, operands) in enumerate(steps):
        made.append(f.call(kernel, *(made[o] for o in operands), inplace=inplace.get(number)))
    outputs = [(f"new_{n}", made[v], n) for n, v in mutated.items()]
    outputs += [(f"result{i}", _view(f, made[v], kind), "") for i, (v, kind) in enumerate(results)]
    program = LoadedProgram(*compiled(f, data.draw(st.permutations(outputs)), symbols=[]))

    inputs = [np.arange(N, dtype=np.float32).reshape(2, 3) + 10 * i for i in range(len(names))]
    expected = [a.copy() for a in inputs]
    for kernel, operands in steps:
        expected.append(NUMPY[kernel](*(expected[o] for o in operands)))
    order = [o["name"] for o in program.plan["outputs"] if o["mutates"] is None]
    got = dict(zip(order, call(program, inputs, None)))
    for i, (v, kind) in enumerate(results):
        np.testing.assert_array_equal(got[f"result{i}"], _numpy_view(expected[v], kind))
    for number, name in enumerate(names):
        np.testing.assert_array_equal(inputs[number], expected[mutated.get(name, number)])


def _inplace(names, steps, mutated, results):
    """Steps that may write over their first operand: an input that this replaces, and that nothing reads later."""
    found = {}
    for number, (_, operands) in enumerate(steps):
        made, old = len(names) + number, operands[0]
        if old >= len(names) or mutated.get(names[old]) != made or operands.count(old) > 1:
            continue
        later = [o for _, more in steps[number + 1 :] for o in more]
        others = [v for n, v in mutated.items() if n != names[old]]
        if old not in later + results + others:
            found[number] = 0
    return found


def _view(f, value, kind):
    match kind:
        case "transposed":
            return f.view(value, "permute", (3, 2), dims=(1, 0))
        case "tail":
            return f.view(value, "slice", (1, 3), starts=(1, 0), sizes=(1, 3), steps=(1, 1))
    return value


def _numpy_view(array, kind):
    return {"transposed": array.T, "tail": array[1:], "whole": array}[kind]
