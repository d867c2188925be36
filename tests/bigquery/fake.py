"""A fake of BigQuery's Storage Write API that follows the service's documentation where the
emulator does not: FlushRows takes the offset of the last row, a repeated flush and a repeated
append are ALREADY_EXISTS, and a finalized stream refuses both. It can fail in the ways in which the
service may: a test orders that over HTTP.

Arguments: the port of the REST interface, that of gRPC, then any of
  --chaos N       about each Nth call fails in some way
  --discard       rows are counted and not kept
"""

import json
import random
import sys
import threading
import time
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import grpc
import pyarrow
from google.cloud.bigquery_storage_v1 import types
from google.rpc import status_pb2

REST_PORT, GRPC_PORT = int(sys.argv[1]), int(sys.argv[2])
CHAOS = int(sys.argv[sys.argv.index("--chaos") + 1]) if "--chaos" in sys.argv else 0
DISCARD = "--discard" in sys.argv
SERVICE = "/google.cloud.bigquery.storage.v1.BigQueryWrite/"
DEFAULT, COMMITTED, PENDING, BUFFERED = "_default", 1, 2, 3
ROW_ERRORS, FINALIZED, NOT_FOUND = 0, 6, 3
ALREADY, RANGE = 8, 9
Code = grpc.StatusCode

lock = threading.RLock()
chance = random.Random(7)
tables = {}  # resource name -> {"schema": ..., "rows": [...], "count": n}
streams = {}  # resource name -> Stream
orders = []  # [{"fault": name, "after": calls left, "times": n}]
seen = {"appends": 0, "rows_appended": 0, "creates": 0, "flushes": 0, "trace_ids": []}


def pb(message):
    return message.meta.pb


class Stream:
    def __init__(self, table, kind):
        self.table, self.kind = table, kind
        self.rows, self.count, self.flushed, self.is_final = [], 0, 0, False


def fault(*names):
    """The fault that is due now, of those that fit the call."""
    with lock:
        for order in orders:
            if order["fault"] in names:
                order["after"] -= 1
                if order["after"] < 0:
                    order["times"] -= 1
                    if order["times"] == 0:
                        orders.remove(order)
                    return order["fault"]
        if CHAOS and "table-unknown" not in names and chance.randrange(CHAOS) == 0:
            return chance.choice(names)
    return None


def storage_error(code, text, storage=0):
    status = status_pb2.Status(code=code.value[0], message=text)
    if storage:
        error = pb(types.StorageError)(code=storage, error_message=text)
        detail = status.details.add()
        detail.type_url = "type.googleapis.com/google.cloud.bigquery.storage.v1.StorageError"
        detail.value = error.SerializeToString()
    return status


def short(value):
    return value[:20] if isinstance(value, (str, bytes)) else value


def publish(table, rows, count):
    found = tables[table]
    found["count"] += count
    if not DISCARD:
        found["rows"].extend(rows)


def create(data, context):
    request = pb(types.CreateWriteStreamRequest).FromString(data)
    if fault("create-quota"):
        context.abort(Code.RESOURCE_EXHAUSTED, "Exceeds quota for write streams")
    if fault("table-unknown"):
        context.abort(Code.NOT_FOUND, f"Requested entity was not found: {request.parent}")
    with lock:
        seen["creates"] += 1
        if request.parent not in tables:
            context.abort(Code.NOT_FOUND, f"Requested entity was not found: {request.parent}")
        name = f"{request.parent}/streams/{uuid4().hex[:16]}"
        streams[name] = Stream(request.parent, request.write_stream.type_)
    return pb(types.WriteStream)(name=name, type_=request.write_stream.type_).SerializeToString()


def find(name, context):
    if name.endswith("/streams/" + DEFAULT):
        table = name.rsplit("/streams/", 1)[0]
        if table not in tables:
            context.abort(Code.NOT_FOUND, f"Requested entity was not found: {table}")
        return streams.setdefault(name, Stream(table, DEFAULT))
    if name not in streams:
        context.abort(Code.NOT_FOUND, f"Requested entity was not found: {name}")
    return streams[name]


def append_to(stream, request, rows, count, response):
    """Appends under the lock; a fault may have ended the stream meanwhile."""
    offset = request.offset.value if request.HasField("offset") else None
    if stream.is_final:
        return storage_error(Code.FAILED_PRECONDITION, "Stream is finalized", FINALIZED)
    if offset is not None and offset < stream.count:
        return storage_error(Code.ALREADY_EXISTS, f"offset {offset}, end {stream.count}", ALREADY)
    if offset is not None and offset > stream.count:
        return storage_error(Code.OUT_OF_RANGE, f"offset {offset}, end {stream.count}", RANGE)
    bad = [index for index, row in enumerate(rows) if "bad" in row.values()]
    if bad:
        for index in bad:
            response.row_errors.add(index=index, code=1, message=f"row {index} has a bad value")
        return storage_error(Code.INVALID_ARGUMENT, "Errors found while processing rows")
    response.append_result.SetInParent()
    # Nobody looks at the rest of a long text.
    rows = [{name: short(value) for name, value in row.items()} for row in rows]
    if stream.kind == DEFAULT:
        publish(stream.table, rows, count)
    else:
        response.append_result.offset.value = stream.count
        stream.rows.extend(rows)
        stream.count += count
    seen["appends"] += 1
    seen["rows_appended"] += count
    return None


def append(requests, context):
    schema = None
    for data in requests:
        request = pb(types.AppendRowsRequest).FromString(data)
        if len(data) > 10_000_000:
            context.abort(Code.INVALID_ARGUMENT, "request is too large")
        if request.trace_id:
            seen["trace_ids"].append(request.trace_id)
        due = fault("reset-before", "reset-after", "append-quota", "internal", "finalize", "expired")
        if due == "reset-before":
            context.abort(Code.UNAVAILABLE, "connection reset")
        if due == "expired":
            context.abort(Code.UNAUTHENTICATED, "the token has expired")
        arrow = request.arrow_rows
        if arrow.HasField("writer_schema"):
            buffer = pyarrow.py_buffer(arrow.writer_schema.serialized_schema)
            schema = pyarrow.ipc.read_schema(buffer)
        buffer = pyarrow.py_buffer(arrow.rows.serialized_record_batch)
        batch = pyarrow.ipc.read_record_batch(buffer, schema)
        rows = [] if DISCARD else batch.to_pylist()
        response = pb(types.AppendRowsResponse)(write_stream=request.write_stream)
        with lock:
            stream = find(request.write_stream, context)
            error = None
            if due == "append-quota":
                error = storage_error(Code.RESOURCE_EXHAUSTED, "Exceeds quota for throughput")
            elif due == "internal":
                error = storage_error(Code.INTERNAL, "try again")
            else:
                stream.is_final |= due == "finalize" and stream.kind != DEFAULT
                error = append_to(stream, request, rows, batch.num_rows, response)
        if error:
            response.error.CopyFrom(error)
        if due == "reset-after":
            context.abort(Code.UNAVAILABLE, "connection reset")
        yield response.SerializeToString()


def flush(data, context):
    request = pb(types.FlushRowsRequest).FromString(data)
    if any(order["fault"] == "flush-denied" for order in orders) and fault("flush-denied"):
        context.abort(Code.PERMISSION_DENIED, "Permission 'TABLES_UPDATE_DATA' denied")
    due = fault("flush-unavailable", "flush-lost")
    if due == "flush-unavailable":
        context.abort(Code.UNAVAILABLE, "try again")
    with lock:
        stream = find(request.write_stream, context)
        upto = request.offset.value + 1
        seen["flushes"] += 1
        if stream.kind != BUFFERED or stream.is_final:
            context.abort(Code.INVALID_ARGUMENT, "Stream is already finalized")
        if upto <= stream.flushed:
            context.abort(Code.ALREADY_EXISTS, f"already flushed up to {stream.flushed - 1}")
        if upto > stream.count:
            context.abort(Code.OUT_OF_RANGE, f"offset {upto - 1} is beyond the end")
        publish(stream.table, stream.rows[stream.flushed : upto], upto - stream.flushed)
        stream.flushed = upto
    if due == "flush-lost":
        context.abort(Code.UNAVAILABLE, "the answer is lost")
    return pb(types.FlushRowsResponse)(offset=upto - 1).SerializeToString()


def finalize(data, context):
    request = pb(types.FinalizeWriteStreamRequest).FromString(data)
    with lock:
        stream = find(request.name, context)
        stream.is_final = True
        return pb(types.FinalizeWriteStreamResponse)(row_count=stream.count).SerializeToString()


def commit(data, context):
    request = pb(types.BatchCommitWriteStreamsRequest).FromString(data)
    response = pb(types.BatchCommitWriteStreamsResponse)()
    with lock:
        found = [find(name, context) for name in request.write_streams]
        for name, stream in zip(request.write_streams, found):
            if stream.kind != PENDING or not stream.is_final or stream.flushed:
                code = 2 if stream.flushed else 5
                response.stream_errors.add(code=code, entity=name, error_message="cannot commit")
        if not response.stream_errors:
            for stream in found:
                publish(stream.table, stream.rows, stream.count)
                stream.flushed = max(stream.count, 1)
            response.commit_time.GetCurrentTime()
    return response.SerializeToString()


class Handler(grpc.GenericRpcHandler):
    def service(self, call):
        name = call.method.removeprefix(SERVICE)
        unary = {
            "CreateWriteStream": create,
            "FlushRows": flush,
            "FinalizeWriteStream": finalize,
            "BatchCommitWriteStreams": commit,
        }
        if name == "AppendRows":
            return grpc.stream_stream_rpc_method_handler(append)
        return grpc.unary_unary_rpc_method_handler(unary[name]) if name in unary else None


class Rest(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, status, value):
        body = json.dumps(value, default=str).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def is_over_quota(self):
        """A quota of the REST interface is exceeded with 403."""
        if not any(order["fault"] == "rest-quota" for order in orders) or not fault("rest-quota"):
            return False
        reasons = [{"reason": "rateLimitExceeded"}]
        error = {"code": 403, "message": "Exceeded rate limits", "errors": reasons}
        self.reply(403, {"error": error})
        return True

    def resource(self):
        return self.path.removeprefix("/bigquery/v2/")

    def do_GET(self):
        with lock:
            if self.path == "/seen":
                open_streams = sum(
                    not stream.is_final for stream in streams.values() if stream.kind != DEFAULT
                )
                return self.reply(200, {**seen, "orders": len(orders), "open": open_streams})
            if self.path.startswith("/rows/"):
                return self.reply(200, tables[self.path.removeprefix("/rows/")]["rows"])
            if self.path.startswith("/count/"):
                return self.reply(200, tables[self.path.removeprefix("/count/")]["count"])
            if self.is_over_quota():
                return None
            table = tables.get(self.resource())
            if table is None:
                text = f"Not found: {self.resource()}"
                return self.reply(404, {"error": {"code": 404, "message": text}})
            self.reply(
                200,
                {
                    "type": "TABLE",
                    "schema": table["schema"],
                    "creationTime": str(table["created_ms"]),
                },
            )

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with lock:
            if self.path == "/order":
                orders.append({"after": 0, "times": 1, **body})
                return self.reply(200, {})
            if self.path == "/forget-streams":
                streams.clear()
                return self.reply(200, {})
            if self.path == "/forget-a-stream":
                hidden = {n: s.count - s.flushed for n, s in streams.items() if s.kind == BUFFERED}
                name = max(hidden, key=hidden.get)
                del streams[name]
                return self.reply(200, hidden[name])
            if self.is_over_quota():
                return None
            name = f"{self.resource()}/{body['tableReference']['tableId']}"
            if name in tables:
                return self.reply(409, {"error": {"code": 409, "message": "Already Exists"}})
            created_ms = int(time.time() * 1000)
            tables[name] = {
                "schema": body["schema"],
                "rows": [],
                "count": 0,
                "created_ms": created_ms,
            }
            self.reply(200, body)


options = [("grpc.max_receive_message_length", -1)]
server = grpc.server(futures.ThreadPoolExecutor(64), handlers=[Handler()], options=options)
assert server.add_insecure_port(f"127.0.0.1:{GRPC_PORT}") == GRPC_PORT
server.start()
ThreadingHTTPServer(("127.0.0.1", REST_PORT), Rest).serve_forever()
