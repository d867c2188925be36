//! `date_part` and `extract`: a number of a time, or of the time between two.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray, new_null_array};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, Field, FieldRef, Int8Type, Int32Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType,
    TimestampMicrosecondType,
};
use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::{Param, call, known_by_name, literal_text};
use super::interval_casts::fields_of_type;
use super::interval_text::MICROSECONDS;
use crate::types::INTERVAL_FIELDS;
use crate::values::calendar::{DAY_US, SECOND_US, naive};
use crate::values::interval_literal::has_field;

/// The name and its short forms, and what is given: none is a part with a fraction.
type Part = (&'static [&'static str], fn(NaiveDateTime) -> i32);

const PARTS: &[Part] = &[
    (&["YEAR", "Y", "YEARS", "YR", "YRS"], |time| time.year()),
    (&["YEAROFWEEK"], |time| time.iso_week().year()),
    (&["QUARTER", "QTR"], |time| time.month0() as i32 / 3 + 1),
    (&["MONTH", "MON", "MONS", "MONTHS"], |time| time.month() as i32),
    (&["WEEK", "W", "WEEKS"], |time| time.iso_week().week() as i32),
    (&["DAY", "D", "DAYS"], |time| time.day() as i32),
    (&["DAYOFWEEK", "DOW"], |time| time.weekday().num_days_from_sunday() as i32 + 1),
    (&["DAYOFWEEK_ISO", "DOW_ISO"], |time| time.weekday().number_from_monday() as i32),
    (&["DOY"], |time| time.ordinal() as i32),
    (&["HOUR", "H", "HOURS", "HR", "HRS"], |time| time.hour() as i32),
    (&["MINUTE", "M", "MIN", "MINS", "MINUTES"], |time| time.minute() as i32),
    (SECONDS, |time| time.second() as i32),
];

const SECONDS: &[&str] = &["SECOND", "S", "SEC", "SECONDS", "SECS"];

/// Seconds have their fraction, of microseconds.
const SECONDS_TYPE: DataType = DataType::Decimal128(8, 6);

pub(super) struct DatePart {
    aliases: Vec<String>,
    signature: Signature,
}

known_by_name!(DatePart);

impl DatePart {
    /// For registration.
    pub fn udf() -> Arc<ScalarUDF> {
        let aliases = ["datepart", "extract"].map(str::to_owned).to_vec();
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Self { aliases, signature }))
    }
}

fn part(name: &str) -> Result<&'static Part> {
    let upper = name.to_ascii_uppercase();
    let found = PARTS.iter().find(|(names, _)| names.contains(&upper.as_str()));
    found.ok_or_else(|| {
        let names: Vec<&str> = PARTS.iter().map(|(names, _)| names[0]).collect();
        exec_datafusion_err!("a time has no part '{name}'; there are {}", names.join(", "))
    })
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        "date_part"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [part, of] = given else {
            return plan_err!("date_part takes 2 arguments and got {}", given.len());
        };
        let of = match of {
            // As it is: its type may say the fields.
            DataType::Duration(_)
            | DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::MonthDayNano) => {
                of.clone()
            }
            other => Param::AnyTime.coerced(other)?,
        };
        // A cast of NULL would hide that it is one.
        let part = if part.is_null() { DataType::Null } else { DataType::Utf8 };
        Ok(vec![part, of])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of a date_part depends on its first argument's value")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let part_name = args.scalar_arguments[0];
        if part_name.is_some_and(ScalarValue::is_null) {
            return Ok(Arc::new(Field::new(self.name(), DataType::Float64, true)));
        }
        let name = literal_text("date_part", part_name)?;
        let (names, _) = part(name)?;
        let of = args.arg_fields[1].data_type();
        let returns = match of {
            DataType::Interval(_) | DataType::Duration(_) => {
                let fields = args.arg_fields[1].metadata().get(INTERVAL_FIELDS);
                part_type(names[0], fields.map(String::as_str).or_else(|| fields_of_type(of)))?
            }
            _ if *names == SECONDS => SECONDS_TYPE,
            _ => DataType::Int32,
        };
        Ok(Arc::new(Field::new(self.name(), returns, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| {
            if arguments.data_type(0).is_null() {
                return Ok(new_null_array(&arguments.returns, arguments.rows));
            }
            let name = arguments.text(0).get(0).unwrap_or_default();
            let (names, of) = part(name)?;
            let values = arguments.expanded(1)?;
            match values.data_type() {
                DataType::Duration(_) => part_of_span(&values, names[0]),
                DataType::Interval(IntervalUnit::MonthDayNano) => {
                    part_of_calendar(&values, names[0])
                }
                DataType::Interval(_) => Ok(part_of_months(&values, names[0])),
                _ if *names == SECONDS => {
                    let times = values.as_primitive::<TimestampMicrosecondType>();
                    seconds(
                        times.unary::<_, Decimal128Type>(|us| us.rem_euclid(60 * SECOND_US).into()),
                    )
                }
                _ => {
                    let times = values.as_primitive::<TimestampMicrosecondType>();
                    let part = |us: i64| naive(us).map(of);
                    Ok(Arc::new(times.unary_opt::<_, Int32Type>(part)))
                }
            }
        })
    }
}

/// The type of a part of INTERVALs, of `fields` or of months, days and less in one.
fn part_type(name: &str, fields: Option<&str>) -> Result<DataType> {
    if let Some(fields) = fields
        && !has_field(fields, &name.to_lowercase())
    {
        return plan_err!("an INTERVAL {} has no {name}", fields.to_uppercase());
    }
    match name {
        "YEAR" | "DAY" => Ok(DataType::Int32),
        "MONTH" | "HOUR" | "MINUTE" => Ok(DataType::Int8),
        "SECOND" => Ok(SECONDS_TYPE),
        other => plan_err!("an INTERVAL has no {other}"),
    }
}

fn seconds(us: PrimitiveArray<Decimal128Type>) -> Result<ArrayRef> {
    Ok(Arc::new(us.with_data_type(SECONDS_TYPE)))
}

fn part_of_span(values: &ArrayRef, name: &str) -> Result<ArrayRef> {
    let values = arrow_cast(values, &MICROSECONDS)?;
    let spans = values.as_primitive::<DurationMicrosecondType>();
    let minute = 60 * SECOND_US;
    Ok(match name {
        "SECOND" => return seconds(spans.unary::<_, Decimal128Type>(|us| (us % minute).into())),
        "MINUTE" => Arc::new(spans.unary::<_, Int8Type>(|us| (us / minute % 60) as i8)),
        "HOUR" => Arc::new(spans.unary::<_, Int8Type>(|us| (us / (60 * minute) % 24) as i8)),
        _ => Arc::new(spans.unary::<_, Int32Type>(|us| (us / DAY_US) as i32)),
    })
}

fn part_of_months(values: &ArrayRef, name: &str) -> ArrayRef {
    let months = values.as_primitive::<IntervalYearMonthType>();
    match name {
        "MONTH" => Arc::new(months.unary::<_, Int8Type>(|months| (months % 12) as i8)),
        _ => Arc::new(months.unary::<_, Int32Type>(|months| months / 12)),
    }
}

fn part_of_calendar(values: &ArrayRef, name: &str) -> Result<ArrayRef> {
    let spans = values.as_primitive::<IntervalMonthDayNanoType>();
    match name {
        "YEAR" | "MONTH" => {
            let months = spans.unary::<_, IntervalYearMonthType>(|span| span.months);
            Ok(part_of_months(&(Arc::new(months) as ArrayRef), name))
        }
        "DAY" => {
            // Hours can be more than a day.
            let days = |span: IntervalMonthDayNano| {
                let more = i32::try_from(span.nanoseconds / 1000 / DAY_US).ok();
                more.and_then(|more| span.days.checked_add(more))
                    .ok_or_else(|| exec_datafusion_err!("an INTERVAL has more days than an INT"))
            };
            Ok(Arc::new(spans.try_unary::<_, Int32Type, _>(days)?))
        }
        _ => {
            let us = spans.unary::<_, DurationMicrosecondType>(|span| span.nanoseconds / 1000);
            part_of_span(&(Arc::new(us) as ArrayRef), name)
        }
    }
}
