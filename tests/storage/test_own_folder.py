"""Nothing that is written or removed lies outside the folder, and nothing waits for a pipe."""

from __future__ import annotations

import os
import socket

import pytest

from unweave import UsageError
from unweave.storage import Lock, append_line, read_json, read_json_lines, refuse_links, write_whole


@pytest.fixture
def outside(tmp_path):
    file = tmp_path / "outside"
    file.write_text("mine")
    (tmp_path / "folder").mkdir()
    return file


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("name", ["study.json", "study.json.partial"])
def test_a_file_written_whole_never_follows_a_link(outside, name, private):
    folder = outside.parent / "folder"
    (folder / name).symlink_to(outside)
    write_whole(folder / "study.json", b"{}", private=private)
    assert outside.read_text() == "mine"
    assert [(path.name, path.is_symlink()) for path in folder.iterdir()] == [("study.json", False)]
    assert (folder / "study.json").read_bytes() == b"{}"


def test_a_file_is_not_written_through_a_pipe(outside):
    folder = outside.parent / "folder"
    os.mkfifo(folder / "results.parquet.partial")
    write_whole(folder / "results.parquet", b"table")
    assert [path.name for path in folder.iterdir()] == ["results.parquet"]


def test_a_line_is_appended_to_files_only(outside):
    folder = outside.parent / "folder"
    append_line(folder / "times.jsonl", '{"a": 1}')
    append_line(folder / "times.jsonl", '{"a": 2}')
    assert read_json_lines(folder / "times.jsonl") == [{"a": 1}, {"a": 2}]
    (folder / "link").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    for name, words in (("link", "symbolic link"), ("pipe", "not a regular file")):
        with pytest.raises(UsageError, match=words):
            append_line(folder / name, "x")
    assert outside.read_text() == "mine"


def test_a_pipe_with_a_reader_is_not_written_either(outside):
    pipe = outside.parent / "folder" / "lock"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(UsageError, match="not a regular file"):
            Lock(pipe)
    finally:
        os.close(reader)


def test_the_note_of_a_lock_is_not_waited_for(outside):
    folder = outside.parent / "folder"
    os.mkfifo(folder / "cell.begun")
    with Lock(folder / "cell.lock") as held:
        assert not held.died_since(0.0)


def test_a_folder_with_links_pipes_or_sockets_is_refused_however_deep(outside, monkeypatch):
    folder = outside.parent / "folder"
    deep = folder / "cells" / "ga.seed-0"
    deep.mkdir(parents=True)
    (deep / "scores.json").write_text("{}")
    refuse_links(folder)
    refuse_links(folder / "missing")
    monkeypatch.chdir(deep)
    with socket.socket(socket.AF_UNIX) as unix:
        makers = {
            "to-a-file": lambda path: path.symlink_to(outside),
            "to-a-folder": lambda path: path.symlink_to(outside.parent),
            "to-nothing": lambda path: path.symlink_to("nothing"),
            "pipe": os.mkfifo,
            "socket": lambda path: unix.bind(path.name),
        }
        for name, make in makers.items():
            make(deep / name)
            with pytest.raises(UsageError, match=rf"{name} is (a link|not a regular file)"):
                refuse_links(folder)
            (deep / name).unlink()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"scores": 1, "scores": 2}', "the name 'scores' occurs twice"),
        (b"[1e999]", "too large"),
        (b"[18446744073709551616]", "too large"),
        (b"[" * 101 + b"]" * 101, "nested too deeply"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "nested too deeply"),
        (b'["\\ud800"]', "surrogates not allowed"),
        (b"[-Infinity]", "-Infinity is not valid JSON"),
    ],
)
def test_json_that_would_trip_later_is_refused_when_it_is_read(tmp_path, content, message):
    for read in (read_json, read_json_lines):
        (tmp_path / "file.json").write_bytes(content)
        with pytest.raises(UsageError, match=message):
            read(tmp_path / "file.json")


def test_json_of_ours_is_read(tmp_path):
    (tmp_path / "file.json").write_text('{"a": [18446744073709551615, -1e300, "\\ud83d\\ude00"], "b": {"a": null}}')
    assert read_json(tmp_path / "file.json") == {"a": [2**64 - 1, -1e300, "\U0001f600"], "b": {"a": None}}
    (tmp_path / "lines").write_text('{"a": 1}\n\n{"a": \n')
    assert read_json_lines(tmp_path / "lines", strict=False) == [{"a": 1}]
