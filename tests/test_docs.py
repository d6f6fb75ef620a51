"""Generated pages are current: the tour of ARCHITECTURE.md and the tables of ops and passes. `make docs` writes them."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


def script(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["ops.md", "passes.md"])
def test_table_is_current(page):
    tables = script("tables")
    assert (ROOT / "docs" / page).read_text() == tables.PAGES[page](), "`make docs` writes it anew"


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the tour shows what the pinned torch captures")
def test_tour_is_current():
    tour = script("tour")
    text = tour.ARCHITECTURE.read_text()
    assert text == tour.rewritten(text), "`make docs` writes it anew"


def test_every_folder_says_what_it_is():
    packages = {p.parent for pattern in ("*/__init__.py", "*/*/__init__.py") for p in ROOT.glob(pattern)}
    folders = sorted(p for p in packages if not {"tests", "examples"} & set(p.relative_to(ROOT).parts))
    assert [] == [str(f.relative_to(ROOT)) for f in folders if not (f / "README.md").exists()]


def test_links_of_pages_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)} links to {link}"
