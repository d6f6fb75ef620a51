"""Artifacts: `.lamina` files with code for any number of targets, weights and a manifest (docs/artifact.md).

    artifact = read_artifact("model.lamina")       # compiler/artifact_file.py writes them

Weights are mapped, not read. The code's SHA-256 is checked before it is loaded, the weights' when asked. Hashes find
damage; they are no proof of origin: loading an artifact runs its code.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from . import machine
from .arrays import ITEM_SIZE, numpy_dtype
from .errors import ArtifactError, LaminaRuntimeError
from .zip_store import LOCAL, Member, read_store

if TYPE_CHECKING:
    from pathlib import Path

    from .gpu.drivers import Device

FORMAT = "lamina"
SCHEMA = 1
MANIFEST = "manifest.json"
GPUS = {"nvptx64": "cuda:0", "amdgcn": "hip:0"}  # architecture -> a device that runs its code


class Artifact:
    """An open artifact. Arrays from it keep the mapping alive."""

    def __init__(self, path: str, data: mmap.mmap, members: Mapping[str, Member], manifest: dict[str, Any]):
        self.path, self.manifest = path, manifest
        self.members = members  # where each lies in the file
        self._data, self._bytes = data, np.frombuffer(data, np.uint8)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the entry points."""
        return tuple(self.manifest["entries"])

    def targets(self, entry: str) -> tuple[str, ...]:
        """Names of the targets that an entry point has code for."""
        return tuple(self._entry(entry)["programs"])

    def state(self, entry: str) -> dict[str, str]:
        """The inputs that are state, with the names of the weights they start from."""
        return dict(self._entry(entry)["state"])

    def choose(self, entry: str, target: str | None = None, device: Device | None = None) -> str:
        """`target` if the entry has it, or the best that runs here: on a GPU, or on the CPU the most demanding one."""
        programs = self._entry(entry)["programs"]
        if target is not None and target not in programs:
            raise ArtifactError(f"{self.path} has no code for '{target}'; it has {', '.join(programs)}")
        candidates = [target] if target is not None else list(programs)
        reasons = {t: _refusal(t, programs[t], device) for t in candidates}
        runs = [t for t in candidates if not reasons[t]]
        if not runs:
            why = "; ".join(f"{t} {reasons[t]}" for t in candidates)
            here = device or f"this {machine.host_arch()} machine"
            raise ArtifactError(
                f"{self.path} has no code for {here}: {why}; 'lamina targets' shows what to compile for"
            )
        return max(runs, key=device.preference if device else lambda t: len(programs[t]["flags"]))

    def program(self, entry: str, target: str) -> tuple[dict[str, Any], bytes]:
        """The plan as a program manifest and the image of one target; the image's hash is checked."""
        with reading(self.path):
            program = self._entry(entry)["programs"][target]
            return {"name": entry, "target": target, "plan": program["plan"]}, self._code(program)

    def host_launcher(self) -> bytes | None:
        """The shared object by which this machine launches programs on GPUs; None if there is none for it."""
        with reading(self.path):
            hosts = self.manifest.get("hosts", {}).values()
            found = [h for h in hosts if machine.missing(h["arch"], h["flags"]) == []]
            return self._code(found[0]) if found else None

    def _code(self, described: Mapping[str, Any]) -> bytes:
        """A member that is code, whose hash is checked."""
        image = self._member(described["code"]).tobytes()
        if _sha256(image) != described["sha256"]:
            raise ArtifactError(f"{self.path}: the code '{described['code']}' is damaged; get the file again")
        return image

    def weight_bytes(self, name: str) -> np.ndarray:
        """The bytes of a weight in the mapping, read-only."""
        with reading(self.path):
            weight = self.manifest["weights"][name]
            data = self._member(weight["file"])
            count = ITEM_SIZE[weight["dtype"]] * int(np.prod(weight["shape"], dtype=np.int64))
            if data.size != count:
                raise ArtifactError(f"{self.path}: weight '{name}' has {data.size} bytes, expected {count}")
            return data

    def weight(self, name: str) -> np.ndarray:
        """A weight as a read-only array in the mapping."""
        weight = self.manifest["weights"][name]
        return self.weight_bytes(name).view(numpy_dtype(weight["dtype"])).reshape(weight["shape"])

    def let_go(self) -> None:
        """Free the memory of what was read; what is read again comes from the system's cache of the file."""
        self._data.madvise(mmap.MADV_DONTNEED)

    def verify(self) -> None:
        """Check the hashes of all code and weights."""
        for entry in self.entries:
            for target in self.targets(entry):
                self.program(entry, target)
        with reading(self.path):
            for host in self.manifest.get("hosts", {}).values():
                self._code(host)
            for file, digest in {(w["file"], w["sha256"]) for w in self.manifest["weights"].values()}:
                if _sha256(self._member(file).data) != digest:
                    raise ArtifactError(f"{self.path}: the weights '{file}' are damaged; get the file again")

    def _entry(self, name: str) -> dict[str, Any]:
        with reading(self.path):
            if name not in self.manifest["entries"]:
                raise ArtifactError(f"{self.path} has no entry '{name}'; it has {', '.join(self.entries)}")
            return self.manifest["entries"][name]

    def _member(self, name: str) -> np.ndarray:
        member = self.members[name]
        return self._bytes[member.offset : member.offset + member.size]


def read_artifact(path: str | Path, verify: bool = False) -> Artifact:
    """Open an artifact; `verify` checks the hashes of the weights too. ArtifactError says why a file is refused."""
    text = os.fspath(path)  # an int would be an open file's number
    try:
        with open(path, "rb") as file:
            if file.seek(0, 2) == 0:
                raise ArtifactError(f"{text} is empty")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ArtifactError(f"cannot open {text}: {error.strerror or error}") from None
    first = data[LOCAL.size : LOCAL.size + len(MANIFEST)].decode("latin-1")
    if data[:2] == b"PK" and not MANIFEST.startswith(first):
        raise ArtifactError(f"{text} is a zip file but no artifact; `lamina compile` makes one of a model")
    members = read_store(memoryview(data), text)
    with reading(text):
        at = members[MANIFEST]
        raw = data[at.offset : at.offset + at.size]
        if zlib.crc32(raw) != at.crc:
            raise ArtifactError(f"{text}: the manifest is damaged; get the file again")
        manifest = json.loads(raw)
        if manifest.get("format") != FORMAT:
            raise ArtifactError(f"{text} is no artifact: its manifest is of another format")
        if manifest["schema"] > SCHEMA:
            raise ArtifactError(
                f"{text} was written by a newer Lamina (schema {manifest['schema']}, this one reads {SCHEMA}): "
                "upgrade with 'pip install -U lamina'"
            )
        artifact = Artifact(text, data, members, manifest)
        _check_fields(manifest, members)
    if verify:
        artifact.verify()
    return artifact


def _check_fields(manifest: Mapping[str, Any], members: Mapping[str, Member]) -> None:
    """Touch what later code relies on; whatever is missing is an error of Python's, which `reading` explains."""
    programs = [p for entry in manifest["entries"].values() for p in entry["programs"].values()]
    for described in (*programs, *manifest.get("hosts", {}).values()):
        for name in ("arch", "flags", "sha256"):
            described[name]
        members[described["code"]]
    for program in programs:
        program["plan"]
    for weight in manifest["weights"].values():
        members[weight["file"]]
        ITEM_SIZE[weight["dtype"]]


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn what a strange manifest makes Python say into an ArtifactError."""
    try:
        yield
    except LaminaRuntimeError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ArtifactError(f"{path}: the manifest is damaged ({type(error).__name__}: {error})") from None


def _sha256(data: bytes | memoryview) -> str:
    import hashlib  # it loads OpenSSL, a quarter of this package's time to import, and opening a file needs no hashes

    return hashlib.sha256(data).hexdigest()


def _refusal(target: str, program: Mapping[str, Any], device: Device | None) -> str:
    """Why a program does not run on `device` (None: this CPU), to be put after the target's name, or ""."""
    if device is None:
        if program["arch"] in GPUS:
            return f"is for GPUs (load it with device='{GPUS[program['arch']]}')"
        lacks = machine.missing(program["arch"], program["flags"])
        return f"is for {program['arch']}" if lacks is None else f"needs {', '.join(lacks)}" if lacks else ""
    if program["arch"] != device.arch:
        return f"is for {program['arch']}"
    try:
        device.require(target)
    except LaminaRuntimeError as error:
        return f"does not run: {error}"
    return ""
