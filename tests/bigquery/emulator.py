"""Starts the emulator with room for clients that are killed.

It reads each stream of rows in a thread of asyncio's own pool, and a stream whose client is killed
keeps its thread. The pool has four threads more than the machine has cores, so after some kills the
emulator would take no rows any more.
"""

import functools
from concurrent.futures import ThreadPoolExecutor

THREADS = 2_000

start_pool = ThreadPoolExecutor.__init__


@functools.wraps(start_pool)
def start_large_pool(self, max_workers=None, *more, **named):
    start_pool(self, max_workers or THREADS, *more, **named)


ThreadPoolExecutor.__init__ = start_large_pool

if __name__ == "__main__":
    import sys

    from bqemulator.cli import main

    sys.argv[0] = "bqemulator"
    sys.exit(main())
