"""OpenAI chat messages, checked: what the template may see, and the image references in order.

Nothing is ignored: a part that cannot be served is a 400 that names it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from kimi_serve.schemas.errors import RequestError

from ..checkpoint_files.json_files import kind_of, show

SUPPORTED = ("text", "image_url", "image")
DEEPEST = 64
# Where other APIs put images; here they would reach no template slot.
FOREIGN_KEYS = ("image", "images", "image_url", "image_urls", "video", "videos", "video_url")

JsonValue = Any  # what json.loads gives


@dataclass(frozen=True, slots=True)
class Chat:
    """A request's messages.

    `messages` is JSON-ready for a template: each image part is a stub without its data.
    `images` are the references (data URLs, URLs, paths), in the order of the stubs.
    """

    messages: tuple[dict[str, JsonValue], ...]
    images: tuple[str, ...]


def parse_messages(messages: object) -> Chat:
    """Check a `messages` value of a request; every fault is a `RequestError` with its place."""
    if not isinstance(messages, list | tuple):
        raise _refuse("messages", f"must be a list of messages, not {kind_of(messages)}")
    items = cast("list[object]", messages)
    if not items:
        raise _refuse("messages", "must hold at least one message")
    images: list[str] = []
    checked = tuple(_message(item, f"messages[{n}]", images) for n, item in enumerate(items))
    return Chat(checked, tuple(images))


def copy_json(value: object, place: str, depth: int = 0) -> JsonValue:
    """Copy a JSON value; refuse what is no JSON and what is nested without measure."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if depth >= DEEPEST:
        raise _refuse(place, f"is nested deeper than {DEEPEST} levels")
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        return [copy_json(item, place, depth + 1) for item in items]
    if not isinstance(value, dict):
        raise _refuse(place, f"must be JSON, not {type(value).__name__}")
    entries = cast("dict[object, object]", value)
    return {_key(key, place): copy_json(entry, place, depth + 1) for key, entry in entries.items()}


def _message(item: object, place: str, images: list[str]) -> dict[str, JsonValue]:
    message = _object(item, place)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        stands = f"is {kind_of(role)} {show(role)}" if "role" in message else "is missing"
        raise _refuse(f"{place}.role", f"{stands}; it must be a text such as 'user'")
    for key in FOREIGN_KEYS:
        if message.get(key) is not None:
            raise _refuse(f"{place}.{key}", "is not supported; images are parts of content")
    if "content" not in message and role != "assistant":
        raise _refuse(f"{place}.content", "is missing")
    copied: dict[str, JsonValue] = {}
    for key, value in message.items():
        is_content = key == "content"
        field = f"{place}.{key}"
        copied[key] = _content(value, field, images) if is_content else copy_json(value, field)
    return copied


def _content(value: object, place: str, images: list[str]) -> JsonValue:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list | tuple):
        raise _refuse(place, f"must be a text, a list of parts or null, not {kind_of(value)}")
    parts = cast("list[object]", value)
    return [_part(part, f"{place}[{n}]", images) for n, part in enumerate(parts)]


def _part(item: object, place: str, images: list[str]) -> dict[str, JsonValue]:
    part = _object(item, place)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in SUPPORTED:
        raise _unknown_part(kind, place, is_missing="type" not in part)
    if kind == "text":
        text = part.get("text")
        if not isinstance(text, str):
            raise _refuse(f"{place}.text", f"must be a text, not {kind_of(text)}")
        for key in FOREIGN_KEYS:
            if part.get(key) is not None:
                raise _refuse(f"{place}.{key}", "stands in a part of type 'text' and would be lost")
        return {"type": "text", "text": text}
    images.append(_reference(part, kind, place))
    return {"type": "image_url", "image_url": {"url": ""}}


def _reference(part: Mapping[str, object], kind: str, place: str) -> str:
    keys = [key for key in ("image_url", "image") if part.get(key) is not None]
    if len(keys) != 1:
        problem = "names two images" if keys else f"has no {kind}"
        raise _refuse(place, f"{problem}; it needs {kind} with the image's URL")
    value = part[keys[0]]
    if isinstance(value, dict):
        value = cast("dict[str, object]", value).get("url")
    if not isinstance(value, str) or not value:
        found = "an empty text" if value == "" else kind_of(value)
        raise _refuse(f"{place}.{keys[0]}", f"must be a URL or {{'url': URL}}, not {found}")
    return value


def _unknown_part(kind: object, place: str, *, is_missing: bool) -> RequestError:
    supported = f"supported are {', '.join(SUPPORTED)}"
    if is_missing:
        return _refuse(place, f"has no type; {supported}")
    near = difflib.get_close_matches(kind, SUPPORTED, n=1) if isinstance(kind, str) else []
    guess = f"; did you mean {near[0]!r}?" if near else ""
    return _refuse(f"{place}.type", f"{show(kind)} is not a supported part; {supported}{guess}")


def _object(value: object, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _refuse(place, f"must be an object, not {kind_of(value)}")
    entries = cast("dict[object, object]", value)
    return {_key(key, place): entry for key, entry in entries.items()}


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise _refuse(place, f"has a key that is no text: {show(key)}")
    return key


def _refuse(place: str, problem: str) -> RequestError:
    return RequestError(f"{place} {problem}", param=place)
