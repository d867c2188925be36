//! A short form for defining an aggregate: its types, its partial state, and its accumulator.

use std::collections::HashSet;
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_empty_array};
use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, GroupsAccumulator,
    Signature, Volatility,
};

use super::super::define::known_by_name;
use super::super::interval_casts::is_interval;
use super::frames::Frame;
use super::grouped::OneGroup;
use crate::types::{INTERVAL_FIELDS, spark_type};

/// The definition of an aggregate. Rows whose first argument is null do not count, unless that is
/// a literal or one of several conditions.
#[derive(Clone, Copy)]
pub(super) struct Aggregate {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// The types to cast arguments to.
    pub coerce: fn(&[DataType]) -> Result<Vec<DataType>>,
    /// The result's type for argument types after the cast.
    pub returns: fn(&[DataType]) -> Result<DataType>,
    /// The types of the partial state, for the arguments' types.
    pub state: fn(&[DataType]) -> Vec<DataType>,
    /// Without rows the result is an empty list, 0 or false, not NULL.
    pub never_null: bool,
    pub make: Make,
    /// An accumulator that removes rows again that a moving frame has left. Without it the rows of
    /// each frame are aggregated anew.
    pub moving: Option<MakeOne>,
}

/// Makes an accumulator of one group for a call.
pub(super) type MakeOne = fn(&AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>;

/// Makes an accumulator of many groups for a call.
pub(super) type MakeGroups = fn(&AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>>;

/// Makes the accumulator of an aggregate.
#[derive(Clone, Copy)]
pub(super) enum Make {
    /// Many groups at once.
    Groups(MakeGroups),
    /// Many groups at once, which have a result without rows too: what the accumulator itself says.
    GroupsOrNone(MakeGroups),
    /// One accumulator for each group.
    Single(MakeOne),
}

impl Aggregate {
    /// For registration.
    pub fn udaf(self) -> Arc<AggregateUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        let aliases = self.aliases.iter().map(|&alias| alias.to_owned()).collect();
        Arc::new(AggregateUDF::from(Defined { aggregate: self, signature, aliases }))
    }

    /// The accumulator of one group.
    pub fn accumulator(&self, args: &AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let inner = match self.make {
            Make::Groups(make) | Make::GroupsOrNone(make) => {
                let inputs: Vec<DataType> =
                    args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
                let empty = match self.make {
                    Make::GroupsOrNone(_) => of_no_rows(make(args)?, &inputs)?,
                    _ => self.without_rows(args.return_type())?,
                };
                Box::new(OneGroup::new(make(args)?, empty, (self.state)(&inputs)))
            }
            Make::Single(make) => make(args)?,
        };
        if args.is_distinct {
            for at in 1..args.exprs.len() {
                constant(self.name, args, at)?;
            }
            let (seen, fresh) = (HashSet::new(), Vec::new());
            return Ok(Box::new(Distinct { seen, fresh, inner, of: input(args, 0) }));
        }
        Ok(inner)
    }

    /// The result without rows.
    fn without_rows(&self, data_type: &DataType) -> Result<ScalarValue> {
        match data_type {
            DataType::List(element) if self.never_null => {
                let list = ScalarValue::new_list_nullable(&[], element.data_type());
                Ok(ScalarValue::List(list))
            }
            other if self.never_null => ScalarValue::new_default(other),
            other => ScalarValue::try_from(other),
        }
    }
}

/// What an accumulator says of a group without rows.
fn of_no_rows(mut groups: Box<dyn GroupsAccumulator>, inputs: &[DataType]) -> Result<ScalarValue> {
    let nothing: Vec<ArrayRef> = inputs.iter().map(new_empty_array).collect();
    groups.update_batch(&nothing, &[], None, 1)?;
    ScalarValue::try_from_array(&groups.evaluate(EmitTo::All)?, 0)
}

/// The aggregates whose result has the fields of the INTERVALs that they are of.
const KEEPS_FIELDS: [&str; 7] =
    ["max_by", "min_by", "mode", "mode_descending", "percentile_approx", "sum", "try_sum"];

struct Defined {
    aggregate: Aggregate,
    signature: Signature,
    aliases: Vec<String>,
}

known_by_name!(Defined);

impl AggregateUDFImpl for Defined {
    fn name(&self) -> &str {
        self.aggregate.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        (self.aggregate.coerce)(given)
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        (self.aggregate.returns)(args)
    }

    fn return_field(&self, args: &[FieldRef]) -> Result<FieldRef> {
        let types: Vec<DataType> = args.iter().map(|arg| arg.data_type().clone()).collect();
        let field = Field::new(self.name(), self.return_type(&types)?, self.is_nullable());
        let fields = args.first().and_then(|arg| arg.metadata().get(INTERVAL_FIELDS));
        let kept = fields
            .filter(|_| KEEPS_FIELDS.contains(&self.name()) && is_interval(field.data_type()));
        let metadata = kept.map(|fields| (INTERVAL_FIELDS.to_owned(), fields.clone()));
        Ok(Arc::new(field.with_metadata(metadata.into_iter().collect())))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.aggregate.accumulator(&args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.aggregate.without_rows(data_type)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match self.aggregate.moving {
            Some(make) if !args.is_distinct => make(&args),
            _ => {
                let aggregate = self.aggregate;
                Ok(Box::new(Frame::new(move |args| aggregate.accumulator(&args), &args)))
            }
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let inputs: Vec<DataType> =
            args.input_fields.iter().map(|field| field.data_type().clone()).collect();
        let types = if args.is_distinct {
            vec![DataType::new_list(inputs[0].clone(), true)]
        } else {
            (self.aggregate.state)(&inputs)
        };
        let field = |(at, data_type): (usize, DataType)| {
            let name = format_state_name(args.name, &format!("state{at}"));
            Arc::new(Field::new(name, data_type, true))
        };
        Ok(types.into_iter().enumerate().map(field).collect())
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct && !matches!(self.aggregate.make, Make::Single(_))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match self.aggregate.make {
            Make::Groups(make) | Make::GroupsOrNone(make) => make(&args),
            Make::Single(_) => plan_err!("{} accumulates one group at a time", self.name()),
        }
    }
}

/// The type of an argument.
pub(super) fn input(args: &AccumulatorArgs<'_>, at: usize) -> DataType {
    args.expr_fields[at].data_type().clone()
}

/// The value of an argument that is the same for all rows.
pub(super) fn constant(name: &str, args: &AccumulatorArgs<'_>, at: usize) -> Result<ScalarValue> {
    let nothing = RecordBatch::new_empty(Arc::new(args.schema.clone()));
    match args.exprs[at].evaluate(&nothing)? {
        ColumnarValue::Scalar(value) => Ok(value),
        ColumnarValue::Array(_) if args.is_distinct => {
            plan_err!("function '{name}' takes DISTINCT only with one column")
        }
        ColumnarValue::Array(_) => plan_err!("function '{name}' needs a literal after its column"),
    }
}

/// Checks how many arguments there are.
pub(super) fn counted(name: &str, given: &[DataType], least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&given.len()) {
        return Ok(());
    }
    let wanted = if least == most { least.to_string() } else { format!("{least} to {most}") };
    plan_err!("function '{name}' takes {wanted} arguments and got {}", given.len())
}

/// The error of an argument whose type the aggregate does not take.
pub(super) fn refused<T>(name: &str, wanted: &str, given: &DataType) -> Result<T> {
    plan_err!("function '{name}' needs {wanted}, not a value of type {}", spark_type(given))
}

/// The type to cast an argument to that must be a number.
pub(super) fn number(name: &str, given: &DataType) -> Result<DataType> {
    match given {
        found if found.is_numeric() || found.is_string() || found.is_null() => {
            Ok(DataType::Float64)
        }
        other => refused(name, "a number", other),
    }
}

/// The same, of which INTERVALs are as they are; those of days are counted in microseconds.
pub(super) fn number_or_interval(name: &str, given: &DataType) -> Result<DataType> {
    match given {
        DataType::Interval(IntervalUnit::YearMonth) => Ok(given.clone()),
        DataType::Duration(_) => Ok(DataType::Duration(TimeUnit::Microsecond)),
        other => number(name, other),
    }
}

/// Passes each value to the inner aggregate once.
#[derive(Debug)]
struct Distinct {
    seen: HashSet<ScalarValue>,
    /// Values that the inner aggregate has not received yet.
    fresh: Vec<ScalarValue>,
    inner: Box<dyn Accumulator>,
    of: DataType,
}

impl Distinct {
    fn see(&mut self, values: &ArrayRef) -> Result<()> {
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let value = ScalarValue::try_from_array(values, row)?;
            if self.seen.insert(value.clone()) {
                self.fresh.push(value);
            }
        }
        Ok(())
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.see(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states[0].as_list::<i32>().iter().flatten().try_for_each(|values| self.see(&values))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let seen: Vec<ScalarValue> = self.seen.iter().cloned().collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&seen, &self.of))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let fresh = std::mem::take(&mut self.fresh);
        if !fresh.is_empty() {
            self.inner.update_batch(&[ScalarValue::iter_to_array(fresh)?])?;
        }
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        let values = self.seen.iter().chain(&self.fresh);
        let values: usize = values.map(ScalarValue::size).sum();
        size_of_val(self) + values + self.inner.size()
    }
}
