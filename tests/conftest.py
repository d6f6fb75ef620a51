"""What holds for every test: random numbers start from the same seed, whichever tests ran before."""

import random
import sys

import pytest


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
