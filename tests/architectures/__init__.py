"""Architectures beyond the zoo, in tiny sizes with random weights: what a user may bring to torch.compile.

`WIDER[name]()` gives a `Subject`. Most are transformers' own classes, built from their configs, others are written with
torch.nn. `survey.py` runs them, `table.py` writes docs/models.md.
"""

from .decoders import DECODERS
from .encoders import ENCODERS
from .generation import GENERATION
from .newer import NEWER
from .plain import PLAIN
from .senses import SENSES
from .subject import Maker, Subject

WIDER: dict[str, Maker] = {**DECODERS, **ENCODERS, **SENSES, **NEWER, **PLAIN, **GENERATION}

__all__ = ["WIDER", "Subject"]
