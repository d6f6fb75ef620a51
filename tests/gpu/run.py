"""On a machine with an NVIDIA GPU: the scripts `run_NAME.py` of this folder, one after another. `python tests/gpu/run.py [NAME…] [-v]`.

No pytest file among them: the suite runs where there is no GPU. With `-v` failures show their stack.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

USUAL = ("samples", "compile", "load", "shapes")


def main() -> None:
    """Run the scripts named on the command line, else the usual ones; other arguments go to each."""
    names = [a for a in sys.argv[1:] if not a.startswith("-")] or USUAL
    options = [a for a in sys.argv[1:] if a.startswith("-")]
    codes = []
    for name in names:
        start = time.time()
        script = Path(__file__).with_name(f"run_{name}.py")
        codes.append(subprocess.run([sys.executable, str(script), *options]).returncode)
        print(f"{name}: {time.time() - start:.1f} s", flush=True)
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
