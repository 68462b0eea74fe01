"""When an engine is started again, with the times in hand."""

from __future__ import annotations

from kimi_serve.launcher.supervise.restarts import LONGEST_PAUSE_S, RECOVERED_S, Restarts


def test_never_is_never() -> None:
    restarts = Restarts("never", limit=9, first_pause_s=1)
    assert restarts.next_pause_s(ready_for_s=3600, is_usage=False) is None


def test_pauses_double_up_to_a_minute_and_the_row_has_an_end() -> None:
    restarts = Restarts("on-failure", limit=8, first_pause_s=1)
    pauses = [restarts.next_pause_s(ready_for_s=None, is_usage=False) for _ in range(9)]
    assert pauses == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE_S, LONGEST_PAUSE_S, None]
    assert restarts.total == 8


def test_a_longer_first_pause_stays() -> None:
    restarts = Restarts("on-failure", limit=2, first_pause_s=300)
    pauses = [restarts.next_pause_s(ready_for_s=None, is_usage=False) for _ in range(2)]
    assert pauses == [300, 300]


def test_many_failures_overflow_nothing() -> None:
    restarts = Restarts("on-failure", limit=2000, first_pause_s=1)
    pauses = [restarts.next_pause_s(ready_for_s=None, is_usage=False) for _ in range(2000)]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_ten_minutes_of_service_begin_a_new_row() -> None:
    restarts = Restarts("on-failure", limit=1, first_pause_s=1)
    assert restarts.next_pause_s(ready_for_s=1, is_usage=False) == 1
    assert restarts.next_pause_s(ready_for_s=RECOVERED_S, is_usage=False) == 1
    assert restarts.next_pause_s(ready_for_s=RECOVERED_S - 1, is_usage=False) is None


def test_a_wrong_command_is_not_tried_twice_unless_it_has_served() -> None:
    restarts = Restarts("on-failure", limit=3, first_pause_s=1)
    assert restarts.next_pause_s(ready_for_s=None, is_usage=True) is None
    assert restarts.next_pause_s(ready_for_s=5, is_usage=False) == 1
    assert restarts.next_pause_s(ready_for_s=None, is_usage=True) == 2
