"""Options of the backend, statistics, and the compatibility module's self-tests."""

import pytest
import torch

import lamina
from lamina.frontend import compat
from lamina.frontend.options import BackendOptionError, backend_options
from lamina.frontend.stats import COUNTERS


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"mode": "bogus"}, "no mode 'bogus'; modes are default, reduce-overhead"),
        ({"options": {"freez": True}}, "no option 'freez'; did you mean 'freeze'"),
        ({"options": {"freeze": 1}}, "it is True or False"),
        ({"other": 1}, "takes 'mode' and 'options', not 'other'"),
    ],
)
def test_wrong_options(keywords, message):
    with pytest.raises(BackendOptionError, match=message):
        backend_options(keywords)


def test_an_unknown_target_is_an_error_and_not_a_graph_in_eager():
    with pytest.raises(Exception, match="x86-64-v33"):
        torch.compile(lambda x: x + 1, backend="lamina", options={"target": "x86-64-v33"})(torch.ones(2))


def test_options_reach_the_compiler():
    options = backend_options({"mode": "max-autotune", "options": {"numerics": "fast", "freeze": True}})
    assert options.freeze and options.compile.numerics == "fast"


def test_torch_reports_a_wrong_mode():
    with pytest.raises(Exception, match="no mode 'bogus'"):
        torch.compile(lambda x: x + 1, backend="lamina", mode="bogus")(torch.ones(2))


def test_stats_name_what_ran_in_eager(monkeypatch, capfd):
    monkeypatch.setenv("LAMINA_LOG", "fallback")
    with torch.no_grad():
        torch.compile(lambda x: torch.linalg.inv(x) * 2, backend="lamina")(torch.eye(3))
    (found,) = [v for k, v in lamina.stats()["fallback"].items() if "linalg" in k]
    assert found["count"] == 1 and "test_options.py" in found["places"][0]
    assert "runs in eager" in capfd.readouterr().err


def test_stats_count_parts_from_the_cache_and_plain_kernels(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def counted():
        COUNTERS.reset()
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(lambda x: torch.linalg.inv(torch.relu(x) + 1).softmax(-1), backend="lamina")(torch.eye(3))
        return {k: lamina.stats()[k] for k in ("graphs", "parts", "cached_parts", "kernels", "plain_kernels")}

    expected = {"graphs": 1, "parts": 2, "cached_parts": 0, "kernels": 2, "plain_kernels": 0}
    assert counted() == expected
    assert counted() == expected | {"cached_parts": 2}


def test_private_interfaces_of_this_torch():
    assert all(compat.check().values()), compat.check()
