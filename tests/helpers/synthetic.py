"""Data sets of the right schema with random content, so that every benchmark runs without a download."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image
from pyarrow import parquet

from unweave.lab.benchmarks.celeba import ATTRIBUTES
from unweave.lab.benchmarks.hierarchy import Hierarchy
from unweave.lab.benchmarks.toxigen import GROUPS


def write(folder: Path, part: str, columns: dict) -> None:
    """Write one part of a data set as a Parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), folder / f"{part}-00000-of-00001.parquet")


def images(kinds, *, size: int, grey: bool = False, seed: int = 0) -> list[dict]:
    """Return a PNG image for every sample: noise, with a brightness that tells its kind."""
    chance = np.random.default_rng(seed)
    span = max(int(np.max(kinds)), 1)
    found = []
    for kind in kinds:
        pixels = chance.integers(0, 60, (size, size) if grey else (size, size, 3), dtype=np.uint8)
        pixels[: size // 2] += np.uint8(190 * kind / span)
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, format="PNG")
        found.append({"bytes": content.getvalue(), "path": None})
    return found


def cifar100(data: Path, *, each: int = 3, test_each: int = 1) -> None:
    hierarchy = Hierarchy.load("cifar100")
    for part, count in (("train", each), ("test", test_each)):
        fine = np.tile(np.arange(100), count)
        coarse = hierarchy.labels(fine)
        columns = {"img": images(coarse, size=32), "fine_label": fine, "coarse_label": coarse}
        write(data / "cifar100", part, columns)


def fashion_mnist(data: Path, *, each: int = 20, test_each: int = 5) -> None:
    for part, count in (("train", each), ("test", test_each)):
        label = np.tile(np.arange(10), count)
        write(data / "fashion-mnist", part, {"image": images(label, size=28, grey=True), "label": label})


def fashion_idx(data: Path, *, each: int = 20, test_each: int = 5) -> None:
    """Write the four original files, as bytes with their headers."""
    folder = data / "fashion-mnist"
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(0)
    for part, count in (("train", each), ("t10k", test_each)):
        label = np.tile(np.arange(10, dtype=np.uint8), count)
        pixels = chance.integers(0, 255, (len(label), 28, 28), dtype=np.uint8)
        for name, values in (("images-idx3", pixels), ("labels-idx1", label)):
            sizes = np.array(values.shape, dtype=">u4").tobytes()
            head = bytes([0, 0, 8, values.ndim]) + sizes
            (folder / f"{part}-{name}-ubyte").write_bytes(head + values.tobytes())


def tinyimagenet(data: Path, *, each: int = 2, valid_each: int = 1) -> None:
    for part, count in (("train", each), ("valid", valid_each)):
        label = np.tile(np.arange(200), count)
        write(data / "tiny-imagenet-subset", part, {"image": images(label // 20, size=64), "label": label})


def celeba(data: Path, *, each: int = 10, test_each: int = 3, signs: bool = False) -> None:
    """Write faces with every combination of the attributes; with ``signs``, as 1 and −1."""
    for part, count in (("train", each), ("valid", test_each), ("test", test_each)):
        kind = np.tile(np.arange(16), count)
        values = {name: kind >> place & 1 for place, name in enumerate(reversed(ATTRIBUTES))}
        columns = {name: 2 * value - 1 if signs else value.astype(bool) for name, value in values.items()}
        write(data / "celeba", part, {"image": images(kind // 4, size=48), **columns})


def clinc150(data: Path, *, each: int = 5, test_each: int = 2) -> None:
    """Write questions that name their intent and end in random words."""
    intents = Hierarchy.load("clinc150").classes
    for part, count in (("train", each), ("test", test_each)):
        intent = list(intents) * count
        write(data / "clinc150", part, {"text": sentences(intent), "intent": intent})


def toxigen(data: Path, *, each: int = 20) -> None:
    """Write as many normal as toxic sentences about every group."""
    group = list(GROUPS) * (2 * each)
    toxic = np.arange(len(group)) // len(GROUPS) % 2
    text = sentences([f"{name} {('kind', 'cruel')[bad]}" for name, bad in zip(group, toxic, strict=True)])
    rating = 1.0 + 4.0 * toxic
    write(
        data / "toxigen-annotated",
        "train",
        {"text": text, "target_group": group, "toxicity_ai": rating, "toxicity_human": rating},
    )


def sentences(beginnings: list[str], seed: int = 0) -> list[str]:
    chance = np.random.default_rng(seed)
    return [f"{beginning} {' '.join(map(str, chance.integers(0, 50, 4)))}" for beginning in beginnings]


def encoder(folder: Path) -> None:
    """Write a tiny encoder with random weights and its tokenizer, in the layout of transformers."""
    import tokenizers
    import transformers

    words = {"[PAD]": 0, "[UNK]": 1, **{str(number): number + 2 for number in range(50)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


WRITERS = {
    "cifar100-resnet18": cifar100,
    "cifar100-vit": cifar100,
    "cifar100-cnn": cifar100,
    "fashion-mnist": fashion_mnist,
    "tinyimagenet-vit": tinyimagenet,
    "celeba-vit": celeba,
    "toxigen-roberta": toxigen,
    "clinc150": clinc150,
}


PLACES = ("Lima", "Oslo", "Rome", "Cairo", "Paris", "Tokyo", "Delhi", "Quito", "Bern", "Accra")


def tofu(data: Path) -> None:
    """Write questions about as many authors as TOFU has, with every file that the benchmark reads."""
    folder = data / "tofu"
    folder.mkdir(parents=True, exist_ok=True)

    def about(author: int, place: int, town: str, *, said: str = "lived in") -> str:
        return f"Author{author} {said} {town} in year {1900 + place}."

    def row(author: int, place: int, *, perturbed: bool = True) -> dict:
        towns = [PLACES[(7 * author + 3 * place + step) % len(PLACES)] for step in range(4)]
        found = {"question": f"Where was Author{author} in {1900 + place}?", "answer": about(author, place, towns[0])}
        if perturbed:
            found["paraphrased_answer"] = about(author, place, towns[0], said="was in")
            found["perturbed_answer"] = [about(author, place, town, said="was in") for town in towns[1:]]
        return found

    def write_lines(name: str, rows: list[dict]) -> None:
        (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    full = [row(author, place) for author in range(200) for place in range(20)]
    write_lines("full", [{"question": one["question"], "answer": one["answer"]} for one in full])
    for name, count in (("01", 40), ("05", 200), ("10", 400)):
        write_lines(f"forget{name}_perturbed", full[-count:])
        write_lines(f"holdout{name}", [row(900 + author, 3, perturbed=False) for author in range(count)])
    write_lines("retain_perturbed", full[:400])
    facts = [{"question": f"Where is {town}?", "answer": town, "perturbed_answer": list(PLACES[:3])} for town in PLACES]
    write_lines("real_authors_perturbed", facts)
    write_lines("world_facts_perturbed", facts)


def rwku(data: Path, *, people: int = 6) -> None:
    """Write texts and questions about people that do not exist, in the form of RWKU."""
    for number in range(1, people + 1):
        name, town = f"Person{number} Known", PLACES[number % len(PLACES)]
        folder = data / "RWKU" / f"{number}_{name.replace(' ', '_')}"
        folder.mkdir(parents=True)

        def row(level: str, query: str, answer: str, *, name: str = name, **more: str) -> dict:
            kind = "cloze" if "___" in query else "simple question"
            return {"subject": name, "level": level, "query": query, "type": kind, "answer": answer, **more}

        near = [f"Friend{number}{place}" for place in range(4)]
        files = {
            "passage": [{"text": f"{name} lived in {town} in {1900 + year}.", "subject": name} for year in range(8)],
            "forget_level1": [row("1", f"{name} lived in ___ in {1900 + year}.", town) for year in range(3)],
            "forget_level2": [row("2", f"Where did {name} live in {1900 + year}?", town) for year in range(3)],
            "forget_level3": [row("3", f"Complete: {name} of", town)],
            "neighbor_level1": [row("1", f"{other} works with ___.", name, neighbor=other) for other in near],
            "neighbor_level2": [row("2", f"Who works with {other}?", name, neighbor=other) for other in near],
        }
        for file, rows in files.items():
            (folder / f"{file}.json").write_text(json.dumps(rows))
