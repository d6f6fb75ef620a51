"""Vectorisable math functions: polynomials in place of libm."""
