"""Models written with torch.nn alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .subject import Maker, Subject


class Recurrent(nn.Module):
    """A bidirectional recurrent layer of two, and a linear head."""

    def __init__(self, kind: type[nn.RNNBase]):
        super().__init__()
        self.layers = kind(8, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)[0])


class Squeeze(nn.Module):
    """Squeeze and excitation: channels weighed by two pointwise layers of their means (Hu et al. 2018)."""

    def __init__(self, width: int, narrow: int):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, narrow, 1), nn.Conv2d(narrow, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.expand(F.silu(self.reduce(F.adaptive_avg_pool2d(x, 1)))).sigmoid()


class InvertedBottleneck(nn.Module):
    """EfficientNet's block (Tan and Le 2019): widen, depthwise 3×3, squeeze, narrow, a residual where sizes allow."""

    def __init__(self, width: int, out: int, stride: int):
        super().__init__()
        wide = 4 * width
        self.residual = stride == 1 and width == out
        self.layers = nn.Sequential(
            nn.Conv2d(width, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.SiLU(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.SiLU(),
            Squeeze(wide, max(1, width // 4)),
            nn.Conv2d(wide, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.residual else y


def _efficient() -> Subject:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        InvertedBottleneck(8, 8, 1),
        InvertedBottleneck(8, 16, 2),
        InvertedBottleneck(16, 16, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return Subject(module.eval(), {"input": torch.randn(2, 3, 32, 32)})


def _transformer(**declared: bool) -> Subject:
    """Unless the mask is `declared` causal, the module compares it with a causal one in Python: a graph break."""
    module = nn.Transformer(32, 4, 2, 2, 48, batch_first=True).eval()
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    return Subject(module, {"src": torch.randn(2, 9, 32), "tgt": torch.randn(2, 7, 32), "tgt_mask": mask} | declared)


def _padded_encoder() -> Subject:
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()  # nested ones are not for graphs
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[1, 6:] = True
    return Subject(module, {"src": torch.randn(2, 9, 32), "src_key_padding_mask": mask})


def _recurrent(kind: type[nn.RNNBase]) -> Maker:
    return lambda: Subject(Recurrent(kind).eval(), {"x": torch.randn(2, 6, 8)})


PLAIN: dict[str, Maker] = {
    "nn.Transformer": _transformer,
    "nn.Transformer, tgt_is_causal": lambda: _transformer(tgt_is_causal=True),
    "nn.TransformerEncoder, padding": _padded_encoder,
    "nn.LSTM, bidirectional": _recurrent(nn.LSTM),
    "nn.GRU, bidirectional": _recurrent(nn.GRU),
    "nn.RNN, bidirectional": _recurrent(nn.RNN),
    "efficientnet blocks": _efficient,
}
