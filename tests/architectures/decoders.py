"""Decoders of text: attention of many kinds, mixtures of experts, state spaces."""

from __future__ import annotations

from typing import Any

from .sizes import ATTENTION, GPT, LAYERS, LLAMA, POSITIONS, WORDS
from .subject import Maker, library, padded, tokens


def _arguments() -> dict[str, Any]:
    return {"input_ids": tokens(), "attention_mask": padded(), "use_cache": False}


def _unmasked() -> dict[str, Any]:
    return {"input_ids": tokens(), "use_cache": False}


def _llama_like(family: str, config: str = "", **fields: Any) -> Maker:
    """A model whose config has Llama's names."""
    return library(f"{family}ForCausalLM", config or f"{family}Config", _arguments, **LLAMA | fields)


DECODERS: dict[str, Maker] = {
    "llama": _llama_like("Llama"),
    "mistral, sliding window": _llama_like("Mistral", sliding_window=5),
    "qwen2": _llama_like("Qwen2"),
    "qwen3": _llama_like("Qwen3", head_dim=8),
    "gemma2, soft caps": _llama_like("Gemma2", head_dim=8, query_pre_attn_scalar=8, sliding_window=5),
    "gemma3": _llama_like("Gemma3", "Gemma3TextConfig", head_dim=8, query_pre_attn_scalar=8, sliding_window=5),
    "phi3": _llama_like("Phi3"),
    "olmo2": _llama_like("Olmo2"),
    "cohere": _llama_like("Cohere"),
    "stablelm": _llama_like("StableLm"),
    "granite": _llama_like("Granite"),
    "mixtral, experts": _llama_like("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "qwen2_moe, experts": _llama_like(
        "Qwen2Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24
    ),
    "deepseek_v3, latent attention": _llama_like(
        "DeepseekV3",
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=16,
        first_k_dense_replace=1,
    ),
    "gpt_neox": library("GPTNeoXForCausalLM", "GPTNeoXConfig", _arguments, **WORDS | LAYERS),
    "opt": library(
        "OPTForCausalLM",
        "OPTConfig",
        _arguments,
        **WORDS | ATTENTION | POSITIONS,
        ffn_dim=48,
        word_embed_proj_dim=32,
    ),
    "falcon, one key head": library("FalconForCausalLM", "FalconConfig", _arguments, **WORDS | ATTENTION),
    "bloom, alibi": library(
        "BloomForCausalLM", "BloomConfig", _arguments, **WORDS, hidden_size=32, n_layer=2, n_head=4
    ),
    "gptj": library("GPTJForCausalLM", "GPTJConfig", _arguments, **GPT, rotary_dim=4),
    "mamba, slow path": library(
        "MambaForCausalLM",
        "MambaConfig",
        _unmasked,
        **WORDS,
        hidden_size=32,
        state_size=4,
        num_hidden_layers=2,
        time_step_rank=4,
    ),
    "mamba2, slow path": library(
        "Mamba2ForCausalLM",
        "Mamba2Config",
        _unmasked,
        **WORDS,
        hidden_size=32,
        state_size=8,
        num_hidden_layers=2,
        num_heads=8,
        head_dim=8,
        n_groups=2,
        chunk_size=8,
    ),
}
