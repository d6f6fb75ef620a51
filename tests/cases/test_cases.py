"""Every program of this folder under `torch.compile(backend="lamina")`, in a process of its own per group."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the cases run under torch.compile")
HERE = Path(__file__).parent
GROUP = 18


def names() -> list[str]:
    code = f"import sys; sys.path.insert(0, {str(HERE.parent)!r}); from cases import CASES; print(*CASES)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(4))
def test_cases_behave_as_eager(part):
    chosen = names()[part * GROUP : (part + 1) * GROUP]
    done = subprocess.run([sys.executable, HERE / "run.py", "lamina", *chosen], capture_output=True, text=True)
    results = {r["case"]: r["verdict"] for r in map(json.loads, filter(_is_json, done.stdout.splitlines()))}
    missing = [n for n in chosen if n not in results]
    assert not missing, f"the process died (status {done.returncode}) at {missing[0]}:\n{done.stderr[-2000:]}"
    wrong = {n: v for n, v in results.items() if v != "same"}
    assert not wrong, "\n".join(f"{n}: {v}" for n, v in wrong.items())


def _is_json(line: str) -> bool:
    return line.startswith('{"case"')
