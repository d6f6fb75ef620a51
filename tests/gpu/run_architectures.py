"""On a machine with an NVIDIA GPU: the architectures of tests/architectures under torch.compile. `python tests/gpu/run_architectures.py [PART PARTS]`.

Each against float64, as `tests/architectures/survey.py` does it on the CPU; of PARTS parts that may run at once this is number
PART. What is left to torch is counted at the end. It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from architectures import WIDER
from architectures.survey import survey
from support.device import Failures

import lamina.frontend.dynamo  # noqa: F401


def main() -> None:
    """All of a part."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    part, parts = [*map(int, sys.argv[1:3])] if len(sys.argv) > 2 else (0, 1)
    failures, left = Failures(), Counter[str]()

    def check(name: str) -> None:
        report = survey(name, "cuda")
        left.update(report.get("fallback", {}))
        for failure in report.get("failures", ()):
            print(f"  {name}: {failure[:300]}", flush=True)
        assert report["verdict"] in ("right", "absent"), f"{report['verdict']}: {report['detail']}"

    for name in [*WIDER][part::parts]:
        failures.run(name, lambda name=name: check(name))
        torch.cuda.empty_cache()
    failures.report("architectures")
    print(dict(left.most_common()))


if __name__ == "__main__":
    main()
