"""The examples' model zoo and what they say of accuracy and artifacts: `from support.models import SMALL, compare`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from ahead_of_time import Runner, compile_model  # noqa: E402
from models import SMALL, ZOO  # noqa: E402
from models.accuracy import FLOOR, compare, doubled, exact_calls, flat  # noqa: E402
from models.llama import next_calls  # noqa: E402

__all__ = [
    "FLOOR",
    "SMALL",
    "ZOO",
    "Runner",
    "compare",
    "compile_model",
    "doubled",
    "exact_calls",
    "flat",
    "next_calls",
]
