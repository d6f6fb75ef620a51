"""Code that Lamina writes itself, as LLVM IR: the host program, threads, and builtins of CPython that enter programs."""
