"""What targets promise: names find them, machines choose among them, other packages add some."""

from importlib import metadata

import pytest

from lamina import targets
from lamina.runtime import machine
from lamina.targets import TargetError, all_targets, get_target, native
from lamina.targets.target import Features, Target

V4 = "avx avx2 bmi1 bmi2 f16c fma abm movbe avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.fixture
def host(monkeypatch):
    def be(arch, flags):
        monkeypatch.setattr(machine, "host_arch", lambda: arch)
        monkeypatch.setattr(targets, "host_arch", lambda: arch)
        monkeypatch.setattr(machine, "host_flags", lambda: frozenset(flags.split()))

    return be


def test_every_name_and_alias_is_found_and_unique():
    names = [name for t in all_targets().values() for name in (t.name, *t.aliases)]
    assert len(names) == len(set(names))
    assert all(name in (t := get_target(name)).aliases or name == t.name for name in names)


@pytest.mark.parametrize(
    "arch, flags, best",
    [
        ("x86_64", "avx avx2 bmi1 bmi2 f16c fma abm movbe sse4_2", "x86-64-v3"),
        ("x86_64", "avx avx2 bmi1 bmi2 f16c fma abm movbe avx_vnni", "x86-64-v3+vnni"),
        ("x86_64", f"{V4} avx_vnni", "x86-64-v4"),
        ("x86_64", f"{V4} avx_vnni avx512_vnni", "x86-64-v4+vnni"),
        ("aarch64", "fp asimd", "aarch64"),
        ("aarch64", "fp asimd atomics fphp asimdhp asimddp", "neoverse-n1"),
        ("aarch64", "fp asimd atomics fphp asimdhp asimddp asimdfhm", "apple-m1"),
        ("aarch64", "fp asimd atomics fphp asimdhp asimddp sve", "aarch64+sve"),
        ("aarch64", "fp asimd atomics fphp asimdhp sve", "aarch64+sve"),  # A64FX
        ("aarch64", "asimd atomics fphp asimdhp asimddp sve asimdfhm bf16 i8mm svebf16 svei8mm", "neoverse-v1"),
        ("riscv64", "i m a f d c v", "riscv64"),
    ],
)
def test_native_is_the_best_that_runs(host, arch, flags, best):
    host(arch, flags)
    assert native().name == best


def test_a_machine_that_runs_none_learns_what_it_lacks(host):
    host("riscv64", "i m a f d c")
    with pytest.raises(TargetError, match="no target for this riscv64 machine: riscv64 lacks v"):
        native()


def test_the_flags_of_this_machine_can_be_added_to(monkeypatch):
    monkeypatch.setenv("LAMINA_CPU_FLAGS", "V,special")
    assert {"v", "special"} <= machine.host_flags.__wrapped__()


@pytest.mark.parametrize("arch, bits, flags", [("aarch64", 1 << 1 | 1 << 22 | 1 << 46, {"asimd", "sve", "bf16"}), ("riscv64", 0x112D | 1 << 21, set("imafdcv"))])  # fmt: skip
def test_bits_of_the_auxiliary_vector_have_names(monkeypatch, arch, bits, flags):
    class Library:
        class getauxval:
            def __new__(cls, which):
                return bits & 0xFFFFFFFF if which == 16 else bits >> 32

    monkeypatch.setattr(machine, "host_arch", lambda: arch)
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: Library)
    assert machine._auxiliary() == flags


@pytest.mark.parametrize("name, arch", [("arm64", "aarch64"), ("AMD64", "x86_64"), ("riscv64", "riscv64")])
def test_systems_spell_architectures_their_way(monkeypatch, name, arch):
    monkeypatch.setattr(machine.platform, "machine", lambda: name)
    assert machine.host_arch.__wrapped__() == arch


@pytest.mark.parametrize("features, best", [("FP16 DotProd LSE FHM", "apple-m1"), ("LSE", "aarch64")])
def test_macos_tells_features_by_sysctl(monkeypatch, features, best):
    def sysctlbyname(name, value, size, new, length):
        value._obj.value = name.decode().removeprefix("hw.optional.arm.FEAT_") in features.split()
        return 0

    library = type("Library", (), {"sysctlbyname": staticmethod(sysctlbyname)})
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    monkeypatch.setattr(machine.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(machine, "host_arch", machine.host_arch.__wrapped__)
    monkeypatch.setattr(targets, "host_arch", machine.host_arch)
    monkeypatch.setattr(machine, "host_flags", machine.host_flags.__wrapped__)
    assert native().name == best


@pytest.mark.parametrize("arch", ["aarch64", "riscv64", "x86_64"])
def test_a_system_that_tells_nothing_has_no_flags(monkeypatch, arch):
    def nothing(*_, **__):
        raise OSError

    monkeypatch.delenv("LAMINA_CPU_FLAGS", raising=False)
    monkeypatch.setattr(machine, "host_arch", lambda: arch)
    monkeypatch.setattr(machine.ctypes, "CDLL", nothing)
    monkeypatch.setattr("builtins.open", nothing)
    assert machine.host_flags.__wrapped__() == frozenset()


@pytest.fixture
def external(monkeypatch):
    def install(target):
        entry = type("Entry", (), {"name": "other", "value": "other:TARGET", "load": lambda self: target})()
        monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == "lamina.targets" else [])
        targets._external.cache_clear()

    yield install
    targets._external.cache_clear()


def _target(name: str) -> Target:
    return Target(name, "mips64", "mips64-unknown-linux-gnu", "mips64r6", lambda *_: (), features=Features())


def test_another_package_adds_a_target(external):
    external((_target("mips64"), _target("mips64r6")))
    assert get_target("mips64r6").arch == "mips64" and list(all_targets())[-2:] == ["mips64", "mips64r6"]


@pytest.mark.parametrize(
    "given, message", [(_target("riscv64"), "'riscv64', which exists"), ((3,), "gives 3, no Target")]
)
def test_a_wrong_entry_point_is_named(external, given, message):
    external(given)
    with pytest.raises(TargetError, match=f"'other'.*{message}"):
        get_target("somewhere")
