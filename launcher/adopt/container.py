"""What stands around an engine that runs in a container: `docker run` and its like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from kimi_serve.schemas.vocabulary import ENGINES

from .entry_point import find_entry_point, find_shell, is_shell
from .words import EnvFile, Told, Variable, Word, assignment

RUNNING = ("run", "create", "exec")
_RUNTIMES = ("docker", "podman", "nerdctl")
# All other options take a value.
_SWITCHES = frozenset(
    (
        "--detach", "--disable-content-trust", "--help", "--init", "--interactive",
        "--no-healthcheck", "--oom-kill-disable", "--privileged", "--publish-all", "--quiet",
        "--read-only", "--replace", "--rm", "--rmi", "--sig-proxy", "--tty", "--env-host",
        "-d", "-i", "-t", "-P", "-q",
    )
)  # fmt: skip
_LONG = {
    "-e": "--env",
    "-p": "--publish",
    "-v": "--volume",
    "-w": "--workdir",
    "--net": "--network",
}
_TAG = re.compile(r"v?(?P<version>\d+\.\d+(\.\d+)*(\.?(rc|post|dev)\d+)?)([.-].*)?")
# Images whose entry point is the engine itself: what follows are its arguments.
_VLLM_IMAGE = "vllm-openai"
_CDI = "nvidia.com/gpu="


@dataclass(slots=True)
class Container:
    """What was said about a container. `published` are its ports, as HOST:CONTAINER.

    `entrypoint` is None where that of the image runs, and empty where none does; a command that
    runs in a container that is there already (`is_inside`) has none either.
    """

    image: Word | None = None
    entrypoint: tuple[Word, ...] | None = None
    command: tuple[Word, ...] = ()
    variables: list[Variable] = field(default_factory=lambda: list[Variable]())
    env_files: list[EnvFile] = field(default_factory=lambda: list[EnvFile]())
    published: list[Word] = field(default_factory=lambda: list[Word]())
    network: str = ""
    ipc: str = ""
    shared_memory: str = ""
    gpus: Word | None = None
    is_pod: bool = False
    is_inside: bool = False

    def words(self) -> tuple[Word, ...]:
        """Give the command that runs inside."""
        if self.entrypoint is not None:
            return (*self.entrypoint, *self.command)
        if self.image is None or not self._is_for_vllm(self.image.text):
            return self.command
        place = self.image.place
        return (Word("vllm", place), Word("serve", place), *self.command)

    def _is_for_vllm(self, image: str) -> bool:
        """Tell whether the words are arguments of an image that starts the engine itself.

        Words that name an engine or a shell themselves were meant to run in its place.
        """
        name = image.rpartition("/")[2].partition(":")[0]
        if self.is_inside or not name.startswith(_VLLM_IMAGE):
            return False
        texts = [word.text for word in self.command]
        if not texts or texts[0].startswith("-"):
            return True
        has_shell = is_shell(texts[0]) or find_shell(texts) is not None
        return not has_shell and find_entry_point(texts) is None

    def version_of(self, engine: str) -> str:
        """Give the version that the tag of the image names, "" for `latest` and their like.

        That of an image which is named after another engine says nothing.
        """
        text = self.image.text if self.image else ""
        names = [name for name in ENGINES if name in text.rpartition("/")[2]]
        if names and engine not in names:
            return ""
        match = _TAG.fullmatch(text.rpartition("/")[2].partition("@")[0].partition(":")[2])
        return match["version"] if match else ""


def read_run(words: Sequence[Word], told: Told) -> Container | None:
    """Read `docker run OPTIONS IMAGE WORDS`, None for another command."""
    start = _start(words)
    if start is None:
        return None
    container = Container(is_inside=words[start - 1].text == "exec")
    index = start
    while index < len(words) and words[index].text.startswith("-"):
        index = _option(container, words, index, told)
    if index < len(words):
        container.image = words[index]
        container.command = tuple(words[index + 1 :])
    return container


def _start(words: Sequence[Word]) -> int | None:
    """Give where the options begin."""
    for index, word in enumerate(words):
        if PurePath(word.text).name in _RUNTIMES:
            for behind, after in enumerate(words[index + 1 :], start=index + 1):
                if after.text in RUNNING:
                    return behind + 1
    return None


def _option(container: Container, words: Sequence[Word], index: int, told: Told) -> int:
    """Take one option; gives the index behind it."""
    word = words[index]
    name, equals, rest = word.text.partition("=")
    if not name.startswith("--"):
        return _short(container, words, index, told)
    if name in _SWITCHES or name == "--":
        told.left_out((word,), "it is about the container")
        return index + 1
    if equals:
        _take(container, name, replace(word, text=rest), (word,), told)
        return index + 1
    if index + 1 < len(words):
        _take(container, name, words[index + 1], words[index : index + 2], told)
    return index + 2


def _short(container: Container, words: Sequence[Word], index: int, told: Told) -> int:
    """Take `-e NAME`, `-eNAME`, `-it` and `-itp 80:80`."""
    word = words[index]
    letters = word.text[1:]
    while letters and f"-{letters[0]}" in _SWITCHES:
        letters = letters[1:]
    if not letters:
        told.left_out((word,), "it is about the container")
        return index + 1
    name, value = f"-{letters[0]}", letters[1:].removeprefix("=")
    name = _LONG.get(name, name)
    if value:
        _take(container, name, replace(word, text=value), (word,), told)
        return index + 1
    if index + 1 < len(words):
        _take(container, name, words[index + 1], words[index : index + 2], told)
    return index + 2


def _take(
    container: Container, name: str, value: Word, written: Sequence[Word], told: Told
) -> None:
    match _LONG.get(name, name):
        case "--env":
            container.variables.append(variable(value))
            return
        case "--env-file":
            container.env_files.append(EnvFile(value))
            return
        case "--entrypoint":
            container.entrypoint = (value,) if value.text else ()
            return
        case "--publish":
            container.published.append(value)
        case "--network":
            container.network = value.text
        case "--ipc":
            container.ipc = value.text
        case "--shm-size":
            container.shared_memory = value.text
        case "--gpus":
            container.gpus = value
        case "--device" if value.text.startswith(_CDI):
            device = value.text.removeprefix(_CDI)
            before = f"{container.gpus.text}," if container.gpus else "device="
            is_all = device == "all"
            container.gpus = replace(value, text="all" if is_all else before + device)
        case _:
            pass
    told.left_out(written, "it is about the container")


def variable(word: Word) -> Variable:
    """Read NAME=value, or NAME for a variable that is passed on."""
    found = assignment(word)
    return found or Variable(word.text, None, word.place)


def gpu_ids(word: Word) -> tuple[str, ...]:
    """Give the GPUs that `--gpus` names, nothing for `all` and for a number of them."""
    match = re.fullmatch(r"\"?device=(?P<ids>[\w,:.-]+)\"?", word.text)
    ids = tuple(dict.fromkeys(match["ids"].split(","))) if match else ()
    return ids if all(re.match("[0-9]|GPU-|MIG-", name) for name in ids) else ()


def ids_inside(ids: Sequence[str]) -> tuple[str, ...]:
    """Give what the GPUs of the host are called in the container: it counts its own from 0."""
    return tuple(name if name[:4] in ("GPU-", "MIG-") else str(n) for n, name in enumerate(ids))


def container_port(published: Word) -> tuple[str, str]:
    """Give the address and the container's port of HOST:PORT:PORT/tcp."""
    whole = published.text.partition("/")[0]
    before, _, port = whole.rpartition(":")
    return before, port
