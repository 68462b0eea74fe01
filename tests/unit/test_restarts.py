"""Pauses and the limit of restarts, with the clock in hand."""

from __future__ import annotations

from kimi_serve.preprocess.workers.restarts import (
    LONGEST_USEFUL_PAUSE_S,
    MAX_USELESS,
    PAUSES_S,
    WINDOW_S,
    RestartPolicy,
)


def test_accidents_cost_no_time_and_loops_do() -> None:
    policy = RestartPolicy()
    pauses = [policy.next_pause(float(second), was_useful=False) for second in range(10)]
    assert pauses == [*PAUSES_S, PAUSES_S[-1], PAUSES_S[-1]]


def test_what_is_of_use_comes_back_soon() -> None:
    policy = RestartPolicy()
    pauses = [policy.next_pause(0.1 * n, was_useful=True) for n in range(100)]
    assert pauses[-1] == LONGEST_USEFUL_PAUSE_S


def test_the_window_forgets() -> None:
    policy = RestartPolicy()
    for _ in range(20):
        policy.next_pause(0.0, was_useful=True)
    assert policy.next_pause(WINDOW_S + 1, was_useful=True) == 0.0


def test_what_is_of_no_use_is_given_up() -> None:
    policy = RestartPolicy()
    pauses = [policy.next_pause(1000.0 * n, was_useful=False) for n in range(MAX_USELESS + 1)]
    assert pauses == [0.0] * MAX_USELESS + [None]


def test_one_use_starts_the_count_again() -> None:
    policy = RestartPolicy()
    for _ in range(MAX_USELESS):
        policy.next_pause(0.0, was_useful=False)
    assert policy.next_pause(0.0, was_useful=True) is not None
    assert policy.next_pause(0.0, was_useful=False) is not None


def test_what_is_of_use_may_end_for_ever() -> None:
    policy = RestartPolicy()
    assert None not in [policy.next_pause(0.1 * n, was_useful=True) for n in range(1000)]
