#!/usr/bin/env python3
"""Plants the small faults of list.txt, one at a time, and sees whether a test fails.

All faults are built into one copy of the checkout: each place reads

    if crate::fault(17) { the faulty code } else { the original }

and `fault` compares the number with the environment variable MILLSTREAM_FAULT. So one build serves
all of them. The product itself has nothing of this.

    tests/faults/run.py check                 is every place found, once?
    tests/faults/run.py build --copy DIR      copies the checkout, plants the faults, builds tests
    tests/faults/run.py run --copy DIR        runs the layers of tests against every fault
    tests/faults/run.py run --copy DIR 3 7-12         ... against some of them
    tests/faults/run.py report --copy DIR     writes results.md from what was found; fails if a
                                              fault survives without a reason in list.txt

DIR is outside the checkout and is kept: outcomes are in DIR/outcomes.json, so an interrupted run
goes on where it stopped. `--again` forgets the outcomes of the chosen faults. The build goes to
CARGO_TARGET_DIR, as usual; CARGO names another cargo.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
LIST = HERE / "list.txt"
RESULTS = HERE / "results.md"

# A run of a layer without a fault times this, and this many seconds besides, is a hang.
PATIENCE_FACTOR, PATIENCE_SECONDS = 3, 20

FAULT = """
/// Whether the fault of this number is planted; see tests/faults.
#[allow(dead_code, clippy::disallowed_methods)]
pub(crate) fn fault(number: u32) -> bool {
    static PLANTED: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    let read = || std::env::var("MILLSTREAM_FAULT").ok()?.parse().ok();
    *PLANTED.get_or_init(read) == Some(number)
}
"""

# Tests of the driver that take a hundred times as long as the others.
CRASHES = [
    "driver::tests::several::crashes_at", "driver::tests::several::letters::crashes_at",
    "driver::tests::several::checked::what_the_time",
]
SNAPSHOTS = [
    "driver::tests::snapshot_builders", "driver::tests::stateful::state_beyond",
    "driver::tests::stateful::a_snapshot_whose",
]
# As those, of the connectors.
SPARK_FINDS = "files::metadata_log::tests::spark_finds"

# The layers, from cheap to dear: the test binary, by its package and target, and the filters; "-"
# leaves tests out.
LAYERS = {
    "store unit": ("millstream-store", "lib", []),
    "store it": ("millstream-store", "it", []),
    "driver unit": ("millstream-engine", "lib", [
        "driver::", *(f"-{test}" for test in CRASHES + SNAPSHOTS),
    ]),
    "driver snapshots": ("millstream-engine", "lib", SNAPSHOTS),
    "driver crashes": ("millstream-engine", "lib", CRASHES),
    "state unit": ("millstream-engine", "lib", ["state::"]),
    "kafka unit": ("millstream-kafka", "lib", ["sink::"]),
    "lake unit": ("millstream-lake", "lib", []),
    "lake it": ("millstream-lake", "it", []),
    "connectors unit": ("millstream-connectors", "lib", [
        "delta::", "files::", "gather::", f"-{SPARK_FINDS}",
    ]),
    "connectors' log as Spark reads it": ("millstream-connectors", "lib", [SPARK_FINDS]),
    "connectors it": ("millstream-connectors", "it", [
        "files_sink", "files_hour", "delta_sink", "registry",
    ]),
    "simulation": ("millstream-sim", "simulation", ["no_schedule"]),
    "end to end: checkpoints": ("millstream", "end_to_end", [
        "old_checkpoints", "checkpoint_damage",
    ]),
    "end to end: state": ("millstream", "end_to_end", ["stateful_flows", "windows"]),
    "end to end: exactly once": ("millstream", "end_to_end", [
        "exactly_once::each_record", "exactly_once::a_micro_batch_larger",
        "exactly_once::rows_that_name", "exactly_once::a_source_that_is_not_kafka",
    ]),
    "end to end: transactions": ("millstream", "end_to_end", [
        "exactly_once::a_crash_at_any_step", "exactly_once::kills_at_random",
        "exactly_once::the_later_of_two", "exactly_once::both_ways",
        "exactly_once::connections_cut", "renamed::", "refused_rows::",
    ]),
    "end to end: recovery": ("millstream", "end_to_end", [
        "checkpoint_damage", "old_checkpoints", "delivery", "renamed",
        "exactly_once::a_crash_at_any_step",
    ]),
    "end to end: Delta": ("millstream", "end_to_end", ["delta::"]),
    "end to end: files": ("millstream", "end_to_end", ["files_exactly_once::"]),
    "end to end: several sinks": ("millstream", "end_to_end", ["several_sinks::"]),
    "end to end: power cuts": ("millstream", "end_to_end", ["power_cuts::"]),
}

# How the names of layers begin that `--cheap` leaves out.
DEAR = ("end to end", "simulation", "driver crashes", "driver snapshots", "connectors'")

# What the layers of a run have in their environment: a fault shows in few seeds or in many.
ENVIRONMENT = {"simulation": {"MILLSTREAM_SIM_SEEDS": "0..200"}}


@dataclass
class Area:
    """Faults of one kind, and the layers of tests that are to catch them."""

    name: str
    layers: list


@dataclass
class Fault:
    """One entry of list.txt."""

    number: int
    area: Area
    file: str
    words: str
    context: list = field(default_factory=list)
    was: list = field(default_factory=list)
    now: list = field(default_factory=list)
    reason: str = ""
    is_raw: bool = False


def read_list():
    """The areas and faults of list.txt; its head says what its lines mean."""
    areas, faults, area, file = [], [], None, None
    for line_number, line in enumerate(LIST.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("area "):
            area = Area(line[5:].strip(), [])
            areas.append(area)
        elif line.startswith("layers "):
            area.layers = [layer.strip() for layer in line[7:].split("|")]
            unknown = [layer for layer in area.layers if layer not in LAYERS]
            if unknown:
                sys.exit(f"{LIST}:{line_number}: no layer {unknown}")
        elif line.startswith("file "):
            file = line[5:].strip()
        elif line[0].isdigit():
            number, words = line.split(" ", 1)
            faults.append(Fault(int(number), area, file, words))
        elif line[:3] in ("  @", "  -", "  +", "  *", "  =", "   "):
            kind, text, fault = line[2], line[4:], faults[-1]
            kind = last_kind if kind == " " else kind
            last_kind = kind
            if kind == "@":
                fault.context.append(text)
            elif kind == "-":
                fault.was.append(text)
            elif kind == "=":
                fault.reason = f"{fault.reason} {text}".strip()
            else:
                fault.now.append(text)
                fault.is_raw = fault.is_raw or kind == "*"
        else:
            sys.exit(f"{LIST}:{line_number}: not understood: {line}")
    numbers = [fault.number for fault in faults]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        sys.exit(f"{LIST}: more than one fault has the numbers {twice}")
    return areas, faults


def pattern(lines):
    """Finds the lines' text however it is broken into lines."""
    return re.compile(r"\s+".join(re.escape(word) for word in " ".join(lines).split()))


def place(fault, text):
    """Where the original of `fault` is in `text`: from and to."""
    product_end = text.find("#[cfg(test)]\nmod tests {")
    end = product_end if product_end >= 0 else len(text)
    begin = 0
    if fault.context:
        found = list(pattern(fault.context).finditer(text, 0, end))
        if len(found) != 1:
            raise ValueError(f"{fault.number}: its context is in {fault.file} {len(found)} times")
        # The place may lie within its context.
        begin = found[0].start()
        match = pattern(fault.was).search(text, begin, end)
        if match:
            return match.span()
    found = list(pattern(fault.was).finditer(text, begin, end))
    if len(found) != 1:
        raise ValueError(f"{fault.number}: its original is in {fault.file} {len(found)} times")
    return found[0].span()


def planted(fault, original):
    """The code that is either the original or the fault."""
    now, condition = "\n".join(fault.now), f"crate::fault({fault.number})"
    if fault.is_raw:
        return now.replace("FAULT", condition)
    if original.rstrip().endswith((";", "}")) and not original.startswith(("{", "Self {")):
        return f"if {condition} {{ {now} }} else {{ {original} }}"
    return f"(if {condition} {{ {now} }} else {{ {original} }})"


def instrumented(faults, root):
    """By file, its text with all its faults in it."""
    texts, problems = {}, []
    by_file = {}
    for fault in faults:
        by_file.setdefault(fault.file, []).append(fault)
    for file, of_file in by_file.items():
        text, places = (root / file).read_text(), []
        for fault in of_file:
            try:
                places.append((*place(fault, text), fault))
            except ValueError as error:
                problems.append(str(error))
        places.sort(key=lambda found: found[:2])
        by_span = {}
        for begin, end, fault in places:
            by_span.setdefault((begin, end), []).append(fault)
        spans = sorted(by_span)
        for (one, end), (begin, other) in zip(spans, spans[1:]):
            if begin < end:
                numbers = by_span[(one, end)][0].number, by_span[(begin, other)][0].number
                problems.append(f"{numbers[0]} and {numbers[1]} overlap")
        for begin, end in reversed(spans):
            original = text[begin:end]
            for fault in by_span[(begin, end)]:
                original = planted(fault, original)
            text = text[:begin] + original + text[end:]
        texts[file] = text
    return texts, problems


def write_if_changed(path, text):
    """Leaves a file that is as it should be alone, so that cargo does not build it again."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def copy_checkout(copy, faults):
    """Copies what git knows or would add, and plants the faults in the copy."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, check=True, capture_output=True,
    ).stdout.decode()
    names = [name for name in listed.split("\0") if name and (CHECKOUT / name).is_file()]
    texts, problems = instrumented(faults, CHECKOUT)
    if problems:
        sys.exit("\n".join(problems))
    crates = sorted({"/".join(file.split("/")[:2]) for file in texts})
    for crate in crates:
        lib = f"{crate}/src/lib.rs"
        texts[lib] = texts.get(lib, (CHECKOUT / lib).read_text()) + FAULT
    for name in names:
        source, target = CHECKOUT / name, copy / name
        if name in texts:
            write_if_changed(target, texts[name])
        elif not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    known = set(names)
    for path in sorted(copy.rglob("*")):
        name = str(path.relative_to(copy))
        is_own = name.startswith(("target", ".git")) or name in OWN_FILES
        if path.is_file() and name not in known and not is_own:
            path.unlink()


OWN_FILES = ("binaries.json", "outcomes.json", "baseline.json")


def build(copy, faults, is_check, cheap):
    """Builds the tests of the copy; remembers where their binaries are."""
    copy_checkout(copy, faults)
    cargo = os.environ.get("CARGO", "cargo")
    if is_check:
        command = [cargo, "check", "--workspace", "--all-targets"]
        sys.exit(subprocess.run(command, cwd=copy).returncode)
    command = [cargo, "test", "--workspace", "--no-run", "--lib", "--test", "it"]
    if not cheap:
        command += ["--bin", "millstream", "--test", "simulation", "--test", "end_to_end"]
    command += ["--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=copy, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit("the instrumented copy cannot be built")
    binaries = {}
    for line in built.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            target, directory = message["target"], Path(message["manifest_path"]).parent
            package = next(
                line.split('"')[1]
                for line in (directory / "Cargo.toml").read_text().splitlines()
                if line.startswith("name = ")
            )
            kind = "lib" if "lib" in target["kind"] else target["name"]
            if message["profile"]["test"]:
                binaries[f"{package} {kind}"] = (message["executable"], str(directory))
    (copy / "binaries.json").write_text(json.dumps(binaries, indent=1))
    print(f"built {len(binaries)} test binaries")


def run_layer(copy, layer, fault, limit_seconds):
    """Runs a layer's tests: None if they pass, else what failed first, and the seconds."""
    package, target, filters = LAYERS[layer]
    executable, directory = json.loads((copy / "binaries.json").read_text())[f"{package} {target}"]
    environment = {**os.environ, **ENVIRONMENT.get(layer, {}), "CARGO_MANIFEST_DIR": directory}
    environment.pop("MILLSTREAM_FAULT", None)
    if fault is not None:
        environment["MILLSTREAM_FAULT"] = str(fault)
    arguments = [f"--skip={of[1:]}" if of.startswith("-") else of for of in filters]
    begun, failed, tail = time.monotonic(), None, []
    prefix = "millstream-fault-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as temporary:
        environment["TMPDIR"] = temporary
        process = subprocess.Popen(
            [executable, *arguments], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            text=True, errors="replace",
        )
        hung = threading.Event()

        def give_up():
            hung.set()
            end_group(process)

        timer = threading.Timer(limit_seconds, give_up)
        timer.start()
        for line in process.stdout:
            tail = [*tail[-40:], line]
            match = re.match(r"test (\S+).* FAILED$", line.strip())
            if match and fault is not None:
                failed = match.group(1)
                break
        end_group(process) if failed else None
        code = process.wait()
        timer.cancel()
        end_group(process)
    seconds = time.monotonic() - begun
    if hung.is_set():
        running = [line for line in tail if "has been running" in line]
        failed = f"hang ({running[-1].split()[1] if running else 'no test ended'})"
    elif failed is None and code != 0:
        failed = "the test process ended" if fault is not None else "".join(tail)
    return failed, seconds


def end_group(process):
    """Ends the test process and what it started in its group; brokers end with their parent."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def baseline(copy, layers):
    """The seconds that each layer takes without a fault; ends if one fails so."""
    path = copy / "baseline.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for layer in layers:
        if layer not in known:
            failed, seconds = run_layer(copy, layer, None, 900)
            print(f"{layer}: {seconds:.1f} s without a fault", flush=True)
            if failed:
                sys.exit(f"{layer} fails without a fault:\n{failed}")
            known[layer] = seconds
            path.write_text(json.dumps(known, indent=1))
    return known


def run(copy, faults, until, cheap, jobs):
    """Runs the layers against each of `faults`, up to the first that catches it."""
    def is_wanted(layer):
        return not (cheap and layer.startswith(DEAR))

    layers = dict.fromkeys(layer for fault in faults for layer in fault.area.layers)
    seconds_of = baseline(copy, filter(is_wanted, layers))
    path, lock = copy / "outcomes.json", threading.Lock()
    outcomes = json.loads(path.read_text()) if path.exists() else {}

    def run_one(fault):
        unknown = {"caught_by": None, "test": None, "passed": []}
        outcome = outcomes.get(str(fault.number), unknown)
        layers = [layer for layer in fault.area.layers if layer not in outcome["passed"]]
        layers = list(filter(is_wanted, layers))
        is_late = until is not None and time.time() > until
        if outcome["caught_by"] or not layers or is_late:
            return
        for layer in layers:
            limit = seconds_of[layer] * PATIENCE_FACTOR + PATIENCE_SECONDS
            failed, _ = run_layer(copy, layer, fault.number, limit)
            if failed:
                outcome.update(caught_by=layer, test=failed)
                break
            outcome["passed"].append(layer)
        with lock:
            outcomes[str(fault.number)] = outcome
            path.write_text(json.dumps(outcomes, indent=1))
            layer, what = outcome["caught_by"] or "SURVIVES", outcome["test"] or fault.words
            print(f"{fault.number} {layer}: {what}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run_one, faults))


def report(copy, areas, faults):
    """Writes results.md; False if a fault survives for no reason."""
    outcomes = json.loads((copy / "outcomes.json").read_text())

    def is_decided(fault):
        outcome = outcomes.get(str(fault.number), {"caught_by": None, "passed": []})
        has_passed_all = set(fault.area.layers) <= set(outcome["passed"])
        return outcome["caught_by"] or (fault.reason and outcome["passed"]) or has_passed_all

    known = list(filter(is_decided, faults))
    begun = {int(number) for number in outcomes} - {fault.number for fault in known}
    outcomes = {str(fault.number): {"caught_by": None} for fault in known} | outcomes
    caught = [fault for fault in known if outcomes[str(fault.number)]["caught_by"]]
    survivors = [fault for fault in known if fault not in caught]
    percent = 100 * len(caught) / max(1, len(known))
    lines = ["# Planted faults", ""]
    lines += ["`run.py report` writes this. The faults are in [list.txt](list.txt).", ""]
    lines += [f"Of {len(known)} faults, planted one at a time, {len(caught)} are caught by a test: "
              f"{percent:.1f} %. Why no test notices the others stands below.", ""]
    if len(known) < len(faults):
        new, worst = len(faults) - len(known) - len(begun), len(known) + len(begun)
        lines += [f"The list has more: {new} have not been planted yet. {len(begun)} were missed "
                  "by the quick layers and have not met all of the slow ones; if those missed all "
                  f"of them, {100 * len(caught) / max(1, worst):.1f} % would be caught.", ""]
    lines += ["A hang counts as caught: a layer that takes "
              f"{PATIENCE_FACTOR} times as long as without a fault, and {PATIENCE_SECONDS} s.", ""]
    lines += ["| area | faults | caught | of these by a hang | caught by |"]
    lines += ["|---|--:|--:|--:|---|"]
    for area in areas:
        of_area = [fault for fault in known if fault.area is area]
        found = [outcomes[str(fault.number)] for fault in of_area if fault in caught]
        by = [outcome["caught_by"] for outcome in found]
        hangs = sum(outcome["test"].startswith("hang") for outcome in found)
        layers = [f"{layer} {by.count(layer)}" for layer in area.layers if layer in by]
        layers = ", ".join(layers)
        lines.append(f"| {area.name} | {len(of_area)} | {len(found)} | {hangs} | {layers} |")
    lines += ["", "## Survivors", "", "| fault | what it breaks | why no test fails |"]
    lines += ["|--:|---|---|"]
    for fault in survivors:
        reason = fault.reason or "**a test is missing**"
        lines.append(f"| {fault.number} | {fault.words} | {reason} |")
    lines += ["", "## Caught", "", "| fault | what it breaks | layer | the first test that fails |"]
    lines += ["|--:|---|---|---|"]
    for fault in caught:
        outcome = outcomes[str(fault.number)]
        row = [str(fault.number), fault.words, outcome["caught_by"], outcome["test"]]
        lines.append(f"| {' | '.join(row)} |")
    RESULTS.write_text("\n".join(lines) + "\n")
    print(f"{len(caught)} of {len(known)} caught; written to {RESULTS}")
    return all(fault.reason for fault in survivors)


def chosen(faults, texts):
    """The faults that `texts` name: numbers, ranges, or words of an area."""
    if not texts:
        return faults
    wanted = set()
    for text in texts:
        if re.fullmatch(r"\d+(-\d+)?", text):
            first, _, last = text.partition("-")
            wanted.update(range(int(first), int(last or first) + 1))
        else:
            wanted.update(fault.number for fault in faults if text in fault.area.name)
    return [fault for fault in faults if fault.number in wanted]


def main():
    keep_lines = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=keep_lines)
    parser.add_argument("action", choices=["check", "build", "run", "report"])
    parser.add_argument("faults", nargs="*", help="numbers, ranges as 3-9, or words of an area")
    parser.add_argument("--copy", type=Path, help="the directory of the instrumented copy")
    parser.add_argument("--only-check", action="store_true", help="build: `cargo check` alone")
    parser.add_argument("--again", action="store_true", help="run: forget these faults' outcomes")
    parser.add_argument("--cheap", action="store_true", help="tests of crates alone")
    parser.add_argument("--jobs", type=int, default=1, help="run: so many faults side by side")
    parser.add_argument("--seconds", type=float, help="run: begin no fault after this time")
    arguments = parser.parse_intermixed_args()
    areas, faults = read_list()
    if arguments.action == "check":
        _, problems = instrumented(faults, CHECKOUT)
        for area in areas:
            print(f"{sum(fault.area is area for fault in faults):4} {area.name}")
        print(f"{len(faults):4} faults")
        sys.exit("\n".join(problems) or None)
    if arguments.copy is None:
        sys.exit("--copy DIR is needed")
    copy = arguments.copy.resolve()
    copy.mkdir(parents=True, exist_ok=True)
    if arguments.action == "build":
        build(copy, faults, arguments.only_check, arguments.cheap)
    elif arguments.action == "run":
        of_run = chosen(faults, arguments.faults)
        path = copy / "outcomes.json"
        if arguments.again and path.exists():
            kept = json.loads(path.read_text())
            for fault in of_run:
                kept.pop(str(fault.number), None)
            path.write_text(json.dumps(kept, indent=1))
        until = None if arguments.seconds is None else time.time() + arguments.seconds
        run(copy, of_run, until, arguments.cheap, arguments.jobs)
    elif not report(copy, areas, faults):
        sys.exit("a fault survives: write a test that catches it, or why none can")


if __name__ == "__main__":
    main()
