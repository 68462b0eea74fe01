"""Downloads from a hub on loopback: what is fetched, and that every failure ends soon in words."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kimi_serve.preprocess.checkpoint_files import hub
from kimi_serve.preprocess.checkpoint_files.hub_cache import find_snapshot
from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED, Located, locate_checkpoint
from kimi_serve.schemas.errors import PlanError

REPO = "moonshotai/Kimi-K2.5"
COMMIT = "7eb5002f6aadc958aed6a9177b7ed26bb94011bb"
UNWANTED = {"model-00001-of-00064.safetensors": b"weights", "modeling_kimi_k25.py": b"code"}
FILES = UNWANTED | {path.name: path.read_bytes() for path in BUNDLED.iterdir() if path.is_file()}


class FakeHub(BaseHTTPRequestHandler):
    """Answers what the client asks of one repository; `status` other than 200 refuses all of it."""

    status = 200
    error_code = ""
    asked: list[str]

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        if self.status != 200:
            self.reply(b"{}", self.status)
        elif path.startswith(f"/api/models/{REPO}/tree/"):
            self.reply(json.dumps([self.entry(name) for name in FILES]).encode())
        elif path.startswith(f"/api/models/{REPO}"):
            self.reply(json.dumps({"id": REPO, "sha": COMMIT, "siblings": []}).encode())
        elif path.startswith(f"/{REPO}/resolve/{COMMIT}/"):
            self.reply(FILES[path.rpartition("/")[2]])
        else:
            self.reply(b"{}", 404)

    @staticmethod
    def entry(name: str) -> dict[str, object]:
        oid = hashlib.sha1(FILES[name]).hexdigest()
        return {"type": "file", "oid": oid, "size": len(FILES[name]), "path": name}

    def reply(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if self.error_code:
            self.send_header("X-Error-Code", self.error_code)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def fake_hub() -> Iterator[str]:
    FakeHub.asked, FakeHub.status, FakeHub.error_code = [], 200, ""
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeHub) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def locate(endpoint: str, cache: Path, revision: str | None = None) -> Located:
    env = {"HF_ENDPOINT": endpoint, "HF_HUB_CACHE": str(cache), "HF_TOKEN": "hf_secret"}
    return locate_checkpoint(REPO, revision, env=env)


@pytest.mark.parametrize("revision", [None, "v2", COMMIT])
def test_small_files_are_downloaded_once(
    fake_hub: str, tmp_path: Path, revision: str | None
) -> None:
    located = locate(fake_hub, tmp_path, revision)
    names = {path.name for path in located.directory.iterdir()}
    assert names == set(FILES) & set(hub.FILES)
    assert (located.directory / "config.json").read_bytes() == FILES["config.json"]
    assert located.origin == "hub-cache"
    assert find_snapshot(tmp_path, REPO, revision) == located.directory
    before = len(FakeHub.asked)
    assert locate(fake_hub, tmp_path, revision) == located
    assert len(FakeHub.asked) == before


@pytest.mark.parametrize("revision", ["../outside", "{cache}/outside", "a/../../../outside"])
def test_a_revision_never_names_a_file_outside_the_repository(
    fake_hub: str, tmp_path: Path, revision: str
) -> None:
    """What the hub takes for a name is none of ours to write to."""
    cache = tmp_path / "cache"
    outside = tmp_path / "outside"
    hub.download_snapshot(
        REPO, revision.format(cache=tmp_path), env={"HF_ENDPOINT": fake_hub}, cache=cache
    )
    assert not outside.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def failure(endpoint: str, cache: Path, revision: str | None = None) -> str:
    start = time.monotonic()
    with pytest.raises(PlanError) as caught:
        locate(endpoint, cache, revision)
    assert time.monotonic() - start < 15
    assert "hf_secret" not in str(caught.value) + str(caught.value.hint)
    assert "\n" not in caught.value.message
    assert REPO in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("status", "error_code", "words"),
    [
        (401, "", "HTTP status 401"),
        (401, "RepoNotFound", "no such repository"),
        (403, "GatedRepo", "granted access"),
        (404, "RepoNotFound", "no such repository"),
        (404, "RevisionNotFound", "no such revision"),
        (500, "", "HTTP status 500"),
        (503, "", "HTTP status 503"),
    ],
)
def test_refusals(fake_hub: str, tmp_path: Path, status: int, error_code: str, words: str) -> None:
    FakeHub.status, FakeHub.error_code = status, error_code
    assert words in failure(fake_hub, tmp_path)


@pytest.mark.parametrize("revision", [None, COMMIT])
def test_closed_port(tmp_path: Path, revision: str | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "cannot be reached" in failure(f"http://127.0.0.1:{port}", tmp_path, revision)


def test_unknown_host(tmp_path: Path) -> None:
    assert "hub.invalid" in failure("http://hub.invalid", tmp_path)


def test_hub_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ANSWER_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "did not answer" in failure(f"http://127.0.0.1:{port}", tmp_path)


def test_hub_that_is_no_hub(fake_hub: str, tmp_path: Path) -> None:
    FakeHub.status = 204
    assert REPO in failure(fake_hub, tmp_path)


def test_incomplete_snapshot_serves_when_the_hub_is_away(
    fake_hub: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = locate(fake_hub, tmp_path).directory
    (directory / "tokenizer.json").unlink()
    FakeHub.status = 500
    assert locate(fake_hub, tmp_path).directory == directory
    assert "incomplete snapshot" in caplog.text
