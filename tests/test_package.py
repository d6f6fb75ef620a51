"""The package as a whole: imports form a tree, `import lamina` is light, and the wheel holds every module."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lamina

ROOT = Path(lamina.__file__).parent
# folder -> folders that it may import from (design: runtime and dialects know none of the others, and so on up)
ALLOWED = {
    "runtime": set(),
    "dialects": set(),
    "passes": {"dialects"},
    "targets": {"passes", "dialects", "runtime"},
    "compiler": {"targets", "passes", "dialects", "runtime"},
    "frontend": {"compiler", "dialects", "runtime"},
    "tools": {"frontend", "compiler", "targets", "passes", "dialects", "runtime"},
}
# folder -> packages that must never be imported there, not even inside a function: they belong to the compile workers
# (lazy.py gives torch to `Op.torch`, which tests call)
FORBIDDEN = {
    "frontend": {"mlir", "llvmlite"},
    "dialects": {"torch"},
    "passes": {"torch"},
    "targets": {"torch"},
    "compiler": {"torch"},
    "runtime": {"mlir", "llvmlite", "torch"},
}


def imports(path: Path) -> list[tuple[int, str]]:
    """(relative level, dotted name) of every import in a file."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(0, a.name) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found += [(node.level, base)] if base else [(node.level, a.name) for a in node.names]
    return found


def test_imports_form_a_tree():
    wrong = []
    for folder, allowed in ALLOWED.items():
        for path in (ROOT / folder).rglob("*.py"):
            depth = len(path.relative_to(ROOT).parts)
            for level, name in imports(path):
                top = name.split(".")[0]
                if level == depth and top in ALLOWED and top not in allowed | {folder}:
                    wrong.append(f"{path.relative_to(ROOT)} imports {top}")
                if level == 0 and top == "lamina":
                    wrong.append(f"{path.relative_to(ROOT)} imports {name} absolutely; use a relative import")
                if level == 0 and top in FORBIDDEN.get(folder, ()) and path != ROOT / "dialects/lazy.py":
                    wrong.append(f"{path.relative_to(ROOT)} imports {top}")
    assert not wrong, "\n".join(wrong)


def test_import_lamina_is_light():
    code = "import sys, lamina; print(sorted({'numpy', 'torch', 'mlir', 'llvmlite', 'click'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_runtime_is_small():
    files = [ROOT / "__init__.py", *(ROOT / "runtime").rglob("*.py")]
    assert sum(path.stat().st_size for path in files) <= 200_000


def test_every_folder_is_packaged():
    text = (ROOT / "pyproject.toml").read_text()
    for folder in ALLOWED:
        for path in (ROOT / folder).rglob("__init__.py"):
            dotted = ".".join(("lamina", *path.parent.relative_to(ROOT).parts))
            assert f'"{dotted}"' in text, f"{dotted} is missing from [tool.setuptools] packages"
    for dotted in re.findall(r'^  "(lamina[\w.]*)",$', text, re.M):  # setuptools builds nothing if one is missing
        folder = ROOT.joinpath(*dotted.split(".")[1:])
        assert (folder / "__init__.py").exists(), f"[tool.setuptools] packages has {dotted}, which is not there"


def test_unknown_public_name_lists_the_known():
    with pytest.raises(AttributeError, match="has no attribute 'complie'; it has .*compile, "):
        lamina.complie  # noqa: B018


def test_type_checkers_see_the_public_names():
    (block,) = [n for n in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(n, ast.If)]
    seen = {a.asname: f".{n.module}" for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert seen == lamina._PUBLIC and (ROOT / "py.typed").exists()


@pytest.mark.parametrize("name", [n for n in dir(lamina) if n != "__version__"])
def test_public_names_are_documented(name):
    assert getattr(lamina, name).__doc__
