"""Images, sound, and images beside text."""

from __future__ import annotations

from typing import Any

import torch

from .sizes import ATTENTION, CAPTION, PAIR, PICTURE, RESNET, STAGES, SWIN, WAVE
from .subject import BATCH, Maker, library, padded, tokens


def image(size: int, channels: int = 3) -> Any:
    return lambda: {"pixel_values": torch.randn(BATCH, channels, size, size)}


def _clip() -> dict[str, Any]:
    return {"input_ids": tokens(), "attention_mask": padded(), **image(32)()}


def _wave() -> dict[str, Any]:
    return {"input_values": torch.randn(BATCH, 1600)}


def _whisper() -> dict[str, Any]:
    return {"input_features": torch.randn(BATCH, 8, 40), "decoder_input_ids": tokens(5), "use_cache": False}


SENSES: dict[str, Maker] = {
    "vit": library("ViTForImageClassification", "ViTConfig", image(32), **PICTURE),
    "deit": library("DeiTModel", "DeiTConfig", image(32), **PICTURE),
    "beit": library(
        "BeitModel", "BeitConfig", image(32), **PICTURE | {"use_relative_position_bias": True, "out_indices": [1]}
    ),
    "dinov2": library("Dinov2Model", "Dinov2Config", image(28), **PICTURE | {"image_size": 28, "patch_size": 7}),
    "swin": library("SwinForImageClassification", "SwinConfig", image(32), **SWIN),
    "segformer": library(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        image(32),
        hidden_sizes=[8, 16, 16, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16,
    ),
    "convnext": library("ConvNextForImageClassification", "ConvNextConfig", image(32), **STAGES, num_stages=2),
    "convnextv2": library("ConvNextV2Model", "ConvNextV2Config", image(32), **STAGES, num_stages=2),
    "resnet of transformers": library("ResNetForImageClassification", "ResNetConfig", image(32), **RESNET),
    "regnet": library("RegNetModel", "RegNetConfig", image(32), **STAGES, embedding_size=8, groups_width=4),
    "efficientnet": library(
        "EfficientNetForImageClassification",
        "EfficientNetConfig",
        image(32),
        width_coefficient=0.25,
        depth_coefficient=0.3,
        hidden_dim=320,
        image_size=32,
    ),
    "mobilenet_v2": library("MobileNetV2Model", "MobileNetV2Config", image(32), depth_multiplier=0.25, image_size=32),
    "mobilevit": library(
        "MobileViTModel",
        "MobileViTConfig",
        image(64),
        image_size=64,
        hidden_sizes=[12, 16, 20],
        neck_hidden_sizes=[4, 8, 8, 12, 12, 16, 20],
        num_attention_heads=2,
    ),
    "detr": library(
        "DetrForObjectDetection",
        "DetrConfig",
        image(64),
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config={"model_type": "resnet", "out_features": ["stage2"], **RESNET},
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        num_queries=5,
        num_labels=4,
    ),
    "clip": library("CLIPModel", "CLIPConfig", _clip, text_config=CAPTION, vision_config=PICTURE, projection_dim=16),
    "siglip": library(
        "SiglipModel",
        "SiglipConfig",
        lambda: {"input_ids": tokens(), **image(32)()},
        text_config=CAPTION,
        vision_config=PICTURE,
    ),
    "whisper": library(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        _whisper,
        **PAIR,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    ),
    "wav2vec2": library("Wav2Vec2ForCTC", "Wav2Vec2Config", _wave, **WAVE),
    "hubert": library("HubertModel", "HubertConfig", _wave, **WAVE),
    "swinv2": library("Swinv2Model", "Swinv2Config", image(32), **SWIN),
    "sam, its eye": library(
        "SamVisionModel",
        "SamVisionConfig",
        image(32),
        **ATTENTION,
        image_size=32,
        patch_size=4,
        mlp_dim=48,
        output_channels=16,
        window_size=3,
        global_attn_indexes=[1],
    ),
    "yolos": library(
        "YolosForObjectDetection",
        "YolosConfig",
        image(32),
        **PICTURE | {"image_size": [32, 32]},
        num_detection_tokens=5,
    ),
    "videomae": library(
        "VideoMAEModel",
        "VideoMAEConfig",
        lambda: {"pixel_values": torch.randn(BATCH, 4, 3, 32, 32)},
        **PICTURE,
        num_frames=4,
    ),
    "focalnet": library(
        "FocalNetModel",
        "FocalNetConfig",
        image(32),
        image_size=32,
        patch_size=4,
        embed_dim=8,
        depths=[1, 1],
        hidden_sizes=[8, 16],
        focal_levels=[2, 2],
        focal_windows=[3, 3],
    ),
    "wavlm": library("WavLMModel", "WavLMConfig", _wave, **WAVE),
    "dac": library(
        "DacModel",
        "DacConfig",
        lambda: {"input_values": torch.randn(BATCH, 1, 512)},
        encoder_hidden_size=8,
        downsampling_ratios=[2, 4],
        decoder_hidden_size=32,
        n_codebooks=2,
        codebook_size=16,
        codebook_dim=4,
    ),
    "patchtst": library(
        "PatchTSTModel",
        "PatchTSTConfig",
        lambda: {"past_values": torch.randn(BATCH, 32, 3)},
        num_input_channels=3,
        context_length=32,
        patch_length=8,
        patch_stride=8,
        d_model=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=48,
    ),
}
