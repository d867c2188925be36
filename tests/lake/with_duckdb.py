"""Delta tables as DuckDB's `delta` extension sees them. It only reads here."""

import importlib.resources
import os
import re
from typing import Any

import duckdb

import rows

Request = dict[str, Any]
Answer = dict[str, Any]
# So far beyond the log that no writer gets there meanwhile, and no further: the extension lists the
# log backwards from the version asked for, a thousand at a time.
VERSIONS_BEYOND = 1000


class Duckdb:
    version = duckdb.__version__

    def __init__(self) -> None:
        # Without the network: what is not loaded here is not looked for elsewhere.
        off = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        self.database = duckdb.connect(config=off)
        package = importlib.resources.files("duckdb_extension_delta")
        file = package / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
        self.database.execute(f"LOAD '{file}'")
        self.database.execute("SET TimeZone = 'UTC'")
        self.database.execute("SET enable_external_file_cache = false")

    def read(self, request: Request) -> Answer:
        names = ", ".join(f'"{name}"' for name in request.get("columns") or []) or "*"
        version = request.get("version")
        before = self.newest(request["table"]) if version is None else version
        found = self.database.execute(f"SELECT {names} FROM {scan(request['table'], version)}")
        answer = rows.summary(found.to_arrow_table())
        after = self.newest(request["table"]) if version is None else version
        answer["version"] = before if before == after else None
        return answer

    def newest(self, table: str) -> int | None:
        """The table's version; the extension only tells it when asked for one that is not there."""
        beyond = newest_commit(table) + VERSIONS_BEYOND
        try:
            self.database.execute(f"SELECT count(*) FROM {scan(table, beyond)}")
        except duckdb.Error as error:
            found = re.search(r"end version (\d+) not the same", str(error))
            return int(found[1]) if found else None
        return None

    def sql(self, request: Request) -> Answer:
        found = self.database.execute(request["sql"]).to_arrow_table()
        return {"columns": found.column_names, "rows": found.to_pylist()}

    def txn(self, request: Request) -> Answer:
        cursor = self.database.cursor()
        cursor.execute(f"ATTACH {quoted(request['table'])} AS asked (TYPE delta)")
        try:
            app = quoted(request["app"])
            cursor.execute(f"SELECT version FROM delta_get_transaction_version('asked', {app})")
            return {"version": self.newest(request["table"]), "txn": cursor.fetchone()[0]}
        finally:
            cursor.execute("DETACH asked")


def newest_commit(table: str) -> int:
    """The newest version that is named in the log, or -1."""
    try:
        names = os.listdir(os.path.join(table, "_delta_log"))
    except FileNotFoundError:  # for the extension to complain about
        return -1
    return max((int(name[:20]) for name in names if re.match(r"\d{20}\.", name)), default=-1)


def scan(table: str, version: int | None) -> str:
    at = "" if version is None else f", version => {version}"
    return f"delta_scan({quoted(table)}{at})"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
