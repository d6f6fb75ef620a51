"""Encoders of text, and pairs of encoder and decoder."""

from __future__ import annotations

from typing import Any

from .sizes import BERT, PAIR, POSITIONS, T5, WORDS
from .subject import Maker, library, padded, tokens


def _arguments() -> dict[str, Any]:
    return {"input_ids": tokens(), "attention_mask": padded()}


def _pair() -> dict[str, Any]:
    return _arguments() | {"decoder_input_ids": tokens(7), "use_cache": False}


def bert_like(family: str, model: str = "Model", **fields: Any) -> Maker:
    """A model whose config has BERT's names."""
    return library(f"{family}{model}", f"{family}Config", _arguments, **BERT | fields)


def _bart_like(family: str, model: str = "ForConditionalGeneration", **fields: Any) -> Maker:
    """An encoder and a decoder whose config has BART's names."""
    return library(f"{family}{model}", f"{family}Config", _pair, **PAIR | POSITIONS | fields)


ENCODERS: dict[str, Maker] = {
    "bert, masked tokens": bert_like("Bert", "ForMaskedLM"),
    "distilbert": library(
        "DistilBertModel",
        "DistilBertConfig",
        _arguments,
        **WORDS | POSITIONS,
        dim=32,
        hidden_dim=48,
        n_layers=2,
        n_heads=4,
    ),
    "roberta": bert_like("Roberta"),
    "xlm_roberta, classes": bert_like("XLMRoberta", "ForSequenceClassification"),
    "electra": bert_like("Electra", embedding_size=16),
    "albert": bert_like("Albert", embedding_size=16),
    "mpnet": bert_like("MPNet"),
    "deberta_v2": bert_like("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8),
    "modernbert": bert_like("ModernBert", pad_token_id=0, local_attention=6, bos_token_id=1, eos_token_id=2),
    "roformer": bert_like("RoFormer"),
    "fnet": library(
        "FNetModel",
        "FNetConfig",
        lambda: {"input_ids": tokens()},
        **WORDS | POSITIONS,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
    ),
    "bart": _bart_like("Bart"),
    "pegasus": _bart_like("Pegasus"),
    "marian": _bart_like("Marian", "MTModel", pad_token_id=0, decoder_start_token_id=0),
    "t5": library("T5ForConditionalGeneration", "T5Config", _pair, decoder_start_token_id=0, **T5),
    "mt5, gated": library(
        "MT5ForConditionalGeneration",
        "MT5Config",
        _pair,
        decoder_start_token_id=0,
        feed_forward_proj="gated-gelu",
        **T5,
    ),
    "deberta, relative positions": bert_like("Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "longformer, windows": bert_like("Longformer", attention_window=4),
    "mobilebert": bert_like(
        "MobileBert", embedding_size=16, true_hidden_size=16, intra_bottleneck_size=16, num_feedforward_networks=2
    ),
    "convbert": bert_like("ConvBert", embedding_size=32),
    "xlnet": library(
        "XLNetModel",
        "XLNetConfig",
        lambda: {"input_ids": tokens()},
        **WORDS,
        d_model=32,
        n_layer=2,
        n_head=4,
        d_inner=48,
    ),
    "m2m100": _bart_like("M2M100"),
}
