"""`lamina run`: call an artifact. Needs the runtime only: neither torch nor MLIR."""

from __future__ import annotations

from typing import Any

import click

from .arrays import entry_option, fill_inputs, read_inputs, size_option, target_option
from .files import writing


@click.command("run")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False))
@click.option("--input", "-i", "files", multiple=True, metavar="[NAME=]X.npy", help="An input; in order if not named.")
@click.option("--random", is_flag=True, help="Random values for inputs that are not given.")
@size_option
@click.option("--seed", default=0, show_default=True, help="Seed of --random.")
@click.option("--output", "-o", metavar="Y.npz", default=None, help="Write all results to a file.")
@click.option(
    "--check",
    type=click.Path(exists=True, dir_okay=False),
    metavar="MODEL.pt2",
    default=None,
    help="Compare with the model in eager torch.",
)
@entry_option
@target_option
@click.option("--device", "-d", default="cpu", show_default=True, help="Where to run: cpu, cuda, cuda:N, hip, hip:N.")
@click.option("--verify", is_flag=True, help="Check the hashes of the weights.")
def run_command(artifact, files, random, sizes, seed, output, check, entry, target, device, verify) -> None:
    """Run ARTIFACT and describe its results.

    \b
    lamina run model.lamina --input x.npy --output y.npz
    lamina run model.lamina --random --size batch=8 --check model.pt2
    """
    import numpy as np

    from ..runtime.api import load

    model = load(artifact, device=device, entry=entry, target=target, verify=verify)
    given = read_inputs(model, files)
    missing = [name for name in model.inputs if name not in given]
    if missing and not random:
        raise click.ClickException(f"inputs {', '.join(missing)} are not given; --input NAME=FILE.npy, or --random")
    inputs = fill_inputs(model, given, sizes, seed)
    made = model(**inputs)
    results: dict[str, Any] = {
        n: np.asarray(x) for n, x in zip(model.outputs, made if isinstance(made, tuple) else (made,))
    }
    for name, value in results.items():
        click.echo(f"{name}: {describe(value)}")
    if output:
        with writing(output), open(output, "wb") as file:  # savez would add .npz to another name
            np.savez(file, **results)
    if check:
        compare(check, inputs, results)


def describe(value: Any) -> str:
    """Shape, dtype and a few facts of an array: `f32[8, 10]  min -3.1  max 2.9  mean 0.01`."""
    import numpy as np

    from ..runtime.arrays import dtype_name

    text = f"{dtype_name(value.dtype)}{list(value.shape)}"
    if value.size == 0 or value.dtype == bool:
        return text
    wide = value.astype(np.float64)
    odd = int((~np.isfinite(wide)).sum())
    facts = f"{text}  min {wide.min():.4g}  max {wide.max():.4g}  mean {wide.mean():.4g}"
    return facts + (f"  {odd} not finite" if odd else "")


def compare(path: str, inputs: dict[str, Any], results: dict[str, Any]) -> None:
    """Run the exported model in eager torch, in its dtypes and in float64, and compare."""
    import numpy as np
    import torch

    program = torch.export.load(path).module()
    tensors = [torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x for x in inputs.values()]
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(program(*tensors))
    worst = 0.0
    for (name, value), tensor in zip(results.items(), expected):
        eager = tensor.detach().to(torch.float64).numpy()
        difference = np.abs(np.asarray(value).astype(np.float64) - eager)
        scale = max(1e-30, float(np.abs(eager).max(initial=0)))
        error = float(difference.max(initial=0)) / scale
        worst = max(worst, error)
        click.echo(f"{name}: largest difference to eager {error:.2e} of the largest value")
    if not worst < 1e-2:
        raise click.ClickException(f"the results differ from eager torch by {worst:.2e} of the largest value")
