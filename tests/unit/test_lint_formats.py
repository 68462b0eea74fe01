"""Every machine format holds before a validator that is not ours."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema

from kimi_serve.launcher.lint.formats import render
from kimi_serve.launcher.lint.report import Report, Reported
from kimi_serve.launcher.lint.run import Surroundings, lint_profile
from kimi_serve.launcher.lint.source_text import SourceText

DATA = Path(__file__).parents[1] / "data" / "formats"
SECRET = "sk-EXAMPLEEXAMPLEEXAMPLE"
TEXT = f"""\
model: {{path: org/vision-model, trust_remote_code: on}}
server: {{api_key: {SECRET}, portt: 1}}
tokenizer:
\tworker_num: 8
"""
MACHINE_FORMATS = ("json", "sarif", "junit", "github")


def report_of(text: str, env: dict[str, str] | None = None, name: str = "p.yaml") -> Report:
    """Lint one text without selection."""
    linted = lint_profile(
        text.encode(), name=name, folder=Path("/deploy"), around=Surroundings(env)
    )
    reported = tuple(Reported(found, linted.name, "0" * 64) for found in linted.findings)
    return Report((linted.name,), reported, linted.sources, exit_code=1, names=linted.files)


REPORTS = {
    "clean": Report(("p.yaml",)),
    "findings": report_of(TEXT.replace("\tworker_num", "  worker_num")),
    "syntax error": report_of(TEXT),
    "variables": report_of("log:\n", {"KIMI_SERVE_TOKENIZER_WORKER_NUM": "4"}),
    "odd name": report_of("log: 1\n", name="a b,c:%1<&\u4f60.yaml"),
    "suppression": report_of("log: {level: info} # kimi-serve: ignore[KS201] why\n"),
    "failed": Report((), errors=("x.yaml cannot be read: No such file",), exit_code=2),
}


@pytest.fixture(params=list(REPORTS))
def report(request: pytest.FixtureRequest) -> Report:
    return REPORTS[request.param]


def test_json_is_what_our_published_schema_says(report: Report) -> None:
    schema = json.loads(
        files("kimi_serve.schemas").joinpath("lint-report.schema.json").read_text("utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    validator: Any = jsonschema.Draft202012Validator(schema)
    validator.validate(json.loads(render("json", report)))


def test_sarif_is_valid(report: Report) -> None:
    schema = json.loads((DATA / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    document = json.loads(render("sarif", report))
    validator: Any = jsonschema.Draft7Validator(schema)
    validator.validate(document)
    (run,) = document["runs"]
    assert run["invocations"][0]["executionSuccessful"] is (report.exit_code != 2)
    for result in run["results"]:
        location = result["locations"][0]["physicalLocation"]
        assert not location["artifactLocation"]["uri"].startswith("/")
        region = location["region"]
        assert region["startLine"] == region["endLine"]
        assert region["endColumn"] > region["startColumn"]


@pytest.mark.skipif(find_spec("sarif") is None, reason="sarif-tools (check group) is not installed")
def test_sarif_tools_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "lint.sarif"
    file.write_text(render("sarif", REPORTS["findings"]), encoding="utf-8")
    command = [sys.executable, "-m", "sarif", "summary", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"error: [1-9]", result.stdout)


def test_sarif_names_what_has_no_place() -> None:
    document = json.loads(render("sarif", REPORTS["variables"]))
    places = [
        place
        for result in document["runs"][0]["results"]
        for location in result["locations"]
        for place in location.get("logicalLocations", ())
    ]
    assert "env:KIMI_SERVE_TOKENIZER_WORKER_NUM" in {place["name"] for place in places}


def test_junit_is_valid(report: Report) -> None:
    text = render("junit", report)
    schema: Any = xmlschema.XMLSchema(str(DATA / "junit-10.xsd"))
    schema.validate(io.BytesIO(text.encode()))
    root = ElementTree.fromstring(text)
    assert root.findall("testsuite/testcase"), "an empty report passes for a broken one"


def test_github_escapes_and_puts_errors_first() -> None:
    text = render("github", REPORTS["odd name"])
    assert "file=a b%2Cc%3A%251<&\u4f60.yaml,line=1" in text
    lines = render("github", REPORTS["findings"]).splitlines()
    kinds = [re.match(r"::(\w+)", line) for line in lines]
    words = [kind[1] for kind in kinds if kind]
    assert len(words) == len(lines)
    assert words == sorted(words, key=["error", "warning", "notice"].index)


@pytest.mark.parametrize("format", ["full", "concise", *MACHINE_FORMATS])
def test_no_format_repeats_a_secret(report: Report, format: str) -> None:
    assert SECRET not in render(format, report)


@pytest.mark.parametrize(
    ("name", "uri", "file"),
    [
        ("new\nline.yaml", "new%0Aline.yaml", "new%0Aline.yaml"),
        ("\udcff\udcfe.yaml", "%FF%FE.yaml", "\\udcff\\udcfe.yaml"),
        ("a:b.yaml", "a%3Ab.yaml", "a%3Ab.yaml"),
    ],
)
def test_odd_names_of_files(name: str, uri: str, file: str) -> None:
    report = report_of("log: {levl: 1}\n", name=name)
    (result, *_) = json.loads(render("sarif", report))["runs"][0]["results"]
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == uri
    assert f"file={file},line=1" in render("github", report)


def test_sentences_follow_each_other() -> None:
    report = report_of("imag: {dtype: uint8}\nlog: {levl: 1}\nserver:\n")
    texts = [
        result["message"]["text"]
        for result in json.loads(render("sarif", report))["runs"][0]["results"]
    ]
    assert any("did you mean `image`? The sections are" in text for text in texts)
    assert any("`server` is empty. Remove it" in text for text in texts)


def test_help_does_not_repeat_the_message() -> None:
    report = report_of(
        "model: {path: org/m}\n"
        "engine: {kind: sglang, version: 0.5.23, args: [--reasoning_parser, kimi_k2]}\n"
    )
    for format in ("full", "github", "junit"):
        assert "write --reasoning-parser" in render(format, report)
        assert "help: write --reasoning-parser" not in render(format, report)
    texts = [
        result["message"]["text"]
        for result in json.loads(render("sarif", report))["runs"][0]["results"]
    ]
    (text,) = [text for text in texts if "has no flag" in text]
    assert text.count("write --reasoning-parser") == 1


def test_a_long_line_is_cut_around_the_caret() -> None:
    for text in (
        f"log: {{levl: 1}} # {'x' * 200000}\n",
        f"log: {{level: info, {'x' * 100000}: 1, levl: 1}} # {'x' * 9000}\n",
    ):
        shown = render("full", report_of(text))
        assert max(map(len, shown.splitlines())) < 400
        for block in shown.split("\n\n"):
            lines = block.splitlines()
            if "`levl`" in lines[0]:
                start = lines[3].index("^")
                assert lines[2][start : start + 4] == "levl"


def test_carets_stand_under_wide_characters_and_tabs() -> None:
    text = render("full", report_of('media: {allowed_domains: ["\u4f60\u597d"], maxx: 1}\n'))
    lines = text[text.index("KS101") :].splitlines()
    source, carets = lines[2:4]
    wide = source[: source.index("maxx")]
    assert carets.index("^") == len(wide) + 2


def test_a_line_without_known_secret_places_is_not_shown() -> None:
    source = SourceText.read(b"server: {api_key: sk-EXAMPLE\n\tx: [\n")
    assert not source.may_be_shown
    assert SourceText.read(b"server: [\n\tport: }\n").may_be_shown
