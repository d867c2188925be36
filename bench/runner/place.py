"""Where this runs: the repository, the commit, the machine."""

import hashlib
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What a run itself writes is no part of what was measured.
WRITTEN = ":(exclude)bench/results"


def git(root: Path, *arguments: str) -> str:
    """What git says; raises if it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


def commit(root: Path) -> str:
    """The commit, and a digest of what differs from it: two changed trees are not the same."""
    head = git(root, "rev-parse", "--short", "HEAD").strip()
    digest = hashlib.sha256(git(root, "diff", "HEAD", "--", ".", WRITTEN).encode())
    others = git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", ".", WRITTEN)
    names = [name for name in others.split("\0") if name]
    for name in names:
        digest.update(name.encode() + b"\0" + (root / name).read_bytes())
    if not names and digest.digest() == hashlib.sha256(b"").digest():
        return head
    return f"{head}-dirty-{digest.hexdigest()[:8]}"


def java() -> str:
    """The version of the Java that brokers run on."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else "java"
    try:
        done = subprocess.run([program, "-version"], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "none"
    said = (done.stderr or done.stdout).decode(errors="replace").splitlines()
    return said[0].strip() if said else "unknown"


def system() -> dict:
    """What result lines do not tell of the machine."""
    return {"kernel": f"{platform.system()} {platform.release()}", "java": java()}


def machine(lines: list[dict], here: dict) -> str:
    """The machine in words, from the lines that were measured there."""
    told = lines[0].get("machine", {})
    brokers = {line.get("versions", {}).get("broker") for line in lines} - {None}
    return ", ".join([
        f"{told.get('cores', '?')} cores ({told.get('cpu', '?')})",
        f"{told.get('memory_mb', '?')} MB",
        here.get("kernel", "?"),
        f"Java: {here.get('java', '?')}",
        f"broker: {', '.join(sorted(brokers)) or 'none'}",
    ])
