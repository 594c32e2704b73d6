"""Waiting for what happens beside a test."""
import time


def until(condition, seconds=60):
    """Returns the condition's first value that is true. A test has its own end: this gives it a message."""
    last = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < last, "it did not come to that"
        time.sleep(0.005)
    return found
