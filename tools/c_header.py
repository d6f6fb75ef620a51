"""`lamina.h`: one entry point of an artifact for C programs, which need its shared object and libc, libm and pthreads.

The shared object exports `lamina_main` and its companions (docs/contracts.md §7, §8); the header holds what the manifest
knows, as constants and inline functions: where weights are in the artifact's file, the plan of the arena, sizes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ..runtime.arena import plan_offsets
from ..runtime.arrays import FLOAT8, ITEM_SIZE
from ..runtime.artifact import GPUS, Artifact
from ..runtime.errors import LaminaRuntimeError

_C_TYPES = {"f64": "double", "f32": "float", "bool": "uint8_t", "f16": "uint16_t", "bf16": "uint16_t"}
_C_TYPES |= dict.fromkeys(FLOAT8.values(), "uint8_t")
_C_TYPES |= {
    f"{kind}{bits}": f"{prefix}int{bits}_t" for kind, prefix in (("i", ""), ("u", "u")) for bits in (8, 16, 32, 64)
}

_TEXT = """\
/* {title}
 *
 * Link with {library}. Pointers are to contiguous row-major tensors, aligned to their elements; nothing is checked.
 * Calls of one model from several threads may run at the same time.
 *
{signature}
 */
#ifndef LAMINA_H
#define LAMINA_H
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {{
#endif
int32_t lamina_main(void **ctx, void **buffers, const int64_t *dims);
{declare_init}int32_t lamina_parallel_serial(void **, void *, void **, const int64_t *, int64_t, int64_t);
int32_t lamina_parallel_pool(void **, void *, void **, const int64_t *, int64_t, int64_t);
void *lamina_pool_create_2(int64_t workers);
#ifdef __cplusplus
}}
#endif

enum {{ LAMINA_INPUTS = {inputs}, LAMINA_OUTPUTS = {outputs} }};

/* the sizes that a call may choose */
typedef struct {{
{sizes}
}} lamina_sizes;

typedef struct {{
  void *ctx[8];
  void *constants[{constants} + 1]; /* weights, then what was computed from them */
  void *map, *block;
}} lamina_model;

static inline int64_t lamina_floordiv(int64_t a, int64_t b) {{ b = b ? b : 1; return a / b - (a % b && (a < 0) != (b < 0)); }}
static inline int64_t lamina_mod(int64_t a, int64_t b) {{ return a - lamina_floordiv(a, b) * (b ? b : 1); }}
static inline int64_t lamina_max(int64_t a, int64_t b) {{ return a > b ? a : b; }}
static inline int64_t lamina_min(int64_t a, int64_t b) {{ return a < b ? a : b; }}
static inline int64_t lamina_round(int64_t bytes) {{ return (bytes + 63) & ~(int64_t)63; }}

/* Number of elements of output buffer `i`, or -1. */
static inline int64_t lamina_output_elements(const lamina_sizes *sizes, int i) {{
{unpack}  switch (i) {{
{output_elements}  }}
  return -1;
}}

static inline void lamina_close(lamina_model *model) {{
  free(model->block);
  if (model->map) munmap(model->map, {file_size});
}}

/* Map the artifact's weights and compute what depends on them alone. Returns 0, -1 (errno), -2 (not the artifact that
 * this header was made from), or the status of a failed check. Threads of the pool end with the process. */
static inline int32_t lamina_open(lamina_model *model, const char *artifact, int threads) {{
  static const int64_t weights[] = {{{weight_offsets}}};
  static const int64_t persistent[] = {{{persistent_offsets}}};
  void *pool = threads > 1 ? lamina_pool_create_2(threads - 1) : 0;
  memset(model, 0, sizeof *model);
  model->ctx[0] = (void *)(intptr_t){abi};
  model->ctx[1] = pool ? (void *)(intptr_t)lamina_parallel_pool : (void *)(intptr_t)lamina_parallel_serial;
  model->ctx[2] = (void *)(intptr_t)(pool ? threads : 1);
  model->ctx[3] = pool;
  if ({weights}) {{
    struct stat info;
    int file = open(artifact, O_RDONLY);
    if (file < 0) return -1;
    if (fstat(file, &info) || info.st_size != {file_size}) return close(file), -2;
    model->map = mmap(0, {file_size}, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (model->map == MAP_FAILED) return model->map = 0, -1;
  }}
  if (!(model->block = aligned_alloc(64, {persistent_bytes} + 64))) return lamina_close(model), -1;
  for (int i = 0; i < {weights}; i++) model->constants[i] = (char *)model->map + weights[i];
  for (int i = 0; i < {persistents}; i++) model->constants[{weights} + i] = (char *)model->block + persistent[i];
{call_init}  return 0;
}}

/* Bytes of scratch memory that a call needs. */
static inline int64_t lamina_scratch(const lamina_sizes *sizes, int64_t *offsets) {{
{unpack}  int64_t top = 0;
{arena}  return top + 64;
}}

/* Run: `inputs` has LAMINA_INPUTS pointers and `outputs` LAMINA_OUTPUTS. Returns 0, -1 (no memory), or the number of the
 * failed kernel times 256 plus the code of its check. */
static inline int32_t lamina_call(lamina_model *model, const lamina_sizes *sizes, void *const *inputs, void *const *outputs) {{
  int64_t dims[{dims} + 1] = {{{dims_symbols}}};
  void *buffers[{buffers} + 1], **next = buffers;
  void *scratch = aligned_alloc(64, (size_t)lamina_scratch(sizes, dims + {symbols}));
  if (!scratch) return -1;
  for (int i = 0; i < {inputs}; i++) *next++ = inputs[i];
  for (int i = 0; i < {constants}; i++) *next++ = model->constants[i];
  for (int i = 0; i < {outputs}; i++) *next++ = outputs[i];
  *next = scratch;
  int32_t status = lamina_main(model->ctx, buffers, dims);
  free(scratch);
  return status;
}}
#endif
"""

_CALL_INIT = """\
  {{
    static const int64_t offsets[] = {{{offsets}}};
    void *buffers[{constants} + 1], *scratch = aligned_alloc(64, {bytes} + 64);
    if (!scratch) return lamina_close(model), -1;
    for (int i = 0; i < {constants}; i++) buffers[i] = model->constants[i];
    buffers[{constants}] = scratch;
    int32_t status = lamina_init(model->ctx, buffers, offsets);
    free(scratch);
    if (status) return lamina_close(model), status;
  }}
"""


def _weight_offset(artifact: Artifact, name: str) -> int:
    """Where a weight, which must be whole, starts in the file."""
    artifact.weight_bytes(name)
    return artifact.members[artifact.manifest["weights"][name]["file"]].offset


def c_header(artifact: Artifact, entry: str, target: str, library: str) -> str:
    """The text of `lamina.h` for one program of an artifact; `library` is what its shared object will be called."""
    manifest, _ = artifact.program(entry, target)
    plan = manifest["plan"]
    if artifact.manifest["entries"][entry]["programs"][target]["arch"] in GPUS:
        raise LaminaRuntimeError(f"'{target}' is no CPU; C programs call code for CPUs")
    symbols = [s["name"] for s in plan["symbols"]]
    persistent = [prod(p["shape"]) * ITEM_SIZE[p["dtype"]] for p in plan["persistent"]]
    offsets, persistent_bytes = plan_offsets(persistent, [(0, 0)] * len(persistent))
    constants = len(plan["weights"]) + len(persistent)
    init = ""
    if plan["init"]:
        arena = plan["init"]["arena"]
        at, size = plan_offsets([b["bytes"] for b in arena], [(b["first"], b["last"]) for b in arena])
        init = _CALL_INIT.format(offsets=_numbers(at), constants=constants, bytes=size)
    return _TEXT.format(
        title=f"Entry point '{entry}' for {target}; made by lamina from {artifact.path.rsplit('/', 1)[-1]}.",
        library=library,
        signature="\n".join(f" * {line}" for line in _signature(plan)),
        declare_init="int32_t lamina_init(void **ctx, void **buffers, const int64_t *dims);\n" if init else "",
        inputs=len(plan["inputs"]),
        outputs=len(plan["buffers"]),
        sizes="\n".join(f"  int64_t {s};" for s in symbols) or "  int64_t none;",
        constants=constants,
        unpack="".join(f"  const int64_t {s} = sizes->{s};\n  (void){s};\n" for s in symbols) or "  (void)sizes;\n",
        output_elements="".join(
            f"    case {i}: return {_product(b['shape'])};\n" for i, b in enumerate(plan["buffers"])
        ),
        file_size=os.path.getsize(artifact.path),
        weight_offsets=_numbers([_weight_offset(artifact, w["name"]) for w in plan["weights"]]),
        weights=len(plan["weights"]),
        persistent_offsets=_numbers(offsets),
        persistents=len(persistent),
        persistent_bytes=persistent_bytes,
        abi=plan["abi"],
        call_init=init,
        arena=_arena(plan["arena"], bool(symbols)),
        dims=len(symbols) + len(plan["arena"]),
        dims_symbols=", ".join(f"sizes->{s}" for s in symbols) or "0",
        symbols=len(symbols),
        buffers=len(plan["inputs"]) + constants + len(plan["buffers"]),
    )


def _signature(plan: Mapping[str, Any]) -> list[str]:
    """What goes where, for people."""
    lines = []
    for i, x in enumerate(plan["inputs"]):
        kind = "const int64_t *" if x["kind"] == "scalar" else f"{_C_TYPES[x['dtype']]}{_dims(x['shape'])}"
        lines.append(f"inputs[{i}]: {x['name']}, {kind}{', updated by the call' if x['mutated'] else ''}")
    for o in plan["outputs"]:
        space, index = o["storage"]
        where = "outputs" if space == "output" else f"{space}s"
        place = (
            f"strides {o['strides']} from element {o['offset']}, in elements"
            if o["shape"]
            else f"element {o['offset']}"
        )
        lines.append(f"{where}[{index}]: {o['name']}, {_C_TYPES[o['dtype']]}{_dims(o['shape'])}, {place}")
    for s in plan["symbols"]:
        most = "" if s["max"] is None else f" <= {s['max']}"
        lines.append(f"{s['min']} <= {s['name']}{most}, a multiple of {s['multiple_of']}")
    return lines


def _arena(arena: Sequence[Mapping[str, Any]], dynamic: bool) -> str:
    """Statements that set `offsets[i]` and `top`: planned here for fixed sizes, one after another for others."""
    if not dynamic:
        offsets, top = plan_offsets([b["bytes"] for b in arena], [(b["first"], b["last"]) for b in arena])
        lines = [f"offsets[{i}] = {offset};" for i, offset in enumerate(offsets)] + [f"top = {top};"]
    else:
        lines = [f"offsets[{i}] = top, top += lamina_round({_c(b['bytes'])});" for i, b in enumerate(arena)]
    return "".join(f"  {line}\n" for line in (lines if arena else ["(void)offsets;"]))


def _c(size: int | str) -> str:
    return re.sub(r"\b(floordiv|mod|max|min)\(", r"lamina_\1(", str(size))


def _product(shape: Sequence[int | str]) -> str:
    return " * ".join(f"({_c(d)})" for d in shape) or "1"


def _dims(shape: Sequence[int | str]) -> str:
    return "".join(f"[{d}]" for d in shape)


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) or "0"
