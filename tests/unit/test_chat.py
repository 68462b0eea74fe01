"""Chat messages: what is accepted, and that nothing is ever ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi_serve.preprocess.text.chat import copy_json, parse_messages
from kimi_serve.schemas.errors import RequestError

EMPTY: dict[str, object] = {}
STUB = {"type": "image_url", "image_url": {"url": ""}}


def user(content: object, role: str = "user") -> list[Any]:
    return [{"role": role, "content": content}]


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool", "developer", "tester"])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:,x"}},
        {"type": "image_url", "image_url": {"url": "data:,x", "detail": "high"}},
        {"type": "image_url", "image_url": "data:,x"},
        {"type": "image", "image": "data:,x"},
        {"type": "image", "image": {"url": "data:,x"}},
        {"type": "image", "image_url": {"url": "data:,x"}},
    ],
)
def test_image_parts_become_stubs_in_every_role(role: str, part: dict[str, Any]) -> None:
    chat = parse_messages(user([{"type": "text", "text": "a"}, part], role))
    assert chat.images == ("data:,x",)
    assert chat.messages == ({"role": role, "content": [{"type": "text", "text": "a"}, STUB]},)


def test_references_keep_their_order_over_messages() -> None:
    def image(url: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": url}}

    chat = parse_messages([*user([image("1"), image("2")]), *user([image("1")], "tool")])
    assert chat.images == ("1", "2", "1")


def test_other_fields_are_kept_for_the_template() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": {"a": [1, None]}},
    }
    messages = [
        {"role": "user", "content": "hi", "name": "ann"},
        {"role": "assistant", "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "assistant", "content": None},
    ]
    assert list(parse_messages(messages).messages) == messages


def test_result_is_json_and_a_copy() -> None:
    extra: dict[str, Any] = {"deep": [1, {"x": "y"}]}
    messages = [{"role": "user", "content": "hi", "extra": extra}]
    chat = parse_messages(messages)
    extra["deep"].append("later")
    assert json.loads(json.dumps(chat.messages[0]))["extra"] == {"deep": [1, {"x": "y"}]}


FAULTS: list[tuple[object, str, list[str]]] = [
    (None, "messages", ["null"]),
    ("hi", "messages", ["a string"]),
    ({}, "messages", ["an object"]),
    ([], "messages", ["at least one"]),
    (["hi"], "messages[0]", ["a string"]),
    ([None], "messages[0]", ["null"]),
    ([{"content": "x"}], "messages[0].role", ["missing"]),
    ([{"role": 3, "content": "x"}], "messages[0].role", ["a number 3"]),
    ([{"role": "", "content": "x"}], "messages[0].role", ["a text"]),
    ([{"role": "user"}], "messages[0].content", ["missing"]),
    ([{"role": "user", "contents": "x"}], "messages[0].content", ["missing"]),
    (user({"type": "text"}), "messages[0].content", ["an object"]),
    (user(5), "messages[0].content", ["a number"]),
    (user(True), "messages[0].content", ["a boolean"]),
    (user(["x"]), "messages[0].content[0]", ["a string"]),
    (user([EMPTY]), "messages[0].content[0]", ["no type"]),
    (user([{"image_url": {"url": "x"}}]), "messages[0].content[0]", ["no type"]),
    (user([{"type": None}]), "messages[0].content[0].type", ["None"]),
    (user([{"type": ["text"]}]), "messages[0].content[0].type", ["text"]),
    (user([{"type": "text"}]), "messages[0].content[0].text", ["null"]),
    (user([{"type": "text", "text": 3}]), "messages[0].content[0].text", ["a number"]),
    (
        user([{"type": "text", "text": "a", "image_url": {"url": "x"}}]),
        "messages[0].content[0].image_url",
        ["lost"],
    ),
    (user([{"type": "image_url"}]), "messages[0].content[0]", ["image_url"]),
    (user([{"type": "image"}]), "messages[0].content[0]", ["no image"]),
    (user([{"type": "image", "image": ""}]), "messages[0].content[0].image", ["empty"]),
    (
        user([{"type": "image_url", "image_url": EMPTY}]),
        "messages[0].content[0].image_url",
        ["URL", "null"],
    ),
    (
        user([{"type": "image_url", "image_url": {"url": 3}}]),
        "messages[0].content[0].image_url",
        ["a number"],
    ),
    (
        user([{"type": "image_url", "image_url": ["x"]}]),
        "messages[0].content[0].image_url",
        ["a list"],
    ),
    (user([{"type": "image", "image": "a", "image_url": "b"}]), "messages[0].content[0]", ["two"]),
    ([{"role": "user", "content": "x", "images": ["aGk="]}], "messages[0].images", ["content"]),
    ([{"role": "user", "content": "x", 3: 4}], "messages[0]", ["key"]),
    ([{"role": "user", "content": "x", "more": {3: 4}}], "messages[0].more", ["key"]),
    ([{"role": "user", "content": "x", "more": b"x"}], "messages[0].more", ["bytes"]),
]


@pytest.mark.parametrize(("messages", "place", "words"), FAULTS)
def test_fault_is_a_400_that_names_the_place(
    messages: object, place: str, words: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        parse_messages(messages)
    assert caught.value.status == 400
    assert caught.value.param == place
    assert all(word in caught.value.message for word in [place, *words])


@pytest.mark.parametrize("role", ["user", "tool", "system", "assistant"])
@pytest.mark.parametrize(
    "kind", ["imag_url", "video_url", "video", "input_audio", "file", "tool_result", "IMAGE", ""]
)
def test_unknown_part_is_refused_in_every_role(role: str, kind: str) -> None:
    parts = [{"type": "text", "text": ""}, {"type": kind, kind: {"url": "x"}}]
    messages = [{"role": "user", "content": "x"}, *user(parts, role)]
    with pytest.raises(RequestError) as caught:
        parse_messages(messages)
    assert caught.value.param == "messages[1].content[1].type"
    assert repr(kind) in caught.value.message
    assert "text, image_url, image" in caught.value.message


def test_near_miss_gets_a_suggestion() -> None:
    with pytest.raises(RequestError, match="did you mean 'image_url'"):
        parse_messages(user([{"type": "imag_url", "image_url": {"url": "x"}}]))


def test_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(RequestError) as caught:
        parse_messages(user([{"type": "x" * 10_000}]))
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("is_list", [True, False])
def test_deep_nesting_is_refused(is_list: bool) -> None:
    value: Any = "x"
    for _ in range(5000):
        value = [value] if is_list else {"a": value}
    with pytest.raises(RequestError, match="deeper"):
        parse_messages([{"role": "user", "content": "x", "more": value}])
    with pytest.raises(RequestError, match="deeper"):
        copy_json(value, "tools")
