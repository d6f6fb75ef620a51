"""Products of 8-bit floats on AMD's chips: by their matrix instructions where those know the format, else in bf16."""

import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_code import ON_ALL_CHIPS, assembly
from support.fake_hip import FakeHip
from support.run_amdgpu import run_graph

from lamina.dialects.interpret import numpy_dtype
from lamina.dialects.record import Graph, TensorType

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
OCP, FNUZ = ("f8E4M3FN", "f8E5M2"), ("f8E4M3FNUZ", "f8E5M2FNUZ")
