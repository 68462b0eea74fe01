"""What holds for every command: nothing is lost, no secret is shown, the plan says the same."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence

import pytest
from adopted import adopt_text, adopt_words, assert_same, load, plan_of
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kimi_serve.launcher.adopt.adoption import Adoption, adopt
from kimi_serve.launcher.adopt.find import find_in_text
from kimi_serve.launcher.adopt.shell import read_script
from kimi_serve.launcher.adopt.words import Told
from kimi_serve.launcher.sources.characters import bare
from kimi_serve.launcher.sources.references import expand
from kimi_serve.schemas.engine_facts import FlagFacts, engine_table
from kimi_serve.schemas.errors import ConfigError

HEADS = {
    "sglang": ("python", "-m", "sglang.launch_server", "--model-path", "/models/k"),
    "vllm": ("vllm", "serve", "/models/k"),
}
# Nodes are numbers that belong together, and a file is read: both have tests of their own.
APART = ("--config", "--nnodes", "--node-rank", "--dist-init-addr", "--master-addr",
         "--master-port", "--headless", "--model", "--model-path", "--uds")  # fmt: skip
TEXTS = st.text("abcXYZ019 ./:_-{}$\"'#,=\\é%", min_size=1, max_size=12)
SECRETS = st.text("abcdefghijkmnpqrstuvwxyzABCDEFG23456789", min_size=12, max_size=20)


def flags_of(engine: str) -> list[FlagFacts]:
    table = engine_table(engine)
    assert table is not None
    found = {flag.flag: flag for flag in table.by_spelling.values()}
    return [flag for name, flag in sorted(found.items()) if name not in APART]


@st.composite
def arguments(draw: st.DrawFn, engine: str) -> list[str]:
    """Some flags of an engine with values that it takes, each in one of its spellings."""
    words: list[str] = []
    for flag in draw(st.lists(st.sampled_from(flags_of(engine)), max_size=6)):
        spelling = draw(st.sampled_from(flag.spellings))
        if flag.is_switch:
            words.append(spelling)
            continue
        number = flag.nargs if isinstance(flag.nargs, int) else 1
        values = [draw(values_of(flag)) for _ in range(number)]
        is_inline = number == 1 and spelling.startswith("--") and draw(st.booleans())
        if is_inline:
            words.append(f"{spelling}={values[0]}")
        else:
            assume(not any(value.startswith("-") for value in values))
            words += [spelling, *values]
    return words


def values_of(flag: FlagFacts) -> st.SearchStrategy[str]:
    if flag.flag in ("--tokenizer-path", "--tokenizer"):
        # A relative one is made absolute, from the folder of the profile.
        return st.sampled_from(["/t", "org/name", "/a b/é", "/${x}"])
    if flag.choices:
        return st.sampled_from([str(choice) for choice in flag.choices])
    if flag.type in ("int", "human-int"):
        return st.integers(0, 40000).map(str)
    if flag.type == "float":
        return st.sampled_from(["0.5", ".75", "0.123456789", "1e-05", "2"])
    if flag.type.startswith("json"):
        return st.sampled_from(['{"a": 1}', '{"image": {"b": ["${x}"]}}', "{}"])
    return TEXTS


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_plan_of_the_profile_says_what_the_command_said(
    engine: str, data: st.DataObject
) -> None:
    argv = [*HEADS[engine], *data.draw(arguments(engine))]
    assert_same(argv, plan_of(adopt_words(*argv)))


@given(
    words=st.lists(
        st.one_of(
            st.sampled_from(["--tp", "--tp=8", "--port", "--no-such", "--", "--host", "-x", "--"]),
            st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable()),
        ),
        max_size=8,
    ),
    before=st.lists(
        st.sampled_from(["env", "A=1", "nohup", "numactl", "--cpunodebind=0", "B=x y"])
    ),
    engine=st.sampled_from(["sglang", "vllm"]),
)
@settings(max_examples=200, deadline=None)
@example(words=["--host", "a", "--host", "b"], before=["A=1", "A=2"], engine="sglang")
def test_every_word_is_accounted_for(words: list[str], before: list[str], engine: str) -> None:
    argv = [*before, *HEADS[engine], *words]
    adoption = adopt_words(*argv)
    known = everything(adoption)
    for word in argv:
        name, _, value = word.partition("=")
        parts = (name, value) if value else (word,)
        assert all(bare(part) in known or bare(part) in adoption.exports.values() for part in parts)


def everything(adoption: Adoption) -> str:
    """Give all values of the profile, its comments, and what was said beside it."""
    try:
        given = load(adoption).settings.engine
        values = [*given.args, *given.env.values(), *given.env]
    except ConfigError:
        values = []
    return "\n".join([adoption.text, *adoption.notes, *map(bare, values), "env"])


@given(
    secret=SECRETS,
    template=st.sampled_from(
        [
            "{head} --api-key {secret}",
            "{head} --api-key={secret}",
            "{head} --api {secret}",
            "{head} --admin-api-key {secret} --served-model-name x",
            "HF_TOKEN={secret} {head}",
            "env MY_SECRET={secret} {head}",
            "export API_KEY={secret}\n{head} --api-key $API_KEY",
            "API_KEY={secret}\n{head} --api-key ${{API_KEY}}",
            "{head} --encoder-urls http://user:{secret}@host/",
            '{head} --default-x \'{{"Authorization": "Bearer {secret}"}}\'',
            '{head} --extra \'{{"token": "{secret}"}}\'',
            "docker run -e HF_TOKEN={secret} lmsysorg/sglang:v0.5.23 {head}",
            "docker run --env=API_KEY={secret} -p 1:1 img {head} --api-key {secret}",
            "curl -H 'Authorization: Bearer {secret}' x | {head}",
            "{head} --no-such-password {secret}",
            "{head} --model-path https://u:{secret}@h/m",
            "sh -c '{head} --api-key {secret}'",
            "services:\n  a:\n    command: {head} --api-key {secret}\n",
            "image: x\ncommand: {head}\nenvironment:\n  HF_TOKEN: {secret}\n",
        ]
    ),
    engine=st.sampled_from(["sglang", "vllm"]),
)
@settings(max_examples=200, deadline=None)
def test_no_secret_is_shown(secret: str, template: str, engine: str) -> None:
    text = template.format(head=shlex.join(HEADS[engine]), secret=secret)
    adoption = adopt_text(text)
    shown = [adoption.text, repr(adoption), *adoption.notes]
    shown += [f"{each}{each.help}" for each in adoption.findings]
    assert all(secret not in each for each in shown)


@given(st.lists(st.text("ab \t\n'\"\\$#;|&<>(){}*?[]~é\u00a0=-", max_size=8), max_size=6))
@settings(max_examples=300)
def test_quoted_words_are_read_as_a_shell_reads_them(texts: list[str]) -> None:
    (command,) = read_script(f"x {shlex.join(texts)}", Told())
    assert [expand(word.text, {}) for word in command.words[1:]] == texts


@given(st.lists(st.text("ab-=./:,é", min_size=1, max_size=6), min_size=1, max_size=6))
def test_plain_words_are_split_as_shlex_splits_them(texts: list[str]) -> None:
    line = " ".join(texts)
    assert [word.text for word in read_script(line, Told())[0].words] == shlex.split(line)


@given(st.text(max_size=60) | st.text("vllm serve $(){}[]'\"\\\n#&|<>-:=x", max_size=60))
@settings(max_examples=400, deadline=None)
@example("vllm serve x <<EOF\nabc")
@example("- [a, b]\n- &x [*x]")
@example("a: &a\n  <<: *a\n  command: vllm serve x\n")
@example("command: [[a]]\nimage: x")
@example("vllm serve $")
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    told = Told()
    with contextlib.suppress(ConfigError):
        adopt(find_in_text(text, told), told)


@given(engine=st.sampled_from(["sglang", "vllm"]), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_command_means_the_same_as_words_and_as_a_line(engine: str, data: st.DataObject) -> None:
    argv: Sequence[str] = [*HEADS[engine], *data.draw(arguments(engine))]
    one, other = adopt_words(*argv), adopt_text(shlex.join(argv))
    assert load(one).settings.engine.args == load(other).settings.engine.args
    assert load(one).settings == load(other).settings
