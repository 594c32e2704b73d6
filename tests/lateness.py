"""The time for which an operation goes on after it should have ended."""

# In seconds, in the best of some runs: other programs use the machine, too.
LATE = 0.1
TRIES = 6


def check_late(run, bound=LATE):
    """`run` returns how late an operation has ended."""
    late = []
    while not late or late[-1] >= bound:
        assert len(late) < TRIES, late
        late.append(run())
