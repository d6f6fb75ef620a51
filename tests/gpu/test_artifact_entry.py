"""The native entry of artifacts on a GPU, where there is none: a fake driver runs its launches in the simulator."""

import threading

import numpy as np
import pytest
import torch
from support.fake_cuda import CONTEXT, FakeDriver

import lamina
from lamina.compiler import artifact
from lamina.compiler.api import compile_graph, show_ir
from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType
from lamina.runtime import dlpack, machine
from lamina.runtime.errors import DeviceMemoryError, LaminaIndexError, LaminaRuntimeError
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.array import DeviceArray

RNG = np.random.default_rng(0)


def two_softmaxes(rows=12):
    """softmax over rows of a softmax over columns, and the sums of the inner one: several kernels."""
    graph = Graph()
    if not isinstance(rows, int):
        graph.symbols.append(Symbol(str(rows), 1, 64, 1, 0, 0))
    x = graph.add_input("x", TensorType("f32", (rows, 70)))
    w = graph.add_input("w", TensorType("f32", (70,)))
    y = graph.add("softmax", graph.add("mul", x, w), dim=0)
    graph.add_output(graph.add("softmax", y, dim=1))
    graph.add_output(graph.add("sum", y, dims=(0,), keepdim=False))
    return graph


def expected(x, w):
    y = torch.softmax(torch.as_tensor(x) * torch.as_tensor(w), 0)
    return torch.softmax(y, 1).numpy(), y.sum(0).numpy()


@pytest.fixture
def load(monkeypatch, tmp_path):
    """`load(graph, **options)`: the loaded model, its driver, and the list of calls that Python had to make."""

    def make(graph, weights=None, target="sm_90a", **options):
        path = artifact.save(tmp_path / "m.lamina", {target: compile_graph(graph, target)}, weights or {}, {})
        fake = FakeDriver(show_ir(graph, "loops", target)).install(monkeypatch)
        model, slow = lamina.load(path, device="cuda:0", **options), []
        general = model._caller.general
        monkeypatch.setattr(model._caller, "general", lambda *args: slow.append(args) or general(*args))
        return model, fake, slow

    return make


def given(model, *arrays, stream=0):
    return [DeviceArray.of(model.device, np.ascontiguousarray(a), stream) for a in arrays]


def operands(rows=12):
    return RNG.standard_normal((rows, 70), np.float32), RNG.standard_normal(70, np.float32)


def check(results, wanted):
    for r, e in zip(results, wanted):
        np.testing.assert_allclose(np.asarray(r), e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("graphs", [False, True])
def test_the_current_device_stays_what_it_was(load, graphs):
    """Another library's device is current in this thread, or none: also where arrays are made, copied and read, and where a call fails."""
    model, fake, slow = load(two_softmaxes(), graphs=graphs)
    for before in (0, CONTEXT + 7):
        fake.cuCtxSetCurrent(before)
        for _ in range(3):
            x, w = operands()
            check(model(*given(model, x, w)), expected(x, w))
            check(model(x, w), expected(x, w))
        fake.fail["cuMemAllocFromPoolAsync"] = 2
        with pytest.raises(DeviceMemoryError):
            model(x, w)
        del fake.fail["cuMemAllocFromPoolAsync"]
        assert fake.current == before
    fake.cuCtxSetCurrent(0)
    assert fake.contexts == {CONTEXT}


def test_it_launches_what_python_launches(load):
    model, fake, slow = load(two_softmaxes())
    x, w = operands()
    launched = []
    for _ in range(3):  # the third is native
        fake.launches.clear()
        check(model(*given(model, x, w)), expected(x, w))
        launched.append([name for name, _, _ in fake.launches])
    assert len(slow) == 2 and launched[2] == launched[0] and len(launched[0]) > 1


def test_other_arrays_and_results_of_their_own(load):
    model, _, slow = load(two_softmaxes())
    x, w = operands()
    for _ in range(3):
        first = model(*given(model, x, w))
    kept = [np.asarray(r) for r in first]
    other, v = operands()
    check(model(*given(model, other, v)), expected(other, v))
    check(first, kept)
    assert len(slow) == 2


def test_memory_is_given_back(load):
    model, fake, slow = load(two_softmaxes())
    arrays = given(model, *operands())
    model(*arrays), model(*arrays)
    before = set(fake._memory)
    for _ in range(3):
        model(*arrays)
    assert set(fake._memory) == before and len(slow) == 2


def test_a_stream_is_the_callers(load):
    model, fake, slow = load(two_softmaxes())
    x, w = operands()
    for stream in (0x70, 0x70, 0x77):
        fake.launches.clear()
        results = model(*given(model, x, w, stream=stream), stream=stream)
        assert {s for _, _, s in fake.launches} == {stream} and results[0].stream == stream
    assert len(slow) == 2
    fake.calls.clear()
    check(model(*given(model, x, w, stream=0x70), stream=0x77), expected(x, w))
    assert fake.calls.index("cuStreamSynchronize") < fake.calls.index("cuLaunchKernelEx") and len(slow) == 3


def test_what_it_was_not_made_for_goes_to_python(load):
    model, fake, slow = load(two_softmaxes())
    x, w = operands()
    arrays = given(model, x, w)
    model(*arrays), model(*arrays)
    check(model(x, w), expected(x, w))  # arrays of the host
    check(model(arrays[0], w=arrays[1]), expected(x, w))  # native: names are put in order first
    shifted = DeviceArray(model.device, given(model, np.r_[np.float32(0), x.ravel()])[0].pointer + 4, x.shape, "f32", None, 0)  # fmt: skip
    model(shifted, arrays[1])
    with pytest.raises(LaminaRuntimeError, match="input 'x' has dtype f64, expected f32"):
        model(x.astype(np.float64), arrays[1])
    with pytest.raises(LaminaRuntimeError, match="input 'w' is missing"):
        model(arrays[0])
    assert len(slow) == 2 + 3


def test_sizes_come_and_go(load):
    model, _, slow = load(two_softmaxes(symbol("s0")))
    for rows in (5, 5, 7, 7, 5, 7, 9):
        x, w = operands(rows)
        check(model(*given(model, x, w)), expected(x, w))
    assert [args[1].shape[0] for args in slow] == [5, 5, 7, 7, 9]


def test_a_graph_gets_the_addresses_of_each_call(load):
    model, fake, slow = load(two_softmaxes(), graphs=True)
    x, w = operands()
    arrays = given(model, x, w)
    model(*arrays), model(*arrays)
    fake.calls.clear()
    first = model(*arrays)
    assert fake.calls.count("cuGraphLaunch") == 1 and "cuLaunchKernelEx" not in fake.calls
    other, v = operands()
    check(model(*given(model, other, v)), expected(other, v))
    check(first, expected(x, w))
    assert fake.calls.count("cuGraphLaunch") == 2 and len(slow) == 2


def test_swapped_weights_are_read_by_the_next_call(load):
    graph = Graph()
    x, w = graph.add_input("x", TensorType("f32", (64,))), graph.add_input("w", TensorType("f32", (64,)), "weight")
    graph.add_output(graph.add("mul", x, w))
    weights = {"w": RNG.standard_normal(64, np.float32)}
    model, _, _ = load(graph, weights)
    x = RNG.standard_normal(64, np.float32)
    (array,) = given(model, x)
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(model(array)), x * weights["w"])
    model.swap_weights({"w": 2 * weights["w"]})
    np.testing.assert_allclose(np.asarray(model(array)), x * 2 * weights["w"])


def test_a_swap_that_fails_changes_no_weight(load):
    graph = Graph()
    x = graph.add_input("x", TensorType("f32", (8,)))
    w, v = (graph.add_input(n, TensorType("f32", shape), "weight") for n, shape in (("w", (8,)), ("v", ())))
    graph.add_output(graph.add("mul", graph.add("mul", x, w), v))
    ones = np.ones(8, np.float32)
    model, _, _ = load(graph, {"w": ones, "v": np.float32(1)})
    with pytest.raises(LaminaRuntimeError, match="weight 'v' is f64"):
        model.swap_weights({"w": 2 * ones, "v": np.float64(3)})
    model.swap_weights({"v": np.float32(5)})  # a scalar's memory has no dimension
    (array,) = given(model, ones)
    np.testing.assert_array_equal(np.asarray(model(array)), 5 * ones)


def test_errors_are_raised_and_forgotten(load):
    model, fake, _ = load(two_softmaxes())
    arrays = given(model, *operands())
    model(*arrays), model(*arrays)
    before = set(fake._memory)
    for function in ("cuMemAllocFromPoolAsync", "cuLaunchKernelEx"):
        fake.fail[function] = 2
        with pytest.raises(DeviceMemoryError, match="free device memory"):
            model(*arrays)
        del fake.fail[function]
        assert set(fake._memory) == before
    check(model(*arrays), expected(*map(np.asarray, arrays)))


def test_a_failed_check_is_raised_by_the_next_call(load):
    graph = Graph()
    table, index = graph.add_input("t", TensorType("f32", (10, 8))), graph.add_input("i", TensorType("i64", (2,)))
    graph.add_output(graph.add("embedding", table, index))
    model, _, slow = load(graph)
    t = RNG.standard_normal((10, 8), np.float32)
    right, wrong = given(model, t, np.array([1, 2])), given(model, t, np.array([1, 99]))
    model(*right), model(*right), model(*wrong)
    with pytest.raises(LaminaIndexError):
        model(*right)
    np.testing.assert_array_equal(np.asarray(model(*right)), t[[1, 2]])
    assert len(slow) == 3


def test_a_host_without_a_launcher_uses_python(monkeypatch, tmp_path):
    graph = two_softmaxes()
    programs = {t: compile_graph(graph, t) for t in ("sm_90a", "aarch64")}
    path = artifact.save(tmp_path / "m.lamina", programs, {}, {})
    FakeDriver(show_ir(graph, "loops", "sm_90a")).install(monkeypatch)
    monkeypatch.setattr(machine, "host_arch", lambda: "x86_64")
    model = lamina.load(path, device="cuda:0")
    assert [*model.artifact.manifest["hosts"]] == ["aarch64"] and model._caller.call == model._caller.general
    x, w = operands()
    check(model(*given(model, x, w)), expected(x, w))


def test_weights_that_only_what_depends_on_them_reads_are_freed(load):
    """And not those that launches read, are copied, or returned."""
    graph, type = Graph(), TensorType("f32", (64,))
    x = graph.add_input("x", type)
    first, second, third = (graph.add_input(n, type, "weight") for n in "abc")
    graph.add_output(graph.add("mul", x, graph.add("sum", graph.add("exp", first), dims=(0,), keepdim=True)))
    graph.add_output(graph.add("add", x, second))
    graph.add_output(graph.add("reshape", third, shape=(8, 8)))
    arrays = {n: RNG.standard_normal(64, np.float32) for n in "abc"}
    model, _, _ = load(graph, arrays)
    given_x = RNG.standard_normal(64, np.float32)
    wanted = given_x * np.exp(arrays["a"]).sum(), given_x + arrays["b"], arrays["c"].reshape(8, 8)
    for _ in range(3):
        check(model(*given(model, given_x)), wanted)
    kept = [o for o in model._caller.constants.owners if isinstance(o, DeviceArray)]
    assert len(kept) == 2


def test_threads_call_one_model(load):
    model, fake, _ = load(two_softmaxes())
    x, w = operands()
    arrays, done = given(model, x, w), []
    model(*arrays), model(*arrays)

    def work():
        for _ in range(5):
            done.append(model(*arrays))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(done) == 20
    for results in done:
        check(results, expected(x, w))


class Tensor(torch.Tensor):
    """A tensor of the host, which is where the fake device's memory is."""

    def __dlpack__(self, stream=None):
        return self.as_subclass(torch.Tensor).__dlpack__()


def tensor(array):
    """A torch tensor that starts where kernels want it."""
    room = torch.empty(array.size + 4)
    return room[-room.data_ptr() // 4 % 4 :][: array.size].view(array.shape).copy_(torch.as_tensor(array)).as_subclass(Tensor)  # fmt: skip


def test_sizes_that_are_arguments_are_ints(load):
    graph = Graph()
    graph.symbols.append(Symbol("s0", 0, 64, 1, 1, -1))
    x = graph.add_input("x", TensorType("f32", (symbol("s0"), 70)))
    graph.add_input("n", TensorType("i64", ()), "scalar")
    graph.add_output(graph.add("softmax", x, dim=1))
    model, _, _ = load(graph)
    (x, _) = operands()
    np.testing.assert_allclose(np.asarray(model(x, 12)), torch.softmax(torch.from_numpy(x), 1), rtol=1e-6)
    with pytest.raises(LaminaRuntimeError, match="input 'n' is a float, expected an int"):
        model(x, 12.5)


def test_tensors_of_torch_are_read_natively(load, monkeypatch):
    monkeypatch.setattr(cuda.Device, "dlpack", 1)  # the host
    monkeypatch.setitem(dlpack._KINDS, 1, "cuda")
    model, _, slow = load(two_softmaxes())
    x, w = operands()
    tensors = tensor(x), tensor(w)
    for _ in range(3):
        check(model(*tensors), expected(x, w))
    assert len(slow) == (2 if dlpack.exchanged(tensors[0], 1, 0) else 3)
    with pytest.raises(LaminaRuntimeError, match="not contiguous"):
        model(torch.empty(70, 12).as_subclass(Tensor).t(), tensors[1])


def test_what_other_streams_free_is_kept_until_it_was_read(load):
    model, fake, slow = load(two_softmaxes())
    x, w = operands()
    fake.fail["cuEventQuery"] = 600  # not yet there
    other = given(model, x, w, stream=0x70)
    addresses = {a.pointer for a in other}
    model(*other, stream=0x77)
    del other
    slow.clear()  # it holds the arrays too
    model(x, w)
    assert addresses <= set(fake._memory)
    del fake.fail["cuEventQuery"]
    model(x, w)
    assert not addresses & set(fake._memory)


def test_an_array_interface_is_read_in_place(load):
    model, fake, _ = load(two_softmaxes())
    x, w = operands()
    arrays = given(model, x, w)

    class Foreign:
        def __init__(self, array):
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    before = set(fake._memory)
    check(model(*map(Foreign, arrays)), expected(x, w))
    assert set(fake._memory) == before
