"""What runs MLIR in a command runs in a child, and a child that dies is an error that says where."""

import subprocess
import sys

import pytest
from support.hang import HANG

CODE = """
import os, sys
from lamina.tools import aside, cli, opt

def work(*_):
    print("at work", os.getpid() != int(os.environ["PARENT"]), flush=True)
    aside.entered("cse")
    aside.entered("lamina-merge")
    {what}

os.environ["PARENT"] = str(os.getpid())
opt.run_passes = aside.aside(work)
sys.argv = ["lamina", "opt", os.devnull, "-p", "cse"]
cli.main()
"""


@pytest.mark.parametrize(
    "what, status, message",
    [
        ("pass", 0, ""),
        ("os.abort()", 1, "MLIR ended the process in 'lamina-merge' (SIGABRT; what it said stands above)"),
        ("os.kill(os.getpid(), 11)", 1, "(SIGSEGV;"),
        ("raise ValueError('no')", 1, "lamina: error: no"),
        ("sys.exit(3)", 3, ""),
    ],
)
def test_a_child_does_it(what, status, message):
    done = subprocess.run([sys.executable, "-c", CODE.format(what=what)], capture_output=True, text=True, timeout=HANG)
    assert (done.returncode, done.stdout) == (status, "at work True\n"), done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr


def test_without_a_child(monkeypatch):
    monkeypatch.setenv("LAMINA_INPROCESS", "1")
    code = CODE.format(what="pass")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG)
    assert done.stdout == "at work False\n"


def test_the_note_names_the_step_that_ran():
    code = """
from mlir import ir
from lamina.dialects.mlir_context import context
from lamina.passes.pass_manager import Observer, run
seen = []
run(ir.Module.parse("func.func @f() { return }", context()), "cse,lamina-dce", Observer(on_step=seen.append))
print(*seen, sep=";")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG)
    assert done.stdout == "cse;lamina-dce;the verifier\n", done.stderr
