"""Structs of LLVM IR whose fields have names."""

from __future__ import annotations

from collections.abc import Iterable


class Struct:
    """The type %`name`: the types of its fields, by their names, in order."""

    def __init__(self, name: str, fields: dict[str, str]):
        self.name, self.fields = name, fields
        self.type = f"%{name} = type {{ {', '.join(fields.values())} }}"

    def at(self, pointer: str, *fields: str) -> str:
        """IR that finds these fields of the struct at %`pointer`: the address of field `x` is %x.at."""
        order = list(self.fields)
        return _lines(
            f"%{f}.at = getelementptr %{self.name}, ptr %{pointer}, i32 0, i32 {order.index(f)}" for f in fields
        )

    def load(self, pointer: str, *fields: str) -> str:
        """IR that loads them: field `x` is %x."""
        return _lines(f"{self.at(pointer, f)}\n  %{f} = load {self.fields[f]}, ptr %{f}.at" for f in fields)

    def store(self, pointer: str, **values: str) -> str:
        """IR that stores values, such as `total="%total"`, in fields."""
        return _lines(f"{self.at(pointer, f)}\n  store {self.fields[f]} {v}, ptr %{f}.at" for f, v in values.items())


def _lines(parts: Iterable[str]) -> str:
    return "\n  ".join(parts)
