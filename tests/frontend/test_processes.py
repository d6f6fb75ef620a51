"""Compiled functions in unusual processes: forks, loaders, many threads, two cold starts at once, code without a file."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import torch
from support.hang import HANG
from torch.utils.data import DataLoader, Dataset

MODEL = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.GELU(), torch.nn.Linear(6, 3))
x = torch.randn(4, 8)
def check():
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="lamina")(x), model(x))
"""


def start(code: str, cache) -> subprocess.Popen:
    """Run `MODEL` and `code` from standard input (no file, no main guard), with a cache folder of its own."""
    environment = {**os.environ, "LAMINA_CACHE_DIR": str(cache)}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    made = subprocess.Popen([sys.executable, "-"], env=environment, **pipes)
    assert made.stdin is not None
    made.stdin.write(MODEL + textwrap.dedent(code))
    made.stdin.close()
    made.stdin = None
    return made


def finish(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=HANG)
    assert process.returncode == 0, output[-3000:]
    return output


def test_two_processes_compile_one_model_into_one_cold_cache(tmp_path):
    started = [start("check()\nprint(__import__('lamina').stats()['failures'])", tmp_path) for _ in range(2)]
    assert [finish(p).split()[-1] for p in started] == ["[]", "[]"]


def test_a_child_forked_while_an_entry_is_compiled_compiles_its_own(tmp_path):
    code = """
        import os
        import lamina.frontend.dynamo
        from lamina.frontend.calls import native_entry
        native_entry.prepare()
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)  # torch's own parallel ops hang in a forked child
            check()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """
    finish(start(code, tmp_path))


def test_a_child_forked_after_compiling_calls_and_compiles_anew(tmp_path):
    code = """
        import os
        check()
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)  # torch's own parallel ops hang in a forked child
            check()
            model.append(torch.nn.Tanh())
            check()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """
    finish(start(code, tmp_path))


def test_a_cache_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    finish(start("check()", tmp_path / "file" / "cache"))


def test_code_that_has_no_file(tmp_path):
    code = """
        names = {"torch": torch}
        exec("def f(x):\\n    return torch.relu(x) * 2", names)
        torch.testing.assert_close(torch.compile(names["f"], backend="lamina")(x), torch.relu(x) * 2)
    """
    finish(start(code, tmp_path))


class Squares(Dataset):
    """Items made by a compiled function."""

    def __init__(self, function):
        self.function = function

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.function(torch.full((3,), float(index)))


def test_workers_of_a_loader_call_what_the_parent_compiled():
    compiled = torch.compile(lambda x: x * x + 1, backend="lamina")
    compiled(torch.ones(3))
    loaded = torch.cat(list(DataLoader(Squares(compiled), num_workers=2, timeout=HANG, multiprocessing_context="fork")))
    torch.testing.assert_close(loaded[:, 0], torch.tensor([1.0, 2.0, 5.0, 10.0]))


def test_eight_threads_compile_and_call_at_once():
    def work(n):
        def function(x):
            return (x * n).softmax(-1) + n

        compiled = torch.compile(function, backend="lamina")
        x = torch.randn(5, n + 2)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), function(x))
        return n

    with torch.no_grad(), ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == list(range(8))


def test_a_forked_child_calls_what_ran_on_several_threads(tmp_path):
    code = """
        import os
        torch.set_num_threads(2)
        wide = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU()).requires_grad_(False)
        many = torch.randn(3000, 64)
        expected = wide(many).numpy()
        compiled = torch.compile(wide, backend="lamina")
        compiled(many)
        children = [os.fork() for _ in range(2)]
        if 0 in children:  # numpy compares: torch's own parallel ops hang in a forked child
            error = abs(compiled(many).numpy() - expected).max()
            os._exit(7 if error < 1e-5 else 1)
        compiled(many)
        assert [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children] == [7, 7]
    """
    finish(start(code, tmp_path))


def test_threads_call_different_models_while_the_number_of_threads_changes():
    models = [torch.nn.Sequential(torch.nn.Linear(32, n), torch.nn.GELU()).requires_grad_(False) for n in (64, 96, 128)]
    x = torch.randn(2000, 32)
    expected = [m(x) for m in models]
    compiled = [torch.compile(m, backend="lamina") for m in models]
    threads = torch.get_num_threads()

    def work(n):
        for i in range(12):
            if n == 0:
                torch.set_num_threads(1 + i % 2)
            which = (n + i) % len(models)
            torch.testing.assert_close(compiled[which](x), expected[which], rtol=1e-4, atol=1e-5)

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        torch.set_num_threads(threads)
