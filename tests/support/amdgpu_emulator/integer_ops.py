"""Integer, bit and moving operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .operands import I8, I16, I32, I64, MASK, TYPES, U8, U16, U32, U64
from .registry import ALU, Alu

_24 = np.uint32(0xFFFFFF)


def _shift(function: Callable[[Any, Any], Any], bits: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A shift of the second operand by the low bits of the first."""
    return lambda n, x: function(x, (n & n.dtype.type(bits - 1)).astype(x.dtype))


def _signed24(x: np.ndarray) -> np.ndarray:
    return (x << np.uint32(8)).view(I32) >> np.int32(8)


def perm(x: np.ndarray, y: np.ndarray, selector: np.ndarray) -> np.ndarray:
    """Each byte of the selector names a byte: 0–3 of y, 4–7 of x, 8–11 sign of a half, 12 is 0, 13 on are 0xff."""
    both = x.astype(U64) << U64.type(32) | y
    made = np.zeros(np.broadcast(both, selector).shape, U32)
    for i in range(4):
        pick = selector >> np.uint32(8 * i) & np.uint32(0xFF)
        byte = (both >> ((pick & np.uint32(7)) * np.uint32(8)).astype(U64)).astype(U32) & np.uint32(0xFF)
        sign = (both >> ((pick & np.uint32(3)) * np.uint32(16) + np.uint32(15)).astype(U64)).astype(U32) & np.uint32(1)
        byte = np.where(pick >= 8, sign * np.uint32(0xFF), byte)
        byte = np.where(pick >= 12, np.where(pick == 12, np.uint32(0), np.uint32(0xFF)), byte)
        made |= byte << np.uint32(8 * i)
    return made


def _align(x: np.ndarray, y: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The 32 bits from bit `n` on of x·2³² + y."""
    return ((x.astype(U64) << U64.type(32) | y) >> n.astype(U64)).astype(U32)


def _field_unsigned(x: np.ndarray, offset: np.ndarray, width: np.ndarray) -> np.ndarray:
    return x >> (offset & np.uint32(31)) & (np.uint32(1) << (width & np.uint32(31))) - np.uint32(1)


def _field_signed(x: np.ndarray, offset: np.ndarray, width: np.ndarray) -> np.ndarray:
    field, width = _field_unsigned(x.view(U32), offset, width), width & np.uint32(31)
    sign = np.where(width > 0, np.uint32(1) << (width - np.uint32(1)), np.uint32(0))
    return ((field ^ sign) - sign).view(I32)


def count_bits(x: np.ndarray) -> np.ndarray:
    """The number of ones of u32."""
    bytes_ = np.ascontiguousarray(x).view(U8).reshape(*x.shape, 4)
    return np.unpackbits(bytes_, axis=-1).sum(-1).astype(U32)


def first_high(x: np.ndarray) -> np.ndarray:
    """Zeros above the highest one of u32; -1 for 0."""
    exponent = np.frexp(x.astype(np.float64))[1]
    return np.where(x == 0, -1, 32 - exponent).astype(I32).view(U32)


def first_low(x: np.ndarray) -> np.ndarray:
    """The place of the lowest one of u32; -1 for 0."""
    lowest = x & (~x + np.uint32(1))
    return np.where(x == 0, -1, np.frexp(lowest.astype(np.float64))[1] - 1).astype(I32).view(U32)


def first_sign(x: np.ndarray) -> np.ndarray:
    """Bits from the top on that equal the sign of i32; -1 where all do."""
    return first_high(np.where(x < 0, ~x, x).view(U32))


def reverse_bits(x: np.ndarray) -> np.ndarray:
    """The bits of u32 in the other order."""
    made = np.zeros_like(x)
    for i in range(32):
        made |= (x >> np.uint32(i) & np.uint32(1)) << np.uint32(31 - i)
    return made


def _dot(kind: np.dtype, other: np.dtype, per: int) -> Callable[..., np.ndarray]:
    """The dot product of `per` small integers, added to the third operand."""

    def compute(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        total = z.astype(I64)
        for i in range(per):
            shift, narrow = np.uint32(32 // per * i), U8 if per == 4 else U16
            total = total + (x >> shift).astype(narrow).view(kind).astype(I64) * (y >> shift).astype(narrow).view(
                other
            ).astype(I64)
        return total.astype(U32)

    return compute


def _high_product(wide: np.dtype, narrow: np.dtype) -> Callable[..., np.ndarray]:
    return lambda x, y: (x.astype(wide) * y.astype(wide) >> wide.type(32)).astype(narrow)


def _define(name: str, alu: Alu) -> None:
    ALU[f"v_{name}"] = alu


for _t, _bits in (("32", 32), ("16", 16)):
    _u, _i = TYPES[f"u{_t}"], TYPES[f"i{_t}"]
    for _suffix in ("", "_nc"):
        for _type, _c in ((_u, "u"), (_i, "i")):
            _define(f"add{_suffix}_{_c}{_t}", Alu(_type, (_type, _type), np.add))
            _define(f"sub{_suffix}_{_c}{_t}", Alu(_type, (_type, _type), np.subtract))
            _define(f"subrev{_suffix}_{_c}{_t}", Alu(_type, (_type, _type), lambda x, y: y - x))
    for _type, _c in ((_u, "u"), (_i, "i")):
        _define(f"max_{_c}{_t}", Alu(_type, (_type, _type), np.maximum))
        _define(f"min_{_c}{_t}", Alu(_type, (_type, _type), np.minimum))
    _define(f"lshlrev_b{_t}", Alu(_u, (_u, _u), _shift(np.left_shift, _bits)))
    _define(f"lshrrev_b{_t}", Alu(_u, (_u, _u), _shift(np.right_shift, _bits)))
    _define(f"ashrrev_i{_t}", Alu(_i, (_u, _i), _shift(np.right_shift, _bits)))
    for _name, _function in {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}.items():
        _define(f"{_name}_b{_t}", Alu(_u, (_u, _u), _function))
    _define(f"not_b{_t}", Alu(_u, (_u,), np.invert))
    _define(f"mov_b{_t}", Alu(_u, (_u,), lambda x: x))
    _define(f"cndmask_b{_t}", Alu(_u, (_u, _u, MASK), lambda x, y, c: np.where(c, y, x), selects=True))
for _t, _shifts in (("b64", ("lshlrev", "lshrrev")), ("i64", ("ashrrev",))):
    for _name in _shifts:
        _function = np.left_shift if _name == "lshlrev" else np.right_shift
        _define(f"{_name}_{_t}", Alu(TYPES[_t], (U32, TYPES[_t]), _shift(_function, 64)))
_define("xnor_b32", Alu(U32, (U32, U32), lambda x, y: ~(x ^ y)))
_define("accvgpr_read_b32", ALU["v_mov_b32"])
_define("accvgpr_write_b32", ALU["v_mov_b32"])
_define("accvgpr_mov_b32", ALU["v_mov_b32"])
_define("accvgpr_read", ALU["v_mov_b32"])
_define("accvgpr_write", ALU["v_mov_b32"])
_define("mul_lo_u32", Alu(U32, (U32, U32), np.multiply))
_define("mul_lo_u16", Alu(U16, (U16, U16), np.multiply))
_define("mul_hi_u32", Alu(U32, (U32, U32), _high_product(U64, U32)))
_define("mul_hi_i32", Alu(I32, (I32, I32), _high_product(I64, I32)))
_define("mul_u32_u24", Alu(U32, (U32, U32), lambda x, y: (x & _24) * (y & _24)))
_define("mul_i32_i24", Alu(I32, (U32, U32), lambda x, y: _signed24(x) * _signed24(y)))
_define("mul_hi_u32_u24", Alu(U32, (U32, U32), lambda x, y: ALU["v_mul_hi_u32"].compute(x & _24, y & _24)))
_define("mad_u32_u24", Alu(U32, (U32,) * 3, lambda x, y, z: (x & _24) * (y & _24) + z))
_define("mad_i32_i24", Alu(I32, (U32, U32, I32), lambda x, y, z: _signed24(x) * _signed24(y) + z))
_define("mad_u16", Alu(U16, (U16,) * 3, lambda x, y, z: x * y + z, keeps_high=True))
_define("mad_i16", Alu(I16, (I16,) * 3, lambda x, y, z: x * y + z, keeps_high=True))
for _type, _c in ((U16, "u"), (I16, "i")):  # these clear the upper half
    _define(f"mad_legacy_{_c}16", Alu(_type, (_type,) * 3, lambda x, y, z: x * y + z))
_define("mad_u32_u16", Alu(U32, (U16, U16, U32), lambda x, y, z: x.astype(U32) * y + z))
_define("mad_i32_i16", Alu(I32, (I16, I16, I32), lambda x, y, z: x.astype(I32) * y + z))
_define("lshl_or_b32", Alu(U32, (U32,) * 3, lambda x, n, z: x << (n & np.uint32(31)) | z))
_define("lshl_add_u32", Alu(U32, (U32,) * 3, lambda x, n, z: (x << (n & np.uint32(31))) + z))
_define("add_lshl_u32", Alu(U32, (U32,) * 3, lambda x, y, n: x + y << (n & np.uint32(31))))
_define("lshl_add_u64", Alu(U64, (U64, U32, U64), lambda x, n, z: (x << (n & np.uint32(7)).astype(U64)) + z))
_define("add_u64", Alu(U64, (U64, U64), np.add))
_define("add3_u32", Alu(U32, (U32,) * 3, lambda x, y, z: x + y + z))
_define("or3_b32", Alu(U32, (U32,) * 3, lambda x, y, z: x | y | z))
_define("xor3_b32", Alu(U32, (U32,) * 3, lambda x, y, z: x ^ y ^ z))
_define("and_or_b32", Alu(U32, (U32,) * 3, lambda x, y, z: x & y | z))
_define("xad_u32", Alu(U32, (U32,) * 3, lambda x, y, z: (x ^ y) + z))
_define("bfi_b32", Alu(U32, (U32,) * 3, lambda m, x, y: m & x | ~m & y))
_define("bfe_u32", Alu(U32, (U32,) * 3, _field_unsigned))
_define("bfe_i32", Alu(I32, (I32, U32, U32), _field_signed))
_define("bfm_b32", Alu(U32, (U32, U32), lambda n, k: ((np.uint32(1) << (n & np.uint32(31))) - np.uint32(1)) << k))
_define("perm_b32", Alu(U32, (U32,) * 3, perm))
_define("alignbit_b32", Alu(U32, (U32,) * 3, lambda x, y, n: _align(x, y, n & np.uint32(31))))
_define("alignbyte_b32", Alu(U32, (U32,) * 3, lambda x, y, n: _align(x, y, (n & np.uint32(3)) * np.uint32(8))))
_define("pack_b32_f16", Alu(U32, (U16, U16), lambda x, y: y.astype(U32) << np.uint32(16) | x))
_define("bfrev_b32", Alu(U32, (U32,), reverse_bits))
_define("ffbh_u32", Alu(U32, (U32,), first_high))
_define("clz_i32_u32", Alu(U32, (U32,), first_high))
_define("ffbh_i32", Alu(U32, (I32,), first_sign))
_define("cls_i32", Alu(U32, (I32,), first_sign))
_define("ffbl_b32", Alu(U32, (U32,), first_low))
_define("ctz_i32_b32", Alu(U32, (U32,), first_low))
_define("bcnt_u32_b32", Alu(U32, (U32, U32), lambda x, y: count_bits(x) + y))
_define("sad_u32", Alu(U32, (U32,) * 3, lambda x, y, z: np.maximum(x, y) - np.minimum(x, y) + z))
for _name in ("dot4_i32_i8", "dot4c_i32_i8"):
    _define(_name, Alu(U32, (U32,) * 3, _dot(I8, I8, 4), accumulates="c_" in _name))
_define("dot4_u32_u8", Alu(U32, (U32,) * 3, _dot(U8, U8, 4)))
_define("dot2_i32_i16", Alu(U32, (U32,) * 3, _dot(I16, I16, 2)))
_define("dot2_u32_u16", Alu(U32, (U32,) * 3, _dot(U16, U16, 2)))
