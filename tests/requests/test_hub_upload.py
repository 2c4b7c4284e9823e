"""--push-to-hub, against a stand-in for the Hub on this machine: the folder model/ is uploaded, and nothing else."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.helpers.own_files import sentences, write_table, write_text_checkpoint
from unweave import Request, RunError, UsageError

pytest.importorskip("huggingface_hub")
COMMIT = "https://huggingface.co/me/forgot/commit/" + "1" * 40  # the library accepts no other host in this answer
QUICK = {"method": "ga", "settings": {"learning_rate": 1e-3, "epochs": 1}, "no_guard": True, "device": "cpu"}


class Hub(BaseHTTPRequestHandler):
    """Answers what an upload of small files asks, and keeps what it gets in the server."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.answer({"id": "me/forgot", "sha": "0" * 40, "private": True, "siblings": []})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self.path)
        if self.server.refuses:
            self.answer({"error": "You have no right to write here."}, code=403)
        elif self.path.endswith("/preupload/main"):
            files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
            self.answer({"files": files})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.answer({"commitUrl": COMMIT, "commitOid": "1" * 40, "success": True})
        else:
            if self.path.endswith("/repos/create"):
                self.server.created = json.loads(body)
            self.answer({"url": f"http://127.0.0.1:{self.server.server_port}/me/forgot", "name": "me/forgot"})

    def answer(self, content, code=200):
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked, server.files, server.created, server.refuses = [], {}, {}, False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "made-up")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def request_of(tmp_path):
    write_text_checkpoint(tmp_path / "ckpt")
    data = str(write_table(tmp_path / "train.parquet", sentences()))
    given = {"model": str(tmp_path / "ckpt"), "train": data, "forget": "person_id = 3", "out": str(tmp_path / "run")}
    return lambda **more: Request(**given, **QUICK, **more)


def test_only_the_model_is_uploaded(hub, request_of, tmp_path):
    request_of(push_to_hub="me/forgot").run()
    model = tmp_path / "run" / "model"
    assert hub.files == {path.name: path.read_bytes() for path in model.iterdir()}
    assert hub.created.get("private") or hub.created.get("visibility") == "private"
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= set(hub.files)


def test_a_refused_upload_leaves_the_run_whole(hub, request_of, tmp_path):
    hub.refuses = True
    with pytest.raises(RunError, match=r"could not be uploaded to me/forgot: .*hf upload me/forgot .*run/model"):
        request_of(push_to_hub="me/forgot").run()
    assert (tmp_path / "run" / "scores.json").exists()
    assert hub.files == {}


def test_a_server_that_is_not_there(request_of, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "made-up")
    with pytest.raises(RunError, match=r"could not be uploaded to me/forgot: "):
        request_of(push_to_hub="me/forgot").run()
    assert (tmp_path / "run" / "model").exists()


def test_who_is_not_logged_in_learns_it_before_the_run(request_of, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(UsageError, match="Nobody is logged in to the Hub"):
        request_of(push_to_hub="me/forgot").run()
    assert not (tmp_path / "run").exists()
