"""Ranks that are lost, as the heartbeats of others notice them, in beats of a hundredth of a second."""

import time
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from heedful.training import interrupt
from heedful.training.interrupt import Heartbeat, Phase

Pair = tuple[Heartbeat, Heartbeat]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The messages of processes that would have been ended."""
    monkeypatch.setattr(interrupt, "_BEAT", 0.01)
    messages: list[str | None] = []
    monkeypatch.setattr(Heartbeat, "_end_process", lambda self: messages.append(self.lost))
    return messages


@pytest.fixture
def ranks(ended: list[str | None]) -> Iterator[Pair]:
    store = dist.HashStore()
    both = Heartbeat(store, 0, 2), Heartbeat(store, 1, 2)
    for each in both:
        each.is_waiting = True
        each.enter(Phase.FORWARD, step=1)
        each.enter(Phase.DONE)
    yield both
    for each in both:
        each.end()


def wait_for(heartbeat: Heartbeat) -> str:
    for _ in range(500):
        if heartbeat.lost is not None:
            return heartbeat.lost
        time.sleep(0.01)
    raise AssertionError("nobody was lost")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_gives_no_sign_is_lost(lost: int, ranks: Pair, ended: list[str | None]) -> None:
    ranks[1].enter(Phase.FORWARD, step=7)
    ranks[0].enter(Phase.FORWARD, step=7)
    time.sleep(0.1)
    ranks[lost].end()
    message = wait_for(ranks[1 - lost])
    assert message.startswith(f"rank {lost} (")
    assert "gave no sign for 20 seconds (stopped, or its host unreachable?) in step 7; torchrun" in message
    for _ in range(500):
        if ended:
            break
        time.sleep(0.01)
    assert ended[0] == message  # the main thread did not report it


def test_after_a_closed_connection_a_few_beats_are_enough(ranks: Pair) -> None:
    time.sleep(0.1)
    ranks[1].end()
    message = ranks[0].explain()
    assert message is not None
    assert "ended unexpectedly (killed, or out of memory?) after step 1; torchrun --max-restarts" in message


def test_nobody_is_lost_while_all_are_there(ranks: Pair, ended: list[str | None]) -> None:
    assert ranks[0].explain() is None
    assert ranks[1].explain() is None
    assert not ended


def test_a_rank_that_says_itself_why_it_ends_is_not_reported_by_others(ranks: Pair) -> None:
    ranks[0].end(failed=True)
    assert "rank 0" in wait_for(ranks[1])
    assert not ranks[1].is_reporter


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ((Phase.BACKWARD, Phase.FORWARD), "rank 1 ("),
        ((Phase.FORWARD, Phase.BACKWARD), "rank 0 ("),
        ((Phase.BACKWARD, Phase.BACKWARD), "all ranks wait for 30 seconds in step 2"),
    ],
)
def test_a_rank_that_is_behind_while_the_others_wait_hangs(
    phases: tuple[Phase, Phase], message: str, ranks: Pair
) -> None:
    for each, phase in zip(ranks, phases, strict=True):
        each.enter(Phase.FORWARD, step=2)
        each.enter(phase)
    found = wait_for(ranks[0])
    assert found.startswith(message)
    assert "for 30 seconds in step 2" in found


@pytest.mark.slow
def test_between_steps_rank_0_may_take_its_time(ranks: Pair, ended: list[str | None]) -> None:
    time.sleep(0.01 * 3 * interrupt._STANDSTILL)
    assert ranks[0].lost is None
    assert not ended
