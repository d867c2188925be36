//! `percentile` and the other functions of shares of the rows, `median` and `mode`, computed from
//! how often each value occurs.
//!
//! All values of a group are kept, each once. So `percentile_approx` is exact, whatever its
//! accuracy says, at the price of a state that grows with the number of different values.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::define::{
    Aggregate, Make, MakeOne, constant, counted, input, number_or_interval, refused,
};

pub(super) const AGGREGATES: &[Aggregate] = &[
    Aggregate {
        name: "percentile",
        aliases: &[],
        coerce: |given| {
            counted("percentile", given, 2, 3)?;
            let mut types = vec![number_or_interval("percentile", &given[0])?, share(&given[1])];
            types.extend(given.get(2).map(|_| DataType::Int64));
            Ok(types)
        },
        returns: |args| Ok(shaped(&args[0], &args[1])),
        state: counts_of,
        never_null: false,
        make: Make::Single(|args| counts(args, Question::Between(shares("percentile", args)?))),
        moving: None,
    },
    Aggregate {
        name: "median",
        aliases: &[],
        coerce: |given| {
            counted("median", given, 1, 1)?;
            Ok(vec![number_or_interval("median", &given[0])?])
        },
        returns: |args| Ok(args[0].clone()),
        state: counts_of,
        never_null: false,
        make: Make::Single(|args| counts(args, Question::Between(vec![0.5]))),
        moving: None,
    },
    Aggregate {
        name: "percentile_approx",
        aliases: &["approx_percentile"],
        coerce: |given| {
            counted("percentile_approx", given, 2, 3)?;
            let has_order = given[0].is_numeric() || given[0].is_temporal() || given[0].is_null();
            if !has_order {
                return refused("percentile_approx", "a number or a time", &given[0]);
            }
            let mut types = vec![given[0].clone(), share(&given[1])];
            types.extend(given.get(2).map(|_| DataType::Int64));
            Ok(types)
        },
        returns: |args| Ok(shaped(&args[0], &args[1])),
        state: counts_of,
        never_null: false,
        make: Make::Single(|args| counts(args, Question::At(shares("percentile_approx", args)?))),
        moving: None,
    },
    in_order("percentile_cont_descending", of_cont, |args| {
        let shares = shares("percentile_cont", args)?;
        descending(args, Question::Between(shares))
    }),
    in_order("percentile_disc_ascending", of_disc, |args| {
        counts(args, Question::At(shares("percentile_disc", args)?))
    }),
    in_order("percentile_disc_descending", of_disc, |args| {
        descending(args, Question::At(shares("percentile_disc", args)?))
    }),
    most_often("mode", |args| counts(args, Question::Most)),
    most_often("mode_descending", |args| descending(args, Question::Most)),
];

const fn most_often(name: &'static str, make: MakeOne) -> Aggregate {
    Aggregate {
        name,
        aliases: &[],
        coerce: |given| {
            counted("mode", given, 1, 2)?;
            Ok(given.to_vec())
        },
        returns: |args| Ok(args[0].clone()),
        state: counts_of,
        never_null: false,
        make: Make::Single(make),
        moving: None,
    }
}

/// What `percentile_cont` and `percentile_disc` become: a value, and shares of the rows.
const fn in_order(
    name: &'static str,
    coerce: fn(&[DataType]) -> Result<Vec<DataType>>,
    make: MakeOne,
) -> Aggregate {
    Aggregate {
        name,
        aliases: &[],
        coerce,
        returns: |args| Ok(shaped(&args[0], &args[1])),
        state: counts_of,
        never_null: false,
        make: Make::Single(make),
        moving: None,
    }
}

fn of_cont(given: &[DataType]) -> Result<Vec<DataType>> {
    value_and_share("percentile_cont", given)
}

fn of_disc(given: &[DataType]) -> Result<Vec<DataType>> {
    value_and_share("percentile_disc", given)
}

fn value_and_share(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 2, 2)?;
    Ok(vec![number_or_interval(name, &given[0])?, share(&given[1])])
}

/// The type of a share of the rows, or of several.
fn share(given: &DataType) -> DataType {
    match given {
        DataType::List(_) => DataType::new_list(DataType::Float64, true),
        _ => DataType::Float64,
    }
}

/// One value, or as many as there are shares.
fn shaped(value: &DataType, share: &DataType) -> DataType {
    match share {
        DataType::List(_) => DataType::new_list(value.clone(), true),
        _ => value.clone(),
    }
}

fn counts_of(args: &[DataType]) -> Vec<DataType> {
    vec![DataType::new_list(args[0].clone(), true), DataType::new_list(DataType::Int64, true)]
}

/// The shares that a call asks for, which must be literals from 0 to 1.
fn shares(name: &str, args: &AccumulatorArgs<'_>) -> Result<Vec<f64>> {
    let given = constant(name, args, 1)?;
    let values = match &given {
        ScalarValue::List(list) => list.value(0),
        one => one.to_array()?,
    };
    let shares: Vec<Option<f64>> = values.as_primitive::<Float64Type>().iter().collect();
    let shares = shares.into_iter().map(|share| share.filter(|share| (0.0..=1.0).contains(share)));
    match shares.collect() {
        Some(shares) => Ok(shares),
        None => plan_err!("function '{name}' needs shares of rows between 0 and 1"),
    }
}

/// The result that is computed from the counts.
#[derive(Clone, Debug)]
enum Question {
    /// The values at these shares of the rows, interpolated between two rows.
    Between(Vec<f64>),
    /// The values of the rows at these shares.
    At(Vec<f64>),
    /// The value that occurs most often; of several the first one.
    Most,
}

fn counts(args: &AccumulatorArgs<'_>, question: Question) -> Result<Box<dyn Accumulator>> {
    Ok(Box::new(Counts::of(args, question, false)))
}

/// The same, from the greatest value on.
fn descending(args: &AccumulatorArgs<'_>, question: Question) -> Result<Box<dyn Accumulator>> {
    Ok(Box::new(Counts::of(args, question, true)))
}

#[derive(Debug)]
struct Counts {
    counts: HashMap<ScalarValue, i64>,
    /// Bytes of the values, kept up to date because the size is asked for after each record batch.
    value_bytes: usize,
    question: Question,
    /// The greatest value is the first one.
    descending: bool,
    /// The type of the values.
    of: DataType,
    returns: DataType,
}

impl Counts {
    fn of(args: &AccumulatorArgs<'_>, question: Question, descending: bool) -> Self {
        let (of, returns) = (input(args, 0), args.return_type().clone());
        Self { counts: HashMap::new(), value_bytes: 0, question, descending, of, returns }
    }

    fn add(&mut self, values: &ArrayRef, times: Option<&ArrayRef>) -> Result<()> {
        let times = times.map(|times| times.as_primitive::<Int64Type>());
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let times = match times {
                Some(times) if times.is_null(row) => continue,
                Some(times) => times.value(row),
                None => 1,
            };
            if times < 0 {
                return plan_err!("function 'percentile' needs frequencies that are not below 0");
            }
            if times > 0 {
                match self.counts.entry(ScalarValue::try_from_array(values, row)?) {
                    Entry::Occupied(mut known) => *known.get_mut() += times,
                    Entry::Vacant(new) => {
                        self.value_bytes += new.key().size() + size_of::<i64>();
                        new.insert(times);
                    }
                }
            }
        }
        Ok(())
    }

    /// The values in their order, each with how many rows there are up to and with it.
    fn ranks(&self) -> Vec<(&ScalarValue, i64)> {
        let mut sorted: Vec<_> = self.counts.iter().collect();
        sorted.sort_unstable_by(|left, right| {
            left.0.partial_cmp(right.0).unwrap_or(std::cmp::Ordering::Equal)
        });
        if self.descending {
            sorted.reverse();
        }
        let mut rows = 0;
        let ranks = sorted.into_iter().map(|(value, count)| {
            rows += count;
            (value, rows)
        });
        ranks.collect()
    }

    fn most(&self) -> Result<ScalarValue> {
        let mut best: Option<(&ScalarValue, i64)> = None;
        let mut before = 0;
        for (value, rows) in self.ranks() {
            if best.is_none_or(|(_, count)| rows - before > count) {
                best = Some((value, rows - before));
            }
            before = rows;
        }
        best.map_or_else(|| ScalarValue::try_from(&self.returns), |(value, _)| Ok(value.clone()))
    }

    fn answers(&self, shares: &[f64], answer: impl Fn(f64) -> ScalarValue) -> Result<ScalarValue> {
        if self.counts.is_empty() {
            return ScalarValue::try_from(&self.returns);
        }
        let answers: Vec<ScalarValue> = shares.iter().map(|share| answer(*share)).collect();
        match &self.returns {
            DataType::List(element) => {
                let list = ScalarValue::new_list_nullable(&answers, element.data_type());
                Ok(ScalarValue::List(list))
            }
            _ => Ok(answers[0].clone()),
        }
    }
}

/// The value of the row with number `row`, counted from 0.
fn value_at<'a>(ranks: &[(&'a ScalarValue, i64)], row: i64) -> &'a ScalarValue {
    let at = ranks.partition_point(|(_, rows)| *rows <= row);
    ranks[at.min(ranks.len() - 1)].0
}

fn double(value: &ScalarValue) -> f64 {
    match value {
        ScalarValue::Float64(Some(value)) => *value,
        ScalarValue::IntervalYearMonth(Some(months)) => f64::from(*months),
        ScalarValue::DurationMicrosecond(Some(us)) => *us as f64,
        _ => f64::NAN,
    }
}

/// A number as a value of the type of `like`; of an INTERVAL what is less than a unit is cut off.
fn of_double(number: f64, like: &ScalarValue) -> ScalarValue {
    match like {
        ScalarValue::IntervalYearMonth(_) => ScalarValue::IntervalYearMonth(Some(number as i32)),
        ScalarValue::DurationMicrosecond(_) => {
            ScalarValue::DurationMicrosecond(Some(number as i64))
        }
        _ => ScalarValue::Float64(Some(number)),
    }
}

fn between(ranks: &[(&ScalarValue, i64)], share: f64) -> ScalarValue {
    let rows = ranks.last().map_or(0, |(_, rows)| *rows);
    let position = (rows - 1) as f64 * share;
    let (below, above) = (position.floor(), position.ceil());
    let like = value_at(ranks, below as i64);
    let (low, high) = (double(like), double(value_at(ranks, above as i64)));
    let between = if below == above || low == high {
        low
    } else {
        (above - position) * low + (position - below) * high
    };
    of_double(between, like)
}

fn at(ranks: &[(&ScalarValue, i64)], share: f64) -> ScalarValue {
    let rows = ranks.last().map_or(0, |(_, rows)| *rows);
    // Spark's rule: the least value with at least that share of the rows up to it.
    let row = (share * rows as f64).ceil() as i64 - 1;
    value_at(ranks, row.max(0)).clone()
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let has_frequency = matches!(self.question, Question::Between(_));
        self.add(&values[0], values.get(2).filter(|_| has_frequency))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (values, counts) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            self.add(&values.value(row), Some(&counts.value(row)))?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (values, counts): (Vec<ScalarValue>, Vec<ScalarValue>) = self
            .counts
            .iter()
            .map(|(value, count)| (value.clone(), ScalarValue::Int64(Some(*count))))
            .unzip();
        Ok(vec![
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.of)),
            ScalarValue::List(ScalarValue::new_list_nullable(&counts, &DataType::Int64)),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let ranks = self.ranks();
        match &self.question {
            Question::Between(shares) => self.answers(shares, |share| between(&ranks, share)),
            Question::At(shares) => self.answers(shares, |share| at(&ranks, share)),
            Question::Most => self.most(),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value_bytes
    }
}
