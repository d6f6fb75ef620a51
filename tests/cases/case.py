"""Small programs on which PyTorch compilers have been wrong; each must behave compiled as it does in eager.

A maker returns `(function, args)`. Options of `case`: `tol` (default 1e-5), `err` (eager raises, so must we, with the
same type), `grad` (compare gradients too), `strides` (compare output strides), `mutated` (compare the inputs after the
call), `cfg`, `dynamic`, `seed`, `nograd`, `caller`, `special` (see `run.py`). Expected values always come from eager in
the same run.
"""

INF = float("inf")
NAN = float("nan")
CASES: dict[str, dict] = {}


def case(name, **options):
    """Register the decorated maker under `name`."""

    def register(make):
        CASES[name] = dict(make=make, **options)
        return make

    return register
