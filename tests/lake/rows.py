"""Rows: how they are made for every engine alike, and how a table of them is summed up.

Engines hand over Arrow tables whose types differ in layout only (a string may be a `string`, a
`large_string` or a `string_view`). The summary must not see that, so every cell is rendered to one
text for its value first; `oracle.py` defines these texts.
"""

import datetime
import decimal
import hashlib
import math
import re
from typing import Any, Callable

import pyarrow as pa
import pyarrow.compute as pc

BATCH_ROWS = 65536
SIMPLE_TYPES: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
DEFAULT_SCHEMA = "id bigint, text string"
# So few values that every append touches every partition.
PARTITIONS = 4
EPOCH_2024 = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
NAN_BITS = 0x7FF8000000000000


def arrow_schema(ddl: str) -> pa.Schema:
    """The schema of `name type, ...`; simple types only, every column nullable."""
    fields = []
    for column in re.split(r",(?![^(]*\))", ddl):
        name, kind = column.strip().split(None, 1)
        fields.append(pa.field(name.strip("`"), arrow_type(kind)))
    return pa.schema(fields)


def arrow_type(kind: str) -> pa.DataType:
    scaled = re.fullmatch(r"decimal\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)", kind.strip().lower())
    if scaled:
        return pa.decimal128(int(scaled[1]), int(scaled[2]))
    return SIMPLE_TYPES[kind.strip().lower()]


def requested(request: dict[str, Any]) -> pa.Table:
    """The rows that an `append` asks for: those of `values`, or generated ones."""
    schema = arrow_schema(request.get("schema", DEFAULT_SCHEMA))
    if "values" in request:
        columns = [
            [parsed(row.get(field.name), field.type) for row in request["values"]]
            for field in schema
        ]
    else:
        columns = [generated_column(field, schema, request) for field in schema]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema)]
    return pa.Table.from_arrays(arrays, schema=schema)


def parsed(value: Any, kind: pa.DataType) -> Any:
    """What a JSON value means in a column of type `kind`."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return decimal.Decimal(value)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return datetime.datetime.fromisoformat(value)
    if pa.types.is_binary(kind):
        return bytes.fromhex(value)
    return float(value) if pa.types.is_floating(kind) else value


def generated_column(field: pa.Field, schema: pa.Schema, request: dict[str, Any]) -> list[Any]:
    ids = range(request["first"], request["first"] + request["rows"])
    is_partition = field.name in request.get("partition_by", [])
    nulls_every = None if field.name == schema.names[0] else request.get("nulls_every")
    return [
        None if nulls_every and id % nulls_every == 0 else generated(field.type, id, is_partition)
        for id in ids
    ]


def generated(kind: pa.DataType, id: int, is_partition: bool) -> Any:
    """The value of row `id`, by type; a partition column has few values."""
    if is_partition:
        id %= PARTITIONS
    if pa.types.is_boolean(kind):
        return id % 2 == 0
    if pa.types.is_integer(kind):
        return id % 100 if kind == pa.int8() else id % 30000 if kind == pa.int16() else id
    if pa.types.is_floating(kind):
        return id / 4
    if pa.types.is_decimal(kind):
        return decimal.Decimal(id).scaleb(-kind.scale)
    if pa.types.is_date(kind):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=id % 20000)
    if pa.types.is_timestamp(kind):
        at = EPOCH_2024 + datetime.timedelta(microseconds=id * 1_000_001)
        return at if kind.tz else at.replace(tzinfo=None)
    text = f"p{id}" if is_partition else f"row {id} é✓"
    return text.encode() if pa.types.is_binary(kind) else text


def summary(table: pa.Table) -> dict[str, Any]:
    """Rows, types, sums, extremes and the hash of `table`."""
    answer: dict[str, Any] = {"rows": table.num_rows, "types": {}, "sums": {}, "min": {}, "max": {}}
    for name, column in zip(table.column_names, table.columns):
        answer["types"][name] = type_name(column.type)
        if is_number(column.type):
            answer["sums"][name] = sum_text(column)
        if not pa.types.is_nested(column.type):
            answer["min"][name], answer["max"][name] = extremes(column)
    answer["hash"] = table_hash(table)
    return answer


def type_name(kind: pa.DataType) -> str:
    """Arrow's name, the same for every layout of one type."""
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if is_list(kind):
        return f"list<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{at.name}: {type_name(at.type)}" for at in kind) + ">"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return str(kind).removeprefix("large_").removesuffix("_view")


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind)


def sum_text(column: pa.ChunkedArray) -> str | None:
    """The exact sum, which does not depend on the order of rows; null without a value."""
    if len(column) == column.null_count:
        return None
    if pa.types.is_floating(column.type):
        values = column.drop_null().to_pylist()
        finite = all(math.isfinite(value) for value in values)
        return float_text(math.fsum(values) if finite else sum(values))
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(38, 0))
    return format(pc.sum(column).as_py(), "f")


def extremes(column: pa.ChunkedArray) -> tuple[str | None, str | None]:
    """The least and the greatest value as texts; NaN is neither."""
    column = plain(column)
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))
    found = pc.min_max(column)
    both = [pa.array([found[end].as_py()], column.type) for end in ("min", "max")]
    if pa.types.is_floating(column.type):
        return tuple(None if at[0].as_py() is None else float_text(at[0].as_py()) for at in both)
    return tuple(cell_texts(at)[0].as_py() for at in both)


def float_text(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)


def plain(column: Any) -> Any:
    """Strings and bytes in the one layout that every kernel of Arrow knows."""
    if pa.types.is_string_view(column.type) or pa.types.is_string(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(column.type) or pa.types.is_binary(column.type):
        return column.cast(pa.large_binary())
    return column


def table_hash(table: pa.Table) -> str:
    total = 0
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        if batch.num_rows == 0:
            continue
        cells = [marked(cell_texts(column)) for column in batch.columns]
        rows = joined(*cells).cast(pa.large_binary())
        for row in rows.to_pylist():
            total += int.from_bytes(hashlib.sha256(row).digest()[:8], "big")
    return f"{total % 2**64:016x}"


def marked(texts: pa.Array) -> pa.Array:
    """Each text with its length before it, so that neighbours cannot flow into each other."""
    lengths = pc.binary_length(texts).cast(pa.large_string())
    present = joined(large("v"), lengths, large(":"), texts)
    return pc.if_else(pc.is_null(texts), large("n"), present)


def joined(*texts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*texts, large(""))


def large(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def cell_texts(column: pa.Array) -> pa.Array:
    """The text of every cell; null stays null."""
    kind = column.type
    if pa.types.is_floating(kind):
        return bits(column).cast(pa.large_string())
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us"))
    elif pa.types.is_dictionary(kind):
        return cell_texts(column.dictionary_decode())
    elif pa.types.is_decimal(kind) or pa.types.is_nested(kind) or is_bytes(kind):
        return mapped(column, lambda value: value_text(value, kind))
    return column.cast(pa.large_string())


def bits(column: pa.Array) -> pa.Array:
    """The bits of doubles as signed integers, with a single NaN."""
    column = column.cast(pa.float64())
    return pc.if_else(pc.is_nan(column), NAN_BITS, column.view(pa.int64()))


def is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view()


def mapped(column: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    texts = [None if value is None else text(value) for value in column.to_pylist()]
    return pa.array(texts, pa.large_string())


def value_text(value: Any, kind: pa.DataType) -> str:
    """The text of one value that Arrow cannot render by itself."""
    if pa.types.is_decimal(kind):
        return format(value, "f")
    if is_bytes(kind):
        return value.hex()
    if pa.types.is_map(kind):
        entries = [nested(k, kind.key_type) + nested(v, kind.item_type) for k, v in value]
        return "".join(sorted(entries))
    if is_list(kind):
        return "".join(nested(at, kind.value_type) for at in value)
    return "".join(nested(value[at.name], at.type) for at in kind)


def nested(value: Any, kind: pa.DataType) -> str:
    return marked(cell_texts(pa.array([value], kind)))[0].as_py()
