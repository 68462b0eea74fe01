"""Turns the engine's arguments into settings where one says the same, and keeps the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from kimi_serve.schemas.engine_facts import EngineTable
from kimi_serve.schemas.fields import SettingField, setting_fields
from kimi_serve.schemas.hub_id import is_hub_id

from ..engine_command import EngineArgument, parse_arguments
from ..engine_hints import hint_for
from ..resolver.engine_view import OWNED, text_of
from ..secrets.names import is_secret_flag
from ..sources.characters import find_odd_in_prose, printable
from .hiding import API_KEY_VARIABLE, Secrets
from .profile_text import Entry, EnvReference, Value
from .words import Told, Word, only_reference, reference, references_in, shown_words

_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
MODEL, TOKENIZER = "model.path", "model.tokenizer_path"
API_KEY = "server.api_key"
LOG_LEVEL = "log.level"
NODES = ("engine.nodes.count", "engine.nodes.rank", "engine.nodes.address")
# With the defaults of vLLM.
_MASTER = {"--master-addr": "127.0.0.1", "--master-port": "29501"}
# Flags of `sglang serve` alone: the server that kimi-serve starts does not have them.
_SERVE_ONLY = ("--model-type",)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument with its words as they were written."""

    read: EngineArgument
    words: tuple[Word, ...]

    @property
    def flag(self) -> str:
        """Its name today, "" for a word and for an unknown flag."""
        return self.read.flag.flag if self.read.flag else ""

    @property
    def place(self) -> str:
        return self.words[0].place


@dataclass(slots=True)
class Adopted:
    """What became of a command."""

    settings: dict[str, Entry] = field(default_factory=lambda: dict[str, Entry]())
    args: list[Entry] = field(default_factory=lambda: list[Entry]())
    env: dict[str, Entry] = field(default_factory=lambda: dict[str, Entry]())


def read(words: Sequence[Word], table: EngineTable, takes: int) -> list[Argument]:
    """Read words as the engine's parser does."""
    found = parse_arguments([word.text for word in words], table, words=takes)
    return [Argument(each, tuple(words[each.position : each.end])) for each in found]


class Translator:
    """Takes all arguments, those that count less first."""

    def __init__(self, table: EngineTable, adopted: Adopted, secrets: Secrets, told: Told) -> None:
        self._table = table
        self._adopted = adopted
        self._secrets = secrets
        self._told = told
        self._paths = {flag: path for path, flag in OWNED[table.engine].items()}

    def take(self, arguments: Sequence[Argument]) -> None:
        """Adopt every argument; of several that say one setting the last counts."""
        chosen = self._chosen(arguments)
        settings = dict(chosen.values())
        self._adopted.settings |= settings
        for index, argument in enumerate(arguments):
            path = self._path(argument)
            if index in chosen:
                continue
            if path in settings:
                self._overridden(argument, path, settings[path])
            else:
                self._keep(argument)

    def _path(self, argument: Argument) -> str:
        """Give the setting that says the same, "" for none."""
        if argument.read.problem or argument.read.key:
            return ""
        if not argument.read.spelling:
            return MODEL
        return self._paths.get(argument.flag, "")

    def _chosen(self, arguments: Sequence[Argument]) -> dict[int, tuple[str, Entry]]:
        """Give the arguments that become settings, by their indexes."""
        last: dict[str, int] = {}
        for index, argument in enumerate(arguments):
            path = self._path(argument)
            is_model_flag = path == MODEL and argument.read.spelling
            # A bare word names the model whatever a flag says before or behind it.
            if path and not (is_model_flag and MODEL in last and self._is_word(arguments, last)):
                last[path] = index
        entries = {path: self._entry(path, arguments[index]) for path, index in last.items()}
        kept = self._unsuited(entries)
        chosen = {
            last[path]: (path, entry)
            for path, entry in entries.items()
            if entry is not None and path not in kept
        }
        if self._table.engine == "vllm" and NODES[0] not in kept:
            chosen |= self._master(arguments)
        return chosen

    def _is_word(self, arguments: Sequence[Argument], last: dict[str, int]) -> bool:
        return not arguments[last[MODEL]].read.spelling

    def _master(self, arguments: Sequence[Argument]) -> dict[int, tuple[str, Entry]]:
        """Put vLLM's address and port of the first machine together."""
        found = {
            argument.flag: index
            for index, argument in enumerate(arguments)
            if argument.flag in _MASTER and not argument.read.problem
        }
        if not found:
            return {}
        texts = {flag: arguments[index].read.values[0] for flag, index in found.items()}
        host, port = (texts.get(flag, default) for flag, default in _MASTER.items())
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        words = [word for index in found.values() for word in arguments[index].words]
        entry = Entry(address, f"{words[0].place}: {shown_words(words)}")
        return dict.fromkeys(found.values(), (NODES[2], entry))

    def _unsuited(self, entries: dict[str, Entry | None]) -> set[str]:
        """Give settings that would say more, or less, than the flag did."""
        kept: set[str] = set()
        count = entries.get(NODES[0])
        if count is None or not isinstance(count.value, int) or count.value < 2:
            kept |= {*NODES}  # one machine: the settings would be passed over
        if self._table.engine == "vllm":
            kept.add(LOG_LEVEL)  # ours is the level of all of vLLM's lines, not of uvicorn's alone
        return kept

    def _entry(self, path: str, argument: Argument) -> Entry | None:
        """Give the setting, None where it cannot hold what the argument says."""
        setting = setting_fields()[path]
        values = [word for word in argument.words if word.unsure]
        if values and setting.kind != "str" and not values[0].unsure.startswith("the default of"):
            return None
        if setting.is_secret:
            return self._key(argument)
        value = self._value(setting, argument.read)
        if value is None or not _is_valid(setting, value):
            return None
        if isinstance(value, str) and self._secrets.is_secret(value):
            value = reference(self._secrets.variable_for(argument.flag or "model", value))
        return Entry(value, self._origin(argument, path))

    def _value(self, setting: SettingField, argument: EngineArgument) -> Value | None:
        if setting.kind == "bool":
            return None if argument.values else text_of(argument) == "true"
        if setting.kind == "list":
            return argument.values
        if len(argument.values) != 1:
            return None
        (text,) = argument.values
        if setting.kind == "int":
            return int(text) if _INT.fullmatch(text) else None
        if setting.kind == "float":
            return float(text) if _FLOAT.fullmatch(text) else None
        return text

    def _key(self, argument: Argument) -> Entry | None:
        """Take the API key out of the text; `$NAME` keeps its name."""
        if len(argument.read.values) != 1 or not argument.read.values[0].strip():
            return None
        (text,) = argument.read.values
        name = only_reference(text)
        where = f"{argument.place}: {argument.read.spelling}"
        if name:
            return Entry(EnvReference(name), f"{where}: from the variable {name}, as it was")
        if references_in(text):
            return None
        name = self._secrets.variable_for(API_KEY_VARIABLE, text)
        self._told.find(
            "KS505", "warning",
            f"a key stood behind {argument.read.spelling}, where every user of the machine and the "
            "shell's history see it; it is not repeated here",
            argument.place,
            f"export {name}=... where kimi-serve is started, and change the key",
            API_KEY,
        )  # fmt: skip
        return Entry(EnvReference(name), f"{where}, not repeated here; export {name} first")

    def _origin(self, argument: Argument, path: str) -> str:
        said = shown_words(argument.words)
        doubt = next((f"; {word.unsure}" for word in argument.words if word.unsure), "")
        values = argument.read.values
        is_place = path in (MODEL, TOKENIZER) and bool(values) and is_relative(values[0])
        folder = "; relative to the folder of this file" if is_place else ""
        return f"{argument.place}: {said}{doubt}{folder}"

    def _overridden(self, argument: Argument, path: str, entry: Entry) -> None:
        winner = entry.comment.partition(":")[0]
        said = argument.read.spelling or "a bare word"
        self._told.left_out(argument.words, f"{winner} says {path} as well, and counts")
        self._told.find(
            "KS108", "info",
            f"{printable(said)} is given more than once: the engine takes {winner}",
            argument.place, "keep one of them", path,
        )  # fmt: skip

    def _keep(self, argument: Argument) -> None:
        """Keep an argument in engine.args, abbreviations in full and secrets as references."""
        read = argument.read
        if read.spelling in _SERVE_ONLY and not read.flag:
            self._told.left_out(
                argument.words, "it is a flag of `sglang serve`, which kimi-serve does not call"
            )
            return
        for word in argument.words:
            if word.unsure:
                self._told.note(f"{word.place}: {word.unsure}: kept as it is written")
        comment = self._comment(argument)
        for index, word in enumerate(argument.words):
            text = self._spelt(argument, word.text) if index == 0 else word.text
            text = self._hidden(argument, text, index)
            self._adopted.args.append(Entry(text, comment if index == 0 else ""))

    def _spelt(self, argument: Argument, text: str) -> str:
        """Complete an abbreviation."""
        read = argument.read
        if not read.abbreviated:
            return text
        return read.full + text[len(read.spelling) :]

    def _comment(self, argument: Argument) -> str:
        read = argument.read
        if read.problem in ("unknown", "ambiguous"):
            hint = hint_for(read, self._table).text
            what = "unknown to" if read.problem == "unknown" else "ambiguous in"
            more = f": {hint}" if hint else ""
            return f"{argument.place}: {what} {self._table.engine} {self._table.version}{more}"
        if read.problem:
            return f"{argument.place}: {read.problem}"
        path = self._path(argument)
        why = f": no value for {path}" if path and path not in NODES else ""
        if path == LOG_LEVEL and self._table.engine == "vllm":
            why = ": log.level would be the level of all lines"
        short = f": written {read.spelling}" if read.abbreviated else ""
        return f"{argument.place}{short}{why}"

    def _hidden(self, argument: Argument, text: str, index: int) -> str:
        """Put a reference where a secret stands."""
        read = argument.read
        name = f"{read.spelling}.{read.key}" if read.key else read.spelling
        if not name:
            return self._referred("ENGINE_WORD", text) if self._secrets.is_secret(text) else text
        if index == 0:
            flag, equals, value = text.partition("=")
            if equals and self._secrets.value_of_flag(name, value):
                return f"{flag}={self._referred(name, value)}"
            return text
        is_secret = self._secrets.value_of_flag(name, text) and (
            index == 1 or is_secret_flag(name) or self._secrets.is_secret(text)
        )
        return self._referred(name, text) if is_secret else text

    def _referred(self, name: str, text: str) -> str:
        variable = self._secrets.variable_for(name.replace("-", "_").replace(".", "_"), text)
        self._told.note(f"export {variable} before the start: its value is not written here")
        if is_secret_flag(name):
            self._told.find(
                "KS505", "warning",
                f"a secret stood behind {printable(name)}, where every user of the machine sees "
                "it; it is not repeated here",
                "", f"export {variable}=... where kimi-serve is started, and change the secret",
                "engine.args",
            )  # fmt: skip
        return reference(variable)


def is_relative(text: str) -> bool:
    """Tell whether the name of a model is a path from somewhere, and no hub id."""
    return not (text.startswith(("/", "~", "${")) or is_hub_id(text))


def _is_valid(setting: SettingField, value: Value) -> bool:
    texts = value if isinstance(value, tuple) else (value,)
    for text in texts:
        # What begins like a flag is told from one only where it stands behind `=`.
        if isinstance(text, str) and (text.startswith("-") or find_odd_in_prose(text)):
            return False
    try:
        setting.validate(value)
    except ValidationError:
        return False
    return not (isinstance(value, str) and setting.choices and value not in setting.choices)
