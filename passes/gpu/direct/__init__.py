"""Ops with a form of their own on GPUs: sorts, scans, scatters."""
