"""Runs the `.mlir` tests of this folder: each file says its pipeline in `// RUN:` and what to find in `// CHECK`."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import Options
from mlir import ir

from lamina.dialects.mlir_context import context
from lamina.passes.graph.verify_lamina import verify_lamina
from lamina.passes.pass_manager import run

FILES = sorted(Path(__file__).parent.glob("*.mlir"))
_RUN = re.compile(r'^// RUN: lamina opt %s --passes "?([^"|]*?)"? \| filecheck %s$', re.M)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_file(path, tmp_path):
    text = path.read_text()
    pipelines = _RUN.findall(text)
    assert len(pipelines) == 1, f"{path.name} needs one line '// RUN: lamina opt %s --passes … | filecheck %s'"
    printed = []
    for part in text.split("// -----"):
        module = ir.Module.parse(part, context())
        run(module, pipelines[0])
        verify_lamina(module)
        printed.append(str(module))
    result = tmp_path / "printed.mlir"
    result.write_text("\n".join(printed))
    matcher = Matcher.from_opts(Options(match_filename=str(path), input_file=str(result)))
    out = io.StringIO()
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
        code = matcher.run()
    assert code == 0, out.getvalue()
