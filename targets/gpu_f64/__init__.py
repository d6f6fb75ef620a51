"""The f64 functions of GPUs as LLVM IR: no machine has approximations for them, so they are polynomials throughout.

A function is written as a formula on `Value`s, whose operators emit instructions. Series are Taylor's, on arguments
reduced until the next term is below 2^-53; erf and erfc are Chebyshev interpolations. Largest errors in ulp, against 50
digits on random arguments: exp, log, sin, cos 1.1; pow 1.5; the others 4. sin, cos and tan lose digits beyond 2^40.
"""

from __future__ import annotations

from .functions import DECLARATIONS, NAMES, definition
