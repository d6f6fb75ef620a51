"""Alpha-renaming of size symbols, so that kernels that differ only in their names are equal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...dialects import dims
from ...dialects.dims import Dim, Expr
from ...dialects.record import TensorType


@dataclass
class Renaming:
    """`old[i]` of the caller is `new[i]` (`d0`, `d1`, …) in the kernel, in order of first use."""

    old: list[str]
    new: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.new = [f"d{i}" for i in range(len(self.old))]
        self._values = {o: dims.symbol(n) for o, n in zip(self.old, self.new)}
        self._types: dict[TensorType, TensorType] = {}

    @staticmethod
    def of(types: Iterable[TensorType], attributes: Iterable[dict[str, Any]]) -> Renaming:
        """The symbols of `types` and then of `attributes`."""
        found: dict[str, None] = {}
        for t in types:
            for d in t.shape:
                if isinstance(d, Expr):
                    found.update(dict.fromkeys(sorted(dims.symbols(d))))
        for fields in attributes:
            for value in fields.values():
                for d in value if isinstance(value, tuple) else (value,):
                    if isinstance(d, Expr):
                        found.update(dict.fromkeys(sorted(dims.symbols(d))))
        return Renaming(list(found))

    def dim(self, dim: Dim) -> Dim:
        """A size in the kernel's symbols."""
        return dims.substitute(dim, self._values)

    def type(self, type: TensorType) -> TensorType:
        """A type in the kernel's symbols."""
        if not self.old:
            return type
        if type not in self._types:
            self._types[type] = TensorType(type.dtype, tuple(map(self.dim, type.shape)))
        return self._types[type]

    def attributes(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Attributes in the kernel's symbols."""
        if not self.old:
            return fields
        return {k: self._value(v) for k, v in fields.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.dim(v) if isinstance(v, Expr) else v for v in value)
        return self.dim(value) if isinstance(value, Expr) else value
