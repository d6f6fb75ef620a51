"""The compiler as the user's process sees it: a graph record goes in, a program comes out. No MLIR here.

    program = compile_graph(graph, "native", Options())

The program cache is asked first: a hit starts no worker. Otherwise a worker lowers the graph to kernels and the host
program, the kernels that the kernel cache does not have are compiled by all workers at once, and a worker links.

A kernel whose optimised compilation fails is compiled plain, in the same worker if an exception said so, in another one
if the worker died. If that fails too, KernelError names the places in the user's program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..dialects.record import Graph, Location
from ..targets import Target, get_target
from . import cache as caches
from .cache import Cache
from .errors import CompileError, GraphError, KernelError, KernelFailure, WorkerError
from .messages import Message
from .options import Options
from .pool import Died, InProcess, Pool, pool, warm
from .sources import fingerprint

__all__ = ["CompileError", "GraphError", "KernelError", "Options", "Program", "WorkerError", "compile_graph"]
__all__ += ["compile_llvm", "warm"]

EXPORTS = ("lamina_main", "lamina_init")

# progress(done, total, name of the kernel that is ready)
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Program:
    """A compiled graph: the plan and facts about it as plain data, and a shared object."""

    manifest: dict[str, Any]
    image: bytes


@dataclass(frozen=True)
class _Kernel:
    """A kernel as `lower_graph` returned it."""

    name: str
    kind: str
    nodes: tuple[Location, ...]
    text: bytes


def compile_graph(
    graph: Graph, target: str = "native", options: Options = Options(), progress: Progress | None = None
) -> Program:
    """Compile `graph` for the target called `target`.

    Raises GraphError (the graph or a pass on it), KernelError (single kernels; `nodes` are the places to run
    otherwise), WorkerError, or targets.TargetError for an unknown target.
    """
    chosen = get_target(target)
    programs, key = Cache("programs"), ""
    if options.use_cache:
        key = caches.key("program", _without_locations(graph), *_settings_key(chosen, options))
        if hit := programs.get(key):
            return Program(hit.header["manifest"], hit.blobs[0])
    program = _Compilation(chosen, options, progress).compile(graph)
    if options.use_cache and not program.manifest["temporary"]:
        programs.put(key, {"manifest": program.manifest}, [program.image])
    return program


def compile_llvm(text: str, exports: Sequence[str], target: str = "native", name: str = "native") -> bytes:
    """Compile LLVM IR `text` to a shared object that exports `exports`; cached like a program."""
    chosen, options = get_target(target), Options()
    programs = Cache("programs")
    key = caches.key("llvm", text, *exports, *_settings_key(chosen, options))
    if hit := programs.get(key):
        return hit.blobs[0]
    work = _Compilation(chosen, options, None)
    code = work.one("emit_llvm", [text.encode()], name=name).blobs[0]
    image = work.one("link", [code], names=[name], exports=list(exports)).blobs[0]
    programs.put(key, {}, [image])
    return image


class _Compilation:
    """One run of the compiler: the workers, the settings sent with each job, and what comes back beside results."""

    def __init__(self, target: Target, options: Options, progress: Progress | None):
        self.target, self.options, self.progress = target, options, progress
        self.pool: Pool | InProcess = pool()
        self.kernels = Cache("kernels")
        self.reproducers = str(caches.cache_root() / "reproducers")
        self.times: dict[str, tuple[float, int]] = {}
        self.temporary = False  # True if something was lost to a dead worker: another try may do better

    def compile(self, graph: Graph) -> Program:
        lowered = self.one("lower_graph", [graph.to_json().encode()])
        kernels = [
            _Kernel(name, kind, tuple(Location(*n) for n in nodes), text)
            for (name, kind, nodes), text in zip(lowered.header["kernels"], lowered.blobs[1:])
        ]
        host = self.one("emit_llvm", [lowered.blobs[0]], name="host").blobs[0]
        objects, facts = self._objects(kernels)
        names = ["host", *objects]
        image = self.one("link", [host, *objects.values()], names=names, exports=list(EXPORTS)).blobs[0]
        manifest = {
            "name": graph.name,
            "target": self.target.name,
            "plan": lowered.header["plan"],
            "kernels": facts,
            "times": self.times,
            "temporary": self.temporary,
        }
        return Program(manifest, image)

    def one(self, name: str, blobs: Sequence[bytes], **header: Any) -> Message:
        """Do one job and return its reply; what went wrong is a GraphError or WorkerError."""
        ((_, reply),) = self.pool.run([self._job(name, blobs, **header)])
        if isinstance(reply, Died):
            raise WorkerError(f"the compile worker died in '{name}':\n{reply.log}")
        if error := reply.header.get("error"):
            nodes = [Location(*n) for n in error["nodes"]]
            raise GraphError(error["message"], nodes)
        self._note(reply)
        return reply

    def _objects(self, kernels: Sequence[_Kernel]) -> tuple[dict[str, bytes], dict[str, Any]]:
        """The object of each kernel by name, and facts for the manifest: {name: {kind, plain, reason}}."""
        found: dict[str, Message] = {}
        keys = {k.name: self._kernel_key(k) for k in kernels}
        if self.options.use_cache:
            found = {k.name: hit for k in kernels if (hit := self.kernels.get(keys[k.name]))}
        failures: list[KernelFailure] = []
        died: dict[str, str] = {}
        todo = [k for k in kernels if k.name not in found]
        for plain in (True,) if self.options.plain else (False, True):
            for kernel, reply in self._compile(todo, plain):
                if isinstance(reply, Died):
                    reason = f"{died[kernel.name]}; then plain: " if kernel.name in died else ""
                    died[kernel.name] = f"{reason}the compile worker died: {_last_words(reply.log)}"
                    continue
                if error := reply.header.get("error"):
                    died.pop(kernel.name, None)
                    failures.append(self._failure(kernel, error["message"]))
                    continue
                self._note(reply)
                reason = died.pop(kernel.name, "") or reply.header["reason"]
                facts = {"kind": kernel.kind, "plain": reply.header["plain"], "reason": reason}
                found[kernel.name] = Message(facts, reply.blobs)
                if plain and not self.options.plain:
                    self.temporary = True
                elif self.options.use_cache:
                    self.kernels.put(keys[kernel.name], facts, reply.blobs)
                if self.progress:
                    self.progress(len(found), len(kernels), kernel.name)
            todo = [k for k in todo if k.name in died]
        failures += [self._failure(k, died[k.name]) for k in todo]
        if failures:
            raise KernelError(failures)
        ordered = {k.name: found[k.name] for k in kernels}
        return {n: m.blobs[0] for n, m in ordered.items()}, {n: m.header for n, m in ordered.items()}

    def _compile(self, kernels: Sequence[_Kernel], plain: bool):
        """Yield each kernel with the reply to its compilation."""
        jobs = [self._job("compile_kernel", [k.text], name=k.name, kind=k.kind, plain=plain) for k in kernels]
        by_name = {k.name: k for k in kernels}
        for job, reply in self.pool.run(jobs):
            yield by_name[job.header["name"]], reply

    def _job(self, name: str, blobs: Sequence[bytes], **header: Any) -> Message:
        settings = {
            "target": self.target.name,
            "options": self.options.to_dict(),
            "timeout": self.options.timeout,
            "reproducers": self.reproducers,
        }
        return Message({"job": name, **settings, **header}, blobs)

    def _note(self, reply: Message) -> None:
        """Keep the times and print the prints that came with a reply."""
        for step, text in reply.header.get("printed", ()):
            print(f"// after {step}\n{text}", file=sys.stderr)
        for name, (seconds, calls) in reply.header.get("times", {}).items():
            total, count = self.times.get(name, (0.0, 0))
            self.times[name] = (total + seconds, count + calls)

    def _failure(self, kernel: _Kernel, message: str) -> KernelFailure:
        """Say that `kernel` failed and keep its text, from which `lamina compile` shows the failure again."""
        path = Path(self.reproducers) / f"{kernel.name}.{self.target.name}.mlir"
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(kernel.text)
        except OSError:
            return KernelFailure(kernel.name, message, kernel.nodes)
        return KernelFailure(kernel.name, message, kernel.nodes, str(path))

    def _kernel_key(self, kernel: _Kernel) -> str:
        return caches.key("kernel", kernel.text, *_settings_key(self.target, self.options))


def _settings_key(target: Target, options: Options) -> tuple[str, ...]:
    features = f"{target.name} {target.triple} {target.cpu} {target.attributes} {target.features}"
    return features, options.key(), fingerprint()


def _without_locations(graph: Graph) -> str:
    """The record as text, less where its nodes came from, which changes no code."""
    return replace(graph, nodes=[replace(n, location=Location()) for n in graph.nodes]).to_json()


def _last_words(log: str) -> str:
    """The line of a dead worker's log that says most: an assertion, else the last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if "Assertion" in line or "Timeout" in line or "rror:" in line]
    return (telling or lines or ["no message"])[0]
