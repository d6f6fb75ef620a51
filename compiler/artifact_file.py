"""Writes artifacts: `.lamina` files with code for any number of targets, weights and a manifest (docs/artifact.md).

write_artifact("model.lamina", {"main": EntryCode({"x86-64-v4": Code(manifest, image, "x86_64", flags)})}, weights)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.arrays import ITEM_SIZE, dtype_name
from ..runtime.artifact import FORMAT, MANIFEST, SCHEMA
from ..runtime.errors import ArtifactError
from .zip_writer import write_store

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Code:
    """A program for one target: manifest and image as compiled, and what a machine needs to run it."""

    manifest: Mapping[str, Any]
    image: bytes
    arch: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class EntryCode:
    """An entry point to be written: its program by target, and for each input that is state its initial value's name."""

    programs: Mapping[str, Code]
    state: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HostCode:
    """The code by which a host launches programs on GPUs, and what a machine needs to run it."""

    image: bytes
    arch: str
    flags: tuple[str, ...] = ()


def write_artifact(
    path: str | Path,
    entries: Mapping[str, EntryCode],
    weights: Mapping[str, np.ndarray],
    producer: str = "",
    hosts: Mapping[str, HostCode] = MappingProxyType({}),
) -> None:
    """Write an artifact; equal arguments give equal bytes. Equal weights are stored once, whatever their names.

    `hosts` are launchers for programs on GPUs, by the target of the host.
    ArtifactError if an entry needs a weight that is not given or has another shape.
    """
    listed, stored = _store_weights(weights)
    members: list[tuple[str, Any]] = []
    shown: dict[str, Any] = {}
    for name, entry in sorted(entries.items()):
        programs = {}
        for target, code in sorted(entry.programs.items()):
            plan = code.manifest["plan"]
            _check_weights(f"entry '{name}' for {target}", plan, entry.state, listed)
            file = f"code/{name}.{target}.so"
            members.append((file, [code.image]))
            programs[target] = {
                "arch": code.arch,
                "flags": sorted(code.flags),
                "code": file,
                "sha256": hashlib.sha256(code.image).hexdigest(),
                "plan": plan,
            }
        shown[name] = {"state": dict(sorted(entry.state.items())), "programs": programs}
    manifest = {"format": FORMAT, "schema": SCHEMA, "producer": producer, "entries": shown, "weights": listed}
    if hosts:
        manifest["hosts"] = {}
    for target, host in sorted(hosts.items()):
        file, digest = f"code/launcher.{target}.so", hashlib.sha256(host.image).hexdigest()
        members.append((file, [host.image]))
        manifest["hosts"][target] = {"arch": host.arch, "flags": sorted(host.flags), "code": file, "sha256": digest}
    text = json.dumps(manifest, separators=(",", ":"), sort_keys=True, allow_nan=False)
    write_store(path, [(MANIFEST, [text.encode()]), *members, *stored])


def _store_weights(weights: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """The weights' part of the manifest, and the members that hold them."""
    listed: dict[str, Any] = {}
    stored: dict[str, tuple[str, Any]] = {}
    for name, array in sorted(weights.items()):
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        dtype = dtype_name(array.dtype)
        if dtype not in ITEM_SIZE:
            raise ArtifactError(f"weight '{name}' has dtype {dtype}, which artifacts do not have")
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        digest = hashlib.sha256(data).hexdigest()
        file, _ = stored.setdefault(digest, (f"weights/{len(stored)}", [data]))
        listed[name] = {"dtype": dtype, "shape": list(array.shape), "file": file, "sha256": digest}
    return listed, list(stored.values())


def _check_weights(where: str, plan: Mapping[str, Any], state: Mapping[str, str], listed: Mapping[str, Any]) -> None:
    wanted = [(w["name"], w) for w in plan["weights"]]
    inputs = {i["name"]: i for i in plan["inputs"]}
    for name, initial in state.items():
        if name not in inputs:
            raise ArtifactError(f"{where} has no input '{name}' to be state; inputs: {', '.join(inputs)}")
        wanted.append((initial, inputs[name]))
    for name, spec in wanted:
        if name not in listed:
            raise ArtifactError(f"{where} needs weight '{name}', which is not given")
        given = listed[name]
        if (given["dtype"], given["shape"]) != (spec["dtype"], list(spec["shape"])):
            raise ArtifactError(
                f"{where}: weight '{name}' is {given['dtype']}{given['shape']}, expected {spec['dtype']}{spec['shape']}"
            )
