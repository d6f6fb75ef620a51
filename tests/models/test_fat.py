"""Artifacts for several targets: another one adds code and a manifest, never weights."""

import torch
from support.models import ZOO

import lamina


def test_another_target_adds_less_than_a_megabyte_to_bert(tmp_path):
    torch.manual_seed(0)
    model, args = ZOO["bert_small"](layers=12, width=64, length=7, vocabulary=2000)  # BERT-base's layers, narrow
    exported = torch.export.export(model, args)
    sizes = []
    for targets in (["aarch64"], ["aarch64", "riscv64"]):
        path = tmp_path / f"{len(targets)}.lamina"
        lamina.export(exported, targets=targets).save(path)
        sizes.append(path.stat().st_size)
    weights = sum(w.numel() * w.element_size() for w in exported.state_dict.values())
    assert sizes[0] > weights > 1 << 20 > sizes[1] - sizes[0] > 0
