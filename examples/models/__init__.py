"""The model zoo: plain-torch and transformers models with random weights, for tests and benchmarks.

`ZOO[name]()` gives `(module, args)`; `SMALL[name]()` the same architecture with tiny sizes, for tests that must be fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import convolutional, language, llama, recurrent, resnet, simple, vision

Maker = Callable[[], tuple[nn.Module, tuple[Any, ...]]]


def _image(size: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, size, size),)


ZOO: dict[str, Maker] = {
    "mlp": simple.mlp,
    "dlrm": simple.dlrm,
    "lstm": recurrent.lstm,
    "resnet18": lambda: (resnet.resnet18(), _image(224)),
    "resnet50": lambda: (resnet.resnet50(), _image(224)),
    "mobilenet_v3": convolutional.mobilenet_v3,
    "unet": convolutional.unet,
    "convnext_tiny": vision.convnext_tiny,
    "vit_tiny": vision.vit_tiny,
    "bert_base": language.bert_base,
    "bert_small": language.bert_small,
    "gpt2_small": language.gpt2_small,
    "t5_small": language.t5_small,
    "llama": llama.prefill,
    "llama_decode": llama.decode,
    "hf_llama": language.llama_prefill,
    "hf_llama_decode": language.llama_decode,
}

SMALL: dict[str, Maker] = {
    "mlp": lambda: simple.mlp(width=24, batch=3),
    "dlrm": lambda: simple.dlrm(rows=50, batch=3),
    "lstm": lambda: recurrent.lstm(width=8, steps=3, batch=2),
    "resnet18": lambda: (resnet.resnet18(8, 10), _image(64)),
    "resnet50": lambda: (resnet.resnet50(8, 10), _image(64)),
    "mobilenet_v3": lambda: convolutional.mobilenet_v3(size=32, classes=10),
    "unet": lambda: convolutional.unet(size=16, width=4),
    "convnext_tiny": lambda: vision.convnext_tiny(size=32, widths=(8, 16, 24, 32), depths=(1, 1, 2, 1), classes=10),
    "vit_tiny": lambda: vision.vit_tiny(size=32, width=24, depth=2, classes=10),
    "bert_small": lambda: language.bert_small(layers=2, width=32, length=7, vocabulary=100),
    "gpt2_small": lambda: language.gpt2_small(layers=2, width=48, length=7, vocabulary=100),
    "t5_small": lambda: language.t5_small(layers=2, width=32, length=7, vocabulary=100),
    "llama": lambda: llama.prefill(layers=2, width=32, length=7, vocabulary=100),
    "llama_decode": lambda: llama.decode(layers=2, width=32, length=7, vocabulary=100),
    "hf_llama": lambda: language.llama_prefill(layers=2, width=32, length=7, vocabulary=100),
    "hf_llama_decode": lambda: language.llama_decode(layers=2, width=32, length=7, vocabulary=100),
}
