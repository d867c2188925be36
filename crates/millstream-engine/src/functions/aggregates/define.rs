//! A short way to write an aggregate: its types, its partial state, and what accumulates.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, GroupsAccumulator, Signature,
    Volatility,
};

use super::super::types::type_name;
use super::grouped::OneGroup;

/// An aggregate as its author writes it. Rows whose first argument is null do not count.
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
    /// Without rows the result is an empty list, not NULL.
    pub never_null: bool,
    pub make: Make,
    /// What DataFusion makes of a frame that moves over ordered rows, if that is another one.
    pub sliding: Option<fn() -> Arc<AggregateUDF>>,
}

/// What accumulates the values of an aggregate.
#[derive(Clone, Copy)]
pub(super) enum Make {
    /// Many groups at once.
    Groups(fn(&AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>>),
    /// One accumulator for each group.
    Single(fn(&AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>),
}

impl Aggregate {
    /// For registration.
    pub fn udaf(self) -> Arc<AggregateUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        let aliases = self.aliases.iter().map(|&alias| alias.to_owned()).collect();
        Arc::new(AggregateUDF::from(Defined { aggregate: self, signature, aliases }))
    }
}

struct Defined {
    aggregate: Aggregate,
    signature: Signature,
    aliases: Vec<String>,
}

impl fmt::Debug for Defined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.aggregate.name)
    }
}

impl PartialEq for Defined {
    fn eq(&self, other: &Self) -> bool {
        self.aggregate.name == other.aggregate.name
    }
}

impl Eq for Defined {}

impl Hash for Defined {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.aggregate.name.hash(state);
    }
}

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

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let inner = match self.aggregate.make {
            Make::Groups(make) => {
                let inputs: Vec<DataType> =
                    args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
                let empty = self.default_value(args.return_type())?;
                let states = (self.aggregate.state)(&inputs);
                Box::new(OneGroup::new(make(&args)?, empty, states))
            }
            Make::Single(make) => make(&args)?,
        };
        if args.is_distinct {
            for at in 1..args.exprs.len() {
                constant(self.name(), &args, at)?;
            }
            return Ok(Box::new(Distinct { seen: HashSet::new(), inner, of: input(&args, 0) }));
        }
        Ok(inner)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        match data_type {
            DataType::List(element) if self.aggregate.never_null => {
                let list = ScalarValue::new_list_nullable(&[], element.data_type());
                Ok(ScalarValue::List(list))
            }
            other => ScalarValue::try_from(other),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match self.aggregate.sliding {
            Some(other) => other().create_sliding_accumulator(args),
            None => self.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let inputs: Vec<DataType> =
            args.input_fields.iter().map(|field| field.data_type().clone()).collect();
        let types = match args.is_distinct {
            true => vec![DataType::new_list(inputs[0].clone(), true)],
            false => (self.aggregate.state)(&inputs),
        };
        let field = |(at, data_type): (usize, DataType)| {
            let name = format_state_name(args.name, &format!("state{at}"));
            Arc::new(Field::new(name, data_type, true))
        };
        Ok(types.into_iter().enumerate().map(field).collect())
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct && matches!(self.aggregate.make, Make::Groups(_))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match self.aggregate.make {
            Make::Groups(make) => make(&args),
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

/// An argument that is none of what the aggregate takes.
pub(super) fn refused<T>(name: &str, wanted: &str, given: &DataType) -> Result<T> {
    plan_err!("function '{name}' needs {wanted}, not a value of type {}", type_name(given))
}

/// Lets every value count once.
#[derive(Debug)]
struct Distinct {
    seen: HashSet<ScalarValue>,
    inner: Box<dyn Accumulator>,
    of: DataType,
}

impl Distinct {
    fn see(&mut self, values: &ArrayRef) -> Result<()> {
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            self.seen.insert(ScalarValue::try_from_array(values, row)?);
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

    /// Ends the accumulation: the values go into the inner aggregate.
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let seen = std::mem::take(&mut self.seen);
        if !seen.is_empty() {
            self.inner.update_batch(&[ScalarValue::iter_to_array(seen)?])?;
        }
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        let seen: usize = self.seen.iter().map(ScalarValue::size).sum();
        size_of_val(self) + seen + self.inner.size()
    }
}
