"""A disk on which a file can grow to a few bytes only, for this process."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def little_room(size: int) -> Iterator[None]:
    """Let every write beyond ``size`` bytes of a file fail (EFBIG); POSIX only."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
