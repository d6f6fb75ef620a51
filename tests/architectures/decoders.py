"""Decoders of text: attention of many kinds, mixtures of experts, state spaces."""

from __future__ import annotations

from typing import Any

from .sizes import ATTENTION, GPT, LAYERS, LLAMA, POSITIONS, WORDS
from .subject import Maker, library, padded, tokens


def _arguments() -> dict[str, Any]:
    return {"input_ids": tokens(), "attention_mask": padded(), "use_cache": False}


def _unmasked() -> dict[str, Any]:
    return {"input_ids": tokens(), "use_cache": False}


def llama_like(family: str, config: str = "", **fields: Any) -> Maker:
    """A model whose config has Llama's names."""
    return library(f"{family}ForCausalLM", config or f"{family}Config", _arguments, **LLAMA | fields)


DECODERS: dict[str, Maker] = {
    "llama": llama_like("Llama"),
    "mistral, sliding window": llama_like("Mistral", sliding_window=5),
    "qwen2": llama_like("Qwen2"),
    "qwen3": llama_like("Qwen3", head_dim=8),
    "gemma2, soft caps": llama_like("Gemma2", head_dim=8, query_pre_attn_scalar=8, sliding_window=5),
    "gemma3": llama_like("Gemma3", "Gemma3TextConfig", head_dim=8, query_pre_attn_scalar=8, sliding_window=5),
    "phi3": llama_like("Phi3"),
    "olmo2": llama_like("Olmo2"),
    "cohere": llama_like("Cohere"),
    "stablelm": llama_like("StableLm"),
    "granite": llama_like("Granite"),
    "mixtral, experts": llama_like("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "qwen2_moe, experts": llama_like(
        "Qwen2Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24
    ),
    "deepseek_v3, latent attention": llama_like(
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
    "phi": llama_like("Phi"),
    "glm4": llama_like("Glm4", head_dim=8),
    "llama4, complex rotation": llama_like(
        "Llama4", "Llama4TextConfig", head_dim=8, num_local_experts=4, intermediate_size_mlp=48
    ),
    "deepseek_v2, complex rotation": llama_like(
        "DeepseekV2",
        num_key_value_heads=4,
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=8,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        topk_method="greedy",
        moe_intermediate_size=16,
        first_k_dense_replace=1,
    ),
    "gpt_oss, experts": llama_like("GptOss", head_dim=8, num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe, experts": llama_like(
        "Qwen3Moe", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    ),
    "qwen3_next, linear attention": llama_like(
        "Qwen3Next",
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"],
    ),
    "minimax, linear attention": llama_like(
        "MiniMax",
        head_dim=8,
        num_local_experts=4,
        block_size=4,
        layer_types=["linear_attention", "full_attention"],
    ),
    "lfm2, short convolutions": llama_like("Lfm2", layer_types=["conv", "full_attention"]),
    "falcon_h1, attention beside states": llama_like(
        "FalconH1",
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_n_groups=1,
        mamba_chunk_size=4,
    ),
    "recurrent_gemma": library(
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        _unmasked,
        **WORDS | LAYERS | {"num_hidden_layers": 3},
        num_key_value_heads=1,
        head_dim=8,
        lru_width=32,
        attention_window_size=8,
    ),
    "rwkv": library(
        "RwkvModel",
        "RwkvConfig",
        _unmasked,
        **WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        attention_hidden_size=32,
        intermediate_size=48,
        context_length=16,
    ),
}
