"""The checkpoint's chat template in jinja2's sandbox, with the helpers that transformers gives it.

Owns compiling and rendering; what may be rendered into it is `prompt`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kimi_serve.schemas.errors import PlanError, RequestError

from ..checkpoint_files.checkpoint import CHAT_TEMPLATE, TOKENIZER_CONFIG
from ..checkpoint_files.json_files import (
    JsonObject,
    as_list,
    as_object,
    is_there,
    read_json_object,
    read_text,
    show,
)

TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")
RENDER_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
# Private-use planes: no template escapes these, see `prompt`.
PRIVATE_PLANES = range(0xF0000, 0x110000)


class _Generation(Extension):
    """{% generation %}: marks what a model is trained on; nothing to do when serving."""

    tags = {"generation"}  # noqa: RUF012 - the name and the kind are jinja2's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template.

    `literals` are the texts that the template writes itself, before any rendering.
    """

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str] | None = None,
        name: str = CHAT_TEMPLATE,
    ) -> None:
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except (jinja2.TemplateSyntaxError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            message = f"{name}{f':{line}' if line else ''}: not a usable chat template: {error}"
            raise PlanError(message) from error
        self.source = source
        self.literals = frozenset(_literals(tree))
        self.special_tokens = dict(special_tokens or {})

    def render(self, variables: Mapping[str, object]) -> str:
        """Render; whatever the template does not like is a `RequestError` in its own words."""
        try:
            # As one argument: jinja2's own names, such as self, are not among the variables then.
            return self._template.render({**self.special_tokens, **variables})
        except RENDER_ERRORS as error:
            words = str(error) or type(error).__name__
            message = f"the chat template refuses these messages: {words[:500]}"
            raise RequestError(message, param="messages") from error


def load_chat_template(*directories: Path) -> ChatTemplate:
    """Load chat_template.jinja, else the template in tokenizer_config.json.

    The first directory that has one of them counts: a tokenizer from elsewhere may come without.
    """
    for directory in directories:
        template = _template_in(directory)
        if template is not None:
            return template
    places = " and ".join(map(str, dict.fromkeys(directories)))
    message = (
        f"{places} has no chat template: neither {CHAT_TEMPLATE} nor chat_template in "
        f"{TOKENIZER_CONFIG}"
    )
    raise PlanError(message, hint="tokenizer.skip_init: true serves images without one")


def _template_in(directory: Path) -> ChatTemplate | None:
    config_path = directory / TOKENIZER_CONFIG
    config = read_json_object(config_path) if is_there(config_path) else {}
    special_tokens = dict(_special_tokens(config))
    path = directory / CHAT_TEMPLATE
    if is_there(path):
        return ChatTemplate(read_text(path), special_tokens=special_tokens, name=str(path))
    source = _configured(config.get("chat_template"), config_path)
    if source is None:
        return None
    return ChatTemplate(source, special_tokens=special_tokens, name=f"{config_path} chat_template")


def _configured(value: object, path: Path) -> str | None:
    if value is None or isinstance(value, str):
        return value
    entries = as_list(value) or [None]
    named: dict[object, object] = {}
    for entry in entries:
        fields = as_object(entry) or {}
        if not isinstance(fields.get("name"), str) or not isinstance(fields.get("template"), str):
            message = f"{path}: chat_template must be a text or a list of name and template, not "
            raise PlanError(message + show(entries))
        named[fields["name"]] = fields["template"]
    if "default" not in named:
        message = f"{path}: chat_template has no template named 'default', only {list(named)}"
        raise PlanError(message)
    return cast("str", named["default"])


def _special_tokens(config: JsonObject) -> Iterator[tuple[str, str]]:
    for name in TOKEN_NAMES:
        value = config.get(name)
        fields = as_object(value)
        value = value if fields is None else fields.get("content")
        if isinstance(value, str):
            yield name, value


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
    )
    helpers: dict[str, Callable[..., Any]] = {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }
    environment.globals.update(helpers)
    environment.filters["tojson"] = to_json
    return environment


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The `tojson` of chat templates: plain JSON, not jinja2's HTML-safe kind."""
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return "".join(map(_escape, text)) if ensure_ascii and not text.isascii() else text


def _escape(character: str) -> str:
    # A stand-in must come out as it is; what it stands for is ASCII.
    is_kept = character.isascii() or ord(character) in PRIVATE_PLANES
    return character if is_kept else json.dumps(character)[1:-1]


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _literals(tree: nodes.Template) -> Iterator[str]:
    for data in tree.find_all(nodes.TemplateData):
        yield data.data
    for constant in tree.find_all(nodes.Const):
        if isinstance(constant.value, str):
            yield constant.value
