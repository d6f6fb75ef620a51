"""Families of 2025 and after: mixtures of linear attention, states and experts, and eyes of today."""

from __future__ import annotations

from typing import Any

import torch

from .decoders import llama_like
from .encoders import bert_like
from .senses import image
from .sizes import ATTENTION, CAPTION, LAYERS, PAIR, PICTURE, Sizes
from .subject import BATCH, Maker, library, tokens

EXPERTS: Sizes = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT: Sizes = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
DELTA: Sizes = {  # linear attention whose states forget by a delta rule
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
WINDOWS: Sizes = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
GEMMA: Sizes = {
    **WINDOWS,
    "head_dim": 8,
    "vocab_size_per_layer_input": 97,
    "hidden_size_per_layer_input": 16,
    "num_kv_shared_layers": 0,
}
FOUR: Sizes = {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "embedding_size": 8, "layer_type": "basic"}


def _patches() -> dict[str, Any]:
    """Images cut into patches beforehand, each with its number of them."""
    return {
        "input_ids": tokens(),
        "pixel_values": torch.randn(BATCH, 16, 192),
        "pixel_attention_mask": torch.ones(BATCH, 16, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[4, 4]] * BATCH),
    }


def _picture_in_text() -> dict[str, Any]:
    """Five tokens that stand for the image, and text after them."""
    return {
        "input_ids": torch.cat([torch.full((BATCH, 5), 3), tokens(8)], 1),
        **image(64)(),
        "decoder_input_ids": tokens(5),
        "use_cache": False,
    }


NEWER: dict[str, Maker] = {
    "smollm3": llama_like("SmolLM3", no_rope_layers=[1, 0]),
    "granitemoehybrid, states and experts": llama_like(
        "GraniteMoeHybrid",
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=48,
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_n_groups=1,
        mamba_chunk_size=4,
        layer_types=["mamba", "attention"],
    ),
    "glm4_moe": llama_like("Glm4Moe", **EXPERTS, head_dim=8, n_routed_experts=4, first_k_dense_replace=1),
    "qwen3_5, linear attention": llama_like(
        "Qwen3_5", "Qwen3_5TextConfig", **DELTA, head_dim=8, linear_num_key_heads=2
    ),
    "olmo_hybrid, linear attention": llama_like("OlmoHybrid", **DELTA, linear_num_key_heads=4),
    "kimi_linear": llama_like(
        "KimiLinear",
        **LATENT,
        num_experts=4,
        num_experts_per_token=2,
        moe_intermediate_size=16,
        linear_head_dim=8,
        linear_num_heads=4,
        layer_types=["linear_attention", "full_attention"],
        mlp_layer_types=["dense", "sparse"],
    ),
    "gemma3n": llama_like(
        "Gemma3n",
        "Gemma3nTextConfig",
        **GEMMA,
        intermediate_size=[48, 48],
        activation_sparsity_pattern=[0.95, 0.0],
        laurel_rank=8,
        altup_num_inputs=2,
    ),
    "gemma4": llama_like("Gemma4", "Gemma4TextConfig", **GEMMA, global_head_dim=8),
    "deepseek_v32, chosen keys": llama_like(
        "DeepseekV32",
        **LATENT | EXPERTS,
        q_lora_rank=16,
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        index_topk=4,
        index_n_heads=4,
        index_head_dim=16,
    ),
    "jamba": llama_like(
        "Jamba",
        num_experts=4,
        num_experts_per_tok=2,
        mamba_d_state=4,
        mamba_dt_rank=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        use_mamba_kernels=False,
    ),
    "nemotron_h": llama_like(
        "NemotronH",
        mamba_num_heads=4,
        mamba_head_dim=8,
        ssm_state_size=8,
        n_groups=1,
        chunk_size=4,
        head_dim=8,
        hybrid_override_pattern="M*-",
    ),
    "eurobert": bert_like("EuroBert", num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    "dinov3": library("DINOv3ViTModel", "DINOv3ViTConfig", image(32), **PICTURE, num_register_tokens=2),
    "siglip2, patches": library(
        "Siglip2Model",
        "Siglip2Config",
        _patches,
        text_config=CAPTION | {"projection_size": 32},
        vision_config=LAYERS | {"patch_size": 8, "num_patches": 16},
    ),
    "vjepa2": library(
        "VJEPA2Model",
        "VJEPA2Config",
        lambda: {"pixel_values_videos": torch.randn(BATCH, 4, 3, 32, 32)},
        **ATTENTION,
        crop_size=32,
        patch_size=8,
        frames_per_clip=4,
        pred_hidden_size=32,
        pred_num_attention_heads=4,
        pred_num_hidden_layers=2,
        pred_num_mask_tokens=2,
    ),
    "depth_anything": library(
        "DepthAnythingForDepthEstimation",
        "DepthAnythingConfig",
        image(28),
        backbone_config={
            "model_type": "dinov2",
            **PICTURE,
            "num_hidden_layers": 4,
            "image_size": 28,
            "patch_size": 7,
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
            "reshape_hidden_states": False,
        },
        reassemble_hidden_size=32,
        patch_size=7,
        neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8,
        head_hidden_size=8,
    ),
    "rt_detr": library(
        "RTDetrForObjectDetection",
        "RTDetrConfig",
        image(64),
        backbone_config={"model_type": "rt_detr_resnet", **FOUR, "out_features": ["stage2", "stage3", "stage4"]},
        encoder_hidden_dim=32,
        encoder_in_channels=[16, 16, 16],
        encoder_ffn_dim=48,
        encoder_attention_heads=4,
        d_model=32,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=48,
        decoder_attention_heads=4,
        decoder_layers=2,
        num_queries=6,
        num_labels=4,
        num_denoising=0,
    ),
    "florence2": library(
        "Florence2ForConditionalGeneration",
        "Florence2Config",
        _picture_in_text,
        vision_config={
            "embed_dim": [16] * 4,
            "num_heads": [2] * 4,
            "num_groups": [2] * 4,
            "depths": [1] * 4,
            "projection_dim": 32,
            "window_size": 2,
        },
        text_config={
            "model_type": "bart",
            **PAIR,
            "max_position_embeddings": 64,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
        },
        image_token_id=3,
    ),
}
