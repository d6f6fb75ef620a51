"""Writes the container in which GPU code travels; `runtime/gpu/image.py` says what is in it, and reads it."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from ..runtime.gpu.image import MAGIC


def pack(header: dict[str, Any], blobs: Sequence[bytes]) -> bytes:
    """Put a header and blobs into one bytes object."""
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    sizes = struct.pack(f"<{2 + len(blobs)}Q", len(text), len(blobs), *map(len, blobs))
    return b"".join((MAGIC, sizes, text, *blobs))
