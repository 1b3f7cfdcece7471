"""Both players' learners side by side: torch's operations run outside Python's lock."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def side_by_side(work: Sequence[Callable[[], T]], parallel: bool) -> list[T]:
    """The results of all `work`, in order; one thread each where `parallel`. The first error is raised."""
    if not parallel or len(work) < 2:
        return [each() for each in work]
    with ThreadPoolExecutor(len(work)) as pool:
        return [future.result() for future in [pool.submit(each) for each in work]]
