"""What one request reads: once, a few at a time, counted, and let go of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from image_samples import encoded, picture

from kimi_serve.launcher.front.admission import Admission
from kimi_serve.launcher.front.media import Media, NamedImage, RequestImages
from kimi_serve.preprocess.media.limits import IMAGES_AT_ONCE_A_REQUEST
from kimi_serve.preprocess.media.sources import MediaSources
from kimi_serve.schemas.errors import BodyTooLargeError, MediaError, OverloadedError
from kimi_serve.schemas.settings import MediaSettings, ServerSettings, Settings

PNG = encoded(picture(), "PNG")
INLINE = b"data:image/png;base64,AAAA"


class Reads:
    """A front's media over files in a folder, and what was noted of them."""

    def __init__(self, folder: Path, *, body: int = 2**20, held: int = 2**20) -> None:
        for name in "abcdefghijklmnop":
            (folder / f"{name}.png").write_bytes(PNG)
        settings = Settings(
            media=MediaSettings(allowed_local_dirs=(str(folder),)),
            server=ServerSettings(max_body_bytes=body, max_queued_bytes=held),
        )
        self.folder = folder
        self.admission = Admission(body, held)
        self.noted: list[tuple[str, str, int]] = []
        self.media = Media(settings, self.admission, self._note)

    def _note(self, source: str, outcome: str, nbytes: int, _seconds: float) -> None:
        self.noted.append((source, outcome, nbytes))

    def names(self, letters: str) -> list[NamedImage]:
        return [NamedImage("file", f"{self.folder}/{letter}.png") for letter in letters]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_file_is_read_once_and_held_until_its_last_image_is_done(tmp_path: Path) -> None:
    async def test() -> None:
        reads = Reads(tmp_path)
        (name,) = reads.names("a")
        async with reads.media.of_request([name, INLINE, name]) as files:
            async with files.content(INLINE) as (content, is_file):
                assert (content, is_file) == (INLINE, False)
            for held in (len(PNG), 0):
                async with files.content(name) as (content, is_file):
                    assert (content, is_file) == (PNG, True)
                    assert reads.admission.held_bytes == len(PNG)
                assert reads.admission.held_bytes == held
        assert reads.noted == [("file", "ok", len(PNG))]

    run(test())


def test_what_one_request_reads_is_bounded(tmp_path: Path) -> None:
    async def test() -> None:
        reads = Reads(tmp_path, body=max(1024, 2 * len(PNG)))
        number = max(1024, 2 * len(PNG)) // len(PNG)
        names = reads.names("abcdefghijklmnop")[: number + 1]
        async with reads.media.of_request(names) as files:
            for name in names[:-1]:
                async with files.content(name):
                    pass
            with pytest.raises(BodyTooLargeError, match="max_body_bytes"):
                async with files.content(names[-1]):
                    pass
        assert reads.noted[-1] == ("file", "too_large", 0)
        assert reads.admission.held_bytes == 0

    run(test())


def test_a_full_server_reads_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        reads = Reads(tmp_path)
        reads.admission.held_bytes = 2**20
        (name,) = reads.names("a")
        async with reads.media.of_request([name]) as files:
            with pytest.raises(OverloadedError):
                async with files.content(name):
                    pass
        assert reads.noted == [("file", "overloaded", 0)]
        assert reads.admission.held_bytes == 2**20

    run(test())


def _stalling(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[list[str], Callable[[], asyncio.Event]]:
    """Make every read wait for an event; give the list of those that began."""
    began: list[str] = []
    going: list[asyncio.Event] = []

    async def read(_self: MediaSources, reference: str, take: Callable[[int], None]) -> bytes:
        began.append(reference)
        take(1)
        await event().wait()
        return b"x"

    def event() -> asyncio.Event:
        if not going:
            going.append(asyncio.Event())
        return going[0]

    monkeypatch.setattr(MediaSources, "read", read)
    return began, event


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_few_at_a_time_and_none_when_the_client_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        began, _ = _stalling(monkeypatch)
        reads = Reads(tmp_path)
        names = reads.names("abcdefghijkl")

        async def request() -> None:
            async with reads.media.of_request(names) as files:

                async def one(name: NamedImage) -> None:
                    async with files.content(name):
                        pass

                await asyncio.gather(*map(one, names))

        asking = asyncio.ensure_future(request())
        await _turns()
        assert len(began) == IMAGES_AT_ONCE_A_REQUEST
        assert reads.admission.held_bytes == IMAGES_AT_ONCE_A_REQUEST
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await _turns()
        assert reads.admission.held_bytes == 0
        assert [outcome for _, outcome, _ in reads.noted] == ["cancelled"] * len(began)
        assert len(began) == IMAGES_AT_ONCE_A_REQUEST

    run(test())


def test_one_image_that_gives_up_leaves_the_file_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        began, event = _stalling(monkeypatch)
        reads = Reads(tmp_path)
        (name,) = reads.names("a")
        async with reads.media.of_request([name, name]) as files:

            async def one() -> bytes:
                async with files.content(name) as (content, _):
                    return content

            first, second = asyncio.ensure_future(one()), asyncio.ensure_future(one())
            await _turns()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            event().set()
            assert await second == b"x"
        assert began == [name.reference]
        assert reads.admission.held_bytes == 0

    run(test())


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("again", range(1, 6))
def test_cancelled_once_more_nothing_stays_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int, again: int
) -> None:
    async def test() -> None:
        _stalling(monkeypatch)
        reads = Reads(tmp_path)
        names = reads.names("abc")

        async def one(files: RequestImages, name: NamedImage) -> None:
            async with files.content(name):
                pass

        async def request() -> None:
            async with reads.media.of_request(names) as files, asyncio.TaskGroup() as group:
                images = [group.create_task(one(files, name)) for name in names]
                asking.append(images[0])

        asking: list[asyncio.Task[None]] = []
        asking.append(asyncio.ensure_future(request()))
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(again):
            for task in asking:
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*asking, return_exceptions=True)
        await _turns()
        assert reads.admission.held_bytes == 0

    run(test())


def test_the_index_of_a_refused_reference_is_named(tmp_path: Path) -> None:
    reads = Reads(tmp_path)
    with pytest.raises(MediaError) as caught:
        reads.media.sort([INLINE.decode(), f"{tmp_path}/a.png", "https://a.example/x.png"])
    assert caught.value.param == "images[2]"


def test_what_a_request_carries_and_what_it_names(tmp_path: Path) -> None:
    reads = Reads(tmp_path)
    images = reads.media.sort([INLINE.decode(), f"{tmp_path}/a.png", f"file://{tmp_path}/b.png"])
    assert images == (
        INLINE,
        NamedImage("file", f"{tmp_path}/a.png"),
        NamedImage("file", f"file://{tmp_path}/b.png"),
    )
