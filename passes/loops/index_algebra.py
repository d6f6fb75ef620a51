"""Index expressions with known ranges: what lets reshapes, slices and broadcasts fold to plain strided addresses.

An index is a `dims.Dim` over loop variables (`0 <= i < end`, the end itself a size expression) and size symbols
(at least 0; at least 1 where they bound an open loop). `Ranges.simplify` folds with these facts:

    floordiv(x, k) -> 0,  mod(x, k) -> x                              where 0 <= x < k
    floordiv(floordiv(x, k), b) -> floordiv(x, k*b)
    mod(mod(x, k), b) -> mod(x, b)                                     where b divides k
    floordiv(g*u + r, g*m) -> floordiv(u, m)                           where 0 <= r < g
    mod(g*u + r, g*m) -> g*mod(u, m) + r                               where 0 <= r < g
    c*k*floordiv(x, k) + c*mod(x, k) -> c*x

so that an index taken apart for one shape and put together for another is the plain expression again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...dialects import dims
from ...dialects.dims import Dim, Expr


class Ranges:
    """The ends of loop variables, and which size symbols are known to be positive."""

    def __init__(self, ends: Mapping[str, Dim] = {}):
        self.ends: dict[str, Dim] = {}
        self.positive: set[str] = set()
        self._memo: dict[Dim, Dim] = {}
        self.facts: dict[tuple[Dim, Dim], bool] = {}
        for name, end in ends.items():
            self.add(name, end)

    def add(self, name: str, end: Dim) -> Expr:
        """State `0 <= name < end`."""
        self.ends[name] = end
        self._memo.clear()
        self.facts.clear()
        if isinstance(end, Expr) and len(end.terms) == 1:
            self.positive |= {s for s in dims.symbols(end) if s not in self.ends}
        return dims.symbol(name)

    def copy(self) -> Ranges:
        """The same facts, to be extended separately."""
        other = Ranges()
        other.ends, other.positive = dict(self.ends), set(self.positive)
        return other

    # -- bounds ------------------------------------------------------------------------------------------------
    def lower(self, e: Dim, upper: bool = False) -> Dim | None:
        """A size expression that is at most `e` (with `upper`: at least `e`), or None."""
        if isinstance(e, int):
            return e
        total: Dim = 0
        for monomial, c in e.terms.items():
            want_upper = (c > 0) == upper
            term: Dim = c
            for atom, power in monomial:
                bound = self._atom_bound(atom, want_upper)
                if bound is None:
                    return None
                for _ in range(power):
                    term = term * bound
            total = total + term
        return total

    def _atom_bound(self, atom: object, upper: bool) -> Dim | None:
        """A non-negative bound of an atom that is itself non-negative, else None."""
        if isinstance(atom, str):
            if atom not in self.ends:
                return None if atom.startswith("v") else dims.symbol(atom)
            return self.ends[atom] - 1 if upper else 0
        function, a, b = atom  # type: ignore[misc]
        if not self.nonnegative(a) or not self.nonnegative(b):
            return None
        if not upper:
            return 0
        if function == "mod":
            return b - 1
        top, other = self.lower(a, upper=True), self.lower(b, upper=True)
        if function == "floordiv" and top is not None:
            return dims.floordiv(top, b) if not self._varies(b) else top
        if function == "min":
            return top if top is not None else other
        return None if top is None or other is None else top + other

    def _varies(self, e: Dim) -> bool:
        return any(n in self.ends for n in dims.symbols(e))

    def nonnegative(self, e: Dim) -> bool:
        """True if `e >= 0` for certain."""
        if isinstance(e, int):
            return e >= 0
        if all(c > 0 for c in e.terms.values()) and not any(a.startswith("v") for a in dims.symbols(e)):
            return all(isinstance(a, str) or self._atom_nonnegative(*a) for m in e.terms for a, _ in m)
        low = self.lower(e)
        if low is None:
            return False
        if isinstance(low, int):
            return low >= 0
        # with s = 1 + s' for positive symbols, all coefficients non-negative is enough
        shifted = dims.substitute(low, {s: dims.symbol(s) + 1 for s in self.positive})
        return shifted >= 0 if isinstance(shifted, int) else all(c > 0 for c in shifted.terms.values())

    def _atom_nonnegative(self, function: str, a: Dim, b: Dim) -> bool:
        """True if `function(a, b)` is at least 0 for certain; divisors are positive."""
        first = self.nonnegative(a)
        if function == "max":
            return first or self.nonnegative(b)
        return first and (function != "min" or self.nonnegative(b))

    def less(self, a: Dim, b: Dim) -> bool:
        """True if `0 <= a < b` for certain."""
        if isinstance(a, int) and isinstance(b, int):
            return 0 <= a < b
        found = self.facts.get((a, b))
        if found is None:
            top = self.lower(a, upper=True) if self.nonnegative(a) else None
            found = self.facts[a, b] = top is not None and self.nonnegative(b - 1 - top)
        return found

    # -- folding -----------------------------------------------------------------------------------------------
    def floordiv(self, a: Dim, k: Dim) -> Dim:
        """`a // k`, folded (0 for k = 0: no element has such an index)."""
        return 0 if k == 0 else self.simplify(dims.floordiv(a, k))

    def mod(self, a: Dim, k: Dim) -> Dim:
        """`a mod k`, folded (0 for k = 0)."""
        return 0 if k == 0 else self.simplify(dims.mod(a, k))

    def simplify(self, e: Dim) -> Dim:
        """An equal expression with the folds of the module's docstring."""
        if isinstance(e, int):
            return e
        found = self._memo.get(e)
        if found is None:
            found = e
            if any(not isinstance(atom, str) for m in e.terms for atom, _ in m):
                found = self._recompose(self._fold(e))
            self._memo[e] = found
        return found

    def _fold(self, e: Expr) -> Dim:
        total: Dim = 0
        for monomial, c in e.terms.items():
            term: Dim = c
            for atom, power in monomial:
                value = dims.symbol(atom) if isinstance(atom, str) else self._fold_atom(*atom)
                for _ in range(power):
                    term = term * value
            total = total + term
        return total

    def _fold_atom(self, function: str, a: Dim, b: Dim) -> Dim:
        a, b = self.simplify(a), self.simplify(b)
        if function in ("max", "min"):
            return self._fold_extreme(function, a, b)
        folded = dims.apply(function, a, b)
        atom = _only_atom(folded)
        if atom is None or atom[0] != function:
            return self.simplify(folded)
        found = self._fold_division(*atom)
        return folded if found is None else found

    def _fold_extreme(self, function: str, a: Dim, b: Dim) -> Dim:
        if self.nonnegative(a - b):
            return a if function == "max" else b
        if self.nonnegative(b - a):
            return b if function == "max" else a
        return dims.apply(function, a, b)

    def _fold_division(self, function: str, a: Dim, b: Dim) -> Dim | None:
        """`a // b` or `a mod b` by what is known of ranges; None: it stays."""
        divides = function == "floordiv"
        if self.less(a, b):
            return 0 if divides else a
        inner = _only_atom(a)
        if inner is not None and inner[0] == function:
            _, x, k = inner
            if divides:  # (x // k) // b = x // (k*b)
                return self.simplify(dims.floordiv(x, k * b))
            if dims.mod(k, b) == 0:  # (x mod k) mod b = x mod b where b divides k
                return self.simplify(dims.mod(x, b))
        for g in _factors(a):  # a = g*u + r with 0 <= r < g, b = g*m:  a // b = u // m,  a mod b = g*(u mod m) + r
            m = dims.floordiv(b, g)
            if m * g != b:
                continue
            found = _without_division(a, dims.floordiv(a, g), g)
            if found is None:
                continue
            u, r = found
            if self.less(r, g):
                return self.simplify(dims.floordiv(u, m) if divides else g * dims.mod(u, m) + r)
        return None

    def _recompose(self, e: Dim) -> Dim:
        """Put `c*k*floordiv(x, k) + c*mod(x, k)` together."""
        changed = True
        while changed and isinstance(e, Expr):
            changed = False
            for monomial, c in e.terms.items():
                found = next((a for a, p in monomial if not isinstance(a, str) and a[0] == "mod" and p == 1), None)
                if found is None:
                    continue
                _, x, k = found
                rest = Expr({tuple(t for t in monomial if t[0] != found): c})
                quotient = self.simplify(dims.floordiv(x, k))
                part = rest * k * quotient
                if _contains(e, part):
                    e = e - part - Expr({monomial: c}) + rest * x
                    changed = True
                    break
        return e

    # -- shapes ------------------------------------------------------------------------------------------------
    def delinearize(self, flat: Dim, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The row-major index in `shape` of flat position `flat` (within it)."""
        index: list[Dim] = []
        for i in range(len(shape) - 1, 0, -1):
            index.append(self.mod(flat, shape[i]))
            flat = self.floordiv(flat, shape[i])
        return tuple(reversed([*index, flat])) if shape else ()

    def linearize(self, index: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
        """The row-major flat position of `index` in `shape`."""
        flat: Dim = 0
        for i, n in zip(index, shape):
            flat = flat * n + i
        return self.simplify(flat)


def _only_atom(e: Dim) -> tuple | None:
    """`(function, a, b)` if `e` is exactly one function."""
    if isinstance(e, Expr) and len(e.terms) == 1:
        (monomial, c), *_ = e.terms.items()
        if c == 1 and len(monomial) == 1 and monomial[0][1] == 1 and not isinstance(monomial[0][0], str):
            return monomial[0][0]
    return None


def _factors(e: Dim) -> list[Dim]:
    """Candidate common factors of terms of `e`: each term without one of its atoms, largest first."""
    found: dict[Dim, None] = {}
    if isinstance(e, Expr):
        for monomial, c in e.terms.items():
            for i in range(len(monomial)):
                if monomial[i][1] == 1 and c > 0:
                    rest = tuple(t for j, t in enumerate(monomial) if j != i)
                    g: Dim = Expr({rest: c}) if rest else c
                    if g != 1:
                        found[g] = None
    return sorted(found, key=lambda g: (g if isinstance(g, int) else 1 << 62, str(g)), reverse=True)


def _without_division(a: Dim, quotient: Dim, g: Dim) -> tuple[Dim, Dim] | None:
    """`(u, r)` with `a = g*u + r`, from `floordiv(a, g)` as `dims` splits it: `u` plus at most one floordiv."""
    if isinstance(quotient, int):
        return quotient, a - g * quotient
    plain = Expr({m: c for m, c in quotient.terms.items() if not any(_divides(x, g) for x, _ in m)})
    u: Dim = plain if plain.terms else 0
    if isinstance(u, Expr) and len(u.terms) == 1 and () in u.terms:
        u = u.terms[()]
    return u, a - g * u


def _divides(atom: object, g: Dim) -> bool:
    return not isinstance(atom, str) and atom[0] == "floordiv" and atom[2] == g  # type: ignore[index]


def _contains(e: Expr, part: Dim) -> bool:
    """True if subtracting `part` from `e` removes terms and adds none."""
    if isinstance(part, int):
        return part == 0 or (() in e.terms and e.terms[()] == part)
    return all(e.terms.get(m) == c for m, c in part.terms.items())
