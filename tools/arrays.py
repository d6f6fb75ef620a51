"""Inputs for an artifact on the command line: from .npy files, or random ones that fit its signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.api import Model
    from ..runtime.gpu.model import GpuModel

# options of the commands that call an artifact
size_option = click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="NAME=N",
    help="The value of a dynamic size (`lamina inspect` names them).",
)
entry_option = click.option("--entry", default="main", show_default=True, help="The entry point.")
target_option = click.option("--target", "-t", default=None, help="Use the code for this target, not the best one.")


def read_inputs(model: Model | GpuModel, files: Sequence[str]) -> dict[str, Any]:
    """The arrays of `files` (`[name=]x.npy`) by input; those without a name are the first inputs that have none yet."""
    names = list(model.inputs)
    given: dict[str, Any] = {}
    for file in files:
        name, equals, path = file.rpartition("=")
        name = name if equals else next((n for n in names if n not in given), "")
        if not equals and not name and names:
            raise click.ClickException(f"{file} is one array too many; inputs are {', '.join(names)}")
        if name not in names:
            raise click.ClickException(f"there is no input '{name or file}'; inputs are {', '.join(names)}")
        try:
            given[name] = _array(path)
        except OSError as error:
            raise click.ClickException(f"cannot read {path}: {error.strerror or error}") from None
        except ValueError as error:
            raise click.ClickException(f"{path} is not an array in numpy's .npy format: {error}") from None
    return given


def fill_inputs(model: Model | GpuModel, given: Mapping[str, Any], sizes: Sequence[str], seed: int) -> dict[str, Any]:
    """All inputs of `model` in order: those `given`, and random ones for the rest.

    `sizes` (`name=number`) give values of dynamic sizes; others follow from `given` or are as small as allowed.
    """
    import numpy as np

    known = _sizes(model, given, sizes)
    rng = np.random.default_rng(seed)
    return {n: given[n] if n in given else _random(_spec(model, n), known, rng) for n in model.inputs}


def _array(path: str) -> np.ndarray:
    """The array in a .npy file; ValueError if the file holds something else, OSError if it cannot be read."""
    import numpy as np

    with open(path, "rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _spec(model: Model | GpuModel, name: str) -> dict[str, Any]:
    return next(i for i in model.plan["inputs"] if i["name"] == name)


def _sizes(model: Model | GpuModel, given: Mapping[str, Any], sizes: Sequence[str]) -> dict[str, int]:
    """The value of each symbol: as told, else as the given arrays say, else its smallest."""
    known: dict[str, int] = {}
    told = dict(_size(text) for text in sizes)
    symbols = model.plan["symbols"]
    seen: dict[Any, int] = {}
    for name, array in given.items():
        seen.update(zip(_spec(model, name)["shape"], array.shape))
    for s in symbols:
        step = max(1, s["multiple_of"])
        smallest = -(-max(s["min"], 1) // step) * step
        if s["dim"] < 0 <= s["input"]:
            smallest = int(given.get(model.plan["inputs"][s["input"]]["name"], smallest))
        known[s["name"]] = told.pop(s["name"], seen.get(s["name"], smallest))
    if told:
        names = ", ".join(s["name"] for s in symbols) or "none"
        raise click.ClickException(f"there is no size '{next(iter(told))}'; sizes are {names}")
    return known


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not value.isdigit():
        raise click.UsageError(f"--size {text}: write NAME=NUMBER")
    return name, int(value)


def _random(spec: Mapping[str, Any], known: Mapping[str, int], rng: np.random.Generator) -> Any:
    """Normal floats, integers that are small and not negative (they may be indices), random bools."""
    from ..dialects import dims
    from ..dialects.dtypes import FLOAT8
    from ..runtime.arrays import numpy_dtype

    shape = [dims.evaluate(dims.parse(d), known) for d in spec["shape"]]
    if spec["kind"] == "scalar":
        return 1
    if spec["dtype"] == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if spec["dtype"] in FLOAT8:  # 2 at most, and far from what is subnormal
        return (rng.integers(0x20, 0x40, shape) + 128 * rng.integers(0, 2, shape)).astype(np.uint8)
    if spec["dtype"][0] in "iu":
        return rng.integers(0, 2, shape).astype(numpy_dtype(spec["dtype"]))
    return rng.standard_normal(shape).astype(numpy_dtype(spec["dtype"]))
