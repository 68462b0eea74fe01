"""Pauses and the limit of restarts, with the clock in hand."""

from __future__ import annotations

import pytest

from kimi_serve.preprocess.workers.restarts import (
    LONGEST_USEFUL_PAUSE_S,
    MAX_KILLED,
    MAX_KILLED_STARTING,
    MAX_USELESS,
    MAX_USELESS_STARTING,
    PAUSES_S,
    WINDOW_S,
    EndKind,
    RestartPolicy,
)


def test_accidents_cost_no_time_and_loops_do() -> None:
    policy = RestartPolicy()
    pauses = [policy.next_pause(float(second), "useless") for second in range(10)]
    assert pauses == [*PAUSES_S, PAUSES_S[-1], PAUSES_S[-1]]


def test_what_is_of_use_comes_back_soon() -> None:
    policy = RestartPolicy()
    pauses = [policy.next_pause(0.1 * n, "useful") for n in range(100)]
    assert pauses[-1] == LONGEST_USEFUL_PAUSE_S


def test_the_window_forgets() -> None:
    policy = RestartPolicy()
    for _ in range(20):
        policy.next_pause(0.0, "useful")
    assert policy.next_pause(WINDOW_S + 1, "useful") == 0.0


def test_what_is_of_no_use_is_given_up() -> None:
    policy = RestartPolicy()
    pauses = [policy.next_pause(1000.0 * n, "useless") for n in range(MAX_USELESS + 1)]
    assert pauses == [0.0] * MAX_USELESS + [None]


def test_one_use_starts_the_count_again() -> None:
    policy = RestartPolicy()
    for _ in range(MAX_USELESS):
        policy.next_pause(0.0, "useless")
    assert policy.next_pause(0.0, "useful") is not None
    assert policy.next_pause(0.0, "useless") is not None


def test_what_is_of_use_may_end_for_ever() -> None:
    policy = RestartPolicy()
    assert None not in [policy.next_pause(0.1 * n, "useful") for n in range(1000)]


def test_kills_from_outside_are_borne_longer_and_not_for_ever() -> None:
    policy = RestartPolicy()
    pauses = [policy.next_pause(0.1 * n, "killed") for n in range(MAX_KILLED + 1)]
    assert None not in pauses[:-1]
    assert max(pause for pause in pauses[:-1] if pause is not None) == LONGEST_USEFUL_PAUSE_S
    assert pauses[-1] is None


def test_kills_count_for_nothing_that_is_useless() -> None:
    policy = RestartPolicy()
    for _ in range(MAX_USELESS):
        assert policy.next_pause(0.0, "killed") is not None
        assert policy.next_pause(0.0, "useless") is not None
    assert policy.next_pause(0.0, "useless") is None


@pytest.mark.parametrize(
    ("kind", "most"), [("killed", MAX_KILLED_STARTING), ("useless", MAX_USELESS_STARTING)]
)
def test_a_start_that_somebody_waits_for_is_given_up_sooner(kind: EndKind, most: int) -> None:
    policy = RestartPolicy()
    pauses = [policy.next_pause(0.0, kind, is_starting=True) for _ in range(most + 1)]
    assert [pause is None for pause in pauses] == [False] * most + [True]
