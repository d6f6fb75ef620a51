"""The command line, as a subprocess: what it prints, its exit status, and one line for each error."""

import os
import subprocess
import sys

import pytest
from support.hang import HANG

from lamina.dialects.record import Graph, TensorType

KERNEL = """
#m = affine_map<(d0, d1) -> (d0, d1)>
#r = affine_map<(d0, d1) -> (d1)>
func.func private @add(%x: tensor<?x64xf32>, %b: tensor<64xf32>, %d0: index) -> tensor<?x64xf32>
  attributes {lamina.kind = "loops", lamina.symbols = ["d0"], lamina.label = "add",
    lamina.arg_dims = [["d0", "64"], ["64"]], lamina.result_dims = [["d0", "64"]],
    lamina.arg_dtypes = ["f32", "f32"], lamina.result_dtypes = ["f32"]} {
  %e = tensor.empty(%d0) : tensor<?x64xf32>
  %y = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x, %b : tensor<?x64xf32>, tensor<64xf32>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %s = arith.addf %a, %c : f32
    linalg.yield %s : f32
  } -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
"""


@pytest.fixture
def lamina(tmp_path):
    (tmp_path / "k.mlir").write_text(KERNEL)
    (tmp_path / "model").touch()

    def run(*arguments, text=None, status=0):
        done = subprocess.run(
            [sys.executable, "-m", "lamina.tools.cli", *arguments],
            cwd=tmp_path,
            input=text,
            capture_output=True,
            text=True,
            timeout=HANG,
            env={**os.environ, "LAMINA_CACHE_DIR": str(tmp_path / "cache")},
        )
        assert done.returncode == status, done.stderr
        return done

    return run


def test_help_lists_the_commands(lamina):
    text = lamina("--help").stdout
    assert all(
        name in text for name in ("compile", "run", "opt", "inspect", "header", "ops", "targets", "bench", "cache")
    )


def test_misspelt_command(lamina):
    assert "there is no command 'comple'; did you mean 'compile'?" in lamina("comple", status=2).stderr


def test_targets(lamina):
    assert "x86-64-v4" in lamina("targets").stdout


def test_ops_one_and_unknown(lamina):
    assert "a: operand" in lamina("ops", "matmul").stdout
    assert "did you mean matmul" in lamina("ops", "matmull", status=1).stderr


def test_cache_is_shown_and_cleared(lamina, tmp_path):
    folder = tmp_path / "cache" / "kernels" / "ab"
    folder.mkdir(parents=True)
    (folder / "abcd").write_text("x")
    assert "1 entries" in lamina("cache").stdout
    assert "1 entries removed" in lamina("cache", "--clear").stdout
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('%y = "lamina.softmex"(%x) : (tensor<3xf32>) -> tensor<3xf32>', "no such op; did you mean softmax"),
        (
            '%y = "lamina.relu"(%x) : (tensor<3xf32>) -> tensor<2xf32>',
            "its result 'y' is f32[2], but the op gives f32[3]",
        ),
    ],
)
@pytest.mark.parametrize("arguments", [("opt", "g.mlir", "-p", "cse"), ("compile", "g.mlir", "--to", "llvm")])
def test_wrong_ops_in_text_are_found_before_any_pass(lamina, tmp_path, body, message, arguments):
    result = body.rpartition("-> ")[2]
    text = f"func.func @main(%x: tensor<3xf32>) -> {result} {{ {body} return %y : {result} }}"
    (tmp_path / "g.mlir").write_text(text)
    assert message in lamina(*arguments, status=1).stderr


def test_a_module_without_kernels(lamina, tmp_path):
    (tmp_path / "empty.mlir").write_text("")
    assert "there are no kernels" in lamina("compile", "empty.mlir", "--to", "llvm", status=1).stderr


def test_opt_runs_passes(lamina):
    assert "linalg.generic" not in lamina("opt", "k.mlir", "-p", "symbol-dce,canonicalize").stdout


def test_opt_reads_standard_input_and_says_where_the_text_is_wrong(lamina):
    assert "error: -: 1:14: expected" in lamina("opt", "-", text="func.func @f( {", status=1).stderr


def test_opt_unknown_pass_is_one_line(lamina):
    error = lamina("opt", "k.mlir", "-p", "canonicalise", status=1).stderr
    assert error.count("\n") == 1 and "did you mean canonicalize" in error


def test_opt_lists_our_passes(lamina):
    assert "lamina-kernel-abi\n    " in lamina("opt", "--list").stdout


def test_opt_without_a_file(lamina):
    assert "say which FILE" in lamina("opt", "-p", "cse", status=2).stderr


def test_opt_times_and_prints_to_standard_error(lamina):
    done = lamina("opt", "k.mlir", "-p", "cse,canonicalize", "--time-passes", "--print-after", "cse")
    assert "// after cse" in done.stderr and "100.0%         total" in done.stderr
    assert "// after" not in done.stdout


needs_full_disk = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full disk")


@needs_full_disk
@pytest.mark.parametrize("command", [("opt", "k.mlir", "-p", "cse"), ("compile", "k.mlir", "--to", "loops")])
def test_a_full_disk_is_named(lamina, command):
    assert lamina(*command, "-o", "/dev/full", status=1).stderr == "lamina: error: /dev/full: No space left on device\n"


@needs_full_disk
def test_a_full_disk_is_named_below_a_dump(lamina, tmp_path):
    (tmp_path / "out" / "k").mkdir(parents=True)
    (tmp_path / "out" / "k" / "00_input.mlir").symlink_to("/dev/full")
    error = lamina("opt", "k.mlir", "-p", "cse", "--dump-ir", "out", status=1).stderr
    assert error == "lamina: error: out/k/00_input.mlir: No space left on device\n"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("canonicalise", "did you mean canonicalize?"),
        ("case", "did you mean cse, lamina-cse?"),
        ("lamina-reinplace", "--time-passes lists those that did"),  # there is one, but not in this pipeline
    ],
)
def test_print_after_a_pass_that_does_not_run(lamina, name, hint):
    error = lamina("opt", "k.mlir", "-p", "cse,lamina-cse,canonicalize", "--print-after", name).stderr
    assert error == f"lamina: warning: no pass '{name}' ran, and nothing is printed after it; {hint}\n"


def test_print_after_a_pass_that_no_kernel_of_a_model_runs(lamina, tmp_path):
    graph = Graph()
    graph.add_output(graph.add("relu", graph.add_input("x", TensorType("f32", (8,)))))
    (tmp_path / "g.json").write_text(graph.to_json())
    error = lamina("compile", "g.json", "--print-after", "emit-loop", "--print-after", "lamina-cse").stderr
    assert "// after lamina-cse" in error and "calls  pass" not in error
    assert "no pass 'emit-loop' ran, and nothing is printed after it; did you mean lamina-emit-loops" in error


def test_print_after_a_misspelt_pass(lamina):
    error = lamina("opt", "k.mlir", "-p", "lamina-cse", "--print-after", "lamina-reinplac", status=2).stderr
    assert "there is no pass 'lamina-reinplac'; did you mean lamina-reinplace" in error


def test_failure_writes_a_reproducer_that_shows_it_again(lamina):
    # this text is at the loops level already, so the first plain step has nothing to give outputs to
    broken = KERNEL.replace('lamina.symbols = ["d0"], ', "")
    error = lamina("opt", "-", "-p", "cse,lamina-outputs-to-arguments", text=broken, status=1).stderr
    assert "pass 'lamina-outputs-to-arguments' failed" in error
    path = error.partition("lamina opt ")[2].split()[0]
    again = lamina("opt", path, "--run-reproducer", status=1).stderr
    assert "pass 'lamina-outputs-to-arguments' failed" in again


def test_compile_goes_down_level_by_level(lamina, tmp_path):
    lamina("compile", "k.mlir", "--plain", "--to", "loops", "-o", "loops.mlir")
    assert "scf.for" in (tmp_path / "loops.mlir").read_text()
    lamina("compile", "loops.mlir", "--plain", "--to", "llvmir", "-o", "k.ll")
    assert "define i32 @add(" in (tmp_path / "k.ll").read_text()
    down = lamina("compile", "k.ll", "--to", "asm", "-t", "x86-64-v3").stdout
    assert down == lamina("compile", "k.mlir", "--plain", "--emit", "asm", "-t", "x86-64-v3").stdout
    lamina("compile", "k.mlir", "--plain", "--to", "obj", "-o", "k.o")
    assert (tmp_path / "k.o").read_bytes()[:4] == b"\x7fELF"


def test_dump_ir_numbers_the_passes(lamina, tmp_path):
    lamina("compile", "k.mlir", "--plain", "--to", "obj", "-o", "k.o", "--dump-ir", "out")
    names = sorted(p.name for p in (tmp_path / "out" / "k").iterdir())
    assert names[:2] == ["00_input.mlir", "01_lamina-outputs-to-arguments.mlir"]
    assert {"index.txt", "kernel.ll", "kernel.s"} <= set(names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["k.mlir", "--to", "foo"], "there is no level 'foo'; levels are lamina, kernels"),
        (["k.mlir"], "say --to LEVEL for a .mlir; an artifact is made from a .pt2 or .json"),
        (["model"], "say --to LEVEL for a file of IR; an artifact is made from a .pt2 or .json"),
        (["k.mlir", "--to", "obj", "-t", "x86-64-v3,x86-64-v4"], "takes one --target"),
    ],
)
def test_wrong_usage_of_compile(lamina, arguments, message):
    assert message in lamina("compile", *arguments, status=2).stderr


def test_levels_go_down_only(lamina):
    assert (
        "is at level 'linalg', which comes after 'kernels'"
        in lamina("compile", "k.mlir", "--to", "kernels", status=1).stderr
    )


def test_unknown_target_of_compile(lamina):
    assert "no target 'x86-64-v9'" in lamina("compile", "k.mlir", "--to", "asm", "-t", "x86-64-v9", status=1).stderr


@pytest.mark.parametrize("arguments", [["run", "model", "--check"], ["ops", "--missing"]], ids=["check", "missing"])
def test_a_model_that_is_not_there(lamina, arguments):
    """It is looked for before anything runs or imports torch."""
    error = lamina(*arguments, "absent.pt2", status=2).stderr
    assert "File 'absent.pt2' does not exist" in error and "Traceback" not in error


def test_a_target_named_twice_is_one(lamina, tmp_path):
    graph = Graph()
    graph.add_output(graph.add("relu", graph.add_input("x", TensorType("f32", (8,)))))
    (tmp_path / "g.json").write_text(graph.to_json())
    assert lamina("compile", "g.json", "-t", "aarch64,aarch64").stderr.endswith(" for aarch64\n")
