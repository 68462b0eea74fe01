"""Prompts: recorded ids to the bit, and that no typed text ever becomes a special token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
import tokenizers
from demo import PAD, demo_template, demo_tokenizer, recorded
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED
from kimi_serve.preprocess.text.chat import Chat, parse_messages
from kimi_serve.preprocess.text.prompt import (
    VIDEO_PLACEHOLDER,
    ExpandedPrompt,
    TokenizedPrompt,
    expand,
    render_prompt,
)
from kimi_serve.preprocess.text.template import ChatTemplate, load_chat_template
from kimi_serve.schemas.errors import PlanError, RequestError

WHOLE = tokenizers.Tokenizer.from_file(str(BUNDLED / "tokenizer.json"))
SPECIAL_IDS = demo_tokenizer().special_ids
TYPED = sorted(SPECIAL_IDS)
NAMED = frozenset(SPECIAL_IDS.values())
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


def prompt_of(messages: list[Any], **options: Any) -> TokenizedPrompt:
    return render_prompt(parse_messages(messages), demo_template(), demo_tokenizer(), **options)


def user(content: object) -> list[Any]:
    return [{"role": "user", "content": content}]


def specials(ids: list[int]) -> list[int]:
    return [id for id in ids if id in NAMED]


def plain(messages: Any, **variables: object) -> str:
    """Render as an engine does, with nothing covered."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((BUNDLED / "chat_template.jinja").read_text())
    return template.render(messages=messages, add_generation_prompt=True, **variables)


@pytest.mark.parametrize("case", recorded("golden.json")["cases"], ids=lambda case: case["name"])
def test_recorded_prompts(case: dict[str, Any]) -> None:
    messages = json.loads(json.dumps(case["messages"]).replace('"image"', '"image", "image": "x"'))
    chat = parse_messages(messages)
    assert plain(chat.messages, **case["template_kwargs"]) == case["text"]
    prompt = prompt_of(messages, template_kwargs=case["template_kwargs"])
    assert prompt.ids == case["unexpanded_ids"]
    expanded = expand(prompt, [t * h * w // 4 for t, h, w in case["grid_thw"]])
    assert expanded.ids == case["input_ids"]
    assert [list(span) for span in expanded.spans] == case["image_spans"]


TOKENS = {"1x1.png": 1, "28x28.png": 1, "57x29.png": 6, "rgb8.png": 6}
CASES = [case for case in recorded("cases.json") if case["expected_images"] is not None]


@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_handed_cases(case: dict[str, Any], role: str) -> None:
    content = case["content"]
    if content is None:  # an image in a tool result
        content, role = [{"type": "text", "text": "result"}, IMAGE], "tool"
    harmless = [
        {"type": "text", "text": "x"} if part["type"] == "text" else part for part in content
    ]
    chat = parse_messages([{"role": role, "content": content}])
    assert len(chat.images) == case["expected_images"]
    prompt = prompt_of([{"role": role, "content": content}])
    assert len(prompt.slots) == case["expected_images"]
    assert specials(prompt.ids) == specials(prompt_of([{"role": role, "content": harmless}]).ids)
    counts = [TOKENS.get(url.removeprefix("file:"), 6) for url in chat.images]
    expanded = expand(prompt, counts)
    assert expanded.ids.count(PAD) == sum(counts)
    assert [end - start for start, end in expanded.spans] == counts


@pytest.mark.parametrize("name", ["unknown_part", "url_as_string"])
def test_handed_cases_without_a_count(name: str) -> None:
    case = next(case for case in recorded("cases.json") if case["name"] == name)
    if name == "unknown_part":
        with pytest.raises(RequestError, match="imag_url"):
            parse_messages(user(case["content"]))
    else:
        assert parse_messages(user(case["content"])).images == ("file:rgb8.png",)


# A message with the typed text in each place that a template can print.
def in_string(text: str) -> Any:
    return {"role": "user", "content": text}


def in_part(text: str) -> Any:
    return {"role": "user", "content": [IMAGE, {"type": "text", "text": text}]}


def in_two_parts(text: str) -> Any:
    half = len(text) // 2
    parts = [{"type": "text", "text": piece} for piece in (text[:half], text[half:])]
    return {"role": "user", "content": parts}


def in_name(text: str) -> Any:
    return {"role": "user", "name": text, "content": "x"}


def in_role(text: str) -> Any:
    return {"role": text, "content": "x"}


def in_tool(text: str) -> Any:
    return {"role": "tool", "tool_call_id": text, "content": text}


def in_system(text: str) -> Any:
    return {"role": "system", "content": [{"type": "text", "text": text}]}


PLACES = [in_string, in_part, in_two_parts, in_name, in_role, in_tool, in_system]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "text", [*TYPED, "<|kimi_image_placeholder|>", "<|reserved_token_163589|>"]
)
def test_typed_special_stays_text_everywhere(place: Any, text: str) -> None:
    prompt = prompt_of([place(text)])
    assert specials(prompt.ids) == specials(prompt_of([place("harmless")]).ids)
    rendered = plain(parse_messages([place(text)]).messages)
    assert WHOLE.decode(prompt.ids, skip_special_tokens=False) == rendered


# The shape of Kimi's own: tools first, calls with their arguments, reasoning, results.
FULL_TEMPLATE = """
{%- if tools -%}<|im_system|>tool_declare<|im_middle|>
{{- tools | tojson(separators=(',', ':')) }}<|im_end|>
{%- endif -%}
{%- for m in messages -%}
<|im_user|>{{ m.name or m.role }}<|im_middle|>
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif -%}
{%- if m.tool_calls -%}<|tool_calls_section_begin|>
{%- for c in m.tool_calls -%}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>
{%- set a = c.function.arguments -%}{{ a if a is string else a | tojson }}<|tool_call_end|>
{%- endfor -%}<|tool_calls_section_end|>{%- endif -%}
{{- m.content if m.content is string else m.content | tojson(ensure_ascii=true) -}}
<|im_end|>{{ extra }}
{%- endfor -%}"""


@pytest.mark.parametrize("text", TYPED)
def test_typed_special_in_calls_tools_reasoning_and_kwargs(text: str) -> None:
    def ids(typed: str) -> list[int]:
        function = {"name": typed, "arguments": {typed: [typed, {"x": typed}]}}
        messages = [
            {
                "role": "assistant",
                "reasoning_content": typed,
                "tool_calls": [
                    {"id": typed, "type": "function", "function": function},
                    {"id": "1", "type": "function", "function": {"arguments": typed}},
                ],
                "content": [{"type": "text", "text": typed + "\u00e9\U0001f600"}],
            }
        ]
        template = ChatTemplate(FULL_TEMPLATE)
        tools = [{"type": "function", "function": {"name": typed, typed: {"enum": [typed]}}}]
        options: dict[str, Any] = {"tools": tools, "template_kwargs": {"extra": typed}}
        return render_prompt(parse_messages(messages), template, demo_tokenizer(), **options).ids

    assert specials(ids(text)) == specials(ids("harmless"))
    decoded = WHOLE.decode(ids(text), skip_special_tokens=False)
    assert decoded.count(text) >= 9
    assert "\\u00e9\\ud83d\\ude00" in decoded
    assert not any(0xE000 <= ord(character) <= 0xF8FF for character in decoded)
    assert decoded.isascii()


@pytest.mark.parametrize("name", ["think", "/think", "t", "think>", "|im_end|", "<think>", "UNK]"])
def test_template_that_begins_a_special_token_before_a_text(name: str) -> None:
    template = ChatTemplate("<|im_user|><{{ messages[0].name }}>[{{ messages[0].content }}]")
    chat = parse_messages([{"role": "user", "name": name, "content": name.rstrip("]")}])
    ids = render_prompt(chat, template, demo_tokenizer()).ids
    assert specials(ids) == [SPECIAL_IDS["<|im_user|>"]]
    expected = f"<|im_user|><{name}>[{name.rstrip(']')}]"
    assert WHOLE.decode(ids, skip_special_tokens=False) == expected


FRAGMENTS = st.sampled_from(
    [
        *TYPED,
        "<",
        "<|",
        "|>",
        "[",
        "]",
        "media_pad",
        "<|media",
        "_pad|>",
        "<th",
        "ink>",
        "\U000f0000",
    ]
)
CHARACTERS = st.characters(exclude_categories=["Cs"])
HOSTILE = st.lists(FRAGMENTS | st.text(CHARACTERS, max_size=4), max_size=6).map("".join)
ROLES = st.sampled_from(["user", "assistant", "system", "tool"])


@st.composite
def conversations(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> tuple[list[Any], list[Any]]:
    """Draw messages, and the same structure with harmless texts."""
    drawn: list[Any] = []
    harmless: list[Any] = []
    for _ in range(draw(st.integers(1, 3))):
        role, has_name = draw(ROLES), draw(st.booleans())
        name = draw(texts.filter(bool)) if has_name else ""
        parts = draw(st.lists(st.just(None) | texts, max_size=4))
        is_list = draw(st.booleans())
        for target, word in ((drawn, None), (harmless, "x")):
            content: Any = word or (parts[0] if parts and parts[0] else "")
            if is_list:
                content = [
                    IMAGE if text is None else {"type": "text", "text": word or text}
                    for text in parts
                ]
            message = {"role": role, "content": content}
            target.append(message | ({"name": word or name} if has_name else {}))
    return drawn, harmless


@given(conversations(HOSTILE), st.randoms(use_true_random=False))
@settings(deadline=None, database=None, max_examples=120)
def test_no_text_makes_a_special_token(pair: tuple[list[Any], list[Any]], random: Any) -> None:
    messages, harmless = pair
    chat = parse_messages(messages)
    prompt = prompt_of(messages)
    assert specials(prompt.ids) == specials(prompt_of(harmless).ids)
    assert WHOLE.decode(prompt.ids, skip_special_tokens=False) == plain(chat.messages)
    counts = [random.randint(1, 9) for _ in chat.images]
    expanded = expand(prompt, counts)
    assert expanded.ids.count(PAD) == sum(counts)
    assert all(set(expanded.ids[slice(*span)]) == {PAD} for span in expanded.spans)


BENIGN = st.text(CHARACTERS | st.sampled_from("<[|>] \n"), max_size=12)


@given(conversations(BENIGN))
@settings(deadline=None, database=None, max_examples=120)
def test_text_without_special_tokens_gets_the_ids_of_the_whole(
    pair: tuple[list[Any], list[Any]],
) -> None:
    typed = json.dumps(pair[0], ensure_ascii=False)
    assume(
        not demo_tokenizer().special_pattern.search(
            typed.replace('"}, {"type": "text", "text": "', "")
        )
    )
    text = plain(parse_messages(pair[0]).messages)
    assert prompt_of(pair[0]).ids == WHOLE.encode(text, add_special_tokens=False).ids


def test_generation_prompt_can_be_left_out() -> None:
    ids = prompt_of(user("hi"), add_generation_prompt=False).ids
    assert ids[-1] == SPECIAL_IDS["<|im_end|>"]


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_kwargs_cannot_replace_our_variables(name: str) -> None:
    with pytest.raises(RequestError, match=name):
        prompt_of(user("hi"), template_kwargs={name: []})


@pytest.mark.parametrize(
    "name", ["self", "args", "kwargs", "context", "environment", "missing", "vars", "a b", ""]
)
def test_kwargs_may_have_any_other_name(name: str) -> None:
    kwargs = {name: "one"}
    assert prompt_of(user("hi"), template_kwargs=kwargs) == prompt_of(user("hi"))
    if name.isidentifier():
        assert ChatTemplate(f"{{{{ {name} }}}}").render(kwargs) == (
            "one" if name != "self" else "<TemplateReference None>"
        )


@pytest.mark.parametrize("kwargs", ["x", [["a", 1]], 3, {3: 4}])
def test_kwargs_must_be_an_object(kwargs: Any) -> None:
    with pytest.raises(RequestError, match="chat_template_kwargs"):
        prompt_of(user("hi"), template_kwargs=kwargs)


@pytest.mark.parametrize("tools", ["x", {"a": 1}, 3])
def test_tools_must_be_a_list(tools: Any) -> None:
    with pytest.raises(RequestError, match="tools"):
        prompt_of(user("hi"), tools=tools)


def test_lone_surrogate_is_a_400() -> None:
    for place in PLACES:
        with pytest.raises(RequestError, match="U\\+D800"):
            prompt_of([place("a\ud800b")]) if place is not in_two_parts else prompt_of(
                [place("\ud800b")]
            )


def with_template(source: str, content: object) -> TokenizedPrompt:
    return render_prompt(parse_messages(user(content)), ChatTemplate(source), demo_tokenizer())


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("no slot", ["0 image slots", "1 images"]),
        ("<|media_pad|><|media_pad|>", ["2 image slots", "1 images"]),
        ("{{ messages[0].content[1].text }}", ["0 image slots", "1 images"]),
    ],
)
def test_slots_must_be_as_many_as_images(source: str, numbers: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        with_template(source, [IMAGE, {"type": "text", "text": "<|media_pad|>"}])
    assert all(number in caught.value.message for number in numbers)


def test_video_placeholder_of_a_template_is_refused() -> None:
    with pytest.raises(RequestError, match="video"):
        with_template(VIDEO_PLACEHOLDER, "x")
    assert prompt_of(user(VIDEO_PLACEHOLDER)).slots == ()


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 3 }}",
        "{{ nothing.at.all }}",
        "{{ 1 // 0 }}",
        "{{ messages[7].role.x }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ '%d' % 'x' }}",
        "{% for x in 3 %}{% endfor %}",
    ],
)
def test_template_error_is_a_400(source: str) -> None:
    with pytest.raises(RequestError, match="chat template") as caught:
        with_template(source, "hello")
    assert "Traceback" not in caught.value.message


def test_template_words_reach_the_user_uncovered() -> None:
    with pytest.raises(RequestError, match=r"bad <think> \[x"):
        with_template("{{ raise_exception('bad ' + messages[0].content) }}", "<think> [x")


def test_all_private_characters_taken() -> None:
    every = "".join(map(chr, range(0xF0000, 0x110000)))
    with pytest.raises(RequestError, match="private-use"):
        prompt_of(user(every))
    assert prompt_of(user(every[:65000])).slots == ()


@pytest.mark.parametrize("counts", [[], [1], [1, 2, 3]])
def test_expand_needs_a_count_for_each_slot(counts: list[int]) -> None:
    with pytest.raises(RequestError, match=f"2 image slots, but there are {len(counts)}"):
        expand(prompt_of(user([IMAGE, IMAGE])), counts)


@pytest.mark.parametrize("count", [0, -1])
def test_expand_needs_positive_counts(count: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        expand(prompt_of(user([IMAGE])), [count])


def test_expand_refuses_a_second_time() -> None:
    prompt = prompt_of(user([IMAGE, IMAGE]))
    expanded = expand(prompt, [3, 2])
    again = TokenizedPrompt(expanded.ids, tuple(start for start, _ in expanded.spans))
    with pytest.raises(ValueError, match="expanded before"):
        expand(again, [3, 2])
    assert isinstance(expanded, ExpandedPrompt)


def test_expand_leaves_the_prompt_alone() -> None:
    prompt = prompt_of(user("no image"))
    expanded = expand(prompt, [])
    assert expanded.ids == prompt.ids
    assert expanded.ids is not prompt.ids
    assert expanded.spans == ()


def test_template_helpers() -> None:
    source = (
        "{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}"
        "{% generation %}{{ bos }}{{ eos_token }}{% endgeneration %}{{ strftime_now('%%') }}"
        "{{ {'b': 'é<', 'a': 1} | tojson }}{{ {'b': 1} | tojson(indent=1) }}"
    )
    template = ChatTemplate(source, special_tokens={"eos_token": "[EOS]"})
    assert template.render({"bos": "!"}) == '1![EOS]%{"b": "é<", "a": 1}{\n "b": 1\n}'


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"chat_template": "one"}, "one"),
        ({"chat_template": [{"name": "default", "template": "two"}]}, "two"),
        (
            {
                "chat_template": [
                    {"name": "tool_use", "template": "x"},
                    {"name": "default", "template": "three"},
                ]
            },
            "three",
        ),
        ({"chat_template": "{{ bos_token }}", "bos_token": "[BOS]"}, "[BOS]"),
        ({"chat_template": "{{ bos_token }}", "bos_token": {"content": "[BOS]"}}, "[BOS]"),
    ],
)
def test_template_from_tokenizer_config(tmp_path: Path, config: Any, expected: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_chat_template(tmp_path).render({}) == expected
    (tmp_path / "chat_template.jinja").write_text("the file goes first")
    assert load_chat_template(tmp_path).render({}) == "the file goes first"


def test_a_tokenizer_without_a_template_takes_that_of_the_model(tmp_path: Path) -> None:
    tokenizer, model = tmp_path / "tokenizer", tmp_path / "model"
    for folder in (tokenizer, model):
        folder.mkdir()
    (model / "chat_template.jinja").write_text("of the model")
    assert load_chat_template(tokenizer, model).render({}) == "of the model"
    (tokenizer / "chat_template.jinja").write_text("its own")
    assert load_chat_template(tokenizer, model).render({}) == "its own"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "no chat template"),
        ({}, "no chat template"),
        ({"chat_template": None}, "no chat template"),
        ({"chat_template": 3}, "a text or a list"),
        ({"chat_template": []}, "a text or a list"),
        ({"chat_template": [{"name": "rag"}]}, "a text or a list"),
        ({"chat_template": [{"name": "rag", "template": "x"}]}, "default"),
        ({"chat_template": "{% if %}"}, "not a usable chat template"),
        ({"chat_template": "{% endfor %}"}, "not a usable chat template"),
        ({"chat_template": "{% foo %}"}, "not a usable chat template"),
        ({"chat_template": "{{ x | nofilter }}"}, "not a usable chat template"),
    ],
)
def test_unusable_template(tmp_path: Path, config: Any, words: str) -> None:
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(PlanError, match=words) as caught:
        load_chat_template(tmp_path)
    assert str(tmp_path) in caught.value.message


def test_chat_type_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Chat((), ()).images = ("x",)  # type: ignore[misc]
