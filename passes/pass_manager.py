"""Run a pipeline on a module: the one place that verifies, times, dumps and writes reproducers.

All steps, ours and upstream's, go into one MLIR PassManager. After each step stands a probe, a Python pass that notes
the time and, where asked for, verifies and takes a snapshot (bytecode: printing is 10 times slower and is done later,
if at all). A Python exception must not unwind through `PassManager.run`, which would leave the Context locked for
good: it is caught in the pass, the pass is signalled as failed, and the exception is raised again afterwards.

    run(module, "lamina-cse,canonicalize", Observer(verify="each", dump=Dump(directory)))
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from mlir import ir, passmanager

from . import pipeline as pipelines
from .dump import Dump
from .pass_times import PassTimes
from .pipeline import MODULE, OurPass, Pipeline, PipelineError, Step
from .reproducer import write_reproducer

VERIFY = ("none", "boundaries", "each")


class PassFailure(RuntimeError):
    """A pass that failed. `step` is the pass, `reproducer` the path of the file that shows it again (or "")."""

    def __init__(self, message: str, step: str, reproducer: str = ""):
        super().__init__(message)
        self.step, self.reproducer = step, reproducer


@dataclass
class Observer:
    """What to do around the passes of a run.

    `verify`: "none", "boundaries" (after the last pass) or "each"; `verifier` is called on the module beside MLIR's own
    and raises what it finds. `on_print` gets (step, text) after the passes named in `print_after`, `on_step` each step
    before it runs.
    """

    verify: str = "boundaries"
    verifier: Callable[[ir.Module], None] | None = None
    times: PassTimes | None = None
    dump: Dump | None = None
    print_after: frozenset[str] = frozenset()
    on_print: Callable[[str, str], None] = field(default=lambda step, text: print(f"// after {step}\n{text}"))
    on_step: Callable[[str], None] = field(default=lambda step: None)
    reproducers: str = ""  # directory for reproducers; "" writes none
    label: str = "module"  # names the module in dumps, times and reproducers


@dataclass
class _Run:
    """State shared by the passes of one run."""

    module: ir.Module
    done: int = 0
    started: float = 0.0
    error: BaseException | None = None


def run(module: ir.Module, pipeline: str | Iterable[str] | Pipeline, observer: Observer | None = None) -> None:
    """Run `pipeline` (steps, or text) on `module` in place.

    A pass that fails raises PassFailure naming it; the module must then be thrown away. PipelineError is raised before
    anything runs if the pipeline is wrong.
    """
    steps = _steps(pipeline)
    watch = observer or Observer()
    if watch.verify not in VERIFY:
        raise ValueError(f"verify is '{watch.verify}'; it is one of {', '.join(VERIFY)}")
    state = _Run(module)
    manager = _build(steps, watch, state)
    before = _bytecode(module.operation) if watch.reproducers else b""
    if watch.dump:
        watch.dump.begin(watch.label, _bytecode(module.operation))
    state.started = time.perf_counter()
    watch.on_step(str(steps[0]) if steps else "the verifier")
    try:
        manager.run(module.operation)
    except Exception as error:
        raise _failure(module.context, steps, watch, state, before, error) from (state.error or error)
    finally:
        if watch.dump:
            watch.dump.end(module.context)
    if watch.verify != "none":
        _verify(module, watch, "the last pass")


def _steps(pipeline: str | Iterable[str] | Pipeline) -> Pipeline:
    if isinstance(pipeline, str):
        return pipelines.parse(pipeline)
    return tuple(s for item in pipeline for s in (pipelines.parse(item) if isinstance(item, str) else (item,)))


def _build(steps: Pipeline, watch: Observer, state: _Run) -> passmanager.PassManager:
    manager = passmanager.PassManager(MODULE, state.module.context)
    manager.enable_verifier(watch.verify == "each")
    following = [*map(str, steps[1:]), "the verifier"]
    for step, after in zip(steps, following):
        if isinstance(step, OurPass):
            manager.add(_guarded(step, state), name=step.name, argument=step.name)
        else:
            try:
                manager.add(str(step))
            except ValueError as error:
                raise PipelineError(_unknown(step, str(error))) from None
        manager.add(_probe(step, after, watch, state), name="lamina-probe", argument="lamina-probe")
    return manager


def _guarded(step: OurPass, state: _Run) -> Callable[[Any, Any], None]:
    """Wrap one of our passes so that its exception is kept for later and only a failure is signalled."""
    options = dict(step.options)

    def body(op: ir.Operation, control: Any) -> None:
        try:
            with ir.Location.unknown(op.context):
                if step.anchor == MODULE:
                    step.function(state.module, **options)
                    return
                for child in list(op.regions[0].blocks[0].operations):
                    if child.operation.name == step.anchor:
                        step.function(child, **options)
        except BaseException as error:  # also KeyboardInterrupt: nothing may unwind through C++
            state.error = error
            control.signal_pass_failure()

    return body


def _probe(step: Step, after: str, watch: Observer, state: _Run) -> Callable[[Any, Any], None]:
    """The pass between `step` and the one `after` it: time, verify, snapshot, print."""
    verifying = watch.verify == "each" and watch.verifier is not None

    def body(op: ir.Operation, control: Any) -> None:
        try:
            seconds = time.perf_counter() - state.started
            if watch.times:
                watch.times.add(step.name, seconds)
            if verifying:
                _verify(state.module, watch, str(step))
            state.done += 1
            if watch.dump:
                watch.dump.snapshot(str(step), _bytecode(op), seconds)
            if step.name in watch.print_after:
                watch.on_print(str(step), str(op))
            watch.on_step(after)
            state.started = time.perf_counter()
        except BaseException as error:
            state.error = error
            control.signal_pass_failure()

    return body


def _verify(module: ir.Module, watch: Observer, after: str) -> None:
    started = time.perf_counter()
    try:
        module.operation.verify()
        if watch.verifier:
            watch.verifier(module)
    except Exception as error:
        raise PassFailure(f"the IR of '{watch.label}' is wrong after {after}: {error}", after) from error
    if watch.times:
        watch.times.add("verification", time.perf_counter() - started)


def _failure(
    context: ir.Context, steps: Pipeline, watch: Observer, state: _Run, before: bytes, error: Exception
) -> BaseException:
    """Say which pass failed and where its reproducer is; the IR before it comes from a second run up to there."""
    cause = state.error or error
    if not isinstance(cause, Exception):
        return cause  # KeyboardInterrupt, SystemExit
    if not state.done < len(steps):
        return cause
    step, path = str(steps[state.done]), ""
    if before:
        text = _replay(context, steps[: state.done], before)
        rest = pipelines.to_text(steps[state.done :])
        path = write_reproducer(watch.reproducers, watch.label, steps[state.done].name, text, rest)
    reason = str(cause).strip() or type(cause).__name__
    hint = f"\n  run it again: lamina opt {path} --run-reproducer" if path else ""
    return PassFailure(f"pass '{step}' failed on '{watch.label}': {reason}{hint}", step, path)


def _replay(context: ir.Context, steps: Pipeline, before: bytes) -> str:
    """The text of the module `before` after `steps`; the module before them if they fail this time."""
    module = ir.Module.parse(before, context)
    state = _Run(module)
    try:
        _build(steps, Observer(verify="none"), state).run(module.operation)
    except Exception:
        module = ir.Module.parse(before, context)
    return module.operation.get_asm(enable_debug_info=True)


def _unknown(step: Step, message: str) -> str:
    reason = message.strip().splitlines()[0].partition("error: ")[2] or " ".join(message.split())
    near = pipelines.near_names(step.name) if "registered pass" in message else []
    return f"in pipeline element '{step}': {reason}" + (f"; did you mean {', '.join(near)}?" if near else "")


def _bytecode(op: ir.Operation) -> bytes:
    out = io.BytesIO()
    op.write_bytecode(out)
    return out.getvalue()
