"""ResNet-18 and ResNet-50 (He et al. 2015) in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution without bias and batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """A ResNet block: `basic` is two 3×3 convolutions, else the 1×1, 3×3, 1×1 bottleneck of four times the width."""

    def __init__(self, inputs: int, width: int, stride: int, basic: bool):
        super().__init__()
        outputs = width if basic else 4 * width
        if basic:
            parts = [convolution(inputs, width, 3, stride), nn.ReLU(), convolution(width, width, 3)]
        else:
            parts = [convolution(inputs, width, 1), nn.ReLU(), convolution(width, width, 3, stride), nn.ReLU()]
            parts += [convolution(width, outputs, 1)]
        self.body = nn.Sequential(*parts)
        self.skip = convolution(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()
        self.outputs = outputs

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


class ResNet(nn.Module):
    """Stem, four stages, pooled, one linear layer."""

    def __init__(self, depths: tuple[int, ...], basic: bool, width: int, classes: int):
        super().__init__()
        self.stem = nn.Sequential(convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, channels = [], width
        for stage, depth in enumerate(depths):
            for i in range(depth):
                blocks.append(Residual(channels, width << stage, 2 if stage and not i else 1, basic))
                channels = blocks[-1].outputs
        self.stages = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def resnet18(width: int = 64, classes: int = 1000) -> nn.Module:
    """ResNet-18 with random weights."""
    return ResNet((2, 2, 2, 2), True, width, classes).eval()


def resnet50(width: int = 64, classes: int = 1000) -> nn.Module:
    """ResNet-50 with random weights."""
    return ResNet((3, 4, 6, 3), False, width, classes).eval()


def resnet50_images(batch: int = 1) -> tuple[nn.Module, tuple[Tensor]]:
    """ResNet-50 and images of ImageNet's size."""
    return resnet50(), (torch.randn(batch, 3, 224, 224),)
