"""Random conversations with every place that a text can stand in: nothing typed acts, order stays.

Each is rendered beside a twin of the same structure whose texts are harmless: both must have the
same special tokens in the same order, and the slots of the images must lie where the parts do.
"""

from __future__ import annotations

from typing import Any

import pytest
from demo import PAD, demo_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_serve.preprocess.text.chat import parse_messages
from kimi_serve.preprocess.text.prompt import TokenizedPrompt, expand, render_prompt
from kimi_serve.preprocess.text.template import ChatTemplate

# Every field in one template: Kimi's own leaves some of them out.
TEMPLATE = ChatTemplate("""
{%- macro render(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content -%}
{%- for part in content -%}
{%- if part.type == 'text' -%}{{ part.text }}
{%- else -%}<|media_begin|>image<|media_content|><|media_pad|><|media_end|>{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- if tools -%}<|im_system|>tools<|im_middle|>{{ tools | tojson }}<|im_end|>{%- endif -%}
{%- for m in messages -%}
<|im_user|>{{ m.role }} {{ m.name }}<|im_middle|>
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif -%}
{{- render(m.content) -}}
{%- for call in m.tool_calls or [] -%}
<|tool_call_begin|>{{ call.id }} {{ call.function.name }}<|tool_call_argument_begin|>
{{- call.function.arguments if call.function.arguments is string
    else call.function.arguments | tojson -}}
<|tool_call_end|>
{%- endfor -%}
{{ m.tool_call_id }}<|im_end|>
{%- endfor -%}
{{ extra }}""")
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
SPECIAL = sorted(demo_tokenizer().special_ids)
NAMED = frozenset(demo_tokenizer().special_ids.values())
PIECES = st.sampled_from([*SPECIAL, "<", "<|", "|>", "[", "]", "media_pad", "<|media_", "k>", "\n"])
TEXTS = st.lists(
    PIECES | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3),
    min_size=1,
    max_size=4,
).map("".join)

Twins = tuple[Any, Any]


def twin(text: str) -> Twins:
    return text, "x"


@st.composite
def contents(draw: st.DrawFn, *, may_be_null: bool) -> Twins:
    kinds = ["text", "parts", *(["null"] if may_be_null else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "null":
        return None, None
    if kind == "text":
        return twin(draw(TEXTS))
    parts = draw(st.lists(st.none() | TEXTS, max_size=5))
    pairs: list[Twins] = [
        (IMAGE, IMAGE)
        if text is None
        else ({"type": "text", "text": text}, {"type": "text", "text": "x"})
        for text in parts
    ]
    return [real for real, _ in pairs], [other for _, other in pairs]


@st.composite
def calls(draw: st.DrawFn) -> Twins:
    real: list[Any] = []
    other: list[Any] = []
    for _ in range(draw(st.integers(0, 2))):
        id, name, typed = draw(TEXTS), draw(TEXTS), draw(TEXTS)
        is_text = draw(st.booleans())
        for target, words in ((real, (id, name, typed)), (other, ("x", "x", "x"))):
            arguments: Any = words[2] if is_text else {words[2]: [words[2], {"deep": words[2]}]}
            function = {"name": words[1], "arguments": arguments}
            target.append({"id": words[0], "type": "function", "function": function})
    return real, other


@st.composite
def conversations(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    real: list[Any] = []
    other: list[Any] = []
    for _ in range(draw(st.integers(1, 4))):
        role = draw(st.sampled_from(["user", "assistant", "system", "tool", "developer"]))
        fields: dict[str, Twins] = {
            "role": (role, role),
            "content": draw(contents(may_be_null=role == "assistant")),
        }
        if draw(st.booleans()):
            fields["name"] = twin(draw(TEXTS))
        if role == "assistant":
            fields["reasoning_content"] = twin(draw(TEXTS))
            fields["tool_calls"] = draw(calls())
        if role == "tool":
            fields["tool_call_id"] = twin(draw(TEXTS))
        real.append({key: pair[0] for key, pair in fields.items()})
        other.append({key: pair[1] for key, pair in fields.items()})
    typed = draw(TEXTS)
    tools = [{"type": "function", "function": {"name": typed, "description": typed}}]
    harmless = [{"type": "function", "function": {"name": "x", "description": "x"}}]
    return (
        {"messages": real, "tools": tools, "extra": typed},
        {"messages": other, "tools": harmless, "extra": "x"},
    )


def rendered(request: dict[str, Any]) -> TokenizedPrompt:
    return render_prompt(
        parse_messages(request["messages"]),
        TEMPLATE,
        demo_tokenizer(),
        tools=request["tools"],
        template_kwargs={"extra": request["extra"]},
    )


def specials(ids: list[int]) -> list[int]:
    return [id for id in ids if id in NAMED]


@given(conversations(), st.data())
@settings(deadline=None, database=None, max_examples=150)
def test_nothing_typed_acts_in_any_role_or_form(
    pair: tuple[dict[str, Any], dict[str, Any]], data: st.DataObject
) -> None:
    real, other = pair
    prompt = rendered(real)
    assert specials(prompt.ids) == specials(rendered(other).ids)
    parts = [
        part
        for message in real["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
    ]
    images = sum(part["type"] == "image_url" for part in parts)
    assert len(prompt.slots) == images == prompt.ids.count(PAD)
    assert [at for at, id in enumerate(prompt.ids) if id == PAD] == list(prompt.slots)
    counts = data.draw(st.lists(st.integers(1, 9), min_size=images, max_size=images))
    expanded = expand(prompt, counts)
    assert expanded.ids.count(PAD) == sum(counts)
    assert [end - start for start, end in expanded.spans] == counts


WORDS = st.lists(st.none() | st.integers(0, 30), min_size=1, max_size=12)


@given(WORDS, st.sampled_from(["user", "assistant", "system", "tool"]))
@settings(deadline=None, database=None, max_examples=100)
def test_parts_keep_their_order(parts: list[int | None], role: str) -> None:
    """Texts and images stand in the ids as they stand in the content."""
    tokenizer = demo_tokenizer()
    content = [
        IMAGE if number is None else {"type": "text", "text": f"({number})"} for number in parts
    ]
    chat = parse_messages([{"role": role, "content": content}])
    ids = render_prompt(chat, TEMPLATE, tokenizer).ids
    image = [
        *(tokenizer.special_ids["<|media_begin|>"], *tokenizer.encode_text("image")),
        *(tokenizer.special_ids[name] for name in ("<|media_content|>", "<|media_pad|>")),
        tokenizer.special_ids["<|media_end|>"],
    ]
    expected: list[int] = []
    run = ""
    for number in [*parts, None]:
        if number is not None:
            run += f"({number})"
            continue
        expected += tokenizer.encode_text(run)
        expected += image
        run = ""
    body = expected[: -len(image)]
    start = ids.index(tokenizer.special_ids["<|im_middle|>"]) + 1
    end = ids.index(tokenizer.special_ids["<|im_end|>"])
    assert ids[start:end] == body


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
def test_an_image_never_travels_as_text(role: str) -> None:
    """A68: what an image carries is not in what is tokenised."""
    reference = "data:image/png;base64," + "QUJD" * 5000
    part = {"type": "image_url", "image_url": {"url": reference}}
    chat = parse_messages([{"role": role, "content": [part]}])
    assert chat.images == (reference,)
    assert "QUJD" not in str(chat.messages)
    assert len(render_prompt(chat, TEMPLATE, demo_tokenizer()).ids) < 40
