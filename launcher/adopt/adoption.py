"""Makes a profile of an engine's command: all that was found, and what is said of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kimi_serve.schemas.engine_facts import EngineTable, engine_table
from kimi_serve.schemas.findings import Finding

from ..engines.gpus import WIDTHS
from ..rules.exposure import is_relative_path
from ..rules.given import is_loopback
from ..sources.characters import printable, shown
from .arguments import MODEL, TOKENIZER, Adopted, Argument, Translator, is_relative, read
from .config_file import split_config
from .container import container_port, gpu_ids, ids_inside
from .environment import GPUS, Environment, read_env_files
from .find import Found
from .hiding import Secrets
from .profile_text import Entry, profile_text
from .words import Told, Variable, Word, shown_words

HOST, PORT = "server.host", "server.port"
DRAIN = "server.drain_timeout_s"
_TENSOR = tuple(flags[0] for flags in WIDTHS.values())


@dataclass(frozen=True, slots=True)
class Adoption:
    """The profile of a command. `exports` has the secrets by the variables that now name them."""

    text: str
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    exports: Mapping[str, str] = field(repr=False)


def adopt(found: Found, told: Told, given: Sequence[Variable] = (), folder: str = ".") -> Adoption:
    """Turn a command into a profile.

    `given` are variables that it inherited, `folder` is where the profile will lie.
    """
    container = found.container
    version = container.version_of(found.engine) if container else ""
    table = engine_table(found.engine, version) or engine_table(found.engine)
    assert table is not None, "both engines have tables"
    if version and engine_table(found.engine, version) is None:
        told.note(
            f"{found.engine} {version} is older than all that was checked: its command is read as "
            f"{table.version} reads it"
        )
    adopted, secrets = Adopted(), Secrets(table)
    files = tuple(read_env_files(container.env_files, told)) if container else ()
    # Secrets first: what repeats one is then known to.
    Environment(table, adopted, secrets, told).take((*given, *files, *found.variables))
    from_file, args = split_config(found.args, table, told)
    written = read(args, table, found.takes)
    arguments = [*read(from_file, table, 0), *written]
    _missing_model(found, bool(from_file), written, told)
    Translator(table, adopted, secrets, told).take(arguments)
    if container is None and os.path.abspath(folder) != os.getcwd():
        _move(adopted, folder)
    _engine(found, adopted, version)
    _address(found, adopted, arguments)
    _drain(found, adopted, arguments)
    _container(found, adopted, arguments, told)
    return _written(found, adopted, secrets, told, table)


def _missing_model(found: Found, has_file: bool, written: Sequence[Argument], told: Told) -> None:
    """Say what `sglang serve` does with a model that its file alone names."""
    is_serve = found.engine == "sglang" and found.head[-1].text == "serve"
    is_named = any(
        argument.flag == "--model-path" or not argument.read.spelling for argument in written
    )
    if has_file and is_serve and not is_named:
        told.note("`sglang serve` exits with 1 when its file alone names the model; here it counts")


def _move(adopted: Adopted, folder: str) -> None:
    """Write relative paths as seen from the folder of the profile: that is how it is read."""
    for path in (MODEL, TOKENIZER):
        entry = adopted.settings.get(path)
        if entry is not None and isinstance(entry.value, str) and is_relative(entry.value):
            moved = os.path.relpath(entry.value, folder)
            moved = moved if moved.startswith("..") else f"./{moved}"
            adopted.settings[path] = replace(entry, value=moved)


def _engine(found: Found, adopted: Adopted, version: str) -> None:
    place = found.head[0].place
    adopted.settings["engine.kind"] = Entry(found.engine, f"{place}: {shown_words(found.head)}")
    image = found.container.image if found.container else None
    if version and image:
        said = f"{image.place}: the tag of {shown_words([image])}"
        adopted.settings["engine.version"] = Entry(version, said)
    python = found.python
    if python is not None and "/" in python.text:
        adopted.settings["engine.python"] = Entry(
            python.text, f"{python.place}: the interpreter of the command"
        )


def _address(found: Found, adopted: Adopted, arguments: Sequence[Argument]) -> None:
    """Say where vLLM listens by default: our own defaults are SGLang's."""
    flags = {argument.flag for argument in arguments}
    if found.engine != "vllm" or flags & {"--headless", "--uds"}:
        return
    for path, flag, value in ((HOST, "--host", "0.0.0.0"), (PORT, "--port", 8000)):
        if path not in adopted.settings and flag not in flags:
            adopted.settings[path] = Entry(value, f"no {flag} was given: the default of vLLM")


def _drain(found: Found, adopted: Adopted, arguments: Sequence[Argument]) -> None:
    """Say that vLLM cuts running requests by default: our own default lets them finish."""
    flags = {argument.flag for argument in arguments}
    if found.engine == "vllm" and not flags & {"--headless", "--shutdown-timeout"}:
        said = "no --shutdown-timeout was given: vLLM cuts running requests; 30 lets them end"
        adopted.settings.setdefault(DRAIN, Entry(0, said))


def _container(found: Found, adopted: Adopted, arguments: Sequence[Argument], told: Told) -> None:
    """Say what the container changes."""
    container = found.container
    if container is None:
        return
    gpus = container.gpus or _nvidia(found.variables)
    ids = gpu_ids(gpus) if gpus else ()
    if gpus is not None and ids:
        inside = ids_inside(ids)
        names = ", ".join(map(printable, ids))
        said = f"{gpus.place}: the container gets GPU {names} of the host"
        said += "" if inside == ids else f", which is {', '.join(inside)} inside"
        adopted.settings.setdefault(GPUS, Entry(inside, said))
    if container.image is not None:
        kind = "container" if container.is_inside else "image"
        told.note(
            f"{kind} {shown_words([container.image])}: the profile is for kimi-serve in a "
            "container like it; paths are those inside"
        )
    _published(found, adopted, told)
    _shared_memory(found, arguments, told)
    for argument in arguments:
        if argument.flag and _kept(adopted, argument.flag):
            _relative_paths(argument, told)


def _nvidia(variables: Sequence[Variable]) -> Word | None:
    """Give the GPUs that the variable of NVIDIA's container runtime names."""
    for variable in reversed(variables):
        if variable.name == "NVIDIA_VISIBLE_DEVICES" and variable.value is not None:
            text = variable.value.text
            is_list = re.fullmatch(r"(\d+|GPU-[\w-]+|MIG-[\w/-]+)(,(\d+|GPU-[\w-]+))*", text)
            return Word(f"device={text}", variable.place) if is_list else None
    return None


def _published(found: Found, adopted: Adopted, told: Told) -> None:
    container = found.container
    assert container is not None
    entry = adopted.settings.get(HOST)
    host = entry.value if entry else "127.0.0.1"
    has_no_server = found.engine == "vllm" and entry is None
    if not container.published or container.network == "host" or has_no_server:
        return
    published = container.published[0]
    if isinstance(host, str) and is_loopback(host) and not _kept(adopted, "--host"):
        what = "" if entry else "the default "
        told.find(
            "KS401", "warning",
            f"port {published.text} is published, and {what}{host} is reached from inside the "
            "container only: nothing answers outside",
            published.place,
            "set server.host: 0.0.0.0, and server.api_key with it",
            HOST,
        )  # fmt: skip
    port = adopted.settings.get(PORT)
    listens = str(port.value) if port else "30000"
    inside = [container_port(each)[1] for each in container.published]
    if listens not in inside and not any("-" in each for each in inside) and inside != [""]:
        told.note(
            f"{published.place}: port {', '.join(inside)} of the container is published, and the "
            f"engine listens on {listens}"
        )


def _shared_memory(found: Found, arguments: Sequence[Argument], told: Told) -> None:
    container = found.container
    assert container is not None
    if container.is_pod or container.ipc in ("host",) or container.shared_memory:
        return
    for argument in arguments:
        flag = argument.flag
        values = argument.read.values if flag in _TENSOR else ()
        if values and values[0].isdigit() and int(values[0]) > 1:
            told.find(
                "KS307", "warning",
                f"{flag} {values[0]} without --ipc or --shm-size: the container gets 64 MiB at "
                "/dev/shm, where NCCL and the ranks share their memory",
                container.image.place if container.image else "",
                "docker run --ipc=host, or --shm-size 32g",
            )  # fmt: skip
            return


def _relative_paths(argument: Argument, told: Told) -> None:
    for text in argument.read.values:
        if is_relative_path(argument.read, text):
            told.find(
                "KS403", "warning",
                f"{argument.flag} {shown(text)} is relative to the folder that the engine starts "
                "in: in a container that is a folder of the image",
                argument.place,
                "write the whole path, as it is inside the container",
            )  # fmt: skip


def _kept(adopted: Adopted, flag: str) -> bool:
    return any(str(entry.value).partition("=")[0] == flag for entry in adopted.args)


def _written(
    found: Found, adopted: Adopted, secrets: Secrets, told: Told, table: EngineTable
) -> Adoption:
    """Write the profile; what is shown beside the values holds no secret."""
    notes = tuple(secrets.hide(note) for note in told.notes)
    heading = [
        f"Adopted by `kimi-serve adopt` from a command of {found.engine}, read as "
        f"{table.engine} {table.version} reads it.",
        *notes,
    ]
    text = profile_text(
        heading,
        {path: _clean(entry, secrets) for path, entry in adopted.settings.items()},
        [_clean(entry, secrets) for entry in adopted.args],
        {name: _clean(entry, secrets) for name, entry in adopted.env.items()},
    )
    findings = tuple(_without(finding, secrets) for finding in told.findings)
    return Adoption(text, notes, findings, dict(secrets.exports))


def _clean(entry: Entry, secrets: Secrets) -> Entry:
    return replace(entry, comment=secrets.hide(entry.comment))


def _without(finding: Finding, secrets: Secrets) -> Finding:
    help = secrets.hide(finding.help) if finding.help else finding.help
    return replace(finding, message=secrets.hide(finding.message), help=help)
