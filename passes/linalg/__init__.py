"""From kernels of `lamina` ops to linalg: the builders that ops' `lower` write through."""
