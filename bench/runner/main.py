"""The command line of `bench/run`."""

import argparse

from . import check, latency, place, sources


def main(arguments: list[str]) -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(prog="bench/run", description="Runs benchmarks.")
    names = parser.add_subparsers(dest="name", required=True)
    of_sources = names.add_parser("sources", help="the experiments of the sources, and a page")
    sources.add_flags(of_sources)
    names.add_parser("check", help="are the figures of README.md stored, and not too old?")
    of_latency = names.add_parser("latency", help="kafka-to-kafka and rate-to-stats",
                                  add_help=False)
    of_latency.add_argument("flags", nargs=argparse.REMAINDER)
    # Flags that are not ours would be refused before they are handed on.
    if arguments[:1] == ["latency"]:
        return latency.run(arguments[1:])
    flags = parser.parse_args(arguments)
    return check.run(place.ROOT) if flags.name == "check" else sources.run(flags)
