//! `string_agg` and `listagg`, which join texts in an order of their own.
//!
//! DataFusion's function sorts what it joins by itself, and asks for rows in that order all the
//! same. As rows have one order, it refuses two calls with different ones. Here it asks for none.
//! Nor is a call turned around to suit another one: of equal keys the earlier row stays the first.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};

use super::super::define::known_by_name;

/// The function, under both names.
pub(super) fn string_agg() -> Arc<AggregateUDF> {
    let aliases = vec!["listagg".to_owned()];
    Arc::new(AggregateUDF::from(Joined { theirs: string_agg_udaf(), aliases }))
}

struct Joined {
    theirs: Arc<AggregateUDF>,
    aliases: Vec<String>,
}

known_by_name!(Joined);

impl AggregateUDFImpl for Joined {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        self.theirs.signature()
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        self.theirs.return_type(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.theirs.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.theirs.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.theirs.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.theirs.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Beneficial
    }

    /// It makes no use of rows that are in order already.
    fn with_beneficial_ordering(
        self: Arc<Self>,
        _is_ordered: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}
