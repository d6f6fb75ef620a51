"""Pipelines as text: parse and print, options, nesting, and errors that name the element."""

import pytest

from lamina.passes import pipeline as pipelines
from lamina.passes import registry
from lamina.passes.pipeline import OurPass, PipelineError, UpstreamPass, parse, to_text

pipelines.load_passes()  # what is imported in a test is forgotten with that test's registry


@pytest.fixture(autouse=True)
def toy_pass(monkeypatch):
    monkeypatch.setattr(registry, "_PASSES", dict(registry._PASSES))

    @registry.register
    def toy_tile(module, size=4, sizes=(1,), deep=False, mode="fast"):
        """A toy."""


def test_steps_of_both_kinds():
    steps = parse("lamina-toy-tile{size=8 deep}, canonicalize{max-iterations=3},cse")
    assert steps == (
        OurPass("lamina-toy-tile", (("deep", True), ("size", 8))),
        UpstreamPass("canonicalize{max-iterations=3}"),
        UpstreamPass("cse"),
    )


def test_nested_group_is_one_step_per_pass():
    assert [str(s) for s in parse("func.func(cse,lamina-toy-tile{size=2},canonicalize)")] == [
        "func.func(cse)",
        "func.func(lamina-toy-tile{size=2})",
        "func.func(canonicalize)",
    ]


def test_module_wrapper_is_dropped():
    assert parse("builtin.module(cse,func.func(canonicalize))") == parse("cse,func.func(canonicalize)")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cse",
        "lamina-toy-tile{sizes=1,2,3 mode=slow}",
        "func.func(lamina-toy-tile{deep=true},cse),convert-vector-to-llvm{enable-x86vector=true}",
    ],
)
def test_print_then_parse_gives_the_same_pipeline(text):
    steps = parse(text)
    assert parse(to_text(steps)) == steps


def test_default_options_are_not_printed():
    assert to_text(parse("lamina-toy-tile{size=4 sizes=1}")) == "lamina-toy-tile"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lamina-toy-tille", "there is no pass 'lamina-toy-tille'; did you mean lamina-toy-tile"),
        ("lamina-toy-tile{size=x}", "option 'size' of pass 'lamina-toy-tile' is not a int: 'x'"),
        ("lamina-toy-tile{size}", "needs a value"),
        ("lamina-toy-tile{width=3}", "has no option 'width'; it has size, sizes, deep, mode"),
        ("cse,,cse", "an element is missing"),
        ("func.func(cse", "is never closed"),
        ("cse)", "unbalanced '\\)'"),
        ("func.func(scf.for(cse))", "nests twice"),
    ],
)
def test_errors_name_the_element(text, message):
    with pytest.raises(PipelineError, match=message):
        parse(text)


def test_a_pass_is_found_in_the_file_of_its_name():
    for name in pipelines.load_passes():
        if name != "lamina-toy-tile":
            assert pipelines.find_pass(name) is registry.passes()[name]


def test_names_are_known_without_importing_the_passes():
    assert set(pipelines.our_names()) == set(pipelines.load_passes()) - {"lamina-toy-tile"}
