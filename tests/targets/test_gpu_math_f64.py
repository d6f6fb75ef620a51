"""The f64 functions of GPUs, compiled for this machine, against 40 digits; and their edges against C99's."""

import ctypes
import math

import mpmath
import numpy as np
import pytest

from lamina.compiler.api import compile_llvm
from lamina.runtime.loader import Image
from lamina.targets.gpu_f64 import NAMES
from lamina.targets.gpu_math import definitions
from lamina.targets.nvptx_math import _SPELLING

BINARY = ("pow", "atan2", "fmod")
LIMITS = {"exp": 1.5, "log": 1.5, "sin": 1.5, "cos": 1.5, "pow": 2.0, "fmod": 0.0}  # ulp; the others 4
RANGES = {
    "exp": (-740, 709), "exp2": (-1060, 1023), "expm1": (-40, 709), "sinh": (-709, 709), "cosh": (-709, 709),
    "tanh": (-25, 25), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "acosh": (1, 50), "erf": (-7, 7),
    "erfc": (-6, 26), "sin": (-1e5, 1e5), "cos": (-1e5, 1e5), "tan": (-1e3, 1e3),
}  # fmt: skip
POSITIVE = ("log", "log2", "log10", "rsqrt")
REFERENCES = {"rsqrt": lambda x: 1 / mpmath.sqrt(x), "exp2": lambda x: mpmath.mpf(2) ** x, "pow": mpmath.power, "log2": lambda x: mpmath.log(x, 2)}  # fmt: skip


@pytest.fixture(scope="module")
def functions():
    text, missing = definitions(_SPELLING, [f"__nv_{n}" for n in NAMES])
    assert not missing
    exported = text.replace("linkonce_odr hidden", "")
    image = Image(compile_llvm(exported, [f"__nv_{n}" for n in sorted(NAMES)], name="gpu_math_f64"), "gpu_math_f64")
    made = {}
    for n in NAMES:
        types = [ctypes.c_double] * (3 if n in BINARY else 2)
        made[n] = ctypes.CFUNCTYPE(*types)(image.address(f"__nv_{n}"))
    made["keep"] = image
    return made


def arguments(name):
    rng = np.random.default_rng(0)
    if name in POSITIVE:
        return [np.concatenate([np.exp(rng.uniform(-740, 709, 150)), rng.uniform(0.4, 2.5, 150), [5e-320]])]
    if name == "log1p":
        return [np.concatenate([rng.uniform(-1, 3, 100), 10.0 ** rng.uniform(-18, 18, 100)])]
    if name == "pow":
        return [np.exp(rng.uniform(-6, 6, 400)), rng.uniform(-100, 100, 400)]
    if name == "atan2":
        return [rng.standard_normal(300), rng.standard_normal(300)]
    if name == "fmod":
        return [rng.standard_normal(200) * 10.0 ** rng.integers(0, 30, 200), rng.standard_normal(200)]
    low, high = RANGES.get(name, (-20, 20))
    near = [] if low == 1 else rng.uniform(-1, 1, 150) * 10.0 ** rng.uniform(-12, 0, 150)
    return [np.concatenate([rng.uniform(low, high, 200), near])]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_errors(name, functions):
    mpmath.mp.dps = 60
    reference = REFERENCES.get(name) or getattr(mpmath, name)
    worst = 0.0
    for given in zip(*arguments(name)):
        made = functions[name](*given)
        if name == "fmod":
            assert made == math.fmod(*given)
            continue
        exact = reference(*map(mpmath.mpf, given))
        ulp = max(math.ulp(float(exact)), 5e-324)
        worst = max(worst, abs(float((mpmath.mpf(made) - exact) / ulp)))
    assert worst <= LIMITS.get(name, 4.0), worst


EDGES = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, -3.0, 1e300, -1e300, math.inf, -math.inf, math.nan)


def same(a, b):
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b)) or math.isclose(a, b, rel_tol=1e-14, abs_tol=0)  # fmt: skip


def _pow(x, y):
    """libm's: numpy takes a root for an exponent of 0.5, and the root of -inf is NaN."""
    pow = ctypes.CDLL("libm.so.6").pow
    pow.argtypes, pow.restype = [ctypes.c_double] * 2, ctypes.c_double
    return pow(x, y)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_edges(name, functions):
    known = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "atan2": "arctan2"}  # fmt: skip
    plain = {"erf": math.erf, "erfc": math.erfc, "rsqrt": lambda x: 1 / np.sqrt(x), "pow": _pow}
    reference = plain.get(name) or getattr(np, known.get(name, name))
    edges = [x for x in EDGES if name not in ("sin", "cos", "tan") or not abs(x) > 1e15 or math.isinf(x)]
    given = [(x, y) for x in EDGES for y in EDGES] if name in BINARY else [(x,) for x in edges]
    with np.errstate(all="ignore"):
        wrong = [g for g in given if not same(functions[name](*g), float(reference(*map(np.float64, g))))]
    assert not wrong, [(g, functions[name](*g), float(reference(*map(np.float64, g)))) for g in wrong[:6]]
