"""Every input that the coverage-guided run kept goes through lint again; see tests/fuzz."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.lint_fuzz import CUT, SHAPED, LeakError, judge, prepare, split

from kimi_serve.launcher.cli import run
from kimi_serve.launcher.secrets.shapes import mask

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus" / "lint"
INPUTS = sorted(CORPUS.iterdir())


def test_the_corpus_stays_small() -> None:
    assert 0 < len(INPUTS) <= 300
    assert sum(path.stat().st_size for path in INPUTS) <= 200_000


def test_nothing_in_the_corpus_is_raised_or_leaks(tmp_path: Path) -> None:
    prepare(tmp_path)
    for path in INPUTS:
        try:
            judge(path.read_bytes(), tmp_path)
        except Exception as error:
            error.add_note(f"input {path}")
            raise


@pytest.mark.parametrize(
    "data",
    [
        b"@KEY@: {path: ./k25}\n",
        b"engine: {env: {HF_TOKE:N @KEY@}}\n",
        b"log: {@KEY@: info}\n",
        b'\n%%\nKIMI_SERVE_TOKEN": "@KEY@"}=x\n',
    ],
)
def test_a_secret_in_the_place_of_a_name_is_hidden(data: bytes, tmp_path: Path) -> None:
    judge(data, tmp_path)


def test_an_input_has_three_parts() -> None:
    data = CUT.join((b"log: @KEY@", b"A=1\nHTTP_PROXY=a=b\n", b"--tp\n8"))
    profile, env, arguments = split(data)
    assert profile == f"log: {SHAPED}".encode()
    assert env.items() >= {"A": "1", "HTTP_PROXY": "a=b"}.items()
    assert arguments == ["--tp", "8"]


def test_a_leak_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*_given: object) -> dict[str, str]:
        return {"full": f"level {SHAPED}"}

    monkeypatch.setattr("fuzz.lint_fuzz.rendered", shown)
    with pytest.raises(LeakError, match="full"):
        judge(b"", tmp_path)


def test_words_that_only_contain_the_start_of_a_token_are_left_alone() -> None:
    text = "unknown key disk-offloading, risk-management"
    assert mask(text) == text
    assert mask("the key is sk-abcdefgh1234") == "the key is ***"


@pytest.mark.parametrize(
    "profile",
    [
        "engine: {args: [--api-ke, hunter2LEAK]}",
        "engine: {args: [--api_key, hunter2LEAK]}",
        "engine: {args: ['\u2013-api-key', hunter2LEAK]}",
        'engine: {env: "HF_TOKEN=hunter2LEAK"}',
        "engine: {env: [HF_TOKEN=hunter2LEAK]}",
        "engine: {env: [{name: HF_TOKEN, value: hunter2LEAK}]}",
        'engine: {env: {"HF_TOKEN=hunter2LEAK": 1}}',
        "server: api_key=hunter2LEAK",
        'engine: {args: [--mm-process-config, \'{"api_key": "hunter2LEAK"}\']}',
    ],
)
def test_secrets_in_odd_places_are_not_shown(
    profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(profile + "\n", encoding="utf-8")
    for chosen in ("full", "concise", "json", "github", "sarif", "junit"):
        code = run(["lint", str(file), "--select", "KS", "--format", chosen])
        shown = capsys.readouterr()
        assert code in (0, 1), shown.err
        assert "hunter2LEAK" not in shown.out + shown.err, chosen
