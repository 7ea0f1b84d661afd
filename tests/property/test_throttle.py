"""While a throttle says that there is room, no task of the promised size waits."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dstl_core.changelog.upload.throttle import InFlightAccount, UploadThrottle
from dstl_core.errors import BackpressureTimeoutError
from dstl_core.testing import ManualScheduler

LIMIT = 100

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["seize", "release", "hold", "give up", "hangs", "returns"]),
        st.integers(0, 2),
        st.integers(0, 150),
    ),
    max_size=40,
)


class World:
    """A throttle whose calls never wait, with what is in flight counted beside it."""

    def __init__(self, promised: int) -> None:
        self.throttle = UploadThrottle(LIMIT, ManualScheduler(), promised=promised)
        self.accounts = [InFlightAccount(self.throttle) for _ in range(3)]
        self.fresh: list[tuple[int, int]] = []
        self.charges: list[int] = []
        self.refused = 0

    def admits(self, writer: int, size: int) -> bool:
        try:
            self.throttle.seize(size, self.accounts[writer], 0)
        except BackpressureTimeoutError:
            return False
        self.fresh.append((writer, size))
        return True

    def step(self, step: Step) -> None:
        action, writer, size = step
        match action:
            case "seize":
                self.admits(writer, size)
            case "release" if self.fresh:
                self.throttle.release(self.fresh.pop()[1])
            case "hold" if self.fresh:
                owner, held = self.fresh.pop()
                self.throttle.hold(self.accounts[owner], held)
            case "give up":
                self.accounts[writer].give_up(size)
            case "hangs":
                self.charges.append(self.throttle.attempt_hangs(size))
            case "returns" if self.charges:
                self.throttle.attempt_returned(self.charges.pop())


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.integers(1, 120), st.integers(0, 2), st.integers(0, 120))
def test_room_that_is_promised_is_there(
    steps: list[Step], promised: int, writer: int, size: int
) -> None:
    world = World(promised)
    for step in steps:
        world.step(step)
    if world.throttle.availability.is_available() and size <= promised:
        assert world.admits(writer, size)


@given(STEPS, st.integers(0, 2), st.integers(1, 150))
def test_after_a_refusal_there_is_room_when_the_task_fits(
    steps: list[Step], writer: int, size: int
) -> None:
    world = World(promised=1)
    for step in steps:
        world.step(step)
    if not world.admits(writer, size):
        future = world.throttle.availability.get_available_future()
        assert not world.throttle.availability.is_available()
        while not future.done():
            # What is in flight ends, one after the other.
            if world.fresh:
                world.step(("release", 0, 0))
            elif world.charges:
                world.step(("returns", 0, 0))
            else:
                holder = max(range(3), key=lambda account: world.accounts[account].held)
                world.step(("give up", holder, world.accounts[holder].held))
        assert world.admits(writer, size)
