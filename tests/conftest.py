"""What holds for every test: random numbers start from the same seed, and no test fails because a machine is slow.

`pytest --hypothesis-profile=new` looks for new examples instead of the same ones each time.
"""

import random
import sys

import pytest
from hypothesis import HealthCheck, settings

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("new", patient)
settings.register_profile("lamina", patient, derandomize=True)
settings.load_profile("lamina")


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
