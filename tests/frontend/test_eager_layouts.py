"""Results have eager's strides where torch itself traces others: of operands in other orders of memory than their dims."""

import pytest
import torch
import torch.nn.functional as F

import lamina
from lamina.frontend import dynamo  # noqa: F401


def turned(*order, seed=0, positive=True):
    """A tensor of 3 x 4 x 5 whose dims are in memory in `order`."""
    sizes = (3, 4, 5)
    back = sorted(range(3), key=lambda d: order[d])
    x = torch.rand([sizes[d] for d in order], generator=torch.Generator().manual_seed(seed)) + 0.5
    return x.permute(back)


def assert_as_eager(fn, *args):
    expected = fn(*args)
    failures = len(lamina.stats()["failures"])
    got = torch.compile(fn, backend="lamina")(*args)
    assert (got.stride(), got.dtype) == (expected.stride(), expected.dtype)
    torch.testing.assert_close(got, expected)
    assert len(lamina.stats()["failures"]) == failures


@pytest.mark.parametrize("fn", [lambda x: x // 2, lambda x: torch.xlogy(x, 2), lambda x: torch.copysign(x, -1.0)])
def test_numbers_beside_tensors(fn, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    assert_as_eager(fn, turned(1, 0, 2))


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1), (0, 2, 1)])
@pytest.mark.parametrize("fn", [F.logsigmoid, lambda x: torch.pow(2.0, x), lambda x: 3**x, lambda x: 1**x])
def test_row_major_whatever_is_read(fn, order, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    assert_as_eager(fn, turned(*order))
    assert_as_eager(lambda x: fn(x).transpose(0, 2) + x.transpose(0, 2), turned(*order))


BATCH_NORMS = {
    "training": lambda x: F.batch_norm(x, None, None, training=True),
    "statistics": lambda x: F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]), training=True),
    "inference": lambda x: F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
}


@pytest.mark.parametrize("name", BATCH_NORMS)
def test_batch_norm_is_row_major_or_channels_last(name, monkeypatch):
    """A norm over x.transpose(1, 2) came out transposed."""
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    images = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    last = images.to(memory_format=torch.channels_last)
    views = [images.transpose(2, 3), images.transpose(0, 1), images[..., ::2], images[:1].expand(2, 3, 4, 5)]
    for x in (turned(2, 0, 1), turned(0, 2, 1), images, last, last[:, :2], last[:1], last[:1, :2], *views):
        assert_as_eager(BATCH_NORMS[name], x)


def unpooled(x):
    y, places = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(y, places, (2, 2))


KEEP_CHANNELS_LAST = {
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "max_unpool": unpooled,
    "reflection_pad": lambda x: F.pad(x, (1, 2, 1, 0), mode="reflect"),
    "replication_pad": lambda x: F.pad(x, (1, 2, 1, 0), mode="replicate"),
    "roll": lambda x: x.roll((1, 2), (1, 3)),
    "roll_flat": lambda x: x.roll(1),
    "roll_by_nothing": lambda x: x.roll((1, 0), (1, 2)),
}


@pytest.mark.parametrize("name", KEEP_CHANNELS_LAST)
def test_channels_last_is_kept_where_eager_keeps_it(name, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    images = torch.rand(2, 4, 4, 6, generator=torch.Generator().manual_seed(0))
    last = images.to(memory_format=torch.channels_last)
    for x in (images, images.transpose(2, 3), last, last[:, :, ::2], last[:1]):
        assert_as_eager(KEEP_CHANNELS_LAST[name], x)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_channels_last_of_volumes_is_kept(mode, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    x = torch.rand(1, 2, 3, 4, 5).to(memory_format=torch.channels_last_3d)
    assert_as_eager(lambda x: F.pad(x, (1, 1, 1, 0, 0, 1), mode=mode), x)


def test_losses_of_pixels_are_row_major(monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    targets = torch.randint(0, 3, (2, 5, 4), generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    assert_as_eager(lambda x, t: F.nll_loss(x, t, reduction="none"), torch.rand(2, 3, 4, 5), targets)


FUNCTIONS = {
    "copysign": torch.copysign,
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
    "heaviside": torch.heaviside,
    "logaddexp": torch.logaddexp,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "xlog1py": torch.special.xlog1py,
    "xlogy": torch.xlogy,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operands_that_disagree(name, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    x, y = turned(1, 0, 2), turned(2, 0, 1, seed=1)
    for other in (y, y[0], y[:, :1], torch.tensor(2.0)):
        assert_as_eager(FUNCTIONS[name], x, other)
        assert_as_eager(FUNCTIONS[name], other, x)


def test_compiled():
    assert_as_eager(lambda x, y: torch.xlogy(F.logsigmoid(x) * 2, torch.pow(2.0, y)), turned(1, 0, 2), turned(2, 0, 1))
    assert_as_eager(lambda x: BATCH_NORMS["training"](x).relu().transpose(1, 2), turned(0, 2, 1))
