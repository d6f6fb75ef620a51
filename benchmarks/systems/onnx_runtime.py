"""ONNX Runtime: torch's exporter, all graph optimisations, inputs and outputs bound once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .stateless import stateless


def build(model: nn.Module, args: Sequence[Tensor], threads: int) -> Callable[[], Any]:
    import onnxruntime as ort

    model, args = stateless(model, args)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    program = torch.onnx.export(model, tuple(args), dynamo=True, optimize=True, verbose=False)
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.onnx")
        program.save(file, external_data=True)  # a protobuf holds 2 GB at most
        session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    given = {str(x.name): a for x, a in zip(program.model.graph.inputs, args, strict=True)}
    binding = session.io_binding()
    for x in session.get_inputs():
        binding.bind_ortvalue_input(x.name, ort.OrtValue.ortvalue_from_numpy(given[x.name].numpy()))
    for y in session.get_outputs():
        binding.bind_output(y.name)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return [y.numpy() for y in binding.get_outputs()]

    return call
