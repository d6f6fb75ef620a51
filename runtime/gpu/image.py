"""The container of GPU code: a JSON header and blobs, one after another.

A kernel is `{"name", "symbols", "scratch", "stages"}` with the blobs PTX and cubin (b"" if there is none); a program
`{"arch", "kernels": [names]}` with a kernel's container for each.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from ..errors import ArtifactError

MAGIC = b"LAMGPU01"


def unpack(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The header and blobs of a container (targets/gpu_container.py makes them); ArtifactError if this is something else."""
    if data[:8] != MAGIC:
        raise ArtifactError("this is no GPU code of this version of lamina; compile it again")
    try:
        length, count = struct.unpack_from("<2Q", data, 8)
        sizes = struct.unpack_from(f"<{count}Q", data, 24)
        at = 24 + 8 * count
        header, at = json.loads(data[at : at + length]), at + length
    except (struct.error, ValueError, OverflowError, MemoryError) as error:
        raise ArtifactError(f"the GPU code is damaged ({error}); compile it again") from None
    if at + sum(sizes) != len(data) or not isinstance(header, dict):
        raise ArtifactError("the GPU code is damaged (its parts do not add up); compile it again")
    blobs = []
    for size in sizes:
        blobs.append(data[at : at + size])
        at += size
    return header, blobs
