"""The caches on disk: round trip, damage, eviction, privacy, keys."""

import os

import pytest

from lamina.compiler import cache as caches
from lamina.compiler.cache import Cache
from lamina.compiler.sources import fingerprint


@pytest.fixture
def cache(tmp_path):
    return Cache("kernels", tmp_path / "lamina")


def only_file(cache):
    ((path, _, _),) = caches.entries(cache.root)
    return path


def test_what_was_put_is_got(cache):
    name = caches.key("a")
    assert cache.get(name) is None
    cache.put(name, {"x": [1, "y"]}, [b"code", b""])
    header, blobs = cache.get(name)
    assert header == {"x": [1, "y"]} and list(blobs) == [b"code", b""]


def test_the_directory_is_the_users_alone(cache):
    cache.put(caches.key("a"), {})
    assert os.stat(cache.root).st_mode & 0o777 == 0o700


def test_a_directory_that_others_can_write_is_not_used(cache):
    cache.root.mkdir()
    cache.root.chmod(0o777)
    cache.put(caches.key("a"), {})
    assert not list(caches.entries(cache.root))


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d[:50] + b"?" + d[51:], lambda d: b"", lambda d: b"x" * 99]
)
def test_damage_is_a_miss_and_is_removed(cache, damage):
    name = caches.key("a")
    cache.put(name, {"x": 1}, [b"code" * 10])
    path = only_file(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(name) is None
    assert not path.exists()


def test_the_entries_used_longest_ago_go_first(tmp_path):
    cache = Cache("kernels", tmp_path / "lamina", limit=3500)
    for i in range(3):
        cache.put(str(i) * 64, {}, [bytes(1000)])
        os.utime(cache._path(str(i) * 64), (1000 + i, 1000 + i))
    assert cache.get("0" * 64)  # now it is the newest
    cache.put("3" * 64, {}, [bytes(1000)])
    assert cache.get("0" * 64) and cache.get("3" * 64) and not cache.get("1" * 64)


def test_entries_are_not_counted_at_each_write(tmp_path, monkeypatch):
    root = tmp_path / "lamina"
    Cache("kernels", root).put("00", {}, [b"x" * 1000])
    monkeypatch.setattr(caches, "entries", lambda root: pytest.fail("the whole cache is walked"))
    Cache("programs", root).put("11", {}, [b"x" * 1000])
    monkeypatch.undo()
    Cache("kernels", root, limit=2500).put("22", {}, [b"x" * 1000])  # what others wrote is known: one must go
    assert len(list(caches.entries(root))) == 2


def test_a_damaged_total_is_counted_again(cache):
    cache.put("00", {}, [b"x" * 1000])
    (cache.root / "total").write_text("no number")
    Cache("kernels", cache.root, limit=1500).put("11", {}, [b"x" * 1000])
    assert len(list(caches.entries(cache.root))) == 1


def test_a_directory_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache("kernels", tmp_path / "file" / "lamina")
    cache.put(caches.key("a"), {})
    assert cache.get(caches.key("a")) is None


def test_clear_and_info(cache):
    cache.put(caches.key("a"), {}, [b"123"])
    assert caches.info(cache.root).entries == 1
    assert caches.clear(cache.root) == 1
    assert caches.info(cache.root).bytes == 0


def test_keys_tell_parts_apart():
    assert caches.key("ab", "c") != caches.key("a", "bc") != caches.key("abc")


def test_fingerprint_is_stable():
    assert fingerprint() == fingerprint() and len(fingerprint()) == 64


@pytest.mark.parametrize("given,megabytes", [("64", 64), ("abc", 2048), ("-1", 2048), ("1.5", 2048), ("", 2048)])
def test_a_size_that_is_no_number_is_said(monkeypatch, recwarn, tmp_path, given, megabytes):
    monkeypatch.setenv("LAMINA_CACHE_SIZE_MB", given)
    assert Cache(tmp_path).limit == megabytes << 20
    said = [str(w.message) for w in recwarn]
    assert said == ([f"LAMINA_CACHE_SIZE_MB is '{given}' and not used; give a whole number of megabytes (default 2048)"] if given not in ("", "64") else [])  # fmt: skip
