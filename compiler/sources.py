"""What of Lamina itself decides its output: a hash of the sources that compile, and the versions of what they use."""

from __future__ import annotations

import functools
import hashlib
import sys
from importlib import metadata
from pathlib import Path

# The folders whose code runs between a graph record and an object.
FOLDERS = ("dialects", "passes", "targets", "compiler")
PACKAGES = ("xtc-mlir-python-bindings", "llvmlite", "numpy")


@functools.lru_cache(maxsize=1)
def fingerprint() -> str:
    """A hash over our sources and the versions of Python, MLIR, LLVM and numpy; about 3 ms, once per process."""
    digest = hashlib.sha256(f"python {sys.version_info[:2]}".encode())
    root = Path(__file__).parent.parent
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    for name in PACKAGES:
        digest.update(f"{name} {_version(name)}".encode())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"
