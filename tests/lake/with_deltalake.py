"""Delta tables as `deltalake` (delta-rs) sees and changes them."""

from typing import Any

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, QueryBuilder
from deltalake import Transaction, write_deltalake

import rows

Request = dict[str, Any]
Answer = dict[str, Any]


class WaysDisagree(Exception):
    """Two ways of reading in one library gave different rows."""


class Deltalake:
    version = deltalake.__version__

    def read(self, request: Request) -> Answer:
        table = DeltaTable(request["table"], version=request.get("version"))
        answer = rows.summary(through_query_builder(table, request))
        answer["version"] = table.version()
        answer["ways"] = {"query_builder": "ok", "pyarrow": self.through_pyarrow(request, answer)}
        return answer

    def through_pyarrow(self, request: Request, expected: Answer) -> Any:
        table = DeltaTable(request["table"], version=expected["version"])
        try:
            found = table.to_pyarrow_table(columns=request.get("columns") or None)
        except Exception as error:  # a refusal is an answer; it depends on the table's features
            return {"error": {"type": type(error).__name__, "message": str(error)}}
        if (found_hash := rows.table_hash(found)) != expected["hash"]:
            raise WaysDisagree(
                f"query_builder: {expected['rows']} rows, {expected['hash']}; "
                f"pyarrow: {found.num_rows} rows, {found_hash}"
            )
        return "ok"

    def create(self, request: Request) -> Answer:
        table = DeltaTable.create(
            request["table"],
            schema=rows.arrow_schema(request.get("schema", rows.DEFAULT_SCHEMA)),
            partition_by=request.get("partition_by") or None,
            configuration=request.get("properties"),
        )
        return {"version": table.version()}

    def append(self, request: Request) -> Answer:
        write_deltalake(
            request["table"],
            rows.requested(request),
            mode="append",
            partition_by=request.get("partition_by") or None,
            commit_properties=commit_properties(request),
            post_commithook_properties=hooks(request),
        )
        return {"version": DeltaTable(request["table"]).version()}

    def checkpoint(self, request: Request) -> Answer:
        table = DeltaTable(request["table"])
        table.create_checkpoint()
        return {"version": table.version()}

    def cleanup(self, request: Request) -> Answer:
        table = DeltaTable(request["table"])
        table.cleanup_metadata()
        return {"version": table.version()}

    def optimize(self, request: Request) -> Answer:
        table = DeltaTable(request["table"])
        result = table.optimize.compact(post_commithook_properties=hooks(request))
        return {"version": table.version(), "result": result}

    def vacuum(self, request: Request) -> Answer:
        table = DeltaTable(request["table"])
        result = table.vacuum(
            retention_hours=request.get("retain_hours", 168),
            dry_run=False,
            enforce_retention_duration=False,
            post_commithook_properties=hooks(request),
        )
        return {"version": table.version(), "result": result}

    def delete(self, request: Request) -> Answer:
        table = DeltaTable(request["table"])
        result = table.delete(request.get("where"), post_commithook_properties=hooks(request))
        return {"version": table.version(), "result": result}

    def txn(self, request: Request) -> Answer:
        table = DeltaTable(request["table"], version=request.get("version"))
        return {"version": table.version(), "txn": table.transaction_version(request["app"])}

    def history(self, request: Request) -> Answer:
        return {"history": DeltaTable(request["table"]).history(request.get("limit"))}


def through_query_builder(table: DeltaTable, request: Request) -> pa.Table:
    names = [f'"{name}"' for name in request.get("columns") or []]
    query = QueryBuilder().register("at", table)
    return pa.table(query.execute(f"SELECT {', '.join(names) or '*'} FROM at").read_all())


def commit_properties(request: Request) -> CommitProperties | None:
    if "txn" not in request:
        return None
    txn = request["txn"]
    return CommitProperties(app_transactions=[Transaction(txn["app"], txn["version"])])


def hooks(request: Request) -> PostCommitHookProperties | None:
    """Nothing unless the request says no: then neither checkpoint nor cleanup after a commit."""
    if request.get("hooks", True):
        return None
    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
