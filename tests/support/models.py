"""The model zoo of the examples, for tests: `from support.models import SMALL, ZOO`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from models import SMALL, ZOO  # noqa: E402

__all__ = ["SMALL", "ZOO"]
