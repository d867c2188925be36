//! `make_timestamp` and its like: a time of numbers, or of a DATE and a TIME. How many arguments a
//! call has says which of both it is.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Float64Type, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::datetime::civil;
use super::define::{Arguments, Function, Param, call, known_by_name, returns_timestamp};
use crate::types::{TIME, spark_type, timestamp};
use crate::values::calendar::{DAY_US, SECOND_US};
use crate::values::zone::{long_name, zone_offset_us};

use Param::{Any, Double, Int, Text};

/// Year, month, day, hour, minute, seconds, and perhaps a zone.
const NUMBERS: &[Param] = &[Int, Int, Int, Int, Int, Double, Text];
const LOCAL_NUMBERS: &[Param] = &[Int, Int, Int, Int, Int, Double];
/// A date, perhaps a time of the day, and perhaps a zone.
const DATE: &[Param] = &[Any, Any, Text];
const LOCAL_DATE: &[Param] = &[Any, Any];

/// The most arguments that a time of a date has.
const DATE_ARGUMENTS_MAX: usize = 3;

/// The names, the function of numbers, and that of a date.
const FORMS: &[(&[&str], Function, Function)] = &[
    (
        &["make_timestamp_ltz"],
        Function::new("make_timestamp", NUMBERS, returns_timestamp, |args| of_numbers(args, true))
            .required(6),
        Function::new("make_timestamp", DATE, moment_type, |args| of_date(args, true)).required(1),
    ),
    (
        &["try_make_timestamp_ltz"],
        Function::new("try_make_timestamp", NUMBERS, returns_timestamp, |args| {
            of_numbers(args, false)
        })
        .required(6),
        Function::new("try_make_timestamp", DATE, moment_type, |args| of_date(args, false))
            .required(1),
    ),
    (
        &[],
        Function::new(
            "make_timestamp_ntz",
            LOCAL_NUMBERS,
            |_| Ok(LOCAL),
            |args| of_numbers(args, true),
        ),
        Function::new("make_timestamp_ntz", LOCAL_DATE, local_type, |args| of_date(args, true)),
    ),
    (
        &[],
        Function::new(
            "try_make_timestamp_ntz",
            LOCAL_NUMBERS,
            |_| Ok(LOCAL),
            |args| of_numbers(args, false),
        ),
        Function::new("try_make_timestamp_ntz", LOCAL_DATE, local_type, |args| {
            of_date(args, false)
        }),
    ),
];

const LOCAL: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let function = |(aliases, of_numbers, of_date): &(&[&str], Function, Function)| {
        Arc::new(ScalarUDF::from(MakeTimestamp {
            of_numbers: *of_numbers,
            of_date: *of_date,
            aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    };
    FORMS.iter().map(function).collect()
}

struct MakeTimestamp {
    of_numbers: Function,
    of_date: Function,
    aliases: Vec<String>,
    signature: Signature,
}

known_by_name!(MakeTimestamp);

impl MakeTimestamp {
    fn form(&self, arguments: usize) -> &Function {
        if arguments <= DATE_ARGUMENTS_MAX { &self.of_date } else { &self.of_numbers }
    }
}

impl ScalarUDFImpl for MakeTimestamp {
    fn name(&self) -> &str {
        self.of_numbers.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.form(given.len()).coerced(given)
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        (self.form(args.len()).returns)(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| (self.form(arguments.len()).call)(arguments))
    }
}

fn moment_type(args: &[DataType]) -> Result<DataType> {
    check_date(args)?;
    Ok(timestamp())
}

fn local_type(args: &[DataType]) -> Result<DataType> {
    check_date(args)?;
    Ok(LOCAL)
}

/// Spark casts neither a text to a DATE here nor a TIMESTAMP.
fn check_date(args: &[DataType]) -> Result<()> {
    let wanted = [DataType::Date32, TIME];
    let mut pairs = args.iter().zip(&wanted);
    match pairs.find(|(given, wanted)| given != wanted && !given.is_null()) {
        Some((given, _)) => plan_err!(
            "a timestamp is made of six numbers, or of a DATE and a TIME, and not of {}",
            spark_type(given)
        ),
        None => Ok(()),
    }
}

fn of_numbers(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let numbers: Vec<_> = (0..5).map(|at| args.int(at)).collect();
    let seconds = args.primitive::<Float64Type>(5);
    let zones = (args.len() > 6).then(|| args.text(6));
    args.primitives::<TimestampMicrosecondType>(|row| {
        let mut parts = [0; 5];
        for (part, numbers) in parts.iter_mut().zip(&numbers) {
            let Some(number) = numbers.get(row) else { return Ok(None) };
            *part = number;
        }
        let zone = zones.as_ref().map_or(Some("UTC"), |zones| zones.get(row));
        let (Some(seconds), Some(zone)) = (seconds.get(row), zone) else { return Ok(None) };
        match instant(parts, seconds, zone) {
            Some(us) => Ok(Some(us)),
            None if !strict => Ok(None),
            None => exec_err!("there is no time {parts:?} {seconds} in zone {zone}"),
        }
    })
}

fn instant([year, month, day, hour, minute]: [i32; 5], seconds: f64, zone: &str) -> Option<i64> {
    let is_of_day = (0..24).contains(&hour) && (0..60).contains(&minute);
    if !is_of_day || !(0.0..=60.0).contains(&seconds) {
        return None;
    }
    let us = (seconds * SECOND_US as f64).round() as i64;
    let of_day = i64::from(hour * 60 + minute) * 60 * SECOND_US + us;
    let local = i64::from(civil(year, month, day)?).checked_mul(DAY_US)?.checked_add(of_day)?;
    local.checked_sub(zone_offset_us(long_name(zone), local)?)
}

/// A date without a time is its midnight.
fn of_date(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let dates = Parts::<Date32Type>::new(args, 0, &DataType::Date32)?;
    let times = match args.len() {
        1 => None,
        _ => Some(Parts::<Time64MicrosecondType>::new(args, 1, &TIME)?),
    };
    let zones = (args.len() > 2).then(|| args.text(2));
    args.primitives::<TimestampMicrosecondType>(|row| {
        let time = times.as_ref().map_or(Some(0), |times| times.get(row));
        let zone = zones.as_ref().map_or(Some("UTC"), |zones| zones.get(row));
        let (Some(date), Some(time), Some(zone)) = (dates.get(row), time, zone) else {
            return Ok(None);
        };
        match moment(date, time, zone) {
            Some(us) => Ok(Some(us)),
            None if !strict => Ok(None),
            None => exec_err!("there is no such TIMESTAMP in zone {zone}"),
        }
    })
}

fn moment(date: i32, time: i64, zone: &str) -> Option<i64> {
    let local = i64::from(date).checked_mul(DAY_US)?.checked_add(time)?;
    local.checked_sub(zone_offset_us(long_name(zone), local)?)
}

/// The values of an argument, which may be of the type of NULL.
struct Parts<T: ArrowPrimitiveType> {
    values: PrimitiveArray<T>,
    constant: bool,
}

impl<T: ArrowPrimitiveType> Parts<T> {
    fn new(args: &Arguments, at: usize, of: &DataType) -> Result<Self> {
        let (values, constant) = args.array(at);
        let values = arrow_cast(values, of)?.as_primitive::<T>().clone();
        Ok(Self { values, constant })
    }

    fn get(&self, row: usize) -> Option<T::Native> {
        let at = if self.constant { 0 } else { row };
        self.values.is_valid(at).then(|| self.values.value(at))
    }
}
