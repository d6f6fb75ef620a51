"""The compiler as the user's process sees it: a graph record goes in, a program comes out. No MLIR here.

    program = compile_graph(graph, "native", Options())

The program cache is asked first: a hit starts no worker. Otherwise a worker lowers the graph to kernels and the host
program, the kernels that the kernel cache does not have are compiled by all workers at once, and a worker links.

A kernel whose optimised compilation fails is compiled plain, in the same worker if an exception said so, in another one
if the worker died. If that fails too, KernelError names the places in the user's program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..dialects.record import Graph, Location
from ..targets import Target, get_target
from . import cache as caches
from .cache import Cache
from .errors import CompileError, GraphError, KernelError, KernelFailure, WorkerError
from .levels import LevelError, check_level
from .messages import Message
from .native.support_ir import support_ir
from .options import Options
from .plan import EXPORTS
from .pool import Died, InProcess, Pool, pool, warm
from .sources import fingerprint

__all__ = ["CompileError", "GraphError", "KernelError", "Options", "Program", "WorkerError", "compile_graph"]
__all__ += ["compile_llvm", "show_ir", "warm"]

LLVM_IR = "llvmir"  # the kind of a unit whose text is LLVM IR: the host program and the thread support

# progress(done, total, name of the kernel that is ready)
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Program:
    """A compiled graph: the plan and facts about it as plain data, and a shared object; `cached`: not compiled now."""

    manifest: dict[str, Any]
    image: bytes
    cached: bool = False


@dataclass(frozen=True)
class _Unit:
    """What becomes one object: a kernel as `lower_graph` returned it, or LLVM IR."""

    name: str
    kind: str
    text: bytes
    nodes: tuple[Location, ...] = ()


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
            manifest = hit.header["manifest"]
            _locate(manifest["plan"], hit.header["places"], graph)
            return Program(manifest, hit.blobs[0], cached=True)
    program = _Compilation(chosen, options, progress).compile(graph)
    if options.use_cache and not program.manifest["temporary"]:
        places = _places(program.manifest["plan"], graph)
        programs.put(key, {"manifest": program.manifest, "places": places}, [program.image])
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


def show_ir(graph: Graph, level: str, target: str = "native", options: Options = Options()) -> str:
    """The text of `graph` at a level: lamina, kernels, linalg, loops, llvm, llvmir or asm."""
    if check_level(level) == "obj":
        raise LevelError("an object has no text; 'asm' shows what is in it")
    work = _Compilation(get_target(target), options, None)
    return work.one("show", [graph.to_json().encode()], level=level).blobs[0].decode()


def target_device(target: str) -> str:
    """Where code for a target runs: "cpu", "cuda" or "hip"."""
    return get_target(target).device


def target_attends(target: str) -> bool:
    """Whether a target has kernels of ours for attention."""
    return get_target(target).attends


def target_convolves(target: str) -> bool:
    """Whether a target computes convolutions with channels last."""
    return get_target(target).convolves


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
        host, *texts = lowered.blobs
        units = []
        if self.target.device == "cpu":  # else the runtime walks the plan
            support = support_ir(self.target.arch).encode()
            units = [_Unit("host", LLVM_IR, host), _Unit("support", LLVM_IR, support)]
        for (name, kind, nodes), text in zip(lowered.header["kernels"], texts):
            units.append(_Unit(name, kind, text, tuple(Location(*n) for n in nodes)))
        built = self._build(units)
        objects = [m.blobs[0] for m in built.values()]
        image = self.one("link", objects, names=list(built), exports=list(EXPORTS)).blobs[0]
        manifest = {
            "name": graph.name,
            "target": self.target.name,
            "plan": lowered.header["plan"],
            "kernels": {u.name: built[u.name].header for u in units if u.kind != LLVM_IR},
            "times": self.times,
            "temporary": self.temporary,
        }
        return Program(manifest, image)

    def one(self, job: str, blobs: Sequence[bytes], /, **header: Any) -> Message:
        """Do one job and return its reply; what went wrong is a GraphError or WorkerError."""
        ((_, reply),) = self.pool.run([self._job(job, blobs, **header)])
        if isinstance(reply, Died):
            raise WorkerError(f"the compile worker died in '{job}':\n{reply.log}")
        if error := reply.header.get("error"):
            nodes = [Location(*n) for n in error["nodes"]]
            raise GraphError(error["message"], nodes)
        self._note(reply)
        return reply

    def _build(self, units: Sequence[_Unit]) -> dict[str, Message]:
        """The object of each unit, from the cache or the workers; headers are facts {kind, plain, reason}.

        In the second round are the kernels whose worker died in the first one: they are compiled plain.
        """
        keys = {u.name: caches.key("kernel", u.kind, u.text, *_settings_key(self.target, self.options)) for u in units}
        found: dict[str, Message] = {}
        if self.options.use_cache:
            found = {u.name: hit for u in units if (hit := self.kernels.get(keys[u.name]))}
        failed: dict[str, str] = {}  # by unit: why
        died: dict[str, str] = {}
        todo = [u for u in units if u.name not in found]
        for plain in (True,) if self.options.plain else (False, True):
            for unit, reply in self._compile(todo, plain):
                earlier = died.pop(unit.name, "")
                before = f"{earlier}; then plain: " if earlier else ""
                if isinstance(reply, Died):
                    died[unit.name] = f"{before}the compile worker died: {last_words(reply.log)}"
                elif error := reply.header.get("error"):
                    failed[unit.name] = before + error["message"]
                else:
                    self._note(reply)
                    reason = earlier or reply.header.get("reason", "")
                    facts = {"kind": unit.kind, "plain": reply.header.get("plain", False), "reason": reason}
                    found[unit.name] = Message(facts, reply.blobs)
                    self.temporary |= bool(earlier)
                    if self.options.use_cache and not earlier:
                        self.kernels.put(keys[unit.name], facts, reply.blobs)
                    if self.progress:
                        self.progress(len(found), len(units), unit.name)
            todo = [u for u in todo if u.name in died]
        failed.update(died)
        if failed:
            raise KernelError([self._failure(u, failed[u.name]) for u in units if u.name in failed])
        return {u.name: found[u.name] for u in units}

    def _compile(self, units: Sequence[_Unit], plain: bool) -> Iterator[tuple[_Unit, Message | Died]]:
        """Yield each unit with the reply to its compilation."""
        jobs = []
        for u in units:
            name = "emit_llvm" if u.kind == LLVM_IR else "compile_kernel"
            jobs.append(self._job(name, [u.text], name=u.name, kind=u.kind, plain=plain))
        by_name = {u.name: u for u in units}
        for job, reply in self.pool.run(jobs):
            yield by_name[job.header["name"]], reply

    def _job(self, job: str, blobs: Sequence[bytes], /, **header: Any) -> Message:
        settings = {
            "target": self.target.name,
            "options": self.options.to_dict(),
            "timeout": self.options.timeout,
            "reproducers": self.reproducers,
        }
        return Message({"job": job, **settings, **header}, blobs)

    def _note(self, reply: Message) -> None:
        """Keep the times and print the prints that came with a reply."""
        for step, text in reply.header.get("printed", ()):
            print(f"// after {step}\n{text}", file=sys.stderr)
        for name, (seconds, calls) in reply.header.get("times", {}).items():
            total, count = self.times.get(name, (0.0, 0))
            self.times[name] = (total + seconds, count + calls)

    def _failure(self, unit: _Unit, message: str) -> KernelFailure:
        """Say that `unit` failed and keep its text, from which `lamina compile` shows the failure again."""
        path = Path(self.reproducers) / f"{unit.name}.{self.target.name}.mlir"
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(unit.text)
        except OSError:
            return KernelFailure(unit.name, message, unit.nodes)
        return KernelFailure(unit.name, message, unit.nodes, str(path))


def _settings_key(target: Target, options: Options) -> tuple[str, ...]:
    features = f"{target.name} {target.triple} {target.cpu} {target.attributes} {target.tune} {target.features}"
    return features, options.key(), fingerprint()


def _without_locations(graph: Graph) -> str:
    """The record as text, less where its nodes came from, which changes no code."""
    return replace(graph, nodes=[replace(n, location=Location()) for n in graph.nodes]).to_json()


def _launches(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [*plan["launches"], *(plan["init"]["launches"] if plan["init"] else ())]


def _places(plan: dict[str, Any], graph: Graph) -> list[int]:
    """For each launch the number of the node whose location it has, or -1."""
    first = {node.location: number for number, node in reversed(list(enumerate(graph.nodes)))}
    return [first.get(Location(*launch["location"]), -1) for launch in _launches(plan)]


def _locate(plan: dict[str, Any], places: list[int], graph: Graph) -> None:
    """Give the launches of a plan from the cache the source lines of this graph, which is equal but for them."""
    for launch, number in zip(_launches(plan), places):
        if number >= 0:
            launch["location"] = list(graph.nodes[number].location)


def last_words(log: str) -> str:
    """The line of a dead worker's log that says most: an assertion, else the last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if "Assertion" in line or "Timeout" in line or "rror:" in line]
    return (telling or lines or ["no message"])[0]
