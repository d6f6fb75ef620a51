"""The driver in the user's process, with scripted workers: caches, fallback to plain, failures."""

import pytest

from lamina.compiler import api
from lamina.compiler.api import GraphError, KernelError, Options, WorkerError, compile_graph
from lamina.compiler.messages import Message
from lamina.compiler.options import OptionError
from lamina.compiler.pool import Died
from lamina.dialects.record import Graph, Location, Node, TensorType
from lamina.targets import TargetError

PLACE = Location("model.py", 31, "gelu")


class Workers:
    """Does jobs by a table of functions; unknown jobs succeed."""

    def __init__(self, **answers):
        self.answers, self.done = answers, []

    def run(self, jobs):
        for job in jobs:
            name = job.header["job"]
            self.done.append((name, job.header.get("name"), job.header.get("plain")))
            yield job, self.answers[name](job) if name in self.answers else getattr(self, name)(job)

    def lower_graph(self, job):
        kernels = [["k0", "loops", [list(PLACE)]], ["k1", "matmul", []]]
        return Message({"plan": plan(31), "kernels": kernels}, [b"host ir", b"k0 text", b"k1 text"])

    def emit_llvm(self, job):
        return Message({}, [b"object of " + job.header["name"].encode()])

    def compile_kernel(self, job):
        return Message({"plain": job.header["plain"], "reason": ""}, [b"object of " + job.blobs[0]])

    def link(self, job):
        return Message({}, [b"|".join(job.blobs)])


def plan(line):
    return {"launches": [{"location": ["model.py", line, ""]}, {"location": ["other.py", 1, ""]}], "init": None}


@pytest.fixture(autouse=True)
def cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("LAMINA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def use(monkeypatch):
    def use(**answers):
        workers = Workers(**answers)
        monkeypatch.setattr(api, "pool", lambda: workers)
        return workers

    return use


def graph(name="main", line=31):
    g = Graph(name)
    x = g.add_input("x", TensorType("f32", (4,)))
    g.nodes.append(Node("neg", (x,), {}, (x,), Location("model.py", line)))
    g.add_output(x, "y")
    return g


def test_program_is_linked_from_all_objects(use):
    use()
    program = compile_graph(graph())
    assert program.image == b"object of host|object of support|object of k0 text|object of k1 text"
    assert program.manifest["plan"] == plan(31)
    assert program.manifest["kernels"]["k1"] == {"kind": "matmul", "plain": False, "reason": ""}


def test_warm_start_uses_no_worker_and_has_the_source_lines_of_its_graph(use):
    use()
    first = compile_graph(graph())
    workers = use()
    again = compile_graph(graph(line=99))
    assert not workers.done
    assert again.image == first.image
    assert again.manifest == {**first.manifest, "plan": plan(99)}


def test_kernels_come_from_the_cache_in_another_graph(use):
    use()
    compile_graph(graph())
    workers = use()
    compile_graph(graph("other"))
    assert [name for name, _, _ in workers.done] == ["lower_graph", "link"]


@pytest.mark.parametrize("options", [Options(numerics="fast"), Options(plain=True)])
def test_options_that_change_code_are_part_of_the_key(use, options):
    use()
    compile_graph(graph())
    workers = use()
    compile_graph(graph(), options=options)
    assert ("compile_kernel", "k0", options.plain) in workers.done


def test_watching_passes_turns_the_cache_off(use, tmp_path):
    use()
    compile_graph(graph())
    workers = use()
    compile_graph(graph(), options=Options(dump_dir=str(tmp_path)))
    assert ("compile_kernel", "k0", False) in workers.done


def test_a_kernel_whose_worker_dies_is_compiled_plain_elsewhere_and_tried_again_next_time(use):
    def dies_once(job):
        if job.header["name"] == "k1" and not job.header["plain"]:
            return Died("tile.cpp:1: Assertion `ok' failed.\nFatal Python error: Aborted")
        return Workers.compile_kernel(None, job)

    workers = use(compile_kernel=dies_once)
    facts = compile_graph(graph()).manifest["kernels"]
    assert facts["k1"]["plain"] and "Assertion `ok' failed" in facts["k1"]["reason"]
    assert not facts["k0"]["plain"]
    assert workers.done.count(("compile_kernel", "k0", False)) == 1
    workers = use()
    assert not compile_graph(graph()).manifest["kernels"]["k1"]["plain"]
    assert ("compile_kernel", "k1", False) in workers.done


def test_a_kernel_that_never_compiles_names_the_place_and_keeps_a_reproducer(use):
    use(compile_kernel=lambda job: Message({"error": {"type": "X", "message": "no luck", "nodes": []}}))
    with pytest.raises(KernelError, match=r"kernel 'k0' \(model.py:31 \(gelu\)\): no luck\n  run it again: ") as caught:
        compile_graph(graph())
    assert caught.value.nodes == (PLACE,)
    assert [f.kernel for f in caught.value.failures] == ["k0", "k1"]
    assert open(caught.value.failures[0].reproducer).read() == "k0 text"


def test_a_kernel_that_kills_two_workers_fails_with_both_reasons(use):
    use(compile_kernel=lambda job: Died("Timeout (0:02:00)!"))
    with pytest.raises(KernelError, match="worker died: Timeout.*; then plain: the compile worker died: Timeout"):
        compile_graph(graph())


def test_a_wrong_graph_is_a_graph_error_with_its_nodes(use):
    error = {"type": "OpError", "message": "lamina.neg at model.py:31: no", "nodes": [list(PLACE)]}
    use(lower_graph=lambda job: Message({"error": error}))
    with pytest.raises(GraphError, match="lamina.neg at model.py:31: no") as caught:
        compile_graph(graph())
    assert caught.value.nodes == (PLACE,)


def test_a_worker_that_dies_on_the_graph_is_a_worker_error(use):
    use(lower_graph=lambda job: Died("boom"))
    with pytest.raises(WorkerError, match="died in 'lower_graph':\nboom"):
        compile_graph(graph())


def test_progress_counts_objects(use):
    use()
    seen = []
    compile_graph(graph(), progress=lambda done, total, name: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_native_code_from_llvm_ir_is_cached(use):
    use()
    image = api.compile_llvm("define void @f() { ret void }", ["f"])
    workers = use()
    assert api.compile_llvm("define void @f() { ret void }", ["f"]) == image
    assert not workers.done


def test_unknown_target():
    with pytest.raises(TargetError, match="no target 'x86-64-v5'; did you mean"):
        compile_graph(graph(), "x86-64-v5")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"numerics": "loose"}, "'numerics' is 'loose'; it is one of eager, fast, tf32"),
        ({"speed": 3}, "there is no option 'speed'; options are cache"),
        ({"timeout": 0}, "must be positive"),
        ({"plain": 3}, "'plain' is 3; it is True or False"),
    ],
)
def test_options_are_checked(values, message):
    with pytest.raises(OptionError, match=message):
        Options.from_dict(values)


def test_options_go_through_plain_data():
    options = Options(numerics="fast", print_after=("cse",), timeout=3.0)
    assert Options.from_dict(options.to_dict()) == options
