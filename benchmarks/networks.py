"""Networks of convnet benchmarks, described once for every system: AlexNet, Overfeat, VGG-A, GoogleNet, ResNet-50,
Inception-v3.

A network is a function of a `Builder`, whose methods each system has in its own way (`workers/networks.py`), and of
images [batch, rows, columns, 3]. Padding is TensorFlow's. GoogleNet has neither its responses normalized nor side
classifiers, as in those benchmarks; ResNet-50 and Inception-v3 normalize each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

CLASSES = 1000
Size = int | tuple[int, int]


class Builder(Protocol):
    """What networks are made of. Parameters are made in the order of the calls."""

    def conv(
        self,
        x: Any,
        depth: int,
        size: Size,
        stride: int = 1,
        padding: str = "SAME",
        normalized: bool = False,
        relu: bool = True,
    ) -> Any: ...
    def pool(self, x: Any, size: int, stride: int, kind: str = "max", padding: str = "VALID") -> Any: ...
    def concat(self, parts: list[Any]) -> Any: ...
    def added(self, x: Any, y: Any) -> Any:
        """ReLU of a sum."""

    def mean(self, x: Any) -> Any:
        """Over rows and columns: [batch, channels]."""

    def flat(self, x: Any) -> Any: ...
    def dense(self, x: Any, depth: int, relu: bool = True) -> Any: ...


def alexnet(b: Builder, x: Any) -> Any:
    x = b.pool(b.conv(x, 64, 11, 4), 3, 2)
    x = b.pool(b.conv(x, 192, 5), 3, 2)
    x = b.conv(b.conv(b.conv(x, 384, 3), 256, 3), 256, 3)
    return _classifier(b, b.pool(x, 3, 2), 4096, 4096)


def overfeat(b: Builder, x: Any) -> Any:
    x = b.pool(b.conv(x, 96, 11, 4, "VALID"), 2, 2)
    x = b.pool(b.conv(x, 256, 5, 1, "VALID"), 2, 2)
    x = b.conv(b.conv(b.conv(x, 512, 3), 1024, 3), 1024, 3)
    return _classifier(b, b.pool(x, 2, 2), 3072, 4096)


def vgg_a(b: Builder, x: Any) -> Any:
    for depths in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for depth in depths:
            x = b.conv(x, depth, 3)
        x = b.pool(x, 2, 2)
    return _classifier(b, x, 4096, 4096)


def _classifier(b: Builder, x: Any, *depths: int) -> Any:
    x = b.flat(x)
    for depth in depths:
        x = b.dense(x, depth)
    return b.dense(x, CLASSES, relu=False)


def googlenet(b: Builder, x: Any) -> Any:
    def block(x: Any, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int) -> Any:
        parts = [b.conv(x, one, 1), b.conv(b.conv(x, three[0], 1), three[1], 3)]
        parts += [b.conv(b.conv(x, five[0], 1), five[1], 5), b.conv(b.pool(x, 3, 1, padding="SAME"), pooled, 1)]
        return b.concat(parts)

    x = b.pool(b.conv(x, 64, 7, 2), 3, 2, padding="SAME")
    x = b.pool(b.conv(b.conv(x, 64, 1), 192, 3), 3, 2, padding="SAME")
    x = block(block(x, 64, (96, 128), (16, 32), 32), 128, (128, 192), (32, 96), 64)
    x = b.pool(x, 3, 2, padding="SAME")
    x = block(block(x, 192, (96, 208), (16, 48), 64), 160, (112, 224), (24, 64), 64)
    x = block(block(x, 128, (128, 256), (24, 64), 64), 112, (144, 288), (32, 64), 64)
    x = b.pool(block(x, 256, (160, 320), (32, 128), 128), 3, 2, padding="SAME")
    x = block(block(x, 256, (160, 320), (32, 128), 128), 384, (192, 384), (48, 128), 128)
    return b.dense(b.mean(x), CLASSES, relu=False)


def resnet_50(b: Builder, x: Any) -> Any:
    x = b.pool(b.conv(x, 64, 7, 2, normalized=True), 3, 2, padding="SAME")
    for stage, blocks in enumerate((3, 4, 6, 3)):
        depth = 64 << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            inner = b.conv(x, depth, 1, normalized=True)
            inner = b.conv(inner, depth, 3, stride, normalized=True)
            inner = b.conv(inner, 4 * depth, 1, normalized=True, relu=False)
            if block == 0:
                x = b.conv(x, 4 * depth, 1, stride, normalized=True, relu=False)
            x = b.added(x, inner)
    return b.dense(b.mean(x), CLASSES, relu=False)


def inception_v3(b: Builder, x: Any) -> Any:
    def conv(x: Any, depth: int, size: Size, stride: int = 1, padding: str = "SAME") -> Any:
        return b.conv(x, depth, size, stride, padding, normalized=True)

    def pooled(x: Any, depth: int) -> Any:
        return conv(b.pool(x, 3, 1, "average", "SAME"), depth, 1)

    x = conv(conv(conv(x, 32, 3, 2, "VALID"), 32, 3, 1, "VALID"), 64, 3)
    x = b.pool(conv(conv(b.pool(x, 3, 2), 80, 1), 192, 3, 1, "VALID"), 3, 2)
    for depth in (32, 64, 64):
        three = conv(conv(conv(x, 64, 1), 96, 3), 96, 3)
        x = b.concat([conv(x, 64, 1), conv(conv(x, 48, 1), 64, 5), three, pooled(x, depth)])
    three = conv(conv(conv(x, 64, 1), 96, 3), 96, 3, 2, "VALID")
    x = b.concat([conv(x, 384, 3, 2, "VALID"), three, b.pool(x, 3, 2)])
    for depth in (128, 160, 160, 192):
        seven = conv(conv(conv(x, depth, 1), depth, (1, 7)), 192, (7, 1))
        double = conv(x, depth, 1)
        for size, count in (((7, 1), depth), ((1, 7), depth), ((7, 1), depth), ((1, 7), 192)):
            double = conv(double, count, size)
        x = b.concat([conv(x, 192, 1), seven, double, pooled(x, 192)])
    seven = conv(conv(conv(conv(x, 192, 1), 192, (1, 7)), 192, (7, 1)), 192, 3, 2, "VALID")
    x = b.concat([conv(conv(x, 192, 1), 320, 3, 2, "VALID"), seven, b.pool(x, 3, 2)])
    for _ in range(2):
        one, two = conv(x, 384, 1), conv(conv(x, 448, 1), 384, 3)
        split = [conv(y, 384, size) for y in (one, two) for size in ((1, 3), (3, 1))]
        x = b.concat([conv(x, 320, 1), *split, pooled(x, 192)])
    return b.dense(b.mean(x), CLASSES, relu=False)


@dataclass(frozen=True)
class Network:
    """A network, the batch of its training step, and the length of its images' sides."""

    build: Callable[[Builder, Any], Any]
    batch: int
    side: int


NETWORKS = {
    "AlexNet": Network(alexnet, 32, 224),
    "Overfeat": Network(overfeat, 16, 231),
    "VGG-A": Network(vgg_a, 8, 224),
    "GoogleNet": Network(googlenet, 16, 224),
    "ResNet-50": Network(resnet_50, 8, 224),
    "Inception-v3": Network(inception_v3, 8, 299),
}
