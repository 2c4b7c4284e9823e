from __future__ import annotations

import time

import pytest

from unweave import Request, UsageError


def test_a_request_that_is_nested_too_deeply_ends_in_a_sentence(tmp_path):
    (tmp_path / "request.yaml").write_text("model: " + "[" * 1000 + "]" * 1000)
    with pytest.raises(UsageError, match="nested too deeply"):
        Request.load(tmp_path / "request.yaml")


def test_a_request_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.yaml does not exist\. Give a request file; `unweave init` writes"):
        Request.load(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: a\nmodel: b\n", "has the key 'model' twice. Keep one"),
        ("settings: {epochs: 1, epochs: 2}\n", "has the key 'epochs' twice. Keep one"),
        ("model: &m ckpt\ntrain: *m\n", "has the alias [*]m. Write the value where it is used"),
        ("model: &a [1, 1]\ntrain: &b [*a, *a]\nforget: [*b, *b]\n", "has the alias"),
        ("<<: {model: a}\nmodel: b\n", "has the key '<<', which merges keys"),
        ("model: a\nset: {<<: [{epochs: 1}], epochs: 2}\n", "has the key '<<', which merges keys"),
        ("model: a\nset: {1: a, 0x1: b}\n", "has the key 1 twice"),
        ("model: a\nset: {yes: a, true: b}\n", "has the key True twice"),
    ],
)
def test_what_a_request_could_say_in_two_ways_is_refused(tmp_path, text, words):
    (tmp_path / "request.yaml").write_text(text)
    with pytest.raises(UsageError, match=words):
        Request.load(tmp_path / "request.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: !!timestamp x\n", "has the tag 'tag:yaml.org,2002:timestamp'"),
        ("seed: !!bool x\n", "has the tag"),
        ("seed: !!int ''\n", "has the tag"),
        ("model: !!python/object:os.system x\n", "has the tag"),
        ("seed: 1" + ":59" * 5000, "has the number 1:59:59"),
        ("seed: " + "9" * 5000, "which is too large"),
        ("seed: 99999999999999999999\n", "the number 99999999999999999999 is too large"),
        ("set: {learning_rate: .nan}\n", "nan is not a number"),
        ('model: "\\ud800"\n', "surrogates not allowed|is not valid YAML"),
        ("model: a\n---\nmodel: b\n", "is not valid YAML"),
        ("seed: 2031-13-45\n", "cannot be read: month must be in"),
    ],
)
def test_values_that_json_cannot_hold_are_refused(tmp_path, text, words):
    (tmp_path / "request.yaml").write_text(text)
    with pytest.raises(UsageError, match=words):
        Request.load(tmp_path / "request.yaml")


def test_a_file_with_many_keys_is_refused_soon(tmp_path):
    (tmp_path / "request.yaml").write_text("set:\n" + "".join(f"  key-{number}: 1\n" for number in range(20_000)))
    begun = time.process_time()
    with pytest.raises(UsageError, match="There is no setting"):
        Request.load(tmp_path / "request.yaml")
    assert time.process_time() - begun < 10  # seconds; comparing every key with every other took a minute
