"""Groups of their own for all tests."""

import itertools
import os
from collections.abc import Callable

import pytest

_numbers = itertools.count()


@pytest.fixture
def group() -> Callable[[], dict[str, str]]:
    """Makes the options of a group that no other test uses, on the loopback interface."""

    def make() -> dict[str, str]:
        number = next(_numbers)
        return {"group": f"239.255.{os.getpid() % 200}.{number % 250 + 1}:{20000 + os.getpid() % 20000}", "interface": "lo"}

    return make
