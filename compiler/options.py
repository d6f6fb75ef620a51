"""What a compilation may be asked to do differently; one frozen value, part of every cache key where it changes code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

NUMERICS = ("eager", "fast", "tf32", "fast+tf32")
VERIFY = ("none", "boundaries", "each")


class OptionError(ValueError):
    """An option with a value that it cannot have."""


@dataclass(frozen=True)
class Options:
    """How to compile: `lamina.compile(f, args, options=lamina.Options(numerics="fast"))`.

    Names and values do as well, and torch.compile takes those: `torch.compile(f, backend="lamina", options={"numerics": "fast"})`.

    numerics     "eager" rounds bf16 and f16 where eager does; "fast" keeps f32 between fused ops; with "tf32" f32
                 products on NVIDIA's tensor cores are of operands rounded to TF32 (10 fraction bits)
    plain        use the plain pipelines only: straight loops, no tiling
    verify       "boundaries" verifies at each level, "each" after each pass, "none" never
    dump_dir     write the IR after each pass below this directory (turns the caches off)
    time_passes  measure passes; the times are in the program's manifest under "times" (turns the caches off)
    print_after  print the IR after these passes to standard error (turns the caches off)
    cache        read and write the caches on disk
    timeout      seconds of wall time after which one kernel's compilation is given up
    """

    numerics: str = "eager"
    plain: bool = False
    verify: str = "boundaries"
    dump_dir: str | None = None
    time_passes: bool = False
    print_after: tuple[str, ...] = ()
    cache: bool = True
    timeout: float = 120.0

    def __post_init__(self) -> None:
        _one_of("numerics", self.numerics, NUMERICS)
        _one_of("verify", self.verify, VERIFY)
        for name in ("plain", "time_passes", "cache"):
            if not isinstance(value := getattr(self, name), bool):
                raise OptionError(f"option '{name}' is {value!r}; it is True or False")
        if not self.timeout > 0:
            raise OptionError(f"option 'timeout' is {self.timeout}; it must be positive (seconds)")
        object.__setattr__(self, "print_after", tuple(self.print_after))

    def __repr__(self) -> str:
        given = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return f"Options({', '.join(f'{name}={value!r}' for name, value, default in given if value != default)})"

    @property
    def observed(self) -> bool:
        """True if somebody wants to see the passes run, so a cached result will not do."""
        return bool(self.dump_dir or self.time_passes or self.print_after)

    @property
    def use_cache(self) -> bool:
        return self.cache and not self.observed

    def with_tf32(self) -> Options:
        """The same, and TF32 is allowed."""
        return replace(self, numerics={"eager": "tf32", "fast": "fast+tf32"}.get(self.numerics, self.numerics))

    def key(self) -> str:
        """The part of the options that changes code, as text for cache keys."""
        return f"numerics={self.numerics} plain={self.plain}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a worker; `Options.from_dict` reads it back."""
        return asdict(self)

    @staticmethod
    def of(options: Options | Mapping[str, Any]) -> Options:
        """The options themselves, or those of names and values; OptionError says what is wrong."""
        return options if isinstance(options, Options) else Options.from_dict(options)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Options:
        """Options from names and values; an unknown name is an OptionError that lists the known ones."""
        known = {f.name for f in fields(Options)}
        for name in values:
            if name not in known:
                raise OptionError(f"there is no option '{name}'; options are {', '.join(sorted(known))}")
        return Options(**values)


def in_process() -> bool:
    """True if LAMINA_INPROCESS asks to compile in this process, for debugging."""
    return os.environ.get("LAMINA_INPROCESS", "") not in ("", "0")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise OptionError(f"option '{name}' is '{value}'; it is one of {', '.join(known)}")
