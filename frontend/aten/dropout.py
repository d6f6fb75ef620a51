"""Dropout where it does nothing. Where it draws numbers eager runs it, so that its random stream stays torch's."""

from __future__ import annotations

from typing import Any

from .registry import Value, aten, require


@aten("native_dropout")
def native_dropout(c: Any, x: Value, p: float, train: bool | None) -> tuple:
    require(train is False or p == 0, "dropout that draws random numbers")
    return x, c.scalar(True, "bool", c.type(x).shape)


@aten("dropout")
def dropout(c: Any, x: Value, p: float, train: bool) -> Value:
    require(not train or p == 0, "dropout that draws random numbers")
    return x
