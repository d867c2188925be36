"""`bench/run latency`: kafka-to-kafka and rate-to-stats, with lines and charts in bench/results/.

The flags are those of kafka-to-kafka.
"""

import subprocess
from datetime import datetime, timezone

from . import place, work

RESULTS = place.ROOT / "bench/results"


def run(flags: list[str]) -> int:
    """Gives the exit status."""
    try:
        program = work.build()
        named = place.git(place.ROOT, "describe", "--always", "--dirty", "--tags").strip()
        stamp = f"{datetime.now(timezone.utc):%Y-%m-%d}-{named}"
        for name, arguments in (("kafka-to-kafka", flags), ("rate-to-stats", [])):
            lines = RESULTS / f"{name}-{stamp}.jsonl"
            with open(lines, "wb") as out:
                subprocess.run([program, name, *arguments], stdout=out, check=True)
            chart = lines.with_suffix(".svg")
            subprocess.run([program, "plot", lines, "-o", chart], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        work.say(f"error: {error}")
        return 1
    work.say(f"results are in {RESULTS}")
    return 0
