from __future__ import annotations

import pytest

from unweave import Request, UsageError


def test_a_request_that_is_nested_too_deeply_ends_in_a_sentence(tmp_path):
    (tmp_path / "request.yaml").write_text("model: " + "[" * 1000 + "]" * 1000)
    with pytest.raises(UsageError, match="nested too deeply"):
        Request.load(tmp_path / "request.yaml")


def test_a_request_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.yaml does not exist\. Give a request file;"):
        Request.load(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: a\nmodel: b\n", "has the key 'model' twice. Keep one"),
        ("settings: {epochs: 1, epochs: 2}\n", "has the key 'epochs' twice. Keep one"),
        ("model: &m ckpt\ntrain: *m\n", "has the alias [*]m. Write the value where it is used"),
        ("model: &a [1, 1]\ntrain: &b [*a, *a]\nforget: [*b, *b]\n", "has the alias"),
    ],
)
def test_what_a_request_could_say_in_two_ways_is_refused(tmp_path, text, words):
    (tmp_path / "request.yaml").write_text(text)
    with pytest.raises(UsageError, match=words):
        Request.load(tmp_path / "request.yaml")
