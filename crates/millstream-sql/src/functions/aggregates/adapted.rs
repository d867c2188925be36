//! DataFusion's aggregates of which only the order of floats, or the behaviour in moving window
//! frames, differs from Spark.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate as theirs;
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs, TypeSignature,
};

use super::super::interval_casts::is_interval;
use super::define::{counted, number};
use super::floats::{Gives, Keys, key_type};
use super::frames::Frame;
use crate::types::INTERVAL_FIELDS;

/// The aggregates, with Spark's names for them.
pub(super) fn functions() -> Vec<Arc<AggregateUDF>> {
    let mut functions = vec![
        over_floats(theirs::min_max::min_udaf(), Gives::OneOfThem, Moving::Theirs, &[]),
        over_floats(theirs::min_max::max_udaf(), Gives::OneOfThem, Moving::Theirs, &[]),
        over_floats(
            theirs::approx_distinct::approx_distinct_udaf(),
            Gives::ACount,
            Moving::Afresh,
            &["approx_count_distinct"],
        ),
        afresh(theirs::bool_and_or::bool_and_udaf(), &["every"]),
        afresh(theirs::bool_and_or::bool_or_udaf(), &["any", "some"]),
        afresh(theirs::stddev::stddev_udaf(), &["std"]),
        afresh(theirs::variance::var_samp_udaf(), &["variance"]),
    ];
    let under_their_names = [
        theirs::bit_and_or_xor::bit_and_udaf(),
        theirs::bit_and_or_xor::bit_or_udaf(),
        theirs::bit_and_or_xor::bit_xor_udaf(),
        theirs::covariance::covar_pop_udaf(),
        theirs::covariance::covar_samp_udaf(),
        theirs::regr::regr_avgx_udaf(),
        theirs::regr::regr_avgy_udaf(),
        theirs::regr::regr_count_udaf(),
        theirs::regr::regr_intercept_udaf(),
        theirs::regr::regr_slope_udaf(),
        theirs::regr::regr_sxx_udaf(),
        theirs::regr::regr_sxy_udaf(),
        theirs::regr::regr_syy_udaf(),
        theirs::stddev::stddev_pop_udaf(),
        theirs::variance::var_pop_udaf(),
    ];
    functions.extend(under_their_names.map(|function| afresh(function, &[])));
    functions
}

fn over_floats(
    theirs: Arc<AggregateUDF>,
    gives: Gives,
    moving: Moving,
    names: &[&str],
) -> Arc<AggregateUDF> {
    registered(theirs, Some(gives), moving, names)
}

fn afresh(theirs: Arc<AggregateUDF>, names: &[&str]) -> Arc<AggregateUDF> {
    registered(theirs, None, Moving::Afresh, names)
}

fn registered(
    theirs: Arc<AggregateUDF>,
    floats: Option<Gives>,
    moving: Moving,
    names: &[&str],
) -> Arc<AggregateUDF> {
    // Not by `with_aliases`: with aliases of that kind DataFusion asks for an accumulator that
    // cannot remove rows, even where a frame moves.
    let names = names.iter().map(|&name| name.to_owned());
    let aliases = theirs.aliases().iter().cloned().chain(names).collect();
    let signature = signature(&theirs);
    Arc::new(AggregateUDF::from(Adapted { theirs, signature, aliases, floats, moving }))
}

/// DataFusion takes no text for a DOUBLE, as Spark does.
fn signature(theirs: &AggregateUDF) -> Signature {
    let is_double = |of: &DataType| *of == DataType::Float64;
    match &theirs.signature().type_signature {
        TypeSignature::Exact(types) if types.iter().all(is_double) => {
            Signature::user_defined(theirs.signature().volatility)
        }
        _ => theirs.signature().clone(),
    }
}

/// How a moving window frame is aggregated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Moving {
    Theirs,
    /// All its rows again for each result: where DataFusion refuses such a frame, or keeps rounding
    /// errors of numbers that have left it, or takes a frame of NULLs for one that had numbers.
    Afresh,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Adapted {
    theirs: Arc<AggregateUDF>,
    signature: Signature,
    aliases: Vec<String>,
    /// How floats are brought into Spark's order, where that is needed.
    floats: Option<Gives>,
    moving: Moving,
}

impl Adapted {
    fn keys(&self, args: &AccumulatorArgs<'_>) -> Option<Keys> {
        self.floats.and_then(|gives| Keys::for_call(args, gives))
    }
}

impl AggregateUDFImpl for Adapted {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match &self.theirs.signature().type_signature {
            TypeSignature::Exact(doubles) if self.signature != *self.theirs.signature() => {
                counted(self.name(), given, doubles.len(), doubles.len())?;
                given.iter().map(|of| number(self.name(), of)).collect()
            }
            _ => self.theirs.coerce_types(given),
        }
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        self.theirs.return_type(args)
    }

    fn return_field(&self, args: &[FieldRef]) -> Result<FieldRef> {
        let field = self.theirs.return_field(args)?;
        let fields = args.first().and_then(|arg| arg.metadata().get(INTERVAL_FIELDS));
        match fields.filter(|_| is_interval(field.data_type())) {
            Some(fields) => {
                let metadata = HashMap::from([(INTERVAL_FIELDS.to_owned(), fields.clone())]);
                Ok(Arc::new(field.as_ref().clone().with_metadata(metadata)))
            }
            None => Ok(field),
        }
    }

    fn is_nullable(&self) -> bool {
        self.theirs.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.theirs.default_value(data_type)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.theirs.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.keys(&args) {
            Some(keys) => keys.one(&args, |args| self.theirs.accumulator(args)),
            None => self.theirs.accumulator(args),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        if self.moving == Moving::Afresh {
            let this = self.clone();
            return Ok(Box::new(Frame::new(move |args| this.accumulator(args), &args)));
        }
        match self.keys(&args) {
            Some(keys) => keys.one(&args, |args| self.theirs.create_sliding_accumulator(args)),
            None => self.theirs.create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.keys(&args).is_some() || self.theirs.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match self.keys(&args) {
            Some(keys) => keys.many(&args, |args| self.theirs.create_groups_accumulator(args)),
            None => self.theirs.create_groups_accumulator(args),
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.theirs.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.theirs.simplify()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.theirs.reverse_udf()
    }

    fn is_descending(&self) -> Option<bool> {
        self.theirs.is_descending()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.theirs.inner().set_monotonicity(data_type)
    }

    /// `None` for floats: the statistics of files leave NaN out, which Spark orders last. And for
    /// INTERVALs, as a value does not say its fields.
    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        if is_interval(args.return_type) {
            return None;
        }
        match (self.floats, key_type(args.return_type)) {
            (Some(_), Some(_)) => None,
            _ => self.theirs.value_from_stats(args),
        }
    }
}
