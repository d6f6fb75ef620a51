"""The options of the torch.compile backend, checked: `torch.compile(f, backend="lamina", options={"freeze": True})`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..compiler.api import target_device
from ..compiler.options import Options

# torch's modes. They differ in CUDA graphs only: there are no tuning runs, and our graphs need no copies of inputs and
# leave results alone, so there is nothing to choose by default.
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_WITHOUT_GRAPHS = "max-autotune-no-cudagraphs"


class BackendOptionError(ValueError):
    """A `mode` or an option that does not exist, or has a wrong value."""


@dataclass(frozen=True)
class BackendOptions:
    """Options of one `torch.compile` call.

    target   name of the target to compile for
    freeze   parameters never change after compilation: use them packed also where changes could not be noticed
    graphs   launch a GPU's kernels as CUDA graphs where sizes are static; mode max-autotune-no-cudagraphs does not
    compile  options of the compiler (`numerics`, `plain`, `verify`, `dump_dir` ...), given beside these
    """

    target: str = "native"
    freeze: bool = False
    graphs: bool = True
    compile: Options = field(default_factory=Options)


def backend_options(keywords: Mapping[str, Any]) -> BackendOptions:
    """Read the keyword arguments that torch.compile hands to a backend.

    BackendOptionError, OptionError (a value of the compiler's) or TargetError (no such target) says what is wrong.
    """
    for name in keywords:
        if name not in ("mode", "options"):
            raise BackendOptionError(f"backend 'lamina' takes 'mode' and 'options', not '{name}'")
    mode = keywords.get("mode") or "default"
    if mode not in _MODES:
        raise BackendOptionError(f"backend 'lamina' has no mode '{mode}'; modes are {', '.join(_MODES)}")
    given = dict(keywords.get("options") or {})
    own = {k: given.pop(k) for k in ("target", "freeze") if k in given}
    known = sorted(Options.__dataclass_fields__)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, [*known, "target", "freeze"], 1)
            hint = f"did you mean '{near[0]}'?" if near else f"options are {', '.join(['target', 'freeze', *known])}"
            raise BackendOptionError(f"backend 'lamina' has no option '{name}'; {hint}")
    if not isinstance(own.get("freeze", False), bool):
        raise BackendOptionError(f"option 'freeze' is {own['freeze']!r}; it is True or False")
    if "target" in own:
        target_device(own["target"])
    return BackendOptions(**own, graphs=mode != _WITHOUT_GRAPHS, compile=Options(**given))
