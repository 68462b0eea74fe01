"""What is read of a checkpoint directory, and where a checkpoint is looked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kimi_serve.preprocess.checkpoint_files.checkpoint import locate_checkpoint, read_checkpoint
from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED
from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.errors import ConfigError, PlanError
from kimi_serve.schemas.worker import ResizeConfig

HALF = (0.5, 0.5, 0.5)
KIMI = ResizeConfig(16384, 512, 14, 2, HALF, HALF)
MEDIA: dict[str, Any] = {
    "in_patch_limit": 16384,
    "patch_size": 14,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "merge_kernel_size": 2,
    "fixed_output_tokens": None,
    "patch_limit_on_one_side": 512,
    "in_patch_limit_each_frame": 4096,
    "in_patch_limit_video": None,
    "sample_fps": 2.0,
    "timestamp_mode": "hh:mm:ss.fff",
}
NATIVE: dict[str, Any] = {
    "max_patches": 16384,
    "size": {"max_height": 512, "max_width": 512},
    "patch_size": 14,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "image_processor_type": "Kimi_K25ImageProcessor",
}
CONFIG: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "media_placeholder_token_id": 163605,
    "vision_config": {"patch_size": 14, "merge_kernel_size": [2, 2]},
}


def read(directory: Path, config: object = CONFIG, **files: object) -> CheckpointFacts:
    """Write config.json and the processor files named by keyword, and read them."""
    for name, content in {"config": config, **files}.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (directory / f"{name}.json").write_text(text, encoding="utf-8")
    return read_checkpoint(directory, origin="directory", name="k")


def media(**changes: object) -> dict[str, Any]:
    return {"media_proc_cfg": MEDIA | changes}


def native(**changes: object) -> dict[str, Any]:
    return NATIVE | changes


def config(**changes: object) -> dict[str, Any]:
    return CONFIG | changes


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({"preprocessor_config": media()}, "preprocessor_config.json media_proc_cfg"),
        (
            {"processor_config": {"image_processor": media()}},
            "processor_config.json image_processor.media_proc_cfg",
        ),
        ({"preprocessor_config": native()}, "preprocessor_config.json native keys"),
        (
            {"processor_config": {"image_processor": native()}},
            "processor_config.json image_processor",
        ),
        ({"preprocessor_config": native() | media()}, "preprocessor_config.json media_proc_cfg"),
        (
            {
                "preprocessor_config": native(),
                "processor_config": {"image_processor": native() | media()},
            },
            "processor_config.json image_processor.media_proc_cfg",
        ),
        (
            {"preprocessor_config": native() | {"media_proc_cfg": None}},
            "preprocessor_config.json native keys",
        ),
    ],
)
def test_layouts(tmp_path: Path, files: dict[str, object], source: str) -> None:
    facts = read(tmp_path, **files)
    assert facts.resize == KIMI
    assert facts.resize_source == source
    assert facts.disagreements == ()
    assert facts.has_vision


def test_bundled_demo() -> None:
    located = locate_checkpoint(None, None, env={})
    facts = read_checkpoint(located.directory, origin=located.origin, name=located.name)
    assert located.origin == facts.origin == "bundled"
    assert facts.resize == KIMI
    assert facts.placeholder_id == 163605
    assert facts.architectures == ("KimiK25ForConditionalGeneration",)
    assert facts.tokenizer_kind == "tokenizer.json"
    assert facts.disagreements == ()


def test_whether_a_chat_template_is_there(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    elsewhere = tmp_path / "tokenizer"
    facts = read(tmp_path, preprocessor_config=media())
    assert not facts.has_chat_template
    assert read(tmp_path, tokenizer_config={"chat_template": "x"}).has_chat_template
    (tmp_path / "tokenizer_config.json").unlink()
    (elsewhere / "chat_template.jinja").write_text("x", encoding="utf-8")
    facts = read_checkpoint(tmp_path, origin="directory", name="m", tokenizer_directory=elsewhere)
    assert facts.has_chat_template


def test_k27_parameters(tmp_path: Path) -> None:
    facts = read(tmp_path, preprocessor_config=media(sample_fps=8.0, in_patch_limit_video=655360))
    assert facts.resize == KIMI


def test_k3_parameters(tmp_path: Path) -> None:
    facts = read(
        tmp_path,
        config(architectures=["KimiK3ForConditionalGeneration"], model_type="kimi_k3"),
        preprocessor_config=media(in_patch_limit=65536, transparent_bg_config={"mode": "x"}),
    )
    assert facts.resize is not None
    assert facts.resize.in_patch_limit == 65536
    assert facts.architectures == ("KimiK3ForConditionalGeneration",)


@pytest.mark.parametrize("merge", [2, [2, 2]])
def test_merge_kernel_size_is_a_number_or_a_pair(tmp_path: Path, merge: object) -> None:
    assert read(tmp_path, preprocessor_config=media(merge_kernel_size=merge)).resize == KIMI
    assert read(tmp_path, preprocessor_config=native(merge_size=merge)).resize == KIMI


def test_other_values_are_taken_as_they_stand(tmp_path: Path) -> None:
    mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 1]
    block = media(patch_size=16, merge_kernel_size=1, image_mean=mean, image_std=std)
    vision = {"patch_size": 16, "merge_kernel_size": 1}
    facts = read(tmp_path, config(vision_config=vision), preprocessor_config=block)
    assert facts.resize == ResizeConfig(16384, 512, 16, 1, (*mean,), (*std,))  # type: ignore[arg-type]
    assert facts.disagreements == ()


# Disagreement


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"preprocessor_config": native(max_patches=4096) | media()},
            ["in_patch_limit 16384", "native keys says max_patches 4096", "follows"],
        ),
        (
            {"preprocessor_config": native(merge_size=1) | media()},
            ["merge_kernel_size 2", "merge_size 1"],
        ),
        (
            {"preprocessor_config": native(size={"max_height": 64, "max_width": 64}) | media()},
            ["patch_limit_on_one_side 512", "size.max_height 64"],
        ),
        (
            {"preprocessor_config": native(image_std=[0.25, 0.5, 0.5]) | media()},
            ["image_std [0.5, 0.5, 0.5]", "image_std [0.25, 0.5, 0.5]"],
        ),
        (
            {
                "preprocessor_config": media(),
                "processor_config": {"image_processor": media(in_patch_limit=99)},
            },
            [
                "preprocessor_config.json",
                "processor_config.json image_processor.media_proc_cfg",
                "99",
            ],
        ),
        ({"preprocessor_config": media(patch_size=16)}, ["config.json vision_config", "14", "16"]),
        (
            {"preprocessor_config": media(merge_kernel_size=4)},
            ["config.json vision_config says merge_kernel_size 2", "merge_kernel_size 4"],
        ),
        # Only some native keys, as a stray parameter would be.
        ({"preprocessor_config": {"patch_size": 16} | media()}, ["patch_size 14", "patch_size 16"]),
    ],
)
def test_disagreement_is_told(tmp_path: Path, files: dict[str, object], words: list[str]) -> None:
    facts = read(tmp_path, **files)
    (sentence,) = facts.disagreements
    assert all(word in sentence for word in words)
    if "vision_config" not in sentence:
        assert (
            "native transformers reads its own keys, SGLang and vLLM read media_proc_cfg"
            in sentence
        )
    assert facts.resize is not None
    assert facts.resize.in_patch_limit == 16384


def test_each_disagreeing_key_has_a_sentence(tmp_path: Path) -> None:
    stray = native(max_patches=64, patch_size=16, image_mean=[0.1, 0.1, 0.1])
    assert len(read(tmp_path, preprocessor_config=stray | media()).disagreements) == 3


@pytest.mark.parametrize(
    ("ids", "expected", "num_sentences"),
    [
        ({"media_placeholder_token_id": 163605}, 163605, 0),
        ({"image_token_id": 163605}, 163605, 0),
        ({"media_placeholder_token_id": 5, "image_token_id": 5}, 5, 0),
        ({"media_placeholder_token_id": 163605, "image_token_id": 163602}, 163605, 1),
        ({"media_placeholder_token_id": None, "image_token_id": 0}, 0, 0),
        ({}, None, 0),
    ],
)
def test_placeholder(
    tmp_path: Path, ids: dict[str, object], expected: int | None, num_sentences: int
) -> None:
    without = {key: value for key, value in CONFIG.items() if not key.endswith("token_id")}
    facts = read(tmp_path, without | ids, preprocessor_config=media())
    assert facts.placeholder_id == expected
    assert len(facts.disagreements) == num_sentences
    if num_sentences:
        assert "163605" in facts.disagreements[0]
        assert "163602" in facts.disagreements[0]


# No images, other families


def test_text_only_checkpoint(tmp_path: Path) -> None:
    facts = read(tmp_path, {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2"})
    assert not facts.has_vision
    assert facts.resize is None
    assert facts.resize_source == ""
    assert facts.placeholder_id is None
    assert facts.tokenizer_kind is None


def test_audio_feature_extractor_is_no_vision(tmp_path: Path) -> None:
    facts = read(
        tmp_path,
        {"architectures": ["MoonshotKimiaForCausalLM"]},
        preprocessor_config={"feature_extractor_type": "WhisperFeatureExtractor"},
    )
    assert not facts.has_vision


@pytest.mark.parametrize(
    "block",
    [
        {"in_token_limit": 4096, "patch_size": 14, "merge_kernel_size": [2, 2], "pad_input": True},
        {
            "size": {"shortest_edge": 3136, "longest_edge": 12845056},
            "patch_size": 16,
            "merge_size": 2,
        },
        {"size": 224, "image_mean": [123.0, 117.0, 104.0], "image_std": [1, 1, 1]},
    ],
)
def test_other_family_is_no_error(tmp_path: Path, block: dict[str, object]) -> None:
    facts = read(
        tmp_path,
        config(architectures=["KimiVLForConditionalGeneration"]),
        preprocessor_config=block,
    )
    assert facts.has_vision
    assert facts.resize is None


def test_processor_config_without_image_processor(tmp_path: Path) -> None:
    facts = read(tmp_path, {"architectures": ["X"]}, processor_config={"processor_class": "Y"})
    assert not facts.has_vision


@pytest.mark.parametrize(
    ("present", "kind"),
    [
        (["tokenizer.json"], "tokenizer.json"),
        (["tiktoken.model"], "tiktoken.model"),
        (["tiktoken.model", "tokenizer.json"], "tokenizer.json"),
        ([], None),
    ],
)
def test_tokenizer_kind(tmp_path: Path, present: list[str], kind: str | None) -> None:
    elsewhere = tmp_path / "tokenizer"
    elsewhere.mkdir()
    for name in present:
        (elsewhere / name).touch()
    read(tmp_path, preprocessor_config=media())
    facts = read_checkpoint(tmp_path, origin="directory", name="k", tokenizer_directory=elsewhere)
    assert facts.tokenizer_kind == kind
    assert facts.tokenizer_directory == str(elsewhere)


# Faults

NAN = float("nan")
EMPTY: dict[str, object] = {}
PAIRS: list[object] = [[], [2, 3], [2, 2, 2]]
BAD_COUNTS = [0, -1, "14", 14.0, True, NAN, float("inf"), 1 << 40, EMPTY, *PAIRS]
MEDIA_FAULTS: list[Any] = [
    *(({key: None}, [key]) for key in MEDIA if key in dir(KIMI)),
    *(
        ({key: value}, [key, "whole number"])
        for key in ("in_patch_limit", "patch_limit_on_one_side", "patch_size", "merge_kernel_size")
        for value in BAD_COUNTS
    ),
    *(
        ({key: value}, [key, "three numbers"])
        for key in ("image_mean", "image_std")
        for value in (
            0.5, "half", [], [0.5], [0.5] * 4, [0.5, 0.5, None], [0.5, 0.5, "0.5"],
            [NAN, 0.5, 0.5], [0.5, float("inf"), 0.5], [True, 0.5, 0.5], [127.5] * 3, [-0.5] * 3,
        )
    ),
    ({"image_std": [0.5, 0.0, 0.5]}, ["image_std", "0.0"]),
    ({"image_std": [1e-30] * 3}, ["image_std"]),
    ({"patch_limit_on_one_side": 1}, ["patch_limit_on_one_side 1", "merge_kernel_size 2"]),
    ({"fixed_output_tokens": 64}, ["fixed_output_tokens", "64", "null"]),
    ({"fixed_output_tokens": 0}, ["fixed_output_tokens", "null"]),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), MEDIA_FAULTS)
def test_media_fault(tmp_path: Path, changes: dict[str, object], words: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, preprocessor_config=media(**changes))
    path = str(tmp_path / "preprocessor_config.json")
    assert all(word in caught.value.message for word in [path, "media_proc_cfg", *words])
    assert len(caught.value.message) < 400 + len(path)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (native(max_patches=0), ["max_patches", "0"]),
        (native(merge_size="2"), ["merge_size"]),
        (native(size={"max_height": 512, "max_width": 256}), ["max_height 512", "max_width 256"]),
        (native(size={"max_height": 0, "max_width": 0}), ["size.max_height"]),
        (native(size=512), ["size", "an object"]),
        (native(size={}), ["lacks size.max_height"]),
        (native(size=None), ["lacks size.max_height"]),
        (native(max_patches=None, image_mean=None), ["lacks max_patches, image_mean"]),
        ({"patch_size": 14}, ["lacks max_patches, size.max_height, merge_size"]),
        ({"media_proc_cfg": []}, ["media_proc_cfg", "an object"]),
        ({"media_proc_cfg": "x"}, ["media_proc_cfg", "an object"]),
        ({"media_proc_cfg": {}}, ["lacks in_patch_limit"]),
        ({}, ["media_proc_cfg", "max_patches"]),
        # A fault in a block that is not followed is one that an engine would read.
        (native(max_patches=-4) | media(), ["max_patches"]),
        (native(fixed_output_tokens=4) | media(), ["fixed_output_tokens"]),
    ],
)
def test_native_fault(tmp_path: Path, block: object, words: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, preprocessor_config=block)
    assert all(word in caught.value.message for word in words)
    assert str(tmp_path) in caught.value.message


@pytest.mark.parametrize("file", ["preprocessor_config", "processor_config"])
def test_image_parameters_may_not_be_missing(tmp_path: Path, file: str) -> None:
    with pytest.raises(PlanError, match="no image parameters"):
        read(tmp_path)
    with pytest.raises(PlanError, match=file):
        read(tmp_path, **{file: {"image_processor": EMPTY}})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", [":1:1", "not valid JSON"]),
        ('{"a": 1,\n  "b": }', [":2:8", "not valid JSON"]),
        ("{'a': 1}", [":1:2", "not valid JSON"]),
        ('{"a": 1} x', [":1:10", "not valid JSON"]),
        ('\ufeff{"a": 1}', ["not valid JSON", "BOM"]),
        ("[]", ["must hold a JSON object", "a list"]),
        ("null", ["must hold a JSON object", "null"]),
        ('"x"', ["must hold a JSON object", "a string"]),
        ('{"a": ' + "9" * 5000 + "}", ["not usable JSON"]),
        ('{"a": ' + "[" * 200_000 + "}", ["not usable JSON"]),
    ],
    ids=range(10),
)
@pytest.mark.parametrize("file", ["config", "preprocessor_config", "processor_config"])
def test_json_fault(tmp_path: Path, file: str, content: str, words: list[str]) -> None:
    files: dict[str, object] = {"preprocessor_config": media(), file: content}
    with pytest.raises(PlanError) as caught:
        read(tmp_path, **files)
    assert all(word in caught.value.message for word in [str(tmp_path / f"{file}.json"), *words])
    assert len(caught.value.message) < 400 + len(str(tmp_path))


def test_file_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"model_type": "\xe9"}')
    with pytest.raises(PlanError, match="not UTF-8: byte 16 is 0xe9"):
        read(tmp_path, None)


def test_file_that_is_too_large(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(PlanError, match="larger than 64 MiB"):
        read(tmp_path, None)


def test_file_that_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(PlanError, match="not a regular file"):
        read(tmp_path, None)


def test_no_config(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(PlanError, match=r"no config\.json"):
            read_checkpoint(directory, origin="directory", name="k")


BAD_NAMES: list[object] = [None, [], "KimiK25", EMPTY, [3], ["a", None], [""], 3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(({"architectures": value}, ["architectures", "a list"]) for value in BAD_NAMES),
        ({"model_type": 3}, ["model_type", "a string"]),
        ({"vision_config": 3}, ["vision_config", "an object"]),
        ({"vision_config": {"patch_size": 0}}, ["vision_config", "patch_size"]),
        ({"vision_config": {"merge_kernel_size": [2, 3]}}, ["vision_config", "merge_kernel_size"]),
        *(
            ({key: value}, [key])
            for key in ("media_placeholder_token_id", "image_token_id")
            for value in ("163605", -1, 1.5, True, 1 << 40, [163605])
        ),
    ],
)
def test_config_fault(tmp_path: Path, changes: dict[str, object], words: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, config(**changes), preprocessor_config=media())
    path = str(tmp_path / "config.json")
    assert all(word in caught.value.message for word in [path, *words])


def test_architectures_may_not_be_missing(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="architectures is missing"):
        read(tmp_path, {"model_type": "kimi_k25"})


# Where a checkpoint is


def locate(path: str, revision: str | None = None, **env: str) -> Any:
    return locate_checkpoint(path, revision, env={"HF_HUB_OFFLINE": "1"} | env)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with models/kimi-k25 and models/other in it."""
    for name in ("models/kimi-k25", "models/other"):
        shutil.copytree(BUNDLED, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "spelling",
    ["models/kimi-k25", "./models/kimi-k25", "models/kimi-k25/", "{}/models/kimi-k25",
     "~/models/kimi-k25", "models/../models/kimi-k25", "./models/other/../kimi-k25"],
)  # fmt: skip
def test_directory(here: Path, spelling: str) -> None:
    located = locate(spelling.format(here), HOME=str(here))
    assert located.origin == "directory"
    assert located.directory.is_absolute()
    assert located.directory.samefile(here / "models" / "kimi-k25")
    assert located.name == "kimi-k25"


def test_working_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here / "models" / "other")
    assert locate(".").name == "other"


@pytest.mark.parametrize(
    "spelling",
    ["./models/kimi-k2.5", "{}/models/kimi-k2.5", "~/models/kimi-k2.5", "models/kimi-k2.5/x",
     "../{0.name}/models/kimi-k26"],
)  # fmt: skip
def test_missing_directory(here: Path, spelling: str) -> None:
    path = spelling.format(here)
    with pytest.raises(ConfigError) as caught:
        locate(path, HOME=str(here))
    assert repr(path) in caught.value.message
    assert "kimi-k25, other" in caught.value.message
    assert "kimi-k25" in (caught.value.hint or "")


def test_relative_path_that_reads_like_a_hub_id(here: Path) -> None:
    with pytest.raises(PlanError, match="models has kimi-k25, other") as caught:
        locate("models/kimi-k2.5", HOME=str(here))
    assert f"did you mean {here / 'models' / 'kimi-k25'}?" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "path", ["/no/such/place", "~/nowhere", "~nobody-known/x", "./x", "../x/y"]
)
def test_missing_directory_without_a_like_one(here: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        locate(path, HOME=str(here / "empty"))


@pytest.mark.parametrize(
    "path",
    [
        *("", " ", "a b", "a//b", "a/b/c", "-x", "a\x00b", "a--b/c", "a/../b"),
        *("x" * 5000, "/" + "x" * 300, "https://huggingface.co/a/b"),
    ],
)
def test_neither_path_nor_hub_id(here: Path, path: str) -> None:
    with pytest.raises(ConfigError):
        locate(path, HOME=str(here))


def test_file_instead_of_directory(here: Path) -> None:
    with pytest.raises(ConfigError, match="is a file") as caught:
        locate("models/other/config.json")
    assert str(here / "models" / "other") in (caught.value.hint or "")


COMMIT = "7eb5002f6aadc958aed6a9177b7ed26bb94011bb"


def fill_cache(cache: Path, repo_id: str = "moonshotai/Kimi-K2.5", ref: str = "main") -> Path:
    folder = cache / ("models--" + repo_id.replace("/", "--"))
    (folder / "refs" / ref).parent.mkdir(parents=True)
    (folder / "refs" / ref).write_text(COMMIT)
    return Path(shutil.copytree(BUNDLED, folder / "snapshots" / COMMIT))


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ],
)
@pytest.mark.parametrize("repo_id", ["moonshotai/Kimi-K2.5", "Kimi-K2.5"])
def test_hub_id_in_cache(tmp_path: Path, variable: str, below: str, repo_id: str) -> None:
    snapshot = fill_cache(tmp_path / below, repo_id)
    located = locate(repo_id, **{variable: str(tmp_path)})
    assert (located.directory, located.origin, located.name) == (snapshot, "hub-cache", repo_id)


def test_nearer_variable_wins(tmp_path: Path) -> None:
    snapshot = fill_cache(tmp_path / "a")
    env = {"HF_HUB_CACHE": str(tmp_path / "a"), "HF_HOME": str(tmp_path / "b"), "HOME": "/c"}
    assert locate("moonshotai/Kimi-K2.5", **env).directory == snapshot


@pytest.mark.parametrize(
    ("ref", "revision"),
    [
        ("main", None),
        ("main", "main"),
        ("main", COMMIT),
        ("v1.0", "v1.0"),
        ("refs/pr/1", "refs/pr/1"),
    ],
)
def test_revision(tmp_path: Path, ref: str, revision: str | None) -> None:
    snapshot = fill_cache(tmp_path, ref=ref)
    located = locate("moonshotai/Kimi-K2.5", revision, HF_HUB_CACHE=str(tmp_path))
    assert located.directory == snapshot


@pytest.mark.parametrize("revision", ["v2", "../refs/main", "/etc", "0" * 40])
def test_unknown_revision(tmp_path: Path, revision: str) -> None:
    fill_cache(tmp_path)
    with pytest.raises(PlanError) as caught:
        locate("moonshotai/Kimi-K2.5", revision, HF_HUB_CACHE=str(tmp_path))
    assert f"moonshotai/Kimi-K2.5 at revision {revision}" in caught.value.message
    assert f"it has revisions {COMMIT}, main" in caught.value.message


@pytest.mark.parametrize("content", ["", "../../../..", "/etc", "gone", "\x00"])
def test_damaged_ref(tmp_path: Path, content: str) -> None:
    snapshot = fill_cache(tmp_path)
    (snapshot.parents[1] / "refs" / "main").write_text(content)
    with pytest.raises(PlanError, match="nor complete in the hub cache"):
        locate("moonshotai/Kimi-K2.5", HF_HUB_CACHE=str(tmp_path))


@pytest.mark.parametrize("value", ["1", "on", "YES", "True"])
@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_nothing_cached_and_offline_by_variable(tmp_path: Path, variable: str, value: str) -> None:
    env = {"HF_HUB_CACHE": str(tmp_path), variable: value}
    with pytest.raises(PlanError) as caught:
        locate_checkpoint("moonshotai/Kimi-K2.5", None, env=env)
    assert f"{variable} is set" in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert "hf download moonshotai/Kimi-K2.5" in (caught.value.hint or "")


def test_incomplete_snapshot_offline(tmp_path: Path) -> None:
    snapshot = fill_cache(tmp_path)
    (snapshot / "tokenizer.json").unlink()
    assert locate("moonshotai/Kimi-K2.5", HF_HUB_CACHE=str(tmp_path)).directory == snapshot
    (snapshot / "config.json").unlink()
    with pytest.raises(PlanError, match="nor complete"):
        locate("moonshotai/Kimi-K2.5", HF_HUB_CACHE=str(tmp_path))


def test_reading_is_light() -> None:
    """A launcher that only plans imports neither numpy nor a tokenizer library."""
    code = (
        "import sys; from kimi_serve.preprocess.checkpoint_files import checkpoint as c; "
        "l = c.locate_checkpoint(None, None, env={}); "
        "c.read_checkpoint(l.directory, origin=l.origin, name=l.name); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "PIL", "tokenizers", "tiktoken", "huggingface_hub", "jinja2", "pydantic"}
    assert not heavy & set(run.stdout.split())
