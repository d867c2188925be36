"""How a value is written, so that both sides can write it alike.

Each type has one form, which an expression of Spark SQL makes: whole numbers, booleans and texts
are those of JSON; a float or a decimal is the text that a cast to STRING gives; a date is a number
of days, a timestamp one of microseconds, both since 1970-01-01; an interval of months or of
microseconds is a number of these; bytes are in hexadecimal digits; an array or a struct is a list;
a map is a list of pairs, in any order.
"""

import itertools

from pyspark.sql import types as t

PLAIN = (t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.StringType)
AS_TEXT = (t.FloatType, t.DoubleType, t.DecimalType, t.NullType, t.CalendarIntervalType)
# What the fields of an interval count in microseconds.
DAY, HOUR, MINUTE, SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000


class Unshowable(Exception):
    """A type without a form."""


def expression(name, kind):
    """What shows the column `name`."""
    return shown(name, kind, itertools.count())


def shown(x, kind, numbers):
    if isinstance(kind, PLAIN):
        return x
    if isinstance(kind, AS_TEXT):
        return f"CAST({x} AS STRING)"
    if isinstance(kind, t.DateType):
        return f"unix_date({x})"
    if isinstance(kind, t.TimestampType):
        return f"unix_micros({x})"
    if isinstance(kind, t.TimestampNTZType):
        # Not as a TIMESTAMP, which would depend on the session's time zone.
        return shown(f"({x} - TIMESTAMP_NTZ'1970-01-01 00:00:00')", t.DayTimeIntervalType(), numbers)
    if isinstance(kind, t.BinaryType):
        return f"hex({x})"
    if isinstance(kind, t.YearMonthIntervalType):
        x = f"CAST({x} AS INTERVAL YEAR TO MONTH)"
        return f"(extract(YEAR FROM {x}) * 12 + extract(MONTH FROM {x}))"
    if isinstance(kind, t.DayTimeIntervalType):
        x = f"CAST({x} AS INTERVAL DAY TO SECOND)"
        return (f"(CAST(extract(DAY FROM {x}) AS BIGINT) * {DAY}L"
                f" + extract(HOUR FROM {x}) * {HOUR}L + extract(MINUTE FROM {x}) * {MINUTE}L"
                f" + CAST(extract(SECOND FROM {x}) * {SECOND} AS BIGINT))")
    if isinstance(kind, t.ArrayType):
        return shown_array(x, kind, numbers)
    if isinstance(kind, t.MapType):
        return shown_map(x, kind, numbers)
    if isinstance(kind, t.StructType):
        return shown_struct(x, kind, numbers)
    if isinstance(kind, t.VariantType):
        return f"to_json({x})"
    if type(kind).__name__ == "TimeType":
        return f"CAST({x} AS STRING)"
    raise Unshowable(kind.simpleString())


def shown_array(x, kind, numbers):
    element = f"e{next(numbers)}"
    inner = shown(element, kind.elementType, numbers)
    return x if inner == element else f"transform({x}, {element} -> {inner})"


def shown_map(x, kind, numbers):
    entry = f"e{next(numbers)}"
    key = shown(f"{entry}.key", kind.keyType, numbers)
    value = shown(f"{entry}.value", kind.valueType, numbers)
    return f"transform(map_entries({x}), {entry} -> struct({key} AS k, {value} AS v))"


def shown_struct(x, kind, numbers):
    names = [field.name for field in kind.fields]
    if len({name.lower() for name in names}) < len(names):
        raise Unshowable("a struct with fields of one name")
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    fields = [shown(f"{x}.{name}", field.dataType, numbers)
              for name, field in zip(quoted, kind.fields)]
    if fields == [f"{x}.{name}" for name in quoted]:
        return x
    pairs = ", ".join(f"{field} AS f{at}" for at, field in enumerate(fields))
    return f"IF({x} IS NULL, NULL, struct({pairs}))"


def plain(value):
    """A collected value in types of JSON."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
