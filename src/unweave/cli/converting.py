"""`unweave convert`: pickled weights become safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.app import app, out_console


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Pickled weights, such as pytorch_model.bin.")],
    out: Annotated[Path | None, typer.Option(help="File to write. Default: beside FILE.")] = None,
) -> None:
    r"""Turn pickled weights into safetensors, in a process of its own and with tensors only.

    No code of the file is run. A file that holds anything but tensors is refused.

    \b
    Examples:
      unweave convert ckpt/pytorch_model.bin
      unweave convert model.pt --out model.safetensors
    """
    from unweave.requests import convert_weights

    done = convert_weights(file, out)
    out_console.print(f"Written to {done}.", highlight=False, markup=False, soft_wrap=True)
