"""Which worker gets what, with workers that are only looked at."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from in_loop import in_loop

from kimi_serve.preprocess.workers.dispatch import Dispatcher
from kimi_serve.preprocess.workers.jobs import MAX_CRASHES, MAX_DEATHS, Death, Job
from kimi_serve.preprocess.workers.worker_link import WorkerLink
from kimi_serve.schemas import errors, messages


class FakeLink:
    """As much of a worker as the dispatcher looks at."""

    def __init__(self, index: int, slots: int = 3) -> None:
        self.spec = type("Spec", (), {"index": index})
        self.is_usable = True
        self.image_job: Job | None = None
        self.text_job: Job | None = None
        self.slots = slots

    @property
    def state(self) -> str:
        return "busy" if self.image_job or self.text_job else "ready"

    @property
    def has_long_text(self) -> bool:
        return self.image_job is not None and self.image_job.is_long_text

    @property
    def has_suspect(self) -> bool:
        return any(job is not None and job.is_suspect for job in (self.image_job, self.text_job))

    def can_take(self, *, image: bool) -> bool:
        if image:
            return self.is_usable and self.image_job is None and self.slots > 0
        return self.is_usable and self.text_job is None

    def send(self, job: Job) -> None:
        if job.is_heavy:
            self.image_job = job
        else:
            self.text_job = job


def make(link_count: int) -> tuple[Dispatcher, list[FakeLink], list[Job]]:
    overdue: list[Job] = []
    dispatcher = Dispatcher(0.01, lambda _link, job: overdue.append(job))
    return dispatcher, [FakeLink(index) for index in range(link_count)], overdue


def pump(dispatcher: Dispatcher, links: list[FakeLink]) -> None:
    dispatcher.pump(cast("list[WorkerLink]", links))


def image(dispatcher: Dispatcher, request: object = None) -> Job:
    return dispatcher.add(
        b"x",
        lambda job_id, slot: messages.ImageJob(job_id, slot, "raw"),
        is_image=True,
        request=request,
    )


def text(dispatcher: Dispatcher, size: int = 1) -> Job:
    return dispatcher.add(b"x" * size, lambda job_id, _: messages.TextJob(job_id), is_image=False)


@in_loop
async def test_images_of_one_request_use_all_workers() -> None:
    dispatcher, links, _ = make(3)
    jobs = [image(dispatcher) for _ in range(4)]
    pump(dispatcher, links)
    assert [link.image_job for link in links] == jobs[:3]
    assert dispatcher.num_queued == 1


@in_loop
async def test_requests_take_turns() -> None:
    dispatcher, links, _ = make(1)
    many = [image(dispatcher, "many") for _ in range(3)]
    few = [image(dispatcher, "few") for _ in range(2)]
    order: list[Job | None] = []
    for _ in range(5):
        pump(dispatcher, links)
        order.append(links[0].image_job)
        links[0].image_job = None
    assert order == [many[0], few[0], many[1], few[1], many[2]]


@in_loop
async def test_suspects_run_one_at_a_time_and_others_go_on() -> None:
    dispatcher, links, _ = make(3)
    suspects = [image(dispatcher) for _ in range(2)]
    for job in suspects:
        dispatcher.forget(job)
        for index in (7, 8):
            job.deaths.append(Death(index, "killed by SIGSEGV", is_crash=True))
        dispatcher.send_elsewhere(job, Death(9, "killed by SIGSEGV", is_crash=True))
    good = image(dispatcher)
    pump(dispatcher, links)
    assert [link.image_job for link in links] == [suspects[0], good, None]
    assert dispatcher.num_queued == 1
    links[0].image_job = None
    pump(dispatcher, links)
    assert suspects[1] in [link.image_job for link in links]


@in_loop
async def test_a_suspect_that_nobody_waits_for_is_dropped() -> None:
    dispatcher, links, _ = make(0)
    job = image(dispatcher)
    dispatcher.forget(job)
    for index in range(3):
        dispatcher.send_elsewhere(job, Death(index, "killed by SIGKILL", is_crash=False))
        dispatcher.forget(job)
    assert dispatcher.num_queued == 0
    pump(dispatcher, links)


@in_loop
async def test_a_text_does_not_wait_for_images() -> None:
    dispatcher, links, _ = make(1)
    image(dispatcher)
    image(dispatcher)
    waiting = text(dispatcher)
    pump(dispatcher, links)
    assert links[0].text_job is waiting


@in_loop
async def test_a_worker_has_one_text_at_a_time() -> None:
    dispatcher, links, _ = make(2)
    jobs = [text(dispatcher) for _ in range(5)]
    pump(dispatcher, links)
    assert [link.text_job for link in links] == jobs[:2]
    assert dispatcher.num_queued == 3


@in_loop
async def test_long_texts_go_one_at_a_time_where_images_go() -> None:
    dispatcher, links, _ = make(2)
    long = [text(dispatcher, messages.LONG_TEXT_BYTES + 1) for _ in range(3)]
    picture = image(dispatcher)
    short = [text(dispatcher, messages.LONG_TEXT_BYTES) for _ in range(2)]
    pump(dispatcher, links)
    assert [link.image_job for link in links] == [long[0], picture]
    assert {link.text_job for link in links} == set(short)
    links[1].image_job = None
    pump(dispatcher, links)
    assert links[1].image_job is None
    links[0].image_job = None
    pump(dispatcher, links)
    assert long[1] in [link.image_job for link in links]


@in_loop
async def test_a_long_text_is_given_up_and_tried_again_like_an_image() -> None:
    dispatcher, links, _ = make(1)
    long = text(dispatcher, messages.LONG_TEXT_BYTES + 1)
    pump(dispatcher, links)
    links[0].image_job = None
    assert dispatcher.send_elsewhere(long, Death(0, "killed by SIGKILL", is_crash=False))
    dispatcher.forget(long)
    assert dispatcher.num_queued == 0


@in_loop
async def test_texts_prefer_a_worker_without_an_image() -> None:
    dispatcher, links, _ = make(2)
    image(dispatcher)
    pump(dispatcher, links)
    waiting = text(dispatcher)
    pump(dispatcher, links)
    assert links[1].text_job is waiting


@in_loop
async def test_a_worker_without_a_free_slot_gets_no_image() -> None:
    dispatcher, links, _ = make(2)
    links[0].slots = 0
    job = image(dispatcher)
    pump(dispatcher, links)
    assert links[1].image_job is job


@in_loop
async def test_a_job_goes_to_another_worker_than_the_one_that_died_with_it() -> None:
    dispatcher, links, _ = make(2)
    first, second = image(dispatcher), image(dispatcher)
    pump(dispatcher, links)
    links[0].image_job = None
    assert dispatcher.send_elsewhere(first, Death(0, "killed by SIGKILL", is_crash=False))
    third = image(dispatcher)
    pump(dispatcher, links)
    assert links[0].image_job is third
    links[1].image_job = None
    pump(dispatcher, links)
    assert links[1].image_job is first
    assert not second.answered.done()


@in_loop
async def test_the_only_worker_gets_it_again() -> None:
    dispatcher, links, _ = make(1)
    job = image(dispatcher)
    assert dispatcher.send_elsewhere(job, Death(0, "killed by SIGKILL", is_crash=False))
    pump(dispatcher, links)
    assert links[0].image_job is job


@in_loop
async def test_crashes_are_the_images_fault_at_last() -> None:
    dispatcher, _, _ = make(1)
    job = image(dispatcher)
    dispatcher.forget(job)
    went_on = [
        dispatcher.send_elsewhere(job, Death(index, "killed by SIGSEGV", is_crash=True))
        for index in range(MAX_CRASHES)
    ]
    assert went_on == [True] * (MAX_CRASHES - 1) + [False]
    assert isinstance(job.answered.exception(), errors.MediaError)


@in_loop
async def test_kills_from_outside_are_nobodys_fault() -> None:
    dispatcher, _, _ = make(1)
    job = image(dispatcher)
    for index in range(MAX_DEATHS):
        dispatcher.send_elsewhere(job, Death(index, "killed by SIGKILL", is_crash=False))
    assert isinstance(job.answered.exception(), errors.UnavailableError)


@in_loop
async def test_a_text_is_never_called_a_damaged_image() -> None:
    dispatcher, _, _ = make(1)
    job = text(dispatcher)
    for index in range(MAX_CRASHES):
        dispatcher.send_elsewhere(job, Death(index, "killed by SIGSEGV", is_crash=True))
    assert isinstance(job.answered.exception(), errors.UnavailableError)


@in_loop
async def test_what_nobody_waits_for_is_dropped_with_its_payload() -> None:
    dispatcher, links, _ = make(0)
    jobs = [image(dispatcher) for _ in range(100)]
    for job in jobs:
        job.answered.cancel()
        dispatcher.forget(job)
    assert dispatcher.num_queued == 0
    pump(dispatcher, links)


@in_loop
async def test_a_cancelled_job_is_not_started() -> None:
    dispatcher, links, _ = make(1)
    gone, here = image(dispatcher), image(dispatcher)
    gone.answered.cancel()
    pump(dispatcher, links)
    assert links[0].image_job is here


@in_loop
async def test_the_clock_starts_with_the_worker() -> None:
    dispatcher, links, overdue = make(1)
    running, waiting = image(dispatcher), image(dispatcher)
    pump(dispatcher, links)
    assert running.overdue is not None
    assert waiting.overdue is None
    while not overdue:
        await asyncio.sleep(0)
    assert overdue == [running]


@in_loop
async def test_everything_that_waits_can_be_given_up() -> None:
    dispatcher, _, _ = make(0)
    jobs = [image(dispatcher), text(dispatcher)]
    dispatcher.fail_all("the server is stopping")
    for job in jobs:
        with pytest.raises(errors.UnavailableError):
            job.answered.result()
