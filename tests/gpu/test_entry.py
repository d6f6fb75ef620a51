"""The native entry of a part on a GPU, where there is none: a fake driver runs its launches in the simulator."""

import ctypes
import threading

import pytest
import torch
from support.fake_cuda import CONTEXT, FakeDriver

from lamina.compiler.api import compile_graph, show_ir
from lamina.frontend.calls import cuda_entry, cuda_launcher, entry_support, launcher
from lamina.runtime.entry import addresses
from lamina.runtime.gpu import cuda, layout
from lamina.runtime.gpu.program import GpuProgram


class FakeTorchCuda:
    """The exported function of libtorch_cuda that an entry calls."""

    stream = 0

    def __init__(self):
        made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
        self.aoti_torch_get_current_cuda_stream = made(self._current)

    def _current(self, index, to):
        ctypes.c_uint64.from_address(to).value = self.stream
        return 0


@pytest.fixture
def gpu(monkeypatch):
    """`gpu(function, *tensors, graphs=False)`: the part's entry, its Python form, and the driver under both."""
    shared = FakeTorchCuda()

    def make(function, *tensors, graphs=False, **options):
        parts = []
        compile_part = launcher.compile_part

        def noted(part, *args, **named):
            parts.append(part)
            return compile_part(part, *args, **named)

        torch._dynamo.reset()
        with monkeypatch.context() as patch:
            patch.setattr(launcher, "compile_part", noted)
            with torch.no_grad():
                torch.compile(function, backend="lamina", **options)(*tensors)
        (part,) = parts
        program = compile_graph(part.graph, "sm_90a")
        fake = FakeDriver(show_ir(part.graph, "loops", "sm_90a")).install(monkeypatch)
        monkeypatch.setattr(cuda_launcher, "current_stream", lambda index: shared.stream)
        native = cuda_launcher.CudaNative(part, GpuProgram(program.manifest, program.image, cuda.device(0)))
        native.device = torch.device("cpu")
        found = addresses(entry_support.torch_library("cpu"), cuda_entry._TORCH)
        found |= addresses(shared, cuda_entry._TORCH_GPU)
        support = entry_support.support(cuda_entry.cuda_entry_ir, "cuda_entry", found)
        call = cuda_entry._entry(native, support, graphs).chain.call
        for _ in range(2):  # in Python; the next is native
            call(*tensors)
        fake.calls.clear()
        fake.launches.clear()
        return call, native, fake

    make.torch = shared
    return make


def slow_calls(call):
    """The native parts' Python calls from now on."""
    counted = []
    entry = call.__self__.chain._slow.__self__
    run = entry.native

    def counting(*args):
        counted.append(args)
        return run(*args)

    counting.signature, counting.call = run.signature, run.call
    entry.native = counting
    return counted


def chain(x, w):
    y = torch.softmax(x * w, 0)
    return torch.softmax(y, 1), y.sum(0)


def test_it_launches_what_python_launches(gpu):
    x, w = torch.randn(40, 70), torch.randn(70)
    call, native, fake = gpu(chain, x, w)
    slow = slow_calls(call)
    gpu.torch.stream = 0x77
    made = call(x, w)
    assert not slow and len(fake.launches) > 1
    assert {stream for _, _, stream in fake.launches} == {0x77}
    names = [n for n, _, _ in fake.launches]
    fake.launches.clear()
    native(x, w)
    assert [n for n, _, _ in fake.launches] == names
    torch.testing.assert_close(made, chain(x, w))


@pytest.mark.parametrize("graphs", [False, True])
def test_results_hold_what_is_dead_when_they_are_written(graphs, gpu, monkeypatch):
    monkeypatch.setattr(layout, "LEAST_HOSTED", 1)

    def rounds(x):
        for dim in (0, 1, 0, 1, 0):
            x = torch.softmax(2 * x, dim)
        return x

    call, native, fake = gpu(rounds, torch.randn(40, 70), graphs=graphs)
    slow = slow_calls(call)
    walk = native.program.walk(())
    result = walk.fixed - 1
    assert result in walk.homes and walk.bytes < sum(-(-4 * 40 * 70 // 256) * 256 for _ in range(3))
    kept = []
    for _ in range(3):  # results in memory of their own, into which the graph's nodes are led
        x = torch.randn(40, 70)
        kept.append(call(x)[0])
        torch.testing.assert_close(kept[-1], rounds(x))
    assert not slow and len({t.data_ptr() for t in kept}) == 3


def test_other_tensors_and_results_of_their_own(gpu):
    x, w = torch.randn(40, 70), torch.randn(70)
    call, _, _ = gpu(chain, x, w)
    slow = slow_calls(call)
    first = call(x, w)
    kept = [t.clone() for t in first]
    other = torch.randn(40, 70)
    torch.testing.assert_close(call(other, w), chain(other, w))
    torch.testing.assert_close(list(first), kept, rtol=0, atol=0)
    assert not slow


def test_what_it_was_not_made_for_goes_to_python(gpu):
    x, w = torch.randn(40, 70), torch.randn(70)
    call, _, fake = gpu(chain, x, w)
    slow = slow_calls(call)
    shifted = torch.cat([torch.zeros(1), x.flatten()])[1:].view(40, 70)
    assert shifted.data_ptr() % 16
    torch.testing.assert_close(call(shifted, w), chain(x, w))
    assert len(slow) == 1
    with pytest.raises(RuntimeError, match="is on meta and the code for cpu; move it there"):
        call(x, w.to("meta"))
    assert len(slow) == 2


def test_the_current_device_stays_what_it_was(gpu):
    """None is current in a thread that has done nothing yet; another one may be; ours may be: native calls all, and errors."""
    x, w = torch.randn(40, 70), torch.randn(70)
    call, python, fake = gpu(chain, x, w)
    slow = slow_calls(call)

    def check():
        for before in (0, CONTEXT + 7, CONTEXT):
            fake.cuCtxSetCurrent(before)
            torch.testing.assert_close(call(x, w), chain(x, w))
            assert fake.current == before and not slow
            torch.testing.assert_close(python(x, w), chain(x, w))
            assert fake.current == before
            fake.fail["cuLaunchKernelEx"] = 2
            with pytest.raises(RuntimeError):
                call(x, w)
            del fake.fail["cuLaunchKernelEx"]
            assert fake.current == before
            slow.clear()
        done.append(True)

    done = []
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
    check()
    assert len(done) == 2 and fake.contexts == {CONTEXT}


def test_a_driver_error_is_raised(gpu):
    x, w = torch.randn(40, 70), torch.randn(70)
    call, _, fake = gpu(chain, x, w)
    fake.fail["cuLaunchKernelEx"] = 2
    with pytest.raises(RuntimeError, match="launching a kernel of .* free device memory"):
        call(x, w)
    del fake.fail["cuLaunchKernelEx"]
    torch.testing.assert_close(call(x, w), chain(x, w))


def test_a_failed_check_is_raised_by_the_next_call(gpu):
    table, index = torch.randn(10, 8), torch.tensor([1, 2])
    call, _, _ = gpu(lambda t, i: torch.ops.aten.embedding(t, i) + 1, table, index)
    call(table, torch.tensor([1, 99]))
    with pytest.raises(IndexError):
        call(table, index)
    torch.testing.assert_close(call(table, index), (table[index] + 1,))


def test_launches_of_all_sizes_are_native(gpu):
    call, _, fake = gpu(lambda x: torch.softmax(x, 1).sum(0) + 1, torch.randn(5, 40), dynamic=True)
    slow = slow_calls(call)
    for rows, columns in ((7, 40), (300, 41), (7, 2000), (9, 40)):
        x = torch.randn(rows, columns)
        fake.launches.clear()
        torch.testing.assert_close(call(x)[0], torch.softmax(x, 1).sum(0) + 1)
        assert fake.launches
    assert not slow


def test_a_graph_gets_the_pointers_of_each_call(gpu):
    x, w = torch.randn(40, 70), torch.randn(70)
    call, _, fake = gpu(chain, x, w, graphs=True)
    slow = slow_calls(call)
    first = call(x, w)
    kept = [t.clone() for t in first]
    assert fake.calls.count("cuGraphLaunch") == 1 and "cuLaunchKernelEx" not in fake.calls
    for other in (torch.randn(40, 70), torch.randn(40, 70)):
        made = call(other, w)
        torch.testing.assert_close(made, chain(other, w))
        del made
    torch.testing.assert_close(list(first), kept, rtol=0, atol=0)
    assert not slow


def test_a_graph_sets_only_the_nodes_that_read_what_moved(gpu):
    x, w = torch.randn(40, 70), torch.randn(70)
    call, _, fake = gpu(chain, x, w, graphs=True)
    call(x, w)
    _, made = call.__self__.chain.tables[0]._made
    before = list(made.previous)
    fake.calls.clear()
    call(x.clone(), w)
    moved = {i for i, (a, b) in enumerate(zip(before, made.previous)) if a != b}
    readers = [launch for _, _, launch in made.graph.nodes if moved & set(launch.slots)]
    assert moved and fake.calls.count("cuGraphExecKernelNodeSetParams") == len(readers)


def test_a_graph_is_not_used_while_a_stream_is_captured(gpu):
    x, w = torch.randn(40, 70), torch.randn(70)
    call, _, fake = gpu(chain, x, w, graphs=True)
    fake.capturing = True
    torch.testing.assert_close(call(x, w), chain(x, w))
    assert "cuGraphLaunch" not in fake.calls


def test_a_node_that_cannot_be_set_ends_the_graph(gpu):
    x, w = torch.randn(40, 70), torch.randn(70)
    call, _, fake = gpu(chain, x, w, graphs=True)
    fake.fail["cuGraphExecKernelNodeSetParams"] = 1
    torch.testing.assert_close(call(x, w), chain(x, w))
    torch.testing.assert_close(call(x, w), chain(x, w))


def test_few_launches_need_no_graph(gpu):
    x = torch.randn(40, 70)
    call, _, fake = gpu(lambda x: torch.softmax(x, 1), x, graphs=True)
    call(x)
    assert fake.calls.count("cuLaunchKernelEx") == 1 and "cuGraphLaunch" not in fake.calls
