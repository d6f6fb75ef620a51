"""OpInfo samples under `torch.compile(backend="lamina")`: no wrong value, no crash, and a share of ops compiled.

A fixed sample of the ops runs always; every op runs in `make test-full`. Each part is a process of its own, so that a
crash names the op it happened in.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from opinfo.table import is_compiled

pytest.importorskip("torch", reason="OpInfo is torch's")
HERE = Path(__file__).parent
INDUCTOR = json.loads((HERE / "inductor.json").read_text())
# every fifth op, in four parts: some 40 seconds each
SAMPLE = sorted(INDUCTOR)[::5]
PARTS = 4
# the share of the ops that Inductor compiles which must be compiled by us too
SHARE = 0.9
# wrong or raising for a reason that is not ours, each with the reason
KNOWN: dict[str, str] = {}


def sweep(ops: list[str]) -> dict[str, dict]:
    """Reports by op; a process that dies is a report with the verdict "crash", and the rest run in a new one."""
    reports: dict[str, dict] = {}
    left = list(ops)
    while left:
        done = subprocess.run([sys.executable, HERE / "sweep.py", *left], capture_output=True, text=True)
        started = None
        for line in done.stdout.splitlines():
            if line.startswith('{"start"'):
                started = json.loads(line)["start"]
            elif line.startswith('{"op"'):
                report = json.loads(line)
                reports[report["op"]] = report
        if started is None or started in reports:
            break
        reports[started] = {
            "op": started,
            "verdict": "crash",
            "graphs": 0,
            "compiled": 0,
            "eager": 0,
            "fallback": {},
            "detail": done.stderr[-500:],
        }
        left = left[left.index(started) + 1 :]
    return reports


def check(reports: dict[str, dict]) -> None:
    bad = [r for r in reports.values() if r["verdict"] in ("wrong", "raises", "crash") and r["op"] not in KNOWN]
    assert not bad, "\n".join(f"{r['op']}: {r['verdict']}: {r['detail']}" for r in bad)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_sample_of_ops_is_right(part):
    check(sweep(SAMPLE[part::PARTS]))


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_every_op_is_right_and_most_are_compiled():
    reports = sweep(sorted(INDUCTOR))
    check(reports)
    theirs = [n for n, v in INDUCTOR.items() if v == "compiled" and n in reports]
    ours = [n for n in theirs if is_compiled(reports[n])]
    assert len(ours) >= SHARE * len(theirs), f"{len(ours)} of the {len(theirs)} ops that Inductor compiles"
