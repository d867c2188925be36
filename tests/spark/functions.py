"""Compares a list of Spark's functions with those that Spark has.

    functions.py LIST

LIST has one function a line, sorted, and after a space the kind of those that Millstream leaves out
on purpose. MILLSTREAM_FUNCTIONS_REWRITE=1 writes it. Ends with status 1 if it differs.
"""

import os
import re
import sys

from slt import make_session

HEAD = "# Oracle: Spark 4.2.0: `SHOW FUNCTIONS`, which tests/spark/functions.py asks\n"
# What is left out, as the beginnings of names.
LEFT_OUT = {
    "geospatial": r"st_",
    "reflection": r"java_method$|(try_)?reflect$",
    "sketch": r"approx_top_k|count_min_sketch",
}


def line(name):
    """The function's line in the list."""
    kinds = [kind for kind, names in LEFT_OUT.items() if re.match(names, name)]
    return " ".join([name, *kinds])


def main():
    path = sys.argv[1]
    spark = make_session()
    names = sorted(row[0] for row in spark.sql("SHOW FUNCTIONS").collect())
    spark.stop()
    text = HEAD + "".join(line(name) + "\n" for name in names)
    if "MILLSTREAM_FUNCTIONS_REWRITE" in os.environ:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    with open(path, encoding="utf-8") as file:
        found = file.read()
    for difference in sorted(set(text.split("\n")) ^ set(found.split("\n"))):
        print(f"only in one of them: {difference}")
    if found != text:
        print(f"{path} does not have Spark's functions; MILLSTREAM_FUNCTIONS_REWRITE=1 writes it")
        sys.exit(1)


if __name__ == "__main__":
    main()
