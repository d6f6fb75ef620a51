"""The system functions that generated code may call, by the library that has them.

A name that is not here is an undefined symbol and fails the link, not the load on another machine. `__`-names are the
compiler's own helpers. musl maps these sonames to itself; older glibc has the `pthread_` functions in the process.
"""

from __future__ import annotations

_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax "
    "fmin fmod hypot ldexp lgamma log log10 log1p log2 logb nearbyint nextafter pow remainder rint round roundeven sin "
    "sincos sinh sqrt tan tanh tgamma trunc"
).split()

LIBRARIES: dict[str, frozenset[str]] = {
    "libm.so.6": frozenset(name + suffix for name in _MATH for suffix in ("", "f")),
    "libc.so.6": frozenset(
        "abort aligned_alloc calloc free malloc memcmp memcpy memmove memset posix_memalign pthread_cond_broadcast "
        "pthread_cond_init pthread_cond_signal pthread_cond_wait pthread_create pthread_detach pthread_join "
        "pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock qsort realloc sched_yield".split()
    ),
    "libgcc_s.so.1": frozenset("__divti3 __extendhfsf2 __modti3 __truncdfhf2 __truncsfhf2 __udivti3 __umodti3".split()),
}
