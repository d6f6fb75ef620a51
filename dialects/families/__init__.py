"""The op families; importing this package fills the registry."""

from . import (  # noqa: F401
    attention,
    convolution,
    embedding_bag,
    materialize,
    matmul,
    normalization,
    pooling,
    scan,
    scatter,
    softmax,
    sorting,
    structure,
)
