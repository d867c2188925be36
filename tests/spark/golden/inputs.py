"""The statements of an input file of Spark's `SQLQueryTestSuite`, and which files are left out.

Statements are kept as ranges of bytes, so that the texts themselves stay in Spark's jar: what reads
the answers cuts them out of the same file, and a checksum tells whether it is the same.

What its suite makes of a file: lines `--SET k=v,...` are settings for the whole file, `--IMPORT f`
runs the statements of another file first, `--CONFIG_DIM` lists settings under which the answers are
the same (not taken here), and what stands between `--QUERY-DELIMITER-START` and `-END` is one
statement whatever semicolons are in it.
"""

import os
import re
import zlib

# Directories and files that are not asked, with the reason.
LEFT_OUT = {
    "udf": "functions that Spark's suite compiles in",
    "udaf": "functions that Spark's suite compiles in",
    "udtf": "functions that Spark's suite compiles in",
    "nonansi": "ANSI mode is off in them",
    "timestampNTZ": "TIMESTAMP means TIMESTAMP_NTZ in them",
    "scripting": "scripts of several statements",
    "ignored.sql": "Spark's suite leaves it out, too",
    "binary_base64.sql": "as binary.sql, shown in another way",
    "binary_basic.sql": "as binary.sql, shown in another way",
    "binary_hex.sql": "as binary.sql, shown in another way",
    "binary_hex_discrete.sql": "as binary.sql, shown in another way",
}
# Settings that say how rows are shown, or how far a recursion goes: they are not applied.
NOT_APPLIED = {
    "spark.sql.binaryOutputStyle",
    "spark.sql.cteRecursionLevelLimit",
    "spark.sql.cteRecursionRowLimit",
}
# Settings that change how Spark computes and not what. A file with any other `--SET` is left out:
# its answers are for a session that ours cannot have.
HARMLESS = {
    "spark.sql.adaptive.enabled",
    "spark.sql.analyzer.singlePassResolver.dualRunWithLegacy",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.cbo.enabled",
    "spark.sql.codegen.wholeStage",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.maxMetadataStringLength",
    "spark.sql.optimizer.enableJsonExpressionOptimization",
}
START, END = b"--QUERY-DELIMITER-START", b"--QUERY-DELIMITER-END"


class Statement:
    """A statement: the file it stands in, the range of its bytes, and its text."""

    def __init__(self, file, source, start, end):
        while start < end and source[start:start + 1].isspace():
            start += 1
        while start < end and source[end - 1:end].isspace():
            end -= 1
        self.file, self.start, self.end = file, start, end
        bytes_ = source[start:end]
        self.text = bytes_.decode("utf-8")
        self.checksum = f"{zlib.crc32(bytes_):08x}"
        self.bare = without_comments(self.text)


def names(directory):
    """The names of all files that are asked, sorted."""
    found = []
    for place, _, files in os.walk(directory):
        for file in files:
            name = os.path.relpath(os.path.join(place, file), directory)
            if name.endswith(".sql") and not reason_left_out(directory, name):
                found.append(name)
    return sorted(found)


def reason_left_out(directory, name):
    """Why the file is not asked; None if it is."""
    if name.split(os.sep)[0] in LEFT_OUT:
        return LEFT_OUT[name.split(os.sep)[0]]
    others = sorted(set(settings(directory, name)) - HARMLESS)
    return f"it sets {', '.join(others)}" if others else None


def read(directory, name):
    with open(os.path.join(directory, name), "rb") as file:
        return file.read()


def directives(source, word):
    """What follows `--WORD` on the lines that begin with it."""
    lines = [line.strip() for line in source.decode("utf-8").splitlines()]
    return [line[len(word):].strip() for line in lines if line.startswith(f"{word} ")]


def settings(directory, name):
    """What the file's lines `--SET` set."""
    found = {}
    for line in directives(read(directory, name), "--SET"):
        for pair in line.split(","):
            key, _, value = pair.partition("=")
            if key.strip() not in NOT_APPLIED:
                found[key.strip()] = value.strip()
    return found


def statements(directory, name):
    """The statements of a file in order, those of the files that it imports first."""
    source = read(directory, name)
    found = []
    for other in directives(source, "--IMPORT"):
        found += own_statements(other, read(directory, other))
    return found + own_statements(name, source)


def own_statements(name, source):
    found = [Statement(name, source, start, end) for start, end in ranges(source)]
    return [statement for statement in found if statement.bare.strip(" \n;")]


def ranges(source):
    """The ranges of statements, without their semicolons."""
    found, at = [], 0
    while True:
        start = source.find(START, at)
        found += plain_ranges(source, at, start if start >= 0 else len(source))
        if start < 0:
            return found
        start = source.index(b"\n", start) + 1
        end = source.index(END, start)
        text = source[start:end].rstrip()
        found.append((start, start + len(text) - text.endswith(b";")))
        line = source.find(b"\n", end)
        at = line + 1 if line >= 0 else len(source)


TOKEN = re.compile(
    rb"--[^\n]*|/\*|;|\$\$.*?\$\$"
    rb"|(?<![A-Za-z0-9_])[rR]'[^']*'|(?<![A-Za-z0-9_])[rR]\"[^\"]*\""
    rb"|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`",
    re.S,
)


def plain_ranges(source, start, end):
    """Ranges of `source[start:end]` between the semicolons that end a statement."""
    found, at = [], start
    while True:
        token = TOKEN.search(source, at, end)
        if token is None:
            return found + [(start, end)]
        at = token.end()
        if token[0] == b"/*":
            at = end_of_comment(source, at, end)
        elif token[0] == b";":
            found.append((start, token.start()))
            start = at


def end_of_comment(source, at, end):
    """The place after the `*/` that closes a comment, which may have others in it."""
    depth = 1
    while depth and at < end:
        mark = re.compile(rb"/\*|\*/").search(source, at, end)
        if mark is None:
            return end
        depth += 1 if mark[0] == b"/*" else -1
        at = mark.end()
    return at


def without_comments(text):
    """The text without what only people read, to see what kind of statement it is."""
    source, out, at = text.encode("utf-8"), [], 0
    while True:
        token = TOKEN.search(source, at)
        if token is None:
            return (b"".join(out) + source[at:]).decode("utf-8").strip()
        out.append(source[at:token.start()])
        at = token.end()
        if token[0] == b"/*":
            at = end_of_comment(source, at, len(source))
            out.append(b" ")
        elif not token[0].startswith(b"--"):
            out.append(token[0])
