"""Models compiled here for other CPUs give eager's values there, run by the real runtime from one artifact for all."""

import pytest
from qemu.conftest import Guest
from support.models import SMALL

# without `pauth-impdef` qemu spends most of its time on pointer signatures
MAX = "max,pauth-impdef=on,sve-default-vector-length="
VECTOR = "rv64,v=true,vext_spec=v1.0,vlen="
MODELS = ("mlp", "resnet18", "bert_small", "llama")


@pytest.mark.parametrize(
    "guest, target, names",
    [
        pytest.param(Guest("aarch64", "cortex-a72"), "aarch64", MODELS, id="neon"),
        pytest.param(Guest("aarch64", MAX + "16"), "aarch64+sve", MODELS, id="sve128"),
        pytest.param(Guest("aarch64", MAX + "32"), "aarch64+sve", MODELS, id="sve256"),
        pytest.param(Guest("aarch64", "a64fx"), "aarch64+sve", MODELS, id="sve512"),
        pytest.param(Guest("riscv64", VECTOR + "128", "v"), "riscv64", ("mlp", "bert_small"), id="rvv128"),
        pytest.param(Guest("riscv64", VECTOR + "256", "v"), "riscv64", ("mlp", "bert_small"), id="rvv256"),
    ],
)
def test_models_equal_eager(run_models, guest, target, names):
    errors = run_models(guest, target, names)
    assert set(errors) == set(names)
    assert max(errors.values()) < 2e-6, errors


@pytest.mark.full
@pytest.mark.parametrize(
    "guest, target",
    [
        pytest.param(Guest("aarch64", "cortex-a72"), "aarch64", id="neon"),
        pytest.param(Guest("aarch64", MAX + "32"), "aarch64+sve", id="sve256"),
        pytest.param(Guest("riscv64", VECTOR + "128", "v"), "riscv64", id="rvv128"),
    ],
)
@pytest.mark.parametrize("name", [name for name in SMALL if name not in MODELS])
def test_other_models_equal_eager(run_models, guest, target, name):
    assert run_models(guest, target, (name,))[name] < 2e-6


@pytest.mark.parametrize(
    "cpu, target", [(MAX + "32", "neoverse-v1"), ("neoverse-n1", "neoverse-n1"), ("cortex-a72", "aarch64")]
)
def test_int8_products_are_exact(run_models, cpu, target):
    assert run_models(Guest("aarch64", cpu), target, ("int8",))["int8"] == 0


def test_bf16_products_equal_eager(run_models):
    # the same sums in another order: at most a rounding of the result to bf16 apart
    assert run_models(Guest("aarch64", MAX + "32"), "neoverse-v1", ("bf16",))["bf16"] <= 2**-8
