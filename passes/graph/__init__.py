"""Passes on the whole graph: from the captured `lamina` ops to kernels."""
