"""The samples of every op that is made of loops, compiled for AMD GPUs and executed by the emulator.

Every second op runs on one chip, by turns; all ops on all chips are for `make test-full`.
"""

import re

import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_code import CHIPS
from support.run_amdgpu import run_kernel
from support.samples import assert_close, inferred, kernel_module, operands, reference, without_f64

from lamina.compiler.levels import lower_kernel
from lamina.dialects.interpret import numpy_dtype
from lamina.dialects.op import all_ops
from lamina.targets import TargetError, get_target

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
LOOPS = ("pointwise", "view", "creation", "gather", "reduction", "row", "concat")
OPS = {n: op for n, op in all_ops().items() if op.lower is not None and op.samples and op.category in LOOPS}
# functions that have no f64 implementation of ours on GPUs
IN_F64 = re.compile("(a?(sin|cos|tan)h?|atan2|exp|exp2|expm1|log|log2|log10|log1p|erf|erfc|pow|fmod)_f64")
CASES = [
    pytest.param(name, chip, marks=() if number % (2 * len(CHIPS)) == 2 * turn else pytest.mark.full)
    for number, name in enumerate(OPS)
    for turn, chip in enumerate(CHIPS)
]


@pytest.mark.parametrize(("name", "chip"), CASES)
def test_samples(name, chip):
    op = OPS[name]
    samples = without_f64(op)
    if not samples:
        pytest.skip("f64 only")
    try:
        code = lower_kernel(kernel_module(op, samples), get_target(chip), "loops", start="linalg", stop="obj")
    except TargetError as error:
        missing = re.findall(r"__ocml_(\w+)", str(error))
        assert missing and all(IN_F64.fullmatch(m) for m in missing), error
        pytest.skip(f"computes in f64 with {', '.join(missing)}: it runs through torch")
    inputs = [np.ascontiguousarray(x) for s in samples for x in operands(s) if x is not None]
    outputs = [np.full(t.shape, 77).astype(numpy_dtype(t.dtype)) for s in samples for t in inferred(op, s)]
    assert run_kernel(code, inputs, outputs) == 0
    for made, expected in zip(outputs, (e for s in samples for e in reference(op, s))):
        assert_close(made, expected, op.numerics)
