"""Sizes of the small models, under the names that families of transformers' configs give them."""

from __future__ import annotations

from typing import Any

from .subject import LENGTH, VOCABULARY

Sizes = dict[str, Any]

WORDS: Sizes = {"vocab_size": VOCABULARY}
POSITIONS: Sizes = {"max_position_embeddings": 64}
# Two layers of four heads and 32 channels.
ATTENTION: Sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LAYERS: Sizes = ATTENTION | {"intermediate_size": 48}  # with a hidden layer of 48
BERT: Sizes = WORDS | LAYERS | POSITIONS
LLAMA: Sizes = BERT | {"num_key_value_heads": 2, "pad_token_id": 0}
GPT: Sizes = WORDS | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
T5: Sizes = WORDS | {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
PAIR: Sizes = {  # an encoder and a decoder
    **WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
# Of models that see and hear.
PICTURE: Sizes = LAYERS | {"image_size": 32, "patch_size": 8}
CAPTION: Sizes = LAYERS | WORDS | {"max_position_embeddings": LENGTH}
WAVE: Sizes = {
    **LAYERS,
    **WORDS,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "mask_time_prob": 0.0,
}
STAGES: Sizes = {"hidden_sizes": [8, 16], "depths": [1, 1]}  # two, of one block each
RESNET: Sizes = STAGES | {"embedding_size": 8, "layer_type": "basic"}
SWIN: Sizes = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
