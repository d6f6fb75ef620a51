"""The example in a pass's docstring is a test: the pass takes "Before" to "After"."""

import re

import pytest
from mlir import ir

from lamina.dialects.mlir_context import context
from lamina.passes import registry
from lamina.passes.pass_manager import run
from lamina.passes.pipeline import load_passes

_BLOCKS = re.compile(r"Before:\n\s*```mlir\n(.*?)```\n\s*After:\n\s*```mlir\n(.*?)```", re.S)
load_passes()
# Passes on the IR of whole graphs and on linalg; those that emit loops show only the telling lines.
EXAMPLES = {
    name: found.groups()
    for name, function in registry.passes().items()
    if (found := _BLOCKS.search(function.__doc__ or "")) and "…" not in "".join(found.groups())
}
GRAPH = "allow-tf32 canonicalize channels-last cse dce fold-constants form-kernels keep-f32 lower-to-linalg merge-linears outline pack-convolutions packed-channels-last raise-reshapes recognize-composites reinplace repeat-chains share-kernels sink-reshapes split-init split-reductions"


@pytest.mark.parametrize("name", [f"lamina-{n}" for n in GRAPH.split()])
def test_example(name):
    before, after = EXAMPLES[name]
    module = ir.Module.parse(before, context())
    run(module, name)
    assert str(module) == str(ir.Module.parse(after, module.context))
