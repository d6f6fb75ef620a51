"""Running pipelines: order, failures, verification, times, dumps and reproducers."""

import pytest
from mlir import ir

from lamina.passes import registry
from lamina.passes.dump import Dump
from lamina.passes.pass_manager import Observer, PassFailure, run
from lamina.passes.pass_times import PassTimes
from lamina.passes.pipeline import PipelineError
from lamina.passes.reproducer import ReproducerError, read_reproducer

TEXT = """
func.func @f(%x: i32) -> i32 {
  %a = arith.constant 1 : i32
  %b = arith.constant 1 : i32
  %c = arith.addi %a, %b : i32
  %d = arith.addi %x, %c : i32
  return %d : i32
}
func.func @g(%x: i32) -> i32 { return %x : i32 }
"""
seen: list[str] = []


@pytest.fixture(autouse=True)
def toy_passes(monkeypatch):
    monkeypatch.setattr(registry, "_PASSES", dict(registry._PASSES))
    seen.clear()

    @registry.register
    def toy_note(module, name="note"):
        """Note that the pass ran."""
        seen.append(name)

    @registry.register
    def toy_fail(module):
        """Fail."""
        raise ValueError("toy_fail is not happy")

    @registry.register
    def toy_function(func):
        """Note the function's name."""
        seen.append(ir.StringAttr(func.operation.attributes["sym_name"]).value)


@pytest.fixture
def module():
    context = ir.Context()
    context.enable_multithreading(False)
    return ir.Module.parse(TEXT, context)


def test_ours_and_upstream_run_in_order(module):
    run(module, "lamina-toy-note{name=a},canonicalize,lamina-toy-note{name=b}")
    assert seen == ["a", "b"]
    assert str(module).count("arith.addi") == 1


def test_nested_pass_runs_on_each_function(module):
    run(module, "func.func(lamina-toy-function)")
    assert seen == ["f", "g"]


def test_python_failure_names_the_pass_and_leaves_the_context_usable(module):
    context = module.context
    with pytest.raises(PassFailure, match="pass 'lamina-toy-fail' failed on 'k0': toy_fail is not happy") as caught:
        run(module, "cse,lamina-toy-fail,lamina-toy-note", Observer(label="k0"))
    assert caught.value.step == "lamina-toy-fail"
    assert not seen
    context.enable_multithreading(True)  # aborts if the Context was left locked
    run(ir.Module.parse(TEXT, context), "cse")


def test_keyboard_interrupt_goes_through(module):
    @registry.register
    def toy_interrupt(module):
        """Be interrupted."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(module, "lamina-toy-interrupt")


def test_unknown_upstream_pass_has_near_names(module):
    with pytest.raises(PipelineError, match="'canonicalise'.*did you mean canonicalize"):
        run(module, "cse,canonicalise")


def test_unknown_upstream_option(module):
    with pytest.raises(PipelineError, match="canonicalize{foo=1}.*no such option foo"):
        run(module, "canonicalize{foo=1}")


def test_verifier_runs_at_the_end_by_default_and_after_each_pass_if_asked(module):
    calls = []
    run(module, "cse,cse", Observer(verifier=calls.append))
    assert len(calls) == 1
    run(module, "cse,cse", Observer(verify="each", verifier=calls.append))
    assert len(calls) == 4
    run(module, "cse,cse", Observer(verify="none", verifier=calls.append))
    assert len(calls) == 4


def test_verifier_error_names_the_pass(module):
    def verifier(module):
        if seen:
            raise ValueError("rank is wrong")

    with pytest.raises(PassFailure, match="wrong after lamina-toy-note: rank is wrong"):
        run(module, "cse,lamina-toy-note,cse", Observer(verify="each", verifier=verifier))


def test_times_are_summed_by_name(module):
    times = PassTimes()
    run(module, "cse,canonicalize{max-iterations=2},cse", Observer(times=times))
    assert times.seconds["cse"][1] == 2
    assert "canonicalize" in times.table() and "total" in times.table()


def test_dump_writes_changed_steps_and_notes_the_others(module, tmp_path):
    dump = Dump(tmp_path)
    run(module, "canonicalize{max-iterations=4},cse", Observer(dump=dump, label="k/0"))
    run(module, "cse", Observer(dump=dump, label="k/0"))
    assert sorted(p.name for p in (tmp_path / "k_0").iterdir()) == [
        "00_input.mlir",
        "01_canonicalize.mlir",
        "index.txt",
    ]
    index = (tmp_path / "k_0" / "index.txt").read_text().splitlines()
    assert "canonicalize{max-iterations=4}" in index[1]
    assert index[2].startswith("02  cse (unchanged)") and index[3].startswith("03  cse (unchanged)")


def test_print_after_prints_that_pass_only(module):
    printed = []
    observer = Observer(
        print_after=frozenset({"canonicalize"}), on_print=lambda step, text: printed.append((step, text))
    )
    run(module, "cse,canonicalize,symbol-dce", observer)
    assert [step for step, _ in printed] == ["canonicalize"]
    assert "func.func @f" in printed[0][1]


def test_reproducer_holds_the_ir_before_the_failure_and_the_rest(module, tmp_path):
    with pytest.raises(PassFailure, match="lamina opt .* --run-reproducer") as caught:
        run(module, "canonicalize,lamina-toy-fail,cse", Observer(reproducers=str(tmp_path), label="k0"))
    text = open(caught.value.reproducer).read()
    assert text.count("arith.addi") == 1  # canonicalize has run
    assert read_reproducer(text) == "lamina-toy-fail,cse"
    with pytest.raises(PassFailure, match="toy_fail is not happy"):
        run(ir.Module.parse(text, module.context), read_reproducer(text))


def test_a_file_that_is_no_reproducer():
    with pytest.raises(ReproducerError, match="not a reproducer"):
        read_reproducer("module {}")
