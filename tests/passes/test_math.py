"""Accuracy of the math expansions against mpmath, in units in the last place of f32, and their special values."""

import functools

import mpmath
import numpy as np
import pytest
from support.run_kernel import compile_kernel

INF, NAN = np.inf, np.nan
SPECIALS = np.array(
    [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 1e-45, -1e-45, 1.2e-38, 3.4e38, -3.4e38, 0.5, 2.0], np.float32
)

# function: [(low, high) of samples ...], most ulp, mpmath name
FUNCTIONS = {
    "exp": ([(-104, 89), (-1, 1)], 1.2, "exp"),
    "exp2": ([(-150, 128), (-1, 1)], 1.2, None),
    "expm1": ([(-20, 89), (-1, 1), (-1e-3, 1e-3)], 1.7, "expm1"),
    "tanh": ([(-10, 10), (-1, 1), (-1e-3, 1e-3)], 2.0, "tanh"),
    "sinh": ([(-89.4, 89.4), (-1, 1), (-1e-3, 1e-3)], 2.0, "sinh"),
    "cosh": ([(-89.4, 89.4), (-1, 1)], 1.7, "cosh"),
    "log": ([(0, 3), (0.9, 1.1), (0, 1e-38), (0, 3e38)], 1.2, "log"),
    "log2": ([(0, 3), (0.9, 1.1), (0, 1e-38), (0, 3e38)], 1.5, None),
    "log10": ([(0, 3), (0.9, 1.1), (0, 1e-38), (0, 3e38)], 1.5, "log10"),
    "log1p": ([(-1, 3), (-1e-3, 1e-3), (0, 3e38)], 1.7, None),
    "asinh": ([(-3, 3), (-1e-3, 1e-3), (0, 3e38), (0, 1e5)], 2.0, "asinh"),
    "acosh": ([(1, 3), (1, 1.01), (1, 3e38), (1, 1e5)], 2.0, "acosh"),
    "atanh": ([(-1, 1), (-1e-3, 1e-3)], 2.0, "atanh"),
    "erf": ([(-4.2, 4.2), (-1.1, 1.1), (-1e-3, 1e-3)], 2.0, "erf"),
    "erfc": ([(-4, 10), (-1, 1)], 2.0, "erfc"),
    "sin": ([(-7, 7), (-1e5, 1e5), (-1e-3, 1e-3), (-3e13, 3e13), (1, 3.4e38)], 1.5, "sin"),
    "cos": ([(-7, 7), (-1e5, 1e5), (-1e-3, 1e-3), (-3e13, 3e13), (1, 3.4e38)], 1.5, "cos"),
    "tan": ([(-7, 7), (-1e5, 1e5), (-1e-3, 1e-3), (1, 3.4e38)], 2.0, "tan"),
    "asin": ([(-1, 1), (-1e-3, 1e-3), (0.49, 0.51)], 2.0, "asin"),
    "acos": ([(-1, 1), (-1e-3, 1e-3), (0.99, 1)], 2.0, "acos"),
    "atan": ([(-5, 5), (-1e-3, 1e-3), (-1e9, 1e9)], 2.0, "atan"),
}


def _map_kernel(name: str, operands: int, type: str = "f32", attributes: str = ""):
    n = operands
    maps = ", ".join(["#m"] * (n + 1))
    args = ", ".join(f"%x{i}: tensor<?x{type}>" for i in range(n))
    ins = ", ".join(f"%x{i}" for i in range(n)) + " : " + ", ".join([f"tensor<?x{type}>"] * n)
    block = ", ".join(f"%a{i}: {type}" for i in range(n))
    names = ", ".join(f"%a{i}" for i in range(n))
    dims = ", ".join(['["d0"]'] * n)
    return compile_kernel(f"""
#m = affine_map<(d0) -> (d0)>
func.func private @f({args}, %d0: index) -> tensor<?x{type}> attributes {{lamina.kind = "loops",
    lamina.symbols = ["d0"], lamina.label = "f", lamina.arg_dims = [{dims}], lamina.result_dims = [["d0"]],
    lamina.arg_dtypes = ["f32"], lamina.result_dtypes = ["{type}"]}} {{
  %e = tensor.empty(%d0) : tensor<?x{type}>
  %y = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}} ins({ins}) outs(%e : tensor<?x{type}>) {{
  ^bb0({block}, %o: {type}):
    %v = math.{name} {names} {attributes} : {type}
    linalg.yield %v : {type}
  }} -> tensor<?x{type}>
  return %y : tensor<?x{type}>
}}""")


@functools.cache
def _exact(name: str):
    mpmath.mp.prec = 140
    f = FUNCTIONS[name][2] if name in FUNCTIONS else None
    if name == "exp2":
        return lambda x: mpmath.mpf(2) ** x
    if name == "log2":
        return lambda x: mpmath.log(x, 2)
    if name == "log1p":
        return lambda x: mpmath.log1p(x)
    return getattr(mpmath, f)


def _ulps(got: np.ndarray, exact: list) -> np.ndarray:
    """The distance of each result from the exact value in units of the f32 grid there."""
    worst = np.zeros(len(got))
    for i, (g, e) in enumerate(zip(got.tolist(), exact)):
        rounded = np.float32(float(e))
        if not np.isfinite(rounded):
            worst[i] = 0 if g == rounded or abs(g) > 3.40282e38 else INF
            continue
        worst[i] = abs(float((mpmath.mpf(g) - e) / float(np.spacing(np.abs(rounded))))) if np.isfinite(g) else INF
    return worst


def _samples(low: float, high: float, count: int, rng: np.random.Generator) -> np.ndarray:
    if high / max(abs(low), 1e-30) > 1e20 or (low >= 0 and high > 1e8):
        return np.exp(rng.uniform(np.log(max(low, 1e-6)), np.log(high), count)).astype(np.float32)
    return rng.uniform(low, high, count).astype(np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_in_ulp(name):
    ranges, bound, _ = FUNCTIONS[name]
    rng = np.random.default_rng(len(name))
    x = np.concatenate([_samples(low, high, 1200, rng) for low, high in ranges])
    if name.startswith("log") and name != "log1p":
        x = x[x > 0]
    x = x[np.abs(x) < 1] if name == "atanh" else x
    got = _map_kernel(name, 1)(x, sizes={"d0": len(x)})
    ulps = _ulps(got, [_exact(name)(mpmath.mpf(v)) for v in x.tolist()])
    i = int(ulps.argmax())
    assert ulps[i] <= bound, f"{ulps[i]:.2f} ulp at {x[i]!r}: {got[i]!r}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name):
    x = SPECIALS
    with np.errstate(all="ignore"):
        import torch

        table = {"erf": torch.erf, "erfc": torch.erfc}
        wide = torch.tensor(x, dtype=torch.float64)
        expected = (table.get(name) or getattr(torch, name))(wide).float().numpy()
    got = _map_kernel(name, 1)(x, sizes={"d0": len(x)})
    np.testing.assert_allclose(got, expected, rtol=3e-7, atol=0)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("attributes, scale", [("", 0), (", lamina.any_scale", 64)])
def test_exp_of_what_is_never_positive(attributes, scale):
    kernel = _map_kernel("exp", 1, attributes=f"{{lamina.nonpositive{attributes}}}")
    x = np.concatenate([_samples(low, 0, 1500, np.random.default_rng(0)) for low in (-110, -88, -1)])
    x = np.maximum(x, -104) if scale else x
    exact = [mpmath.exp(mpmath.mpf(v)) * 2**scale for v in x.tolist()]
    assert _ulps(kernel(x, sizes={"d0": len(x)}), exact).max() <= 1.2
    special = np.float32([-INF, NAN, 0.0, -0.0, -1e-45, -3.4e38])
    got = kernel(special, sizes={"d0": 6}) * np.float32(2.0**-scale)
    np.testing.assert_array_equal(got, np.float32([0, NAN, 1, 1, 1, 0]))


@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_f64_keeps_its_digits_near_zero(name):
    x = np.array([1e-300, -1e-20, 1e-9, -1e-3, 0.02, 0.7, -0.999, 1.5, 700, -0.0, INF, NAN])
    got = _map_kernel(name, 1, "f64")(x, sizes={"d0": len(x)})
    np.testing.assert_allclose(got, getattr(np, name)(x), rtol=1e-15)


def _grid() -> tuple[np.ndarray, np.ndarray]:
    values = np.concatenate([SPECIALS, np.float32([3, -3, 2.5, -2.5, 0.1, -7, 16777217, 1.5])])
    a, b = np.meshgrid(values, values)
    return a.ravel().copy(), b.ravel().copy()


def test_pow_special_values():
    x, y = _grid()
    got = _map_kernel("powf", 2)(x, y, sizes={"d0": len(x)})
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(got, expected, rtol=2e-7, atol=1e-45)
    np.testing.assert_array_equal(np.signbit(got[expected == 0]), np.signbit(expected[expected == 0]))


def test_atan2_special_values():
    x, y = _grid()
    got = _map_kernel("atan2", 2)(x, y, sizes={"d0": len(x)})
    with np.errstate(all="ignore"):
        expected = np.arctan2(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(got, expected, rtol=2e-7, atol=1e-45)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(np.where(np.isnan(expected), got, expected)))


def test_pow_error_in_ulp():
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(-20, 20, 3000)).astype(np.float32)
    y = rng.uniform(-4, 4, 3000).astype(np.float32)
    got = _map_kernel("powf", 2)(x, y, sizes={"d0": len(x)})
    ulps = _ulps(got, [mpmath.mpf(a) ** mpmath.mpf(b) for a, b in zip(x.tolist(), y.tolist())])
    assert ulps.max() <= 1.0


def test_f64_uses_libm():
    x = np.random.default_rng(0).uniform(-3, 3, 100)
    np.testing.assert_allclose(_map_kernel("exp", 1, "f64")(x, sizes={"d0": 100}), np.exp(x), rtol=4e-16)
