"""Language models of the transformers library, built from their configs with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Tensors(nn.Module):
    """A transformers model as a function of tensors that returns the tensors of its output tuple."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], **fixed: Any):
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *args: Tensor) -> Any:
        out = self.model(**dict(zip(self.names, args)), **self.fixed, return_dict=False)
        return tuple(o for o in out if isinstance(o, Tensor))


def _bert(layers: int, width: int, heads: int, length: int, vocabulary: int, batch: int) -> Made:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        attn_implementation="sdpa",
    )
    tokens = torch.randint(0, vocabulary, (batch, length))
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:, length - length // 4 :] = 0
    return Tensors(BertModel(config).eval(), ("input_ids", "attention_mask")), (tokens, mask)


def bert_base(length: int = 128, batch: int = 1) -> Made:
    """BERT-base, 12 layers of 768."""
    return _bert(12, 768, 12, length, 30522, batch)


def bert_small(layers: int = 4, width: int = 512, length: int = 128, vocabulary: int = 30522, batch: int = 1) -> Made:
    """BERT-small, 4 layers of 512."""
    return _bert(layers, width, width // 64 if width >= 128 else 4, length, vocabulary, batch)


def gpt2_small(layers: int = 12, width: int = 768, length: int = 64, vocabulary: int = 50257, batch: int = 1) -> Made:
    """GPT-2 small without cache: the logits of every position."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_layer=layers,
        n_head=12,
        attn_implementation="sdpa",
        bos_token_id=0,
        eos_token_id=0,
    )
    tokens = torch.randint(0, vocabulary, (batch, length))
    return Tensors(GPT2LMHeadModel(config).eval(), ("input_ids",), use_cache=False), (tokens,)


def t5_small(layers: int = 6, width: int = 512, length: int = 64, vocabulary: int = 32128, batch: int = 1) -> Made:
    """T5-small, encoder and decoder, without cache."""
    from transformers import T5Config, T5ForConditionalGeneration

    heads = 8 if width >= 512 else 4
    config = T5Config(
        vocab_size=vocabulary,
        d_model=width,
        d_kv=width // heads,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=heads,
        decoder_start_token_id=0,
    )
    tokens = torch.randint(1, vocabulary, (batch, length))
    answer = torch.randint(1, vocabulary, (batch, max(1, length // 2)))
    model = T5ForConditionalGeneration(config).eval()
    return Tensors(model, ("input_ids", "decoder_input_ids"), use_cache=False), (tokens, answer)


class Cached(nn.Module):
    """A transformers decoder that keeps keys, values and their number in buffers of its own, to be exported with them."""

    FIELDS = ("keys", "values", "cumulative_length")

    def __init__(self, model: nn.Module, config: Any, capacity: int):
        from transformers import StaticCache

        super().__init__()
        self.model, self.cache = model, StaticCache(config, max_cache_len=capacity)
        heads, size = config.num_key_value_heads, config.head_dim
        self.cache.early_initialization(1, heads, size, torch.float32, torch.device("cpu"))
        for i, layer in enumerate(self.cache.layers):
            for field in self.FIELDS:
                self.register_buffer(f"{field}{i}", getattr(layer, field))
        self._lend(lambda name: None)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        self._lend(lambda name: getattr(self, name))
        for layer in self.cache.layers:
            layer.cumulative_length.copy_(positions[0])
        logits = self.model(tokens, past_key_values=self.cache, use_cache=True, return_dict=False)[0]
        self._lend(lambda name: None)
        return logits

    def _lend(self, value: Callable[[str], Tensor | None]) -> None:
        """Give the cache the buffers of this copy of the module for one call, or of a trace, whose tensors are fake."""
        for i, layer in enumerate(self.cache.layers):
            for field in self.FIELDS:
                setattr(layer, field, value(f"{field}{i}"))


def llama_prefill(layers: int = 4, width: int = 512, length: int = 64, vocabulary: int = 32000) -> Made:
    """Llama with two query heads a key head: all tokens of a prompt at once."""
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = 8 if width >= 256 else 4
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=(8 * width // 3 + 15) // 16 * 16,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        attn_implementation="sdpa",
    )
    model = Cached(LlamaForCausalLM(config).eval(), config, 2 * length)
    return model, (torch.randint(0, vocabulary, (1, length)), torch.arange(length))


def llama_decode(layers: int = 4, width: int = 512, length: int = 64, vocabulary: int = 32000) -> Made:
    """One token after `length` others, whose keys and values are in the cache."""
    model, prompt = llama_prefill(layers, width, length, vocabulary)
    with torch.no_grad():
        model(*prompt)
    return model, (torch.randint(0, vocabulary, (1, 1)), torch.tensor([length]))
