"""What an op of the dialect is: one class with everything about it, found by name in one registry.

A class names its operands, attributes and results by annotation, in order:

    class Softmax(Op, name="softmax", category="row"):
        '''`exp(x - max) / sum(exp(x - max))` along `dim`.'''
        x: Operand
        dim: Attr[int]
        y: Result

and gives the parts as static methods that take the fields by name:

    infer(x, dim)        TensorType (or a tuple of them for several results) from operand TensorTypes and attributes;
                         raises OpError for what is wrong
    reference(x, dim)    numpy arrays in, numpy array (or tuple) out: the meaning, checked against torch
    lower(b, x, dim)     builds linalg through a `LinalgBuilder`; absent where the code generator emits loops directly

Operands are `Operand` (one), `OptionalOperand` (one or None) or `Variadic` (the last operand; a list). Attribute types are
`int`, `float`, `bool`, `str`, `Ints` (tuple of int), `Dims` (tuple of sizes, symbolic allowed), `DTypeAttr`, `Scalar`
(bool, int or float). An attribute with a default is given as `Attr[int] = -1`. `samples` is a tuple of `Sample`.
This module imports neither numpy nor MLIR, so the frontend can read the registry in the user's process.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .dims import Dim, Expr
from .record import Location, TensorType


class Operand:
    """A field that is one tensor."""


class OptionalOperand:
    """A field that is one tensor or absent."""


class Variadic:
    """A field that is any number of tensors; the last operand of its op."""


class Result:
    """A field that is one result tensor."""


T = typing.TypeVar("T")

if typing.TYPE_CHECKING:  # to a type checker a declared attribute is a value of its type
    Ints = tuple[int, ...]
    Dims = tuple[Dim, ...]
    DTypeAttr = str
    Scalar = bool | int | float
    Literal = str
    Attr = typing.Annotated[T, "attribute"]
else:

    class Ints:
        """Attribute type: a tuple of int."""

    class Dims:
        """Attribute type: a tuple of sizes, each an int or a symbolic expression."""

    class DTypeAttr:
        """Attribute type: the name of an element type."""

    class Scalar:
        """Attribute type: a Python bool, int or float."""

    class Literal:
        """Attribute type: raw bytes of a literal tensor, base64 text."""

    class Attr(typing.Generic[T]):
        """A field that is an attribute of type `T`."""


CATEGORIES = (
    "pointwise",  # one output element from the elements at the same (broadcast) index
    "view",  # an index map of its operand: moves nothing
    "creation",  # values from attributes and indices alone (full, arange, constant)
    "gather",  # one output element from elements of operands at computed indices (index, embedding, pad, concat)
    "reduction",  # combines elements along `dims`
    "row",  # output of the operand's shape (and per-row results) through reductions along `dims`: softmax, norms
    "matmul",
    "conv",
    "attention",
    "concat",  # writes its operands side by side
    "direct",  # emits its own loops (sort, scan, scatter ...)
)


class OpError(ValueError):
    """An op whose operands or attributes are wrong. The message starts with `lamina.<op> at <location>:`.

    `nodes` are the ops' places in the user's program.
    """

    def __init__(self, message: str, nodes: Sequence[Location] = ()):
        super().__init__(message)
        self.nodes = tuple(nodes)


@dataclass(frozen=True)
class Sample:
    """One example call: operands as `("f32", (4, 8))` pairs or `array(rng)` functions, and attributes.

    `low`/`high` bound random floats and ints; `exact` marks results that must equal torch bit for bit.
    """

    operands: tuple[Any, ...]
    attributes: dict[str, Any]
    low: float = -2.0
    high: float = 2.0


def sample(*operands: Any, low: float = -2.0, high: float = 2.0, **attributes: Any) -> Sample:
    """Write a Sample: a shape tuple is an f32 operand, `("i64", shape)` another dtype, None an absent operand."""
    fixed = tuple(("f32", o) if isinstance(o, tuple) and all(isinstance(x, int) for x in o) else o for o in operands)
    return Sample(fixed, attributes, low, high)


@dataclass(frozen=True)
class Field:
    """One declared operand, attribute or result."""

    name: str
    kind: Any  # Operand, OptionalOperand, Variadic, Attr or Result
    type: type | None = None  # of an attribute
    default: Any = ...


_REGISTRY: dict[str, type[Op]] = {}


class Op:
    """Base class of every op; subclass with `name=` and `category=`. See the module docstring."""

    name: ClassVar[str]
    category: ClassVar[str]
    fields: ClassVar[tuple[Field, ...]]
    operands: ClassVar[tuple[Field, ...]]
    attributes: ClassVar[tuple[Field, ...]]
    results: ClassVar[tuple[Field, ...]]
    single_result: ClassVar[bool]
    samples: ClassVar[tuple[Sample, ...]] = ()
    torch: ClassVar[Callable | None] = None  # torch(*tensors, **attributes): what eager computes, for tests
    numerics: ClassVar[str] = "exact"  # "exact", "bounded" (ulp) or "order" of sums (ARCHITECTURE.md, Numerics)
    infer: ClassVar[Callable[..., TensorType | tuple[TensorType, ...]]]
    reference: ClassVar[Callable[..., Any]]
    lower: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(cls, name: str = "", category: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not name:
            return  # an abstract base of a family
        if category not in CATEGORIES:
            raise TypeError(f"op '{name}': category '{category}' is not one of {', '.join(CATEGORIES)}")
        if name in _REGISTRY:
            raise TypeError(f"op '{name}' is defined twice: {_REGISTRY[name].__module__} and {cls.__module__}")
        if not cls.__doc__:
            raise TypeError(f"op '{name}' lacks a docstring with its formula")
        for part in ("infer", "reference"):
            if not hasattr(cls, part):
                raise TypeError(f"op '{name}' lacks '{part}'")
        cls.name, cls.category = name, category
        cls.fields = tuple(_fields(cls))
        cls.operands = tuple(f for f in cls.fields if f.kind in (Operand, OptionalOperand, Variadic))
        cls.attributes = tuple(f for f in cls.fields if f.kind is Attr)
        cls.results = tuple(f for f in cls.fields if f.kind is Result)
        cls.single_result = len(cls.results) == 1
        if not cls.results:
            raise TypeError(f"op '{name}' declares no Result")
        if any(f.kind is Variadic for f in cls.operands[:-1]):
            raise TypeError(f"op '{name}': a Variadic operand must come last")
        _REGISTRY[name] = cls

    @classmethod
    def resolve(
        cls, types: Sequence[TensorType | None], attributes: dict[str, Any], location: Location = Location()
    ) -> tuple[dict[str, Any], tuple[TensorType, ...]]:
        """Fill in attribute defaults, check the arguments and infer result types; OpError says what is wrong."""
        try:
            given = {k: normalize(v) for k, v in attributes.items()}
            known = {f.name for f in cls.attributes}
            for key in given:
                if key not in known:
                    raise OpError(f"unknown attribute '{key}'; it has {', '.join(sorted(known)) or 'none'}")
            full = {}
            for f in cls.attributes:
                if f.name not in given and f.default is ...:
                    raise OpError(f"attribute '{f.name}' is missing")
                full[f.name] = given.get(f.name, f.default)
            inferred = cls.infer(**cls.bind(types), **full)
        except OpError as error:
            raise OpError(f"lamina.{cls.name} at {location}: {error}", [location]) from None
        return full, inferred if isinstance(inferred, tuple) else (inferred,)

    @classmethod
    def bind(cls, operands: Sequence[Any]) -> dict[str, Any]:
        """Map positional operands to field names; a Variadic field takes the rest as a list."""
        fields = cls.operands
        variadic = bool(fields) and fields[-1].kind is Variadic
        fixed = fields[:-1] if variadic else fields
        if len(operands) < len(fixed) or (len(operands) > len(fixed) and not variadic):
            raise OpError(f"takes {len(fixed)}{' or more' if variadic else ''} operands, got {len(operands)}")
        bound = {f.name: v for f, v in zip(fixed, operands)}
        for f in fixed:
            if bound[f.name] is None and f.kind is Operand:
                raise OpError(f"operand '{f.name}' is missing")
        if variadic:
            bound[fields[-1].name] = list(operands[len(fixed) :])
        return bound


def normalize(value: Any) -> Any:
    """Lists to tuples, numpy-like ints to int: the form in which attributes are compared and stored."""
    if isinstance(value, (list, tuple)):
        return tuple(normalize(v) for v in value)
    if isinstance(value, (bool, int, float, str, Expr)) or value is None:
        return value
    if hasattr(value, "__index__"):
        return int(value)
    raise OpError(f"an attribute cannot be a {type(value).__name__}")


def _fields(cls: type[Op]) -> list[Field]:
    fields = []
    for base in reversed(cls.__mro__):
        if base is Op:
            continue  # its annotations are of the parts of a class, no fields
        for name, kind in inspect.get_annotations(base, eval_str=True).items():
            if kind in (Operand, OptionalOperand, Variadic, Result):
                fields.append(Field(name, kind))
            elif typing.get_origin(kind) is Attr:
                fields.append(Field(name, Attr, typing.get_args(kind)[0], getattr(cls, name, ...)))
    return fields


def registry(name: str) -> type[Op]:
    """The op class called `name` (no `lamina.` prefix); an unknown name is a KeyError with the nearest ones."""
    load_all()
    if name not in _REGISTRY:
        import difflib

        near = difflib.get_close_matches(name, _REGISTRY, 3)
        raise KeyError(f"no op 'lamina.{name}'" + (f"; did you mean {', '.join(near)}?" if near else ""))
    return _REGISTRY[name]


def all_ops() -> dict[str, type[Op]]:
    """Every op by name, in order of definition."""
    load_all()
    return dict(_REGISTRY)


def load_all() -> None:
    """Import every op family, which fills the registry."""
    from . import families  # noqa: F401


def check(condition: bool, message: str) -> None:
    """Raise OpError(message) unless `condition`."""
    if not condition:
        raise OpError(message)


def normalize_dim(dim: int, rank: int) -> int:
    """A dimension number in 0..rank-1 from one in -rank..rank-1; OpError names the range (rank 0 counts as 1)."""
    size = max(rank, 1)
    check(-size <= dim < size, f"dim {dim} is outside a rank-{rank} tensor; dims are {-size}..{size - 1}")
    return dim % size


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """numpy broadcasting of shapes; symbolic sizes must be equal or 1."""
    rank = max(map(len, shapes))
    out: list[Dim] = []
    for i in range(-rank, 0):
        sizes = [s[i] for s in shapes if len(s) >= -i and s[i] != 1]
        for other in sizes[1:]:
            check(other == sizes[0], f"cannot broadcast sizes {sizes[0]} and {other} in dim {i}")
        out.append(sizes[0] if sizes else 1)
    return tuple(out)
