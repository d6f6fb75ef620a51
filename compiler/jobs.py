"""What workers do: each job is a function from a message to a message, stateless but for one MLIR context.

    lower_graph      graph record             → plan, host program (LLVM IR), kernels (text)
    compile_kernel   one kernel               → object, and whether it had to be plain
    emit_llvm        LLVM IR                  → object
    link             objects                  → shared object
    show             graph record             → text of any level
    echo             sends back what it got, for tests

Headers name the target and carry the options. Times and prints that were asked for come back in the reply.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dialects.record import Graph
from ..targets import Target, get_target
from . import levels
from .messages import Message
from .options import Options

if TYPE_CHECKING:
    from mlir import ir

    from ..passes.pass_manager import Observer

_JOBS: dict[str, Callable[[Message], Message]] = {}


def job(function: Callable[[Message], Message]) -> Callable[[Message], Message]:
    """Make `function` the job of its name."""
    _JOBS[function.__name__] = function
    return function


def run(request: Message) -> Message:
    """Do the job that the request names."""
    return _JOBS[request.header["job"]](request)


def import_all() -> None:
    """Import MLIR, LLVM and the passes for CPUs; called once in the zygote, where no Context may be left alive.

    A first Context takes MLIR 0.14 s of linking and registering, which is kept when it is gone; a later one takes 0.01 s.
    """
    import llvmlite.binding  # noqa: F401
    import mlir.passmanager  # noqa: F401

    from ..dialects import mlir_context, op
    from ..passes import pipeline
    from ..targets import linker, llvm  # noqa: F401
    from . import host_program, kernels  # noqa: F401

    op.load_all()
    pipeline.load_passes(without="gpu")
    mlir_context.context()


def import_gpu() -> None:
    """Import what only kernels of GPUs need."""
    import mlir.dialects.gpu
    import mlir.dialects.nvvm  # noqa: F401

    from ..passes import pipeline
    from ..targets import gpu_container, nvptx_code  # noqa: F401

    pipeline.load_passes()


@job
def lower_graph(request: Message) -> Message:
    """Take a graph record to kernels and the host program.

    Reply: {"plan", "kernels": [[name, kind, nodes]]}; blobs: the host program's LLVM IR, then each kernel's text.
    """
    from ..passes import pass_manager
    from ..passes.graph.import_graph import import_graph
    from ..passes.graph.verify_lamina import verify_lamina
    from .host_program import build_host_program
    from .kernels import take_kernels

    target, options = _settings(request)
    observer, printed = observe(request, options, "graph")
    observer.verifier = verify_lamina
    with levels.timed("import", observer):
        module = import_graph(Graph.from_json(request.blobs[0].decode()), mlir_context())
    pass_manager.run(module, levels.graph_pipeline(target), observer)
    with levels.timed("host program", observer):
        kernels = take_kernels(module)
        plan, host = build_host_program(module)
    if observer.dump:
        observer.dump.text("graph", "kernels.mlir", str(module))
        observer.dump.text("graph", "host.ll", host)
    header = {"plan": plan, "kernels": [[k.name, k.kind, [list(n) for n in k.nodes]] for k in kernels]}
    return _reply(header, [host.encode(), *(k.text.encode() for k in kernels)], observer, printed)


@job
def compile_kernel(request: Message) -> Message:
    """Compile the kernel whose text is the blob: by the optimised pipeline, else (or with "plain") by the plain one.

    Reply: {"plain": bool, "reason": why the optimised pipeline failed or ""}; blob: the object.
    """
    from mlir import ir

    target, options = _settings(request)
    name, kind, text = request.header["name"], request.header["kind"], request.blobs[0].decode()
    observer, printed = observe(request, options, name)
    reason = ""
    for plain in (True,) if request.header["plain"] else (False, True):
        try:
            module = ir.Module.parse(text, mlir_context())
            code = levels.lower_kernel(module, target, kind, plain, observer=observer, numerics=options.numerics)
            assert isinstance(code, bytes)
            target.link([code], [name], [name])  # shows now, for this kernel, what it lacks
            return _reply({"plain": plain, "reason": reason}, [code], observer, printed)
        except Exception as error:
            if plain:
                raise RuntimeError(f"{reason}; then plain: {error}" if reason else str(error)) from error
            reason = _declined(error) or str(error)
    raise AssertionError("unreachable")


def _declined(error: Exception) -> str:
    """What an emitter says of a kernel that it has no form for, which is no failure; "" for what is one."""
    cause = error.__cause__
    return f"{cause}; plain loops give the same values, only slower" if isinstance(cause, NotImplementedError) else ""


@job
def emit_llvm(request: Message) -> Message:
    """Compile LLVM IR text to an object."""
    target, options = _settings(request)
    observer, printed = observe(request, options, request.header["name"])
    code = levels.emit_llvm_ir(request.blobs[0].decode(), target, "obj", observer)
    return _reply({}, [code], observer, printed)


@job
def link(request: Message) -> Message:
    """Link objects to a shared object that exports the symbols `exports`."""
    target, _ = _settings(request)
    return Message({}, [target.link(request.blobs, request.header["names"], request.header["exports"])])


@job
def show(request: Message) -> Message:
    """Lower the graph record to the level `level` and return its text."""
    from .lowering import Lowering

    target, options = _settings(request)
    observer, printed = observe(request, options, "graph")
    graph = Graph.from_json(request.blobs[0].decode())
    lowering = Lowering(target, observer, options.plain, numerics=options.numerics)
    text = lowering.record(graph, request.header["level"])
    assert isinstance(text, str)
    return _reply({}, [text.encode()], observer, printed)


@job
def echo(request: Message) -> Message:
    """Send the request back; "fail", "abort", "sleep" and "allocate" in the header show what bad jobs look like."""
    import os
    import time

    if "fail" in request.header:
        raise ValueError(request.header["fail"])
    if "abort" in request.header:
        print("about to abort", file=sys.stderr, flush=True)
        os.abort()
    time.sleep(request.header.get("sleep", 0))
    bytearray(request.header.get("allocate", 0))
    known = [m for m in ("mlir.ir", "mlir.dialects.nvvm", "torch") if m in sys.modules]
    return Message({**request.header, "modules": known}, request.blobs)


@functools.cache
def mlir_context() -> ir.Context:
    """The context of this worker: made at its first job, since a process that has one cannot be forked."""
    from ..dialects.mlir_context import context

    return context()


def observe(request: Message, options: Options, label: str) -> tuple[Observer, list[list[str]]]:
    """The observer that the options ask for, and the list that `print_after` fills with [step, text]."""
    from ..passes.dump import Dump
    from ..passes.pass_manager import Observer
    from ..passes.pass_times import PassTimes

    printed: list[list[str]] = []
    return Observer(
        verify=options.verify,
        times=PassTimes() if options.time_passes else None,
        dump=Dump(options.dump_dir) if options.dump_dir else None,
        print_after=frozenset(options.print_after),
        on_print=lambda step, text: printed.append([step, text]),
        reproducers=request.header.get("reproducers", ""),
        label=label,
    ), printed


def _settings(request: Message) -> tuple[Target, Options]:
    return get_target(request.header["target"]), Options.from_dict(request.header["options"])


def _reply(header: dict[str, Any], blobs: list[Any], observer: Observer, printed: list[list[str]]) -> Message:
    extra: dict[str, Any] = {"printed": printed}
    if observer.times:
        extra["times"] = observer.times.seconds
    return Message({**header, **extra}, blobs)
