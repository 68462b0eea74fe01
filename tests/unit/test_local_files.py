"""Local images: what is read, and that everything else is refused in the same words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from image_samples import encoded, load_json, picture
from scarce import no_threads, open_descriptors

from kimi_serve.preprocess.daemon_threads import DaemonThreads
from kimi_serve.preprocess.media.limits import READS_AT_ONCE
from kimi_serve.preprocess.media.local_files import LocalFiles, path_of
from kimi_serve.preprocess.media.sources import MediaSources
from kimi_serve.schemas.errors import MediaError, MediaTooLargeError, OverloadedError
from kimi_serve.schemas.settings import MediaSettings

PNG = encoded(picture(), "PNG")
STRINGS = [
    case
    for case in load_json("strings.json")
    if case["required"] != "accept" and (case["input"][:1] in "/~{" or "file:" in case["input"])
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one image, and a secret beside it."""
    images = tmp_path / "images"
    (images / "deep").mkdir(parents=True)
    (images / "a.png").write_bytes(PNG)
    (images / "spa ce%20 \u00fc.png").write_bytes(PNG)
    (images / "deep" / "b.png").write_bytes(PNG)
    (images / "notes.txt").write_text("a secret")
    (images / "empty.png").write_bytes(b"")
    (tmp_path / "secret.png").write_bytes(PNG)
    return images


def read(folder: Path, reference: str, max_bytes: int = 2**20) -> tuple[bytes, int]:
    """Give the content, and how many bytes were counted."""
    counted: list[int] = []
    files = LocalFiles([str(folder)], max_bytes)
    data = asyncio.run(files.read(reference, counted.append))
    return data, sum(counted)


def refusal(folder: Path, reference: str) -> str:
    with pytest.raises(MediaError) as caught:
        read(folder, reference)
    assert type(caught.value) is MediaError
    return caught.value.message


@pytest.mark.parametrize(
    "reference",
    [
        "{}/a.png",
        " {}/a.png\n",
        "{}//a.png",
        "{}/./a.png",
        "{}/deep/../a.png",
        "{}/deep/b.png",
        "file://{}/a.png",
        "FILE://{}/a.png",
        "file:{}/a.png",
        "file://localhost{}/a.png",
        "file://LOCALHOST{}/a.png",
        "file://{}/%61.png",
        "file://{}/spa%20ce%2520%20%C3%BC.png",
        "{}/spa ce%20 \u00fc.png",
        "{}/link.png",
        "{}/linked/b.png",
    ],
)
def test_what_is_read(folder: Path, reference: str) -> None:
    (folder / "link.png").symlink_to("a.png")
    (folder / "linked").symlink_to(folder / "deep")
    assert read(folder, reference.format(folder)) == (PNG, len(PNG))


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(folder)
    assert read(link, f"{link}/a.png")[0] == PNG
    assert read(link, f"{folder}/a.png")[0] == PNG
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    refusal(link, f"{folder}/a.png")


def _pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe.png")
    return f"{folder}/pipe.png"


def _socket(folder: Path) -> str:
    # Its name must be short for the kernel.
    with socket.socket(socket.AF_UNIX) as listener:
        back = os.open(".", os.O_RDONLY)
        os.chdir(folder)
        listener.bind("s.png")
        os.fchdir(back)
        os.close(back)
    return f"{folder}/s.png"


def _link(to: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / "out.png").symlink_to(to.format(folder=folder, beside=folder.parent))
        return f"{folder}/out.png"

    return make


def _unreadable(folder: Path) -> str:
    (folder / "closed.png").write_bytes(PNG)
    (folder / "closed.png").chmod(0)
    if os.access(folder / "closed.png", os.R_OK):
        pytest.skip("this user reads everything")
    return f"{folder}/closed.png"


REFUSED: dict[str, Callable[[Path], str]] = {
    "missing": lambda folder: f"{folder}/nope.png",
    "folder": lambda folder: f"{folder}/deep",
    "the folder itself": lambda folder: f"{folder}",
    "no image": lambda folder: f"{folder}/notes.txt",
    "empty": lambda folder: f"{folder}/empty.png",
    "beside": lambda folder: f"{folder}/../secret.png",
    "beside, missing": lambda folder: f"{folder}/../nope.png",
    "a folder of a longer name": lambda folder: f"{folder}2/a.png",
    "escaped dots": lambda folder: f"file://{folder}/%2e%2e/secret.png",
    "escaped twice": lambda folder: f"file://{folder}/%2561.png",
    "a bad escape": lambda folder: f"file://{folder}/%6.png",
    "another host": lambda folder: f"file://evil.example{folder}/a.png",
    "two slashes": lambda folder: f"file:///{folder}/a.png",
    "a query": lambda folder: f"file://{folder}/a.png?x",
    "a fragment": lambda folder: f"file://{folder}/a.png#x",
    "NUL": lambda folder: f"{folder}/a.png\0.txt",
    "escaped NUL": lambda folder: f"file://{folder}/a.png%00.txt",
    "too long": lambda folder: f"{folder}/{'a' * 5000}.png",
    "half a character": lambda folder: f"{folder}/\ud800.png",
    "relative": lambda _folder: "a.png",
    "home": lambda _folder: "~/a.png",
    "a pipe": _pipe,
    "a socket": _socket,
    "a link to a secret": _link("{beside}/secret.png"),
    "a relative link to a secret": _link("../secret.png"),
    "a link to nothing": _link("nope"),
    "a link to itself": _link("out.png"),
    "a link to a device": _link("/dev/zero"),
    "a link to another link to a device": _link("/dev/stdin"),
    "a link to what this process has open": _link("/proc/self/fd/0"),
    "a link to its memory": _link("/proc/self/mem"),
    "a link to the root": _link("/"),
    "/dev/zero": lambda _folder: "/dev/zero",
    "/etc/passwd": lambda _folder: "/etc/passwd",
    "/proc/self/environ": lambda _folder: "/proc/self/environ",
    "/proc/self/root": lambda folder: f"/proc/self/root{folder}/a.png",
    "/proc/self/cwd": lambda _folder: "/proc/self/cwd/a.png",
    "unreadable": _unreadable,
}


@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_is_refused_alike(folder: Path, name: str) -> None:
    said = refusal(folder, REFUSED[name](folder))
    assert said == refusal(folder, "/nowhere/at/all.png")
    assert str(folder) not in said


@pytest.mark.parametrize("case", STRINGS, ids=[case["name"] for case in STRINGS])
def test_handed_case(folder: Path, case: dict[str, str]) -> None:
    reference = case["input"].replace("{cases}", str(folder))
    if case["required"] == "policy":
        assert read(folder, reference)[0] == PNG
    else:
        assert refusal(folder, reference) == refusal(folder, "/nowhere/at/all.png")


def test_a_descriptor_is_never_left_open(folder: Path) -> None:
    before = open_descriptors()
    read(folder, f"{folder}/a.png")
    for name in ("missing", "folder", "a pipe", "a link to a device", "no image"):
        refusal(folder, REFUSED[name](folder))
    assert open_descriptors() <= before


def test_a_large_file_is_refused_before_it_is_read(folder: Path) -> None:
    with pytest.raises(MediaTooLargeError, match=r"media\.max_bytes"):
        read(folder, f"{folder}/a.png", len(PNG) - 1)
    assert read(folder, f"{folder}/a.png", len(PNG))[0] == PNG
    with (folder / "hole.png").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(MediaTooLargeError):
        read(folder, f"{folder}/hole.png")


def test_a_file_that_is_too_much_to_hold_is_closed(folder: Path) -> None:
    def take(_nbytes: int) -> None:
        raise OverloadedError("full")

    before = open_descriptors()
    with pytest.raises(OverloadedError):
        asyncio.run(LocalFiles([str(folder)], 2**20).read(f"{folder}/a.png", take))
    assert open_descriptors() <= before


def test_paths_that_references_spell() -> None:
    assert path_of("/a//b/../c.png") == b"/a/c.png"
    assert path_of("file:///%ff.png") == b"/\xff.png"
    assert path_of("file://evil/x.png") == b"//evil/x.png"
    assert path_of("x.png") is None


def test_without_settings_only_inline_images_are_taken() -> None:
    sources = MediaSources(MediaSettings())
    assert sources.check("data:image/png;base64,AAAA") is None
    for reference in ("/etc/passwd", "https://a.example/x.png", "s3://a/b", "//a.example/x.png"):
        with pytest.raises(MediaError, match="data URL"):
            sources.check(reference)


def test_each_setting_opens_its_own_source(folder: Path) -> None:
    local = MediaSources(MediaSettings(allowed_local_dirs=(str(folder),)))
    assert local.check(f"{folder}/a.png") == "file"
    remote = MediaSources(MediaSettings(allowed_domains=("a.example",)))
    assert remote.check("https://a.example/x.png") == "http"
    for sources, reference in (
        (local, "https://a.example/x.png"),
        (remote, f"{folder}/a.png"),
        (remote, "ftp://a.example/x.png"),
        (remote, "//a.example/x.png"),
        (remote, "blob:https://a.example/x"),
    ):
        with pytest.raises(MediaError):
            sources.check(reference)


def test_a_result_that_nobody_waits_for_is_thrown_away() -> None:
    async def run() -> None:
        threads, going, discarded = DaemonThreads(1), threading.Event(), asyncio.Event()
        first = asyncio.ensure_future(
            threads.run(lambda: going.wait(30), discard=lambda _: discarded.set())
        )
        await asyncio.sleep(0)  # it has the only place now
        unstarted = asyncio.Event()
        second = asyncio.ensure_future(threads.run(lambda: 1, unstarted=unstarted.set))
        await asyncio.sleep(0)
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert unstarted.is_set()
        assert not discarded.is_set()
        going.set()
        await asyncio.wait_for(discarded.wait(), 30)
        assert await threads.run(lambda: 2) == 2

    asyncio.run(run())


def test_a_thread_that_cannot_start_takes_nothing_along(folder: Path) -> None:
    async def run() -> None:
        threads, unstarted = DaemonThreads(1), asyncio.Event()
        for _ in range(3):
            with no_threads(), pytest.raises(OverloadedError, match="try again later"):
                await threads.run(lambda: 1, unstarted=unstarted.set)
        assert unstarted.is_set()
        assert await asyncio.wait_for(threads.run(lambda: 2), 30) == 2

    asyncio.run(run())


def test_local_files_are_read_again_once_threads_start_again(folder: Path) -> None:
    def take(_nbytes: int) -> None:
        if is_scarce:
            without.enter_context(no_threads())  # between the two threads of one file

    async def run() -> bytes:
        files = LocalFiles([str(folder)], 2**20)
        for _ in range(2 * READS_AT_ONCE):
            with without, pytest.raises(OverloadedError):
                await files.read(f"{folder}/a.png", take)
        nonlocal is_scarce
        is_scarce = False
        return await asyncio.wait_for(files.read(f"{folder}/a.png", take), 30)

    is_scarce, without = True, contextlib.ExitStack()
    before = open_descriptors()
    assert asyncio.run(run()) == PNG
    assert open_descriptors() <= before
