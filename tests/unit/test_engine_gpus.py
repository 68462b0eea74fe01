"""The GPUs that an engine is given, its time to finish, and what only serving machines are told."""

from __future__ import annotations

from typing import Any

import pytest
from plan_factories import QWEN, make_checkpoint, make_plan

from kimi_serve.launcher.report.render import plan_json, plan_text
from kimi_serve.schemas.engine_launch import EngineLaunch

VISIBLE = "CUDA_VISIBLE_DEVICES"
TENSOR = {"sglang": "--tp-size", "vllm": "--tensor-parallel-size"}
KINDS = ("sglang", "vllm")


def launch_of(kind: str, given: dict[str, Any], **more: Any) -> EngineLaunch:
    plan = make_plan({"engine.kind": kind, **given}, **more)
    assert plan.launch is not None
    return plan.launch


def visible(launch: EngineLaunch) -> str | None:
    return {each.name: each.value for each in launch.variables}.get(VISIBLE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ids", "width", "expected"),
    [
        (("2", "3"), "2", "2,3"),
        (("2", "3"), "1", "2,3"),
        (("GPU-a",), "1", "GPU-a"),
        ((), "1", ""),
        (("2", "3"), "4", None),  # KS306 says so
        (None, "1", None),
    ],
)
def test_an_engine_gets_the_gpus_that_are_declared(
    kind: str, ids: tuple[str, ...] | None, width: str, expected: str | None
) -> None:
    given = {"engine.args": [TENSOR[kind], width]} | ({} if ids is None else {"gpu.ids": ids})
    assert visible(launch_of(kind, given)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_somebody_says_of_the_gpus_already_is_left(kind: str) -> None:
    given: dict[str, Any] = {"gpu.ids": ("2", "3")}
    assert visible(launch_of(kind, given, env={VISIBLE: "5"})) is None
    assert visible(launch_of(kind, given | {"engine.env": {VISIBLE: "5"}})) == "5"


def test_nodes_share_the_width() -> None:
    given = {"gpu.ids": ("0", "1"), "engine.nodes.count": 2, "engine.nodes.address": "a:1"}
    assert visible(launch_of("sglang", given | {"engine.args": ["--tp", "4"]})) == "0,1"
    ray = {"gpu.ids": ("0",), "engine.args": ["--distributed-executor-backend", "ray"]}
    plan = make_plan({"engine.kind": "vllm", **ray})
    assert plan.launch is not None
    assert visible(plan.launch) is None
    assert any("does not reach the engine" in each.message for each in plan.findings)


def test_the_time_to_finish_is_the_one_that_is_said() -> None:
    stopping = launch_of("vllm", {"engine.args": ["--shutdown-timeout", "0"]}).stopping
    assert (stopping.drains, stopping.drain_timeout_s) == (False, 0)
    plan = make_plan({"engine.kind": "vllm", "engine.args": ["--shutdown-timeout", "7"]})
    assert plan.launch is not None
    assert plan.launch.stopping.drain_timeout_s == 7
    assert "finishes what runs within 7 s" in plan_text(plan)
    assert launch_of("sglang", {"server.drain_timeout_s": 4.5}).stopping.drain_timeout_s == 4.5
    assert launch_of("sglang", {}).stopping.drain_timeout_s == 30


def test_whole_seconds_are_told_and_planned_alike() -> None:
    plan = make_plan({"engine.kind": "vllm", "server.drain_timeout_s": 0.5})
    text = plan_text(plan)
    assert "--shutdown-timeout 1" in text
    assert ", 0.5 s rounded up to whole ones" in text
    assert "finishes what runs within 1 s" in text
    document = plan_json(plan)["launch"]["stopping"]
    assert (document["drains"], document["drain_timeout_s"]) == (True, 1)
    assert "rounded" not in plan_text(make_plan({"engine.kind": "vllm"}))


@pytest.mark.parametrize(
    ("kind", "given", "has_requests"),
    [
        ("sglang", {}, True),
        ("vllm", {}, True),
        ("sglang", {"engine.args": ["--nnodes", "2", "--node-rank", "0"]}, True),
        ("sglang", {"engine.args": ["--nnodes", "2", "--node-rank", "1"]}, False),
        ("vllm", {"engine.args": ["--nnodes", "2", "--node-rank", "1"]}, False),
        ("vllm", {"engine.args": ["--headless"]}, False),
        ("sglang", {"engine.nodes.count": 2, "engine.nodes.rank": 1}, False),
        ("vllm", {"engine.nodes.count": 2, "engine.args": ["--node-rank=1"]}, False),
        # Of a single machine the rank says nothing.
        ("sglang", {"engine.nodes.rank": 1}, True),
    ],
)
def test_a_machine_without_clients_is_not_waited_for(
    kind: str, given: dict[str, Any], has_requests: bool
) -> None:
    plan = make_plan({"engine.kind": kind, **given})
    assert plan.launch is not None
    assert plan.launch.stopping.has_requests == has_requests
    assert ("SIGTERM at once" in plan_text(plan)) == (not has_requests)


def test_a_headless_machine_of_engine_args_is_told_nothing_of_serving() -> None:
    launch = launch_of("vllm", {"engine.args": ["--headless"]})
    words = launch.argv()
    assert words.count("--headless") == 1
    assert not {"--api-server-count", "--host", "--port", "--shutdown-timeout"} & set(words)
    assert not launch.stopping.drains


def test_an_old_switch_is_not_rewritten_beside_its_successor() -> None:
    args = ["--disable-fast-image-processor", "--image-processor-backend", "torchvision"]
    launch = launch_of("sglang", {"engine.args": args}, checkpoint=make_checkpoint(QWEN))
    assert launch.argv()[-3:] == tuple(args)


def test_words_that_are_anchored_elsewhere_do_not_say_who_set_a_setting() -> None:
    plan = make_plan({"engine.kind": "sglang", "engine.args": ["--tp", "8"]})
    (finding,) = (each for each in plan.findings if each.rule == "KS105")
    assert finding.path == "engine.args"
    assert finding.severity == "error"


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        ({"engine.args": ["--brand-new-flag"]}, "error"),
        ({"engine.args": ["--brand-new-flag"], "engine.version": "0.99.0"}, "warning"),
        ({"engine.env": {"SGLANG_BRAND_NEW": "1"}}, "warning"),
    ],
)
def test_what_is_not_certain_stops_no_launch(given: dict[str, Any], severity: str) -> None:
    plan = make_plan({"engine.kind": "sglang", "model.trust_remote_code": True, **given})
    found = [each.severity for each in plan.findings if each.rule in ("KS102", "KS103")]
    assert found == [severity]
