"""Small ops that use every kind of field, for tests of the IR machinery alone. Import before a Context is made."""

from lamina.dialects.op import (
    Attr,
    Dims,
    Ints,
    Op,
    Operand,
    OptionalOperand,
    Result,
    Scalar,
    broadcast,
    check,
)
from lamina.dialects.record import TensorType


class ToyAdd(Op, name="toy_add", category="pointwise"):
    """`y = a + b`."""

    a: Operand
    b: Operand
    y: Result

    @staticmethod
    def infer(a, b):
        check(a.dtype == b.dtype, "element types differ")
        return TensorType(a.dtype, broadcast(a.shape, b.shape))

    @staticmethod
    def reference(a, b):
        return a + b


class ToyOptional(Op, name="toy_optional", category="pointwise"):
    """`y = a`, with fields of every other kind."""

    a: Operand
    b: OptionalOperand
    c: OptionalOperand
    scale: Attr[float] = 1
    dims: Attr[Ints] = ()
    shape: Attr[Dims] = ()
    limit: Attr[Scalar | None] = None
    y: Result

    @staticmethod
    def infer(a, b, c, scale, dims, shape, limit):
        return a

    @staticmethod
    def reference(a, b, c, scale, dims, shape, limit):
        return a


class ToyScalar(Op, name="toy_scalar", category="creation"):
    """`y = value`."""

    value: Attr[Scalar]
    y: Result

    @staticmethod
    def infer(value):
        return TensorType("f64", ())

    @staticmethod
    def reference(value):
        return value
