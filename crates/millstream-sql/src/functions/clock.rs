//! The time of the micro-batch: what `current_timestamp()` says.
//!
//! A query is planned once and run for many micro-batches. So these functions are volatile for
//! the planner, which must not replace them by the time of planning, and constant within one
//! micro-batch, replayed ones included: the driver sets the clock from the offset log's entry.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, cast,
};

use crate::types::timestamp;
use crate::values::calendar::{DAY_US, SECOND_US};

/// The time of the micro-batch that is running, shared by the driver and the query's functions.
#[derive(Clone, Debug, Default)]
pub struct BatchClock {
    us: Arc<AtomicI64>,
}

impl BatchClock {
    /// Sets the time, in microseconds since the epoch. The driver does so before each micro-batch,
    /// when nothing of the one before is still computing.
    pub fn set(&self, us: i64) {
        self.us.store(us, Ordering::Release);
    }

    /// The time, in microseconds since the epoch.
    pub fn us(&self) -> i64 {
        self.us.load(Ordering::Acquire)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reading {
    Timestamp,
    LocalTimestamp,
    Date,
    Seconds,
}

impl Reading {
    fn data_type(self) -> DataType {
        match self {
            Self::Timestamp => timestamp(),
            Self::LocalTimestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Date => DataType::Date32,
            Self::Seconds => DataType::Int64,
        }
    }

    /// What it is at `us`, microseconds since the epoch.
    fn value(self, us: i64) -> Result<ScalarValue> {
        match self {
            Self::Date => Ok(ScalarValue::Date32(Some(us.div_euclid(DAY_US) as i32))),
            Self::Seconds => Ok(ScalarValue::Int64(Some(us.div_euclid(SECOND_US)))),
            _ => ScalarValue::Int64(Some(us)).cast_to(&self.data_type()),
        }
    }
}

/// A function without arguments that reads the clock.
#[derive(Clone)]
struct Current {
    name: &'static str,
    aliases: Vec<String>,
    reading: Reading,
    clock: BatchClock,
    signature: Signature,
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Current {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.clock.us, &other.clock.us)
    }
}

impl Eq for Current {}

impl Hash for Current {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Current {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("{} has its type from return_field_from_args", self.name)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name, self.reading.data_type(), false)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.reading.value(self.clock.us())?))
    }
}

/// The functions that read `clock`.
pub(super) fn functions(clock: &BatchClock) -> Vec<Arc<ScalarUDF>> {
    let current = |name, aliases: &[&str], reading| {
        Arc::new(ScalarUDF::from(Current {
            name,
            aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
            reading,
            clock: clock.clone(),
            signature: Signature::nullary(Volatility::Volatile),
        }))
    };
    vec![
        current("current_timestamp", &["now"], Reading::Timestamp),
        current("localtimestamp", &[], Reading::LocalTimestamp),
        current("current_date", &["curdate", "today"], Reading::Date),
        current(CURRENT_SECONDS, &[], Reading::Seconds),
    ]
}

/// `expr`, which is the time `us`, in microseconds since the epoch, where it reads a clock.
pub(super) fn read_at(expr: Expr, us: i64) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
    let Some(current) = call.func.inner().downcast_ref::<Current>() else {
        return Ok(Transformed::no(expr));
    };
    let value = Expr::Literal(current.reading.value(us)?, None);
    Ok(Transformed::yes(match current.reading {
        // The plan's types are checked once more, for which a whole number would be an INT.
        Reading::Seconds => cast(value, DataType::Int64),
        _ => value,
    }))
}

/// A reading of the same clock as a TIMESTAMP, in the place of one that depends on the session's
/// time zone; `None` where `function` is none of those.
pub(super) fn moment_read(function: &ScalarUDF) -> Option<Arc<ScalarUDF>> {
    let current = function.inner().downcast_ref::<Current>()?;
    let is_local = matches!(current.reading, Reading::LocalTimestamp | Reading::Date);
    let (name, reading) = ("current_timestamp", Reading::Timestamp);
    let moment = Current { name, aliases: vec!["now".to_owned()], reading, ..current.clone() };
    is_local.then(|| Arc::new(ScalarUDF::from(moment)))
}

/// What `unix_timestamp()` without arguments is planned as.
pub(super) const CURRENT_SECONDS: &str = "current_unix_timestamp";
