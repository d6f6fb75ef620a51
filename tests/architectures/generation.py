"""`generate()` of transformers around a compiled forward: one graph for the prompt, one for every step after it."""

from __future__ import annotations

from typing import Any

from .decoders import DECODERS
from .encoders import ENCODERS
from .sizes import GPT
from .subject import Maker, Subject, library, tokens


def _generating(maker: Maker, cache: str | None) -> Maker:
    def make() -> Subject:
        subject = maker()
        fixed = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "use_cache": True, "pad_token_id": 0}
        fixed |= {"return_dict_in_generate": True, "output_logits": True, "cache_implementation": cache}

        def call(module: Any, **arguments: Any) -> dict[str, Any]:
            found = module.generate(**arguments, **fixed)
            return {"sequences": found.sequences, "logits": found.logits}

        return Subject(subject.module, {"input_ids": tokens(7)}, call, inside=True)

    return make


GPT2 = library("GPT2LMHeadModel", "GPT2Config", dict, **GPT, bos_token_id=1, eos_token_id=2)

GENERATION: dict[str, Maker] = {
    "gpt2 generate(), growing cache": _generating(GPT2, None),
    "gpt2 generate(), static cache": _generating(GPT2, "static"),
    "llama generate(), growing cache": _generating(DECODERS["llama"], None),
    "llama generate(), static cache": _generating(DECODERS["llama"], "static"),
    "t5 generate(), growing cache": _generating(ENCODERS["t5"], None),
    "bart generate(), growing cache": _generating(ENCODERS["bart"], None),
}
