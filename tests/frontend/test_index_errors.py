"""An index out of range raises the exception type that eager raises, and names the source line."""

import pytest
import torch
from torch.nn import functional as F

X = torch.arange(12.0).reshape(3, 4)
ROW = torch.tensor([[5, 0, 1, 2]])
ONE = torch.tensor([7])
ONES = torch.ones(1, 4)

CASES = {
    "gather": lambda x: torch.gather(x, 0, ROW),
    "gather_negative": lambda x: torch.gather(x, 0, -ROW),
    "scatter": lambda x: x.scatter(0, ROW, 1.0),
    "scatter_add": lambda x: x.scatter_add(0, ROW, ONES),
    "scatter_reduce": lambda x: x.scatter_reduce(0, ROW, ONES, "amax"),
    "index": lambda x: x[ONE],
    "index_put": lambda x: x.index_put((ONE,), torch.ones(4)),
    "index_select": lambda x: x.index_select(0, ONE),
    "index_add": lambda x: x.index_add(0, ONE, ONES),
    "index_copy": lambda x: x.index_copy(0, ONE, ONES),
    "index_fill": lambda x: x.index_fill(0, ONE, 1.0),
    "index_reduce": lambda x: x.index_reduce(0, ONE, ONES, "amax"),
    "embedding": lambda x: F.embedding(ONE, x),
    "embedding_bag": lambda x: F.embedding_bag(ONE, x, torch.tensor([0])),
    "take": lambda x: x.take(ONE * 10),
    "put": lambda x: x.put(ONE * 10, torch.ones(1)),
    "nll_loss": lambda x: F.nll_loss(x, torch.tensor([0, 1, 9])),
    "max_unpool": lambda x: F.max_unpool1d(x[None], torch.full((1, 3, 4), 99), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_type_is_eagers(name):
    function = CASES[name]
    with torch.no_grad():
        with pytest.raises((IndexError, RuntimeError)) as eager:
            function(X)
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="lamina")
        for _ in range(3):  # by Python, by Python, by native code
            with pytest.raises(eager.type, match="test_index_errors.py"):
                compiled(X)
