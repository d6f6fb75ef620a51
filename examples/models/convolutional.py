"""Convolutional networks in plain torch: MobileNetV3-small and a small UNet."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .resnet import convolution

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Inverted(nn.Module):
    """MobileNetV3's block: expand, depthwise, squeeze-and-excite, project."""

    def __init__(self, inputs: int, kernel: int, wide: int, outputs: int, squeeze: bool, hard: bool, stride: int):
        super().__init__()
        act = nn.Hardswish if hard else nn.ReLU
        self.expand = nn.Sequential(convolution(inputs, wide, 1), act()) if wide != inputs else nn.Identity()
        self.depthwise = nn.Sequential(convolution(wide, wide, kernel, stride, wide), act())
        inner = max(8, (wide // 4 + 4) // 8 * 8)
        gate = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, inner, 1), nn.ReLU(), nn.Conv2d(inner, wide, 1)]
        self.gate = nn.Sequential(*gate, nn.Hardsigmoid()) if squeeze else None
        self.project = convolution(wide, outputs, 1)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        if self.gate is not None:
            y = y * self.gate(y)
        y = self.project(y)
        return x + y if self.residual else y


# kernel, expansion, outputs, squeeze-and-excite, hardswish, stride (Howard et al. 2019, table 2)
_SMALL = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


class MobileNetV3(nn.Module):
    """MobileNetV3-small."""

    def __init__(self, classes: int):
        super().__init__()
        layers: list[nn.Module] = [convolution(3, 16, 3, 2), nn.Hardswish()]
        channels = 16
        for kernel, wide, outputs, squeeze, hard, stride in _SMALL:
            layers.append(Inverted(channels, kernel, wide, outputs, squeeze, hard, stride))
            channels = outputs
        layers += [convolution(channels, 576, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        layers += [nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def mobilenet_v3(size: int = 224, classes: int = 1000, batch: int = 1) -> Made:
    """MobileNetV3-small."""
    return MobileNetV3(classes).eval(), (torch.randn(batch, 3, size, size),)


class UNet(nn.Module):
    """Two levels down and up, with skips (Ronneberger et al. 2015)."""

    def __init__(self, width: int):
        super().__init__()

        def double(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                convolution(inputs, outputs, 3), nn.ReLU(), convolution(outputs, outputs, 3), nn.ReLU()
            )

        self.down1, self.down2 = double(3, width), double(width, 2 * width)
        self.middle = double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join2 = double(4 * width, 2 * width)
        self.join1 = double(3 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.up2(self.middle(F.max_pool2d(b, 2)))
        y = self.join2(torch.cat([y, b], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.join1(torch.cat([y, a], 1)))


def unet(size: int = 128, width: int = 16, batch: int = 1) -> Made:
    """A small UNet with one transposed convolution and one bilinear upsampling."""
    return UNet(width).eval(), (torch.randn(batch, 3, size, size),)
