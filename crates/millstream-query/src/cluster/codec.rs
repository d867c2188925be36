//! Plans as bytes: Ballista's encoding, with functions by their names.
//!
//! All parts of a cluster have the same functions registered, so a name is enough. Functions that
//! stand in no registry ([`Inserted`]) are sent as what they are made of. A function that is
//! neither makes a plan that only this process can run, and is refused: another one of its name
//! would give another answer.

use std::collections::HashMap;
use std::sync::Arc;

use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::common::{DataFusionError, Result, not_impl_err, plan_err};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, WindowUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf::ArrowType;
use millstream_sql::functions::Inserted;
use prost::Message as _;

/// Encodes and decodes plans for a cluster.
#[derive(Debug)]
pub struct PlanCodec {
    ballista: BallistaPhysicalExtensionCodec,
    functions: Arc<Functions>,
}

struct Functions(BallistaFunctionRegistry);

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} scalar functions", self.0.scalar_functions.len())
    }
}

impl PlanCodec {
    /// A codec for plans that have the functions of `state`.
    pub fn new(state: &SessionState) -> Self {
        let functions = Arc::new(Functions(BallistaFunctionRegistry::from(state)));
        Self { ballista: BallistaPhysicalExtensionCodec::default(), functions }
    }
}

/// The first byte of a function that is sent as what it is made of.
const PLAIN: u8 = 1;
const CAST: u8 = 2;
/// The only byte of a function that is sent by its name. Without it the decoder would ask the
/// session for the name, and Ballista makes the coordinator's session from another one: it
/// registers all functions again, in any order, so that of two with a name in common, DataFusion's
/// may come out on top.
const REGISTERED: u8 = 3;

/// Writes that a function is the one that is registered under its name. Errors: it is not.
fn by_name<F: PartialEq>(
    (what, name): (&str, &str),
    (node, registered): (&F, Option<&Arc<F>>),
    buf: &mut Vec<u8>,
) -> Result<()> {
    if registered.is_none_or(|registered| **registered != *node) {
        return plan_err!(
            "the {what} {name} of this plan is not the one that is registered under that name"
        );
    }
    buf.push(REGISTERED);
    Ok(())
}

fn registered<F>(name: &str, buf: &[u8], known: &HashMap<String, Arc<F>>) -> Result<Arc<F>> {
    match known.get(name) {
        Some(function) if *buf == [REGISTERED] => Ok(Arc::clone(function)),
        _ => not_impl_err!("there is no function {name} here"),
    }
}

impl PhysicalExtensionCodec for PlanCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.ballista.try_decode(buf, inputs, ctx, proto_converter)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        self.ballista.try_encode(node, buf, proto_converter)
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        if let Some(Inserted { to, .. }) = Inserted::of(node) {
            match to {
                None => buf.push(PLAIN),
                Some(to) => {
                    buf.push(CAST);
                    ArrowType::try_from(&to)
                        .map_err(|error| DataFusionError::External(Box::new(error)))?
                        .encode(buf)
                        .map_err(|error| DataFusionError::External(Box::new(error)))?;
                }
            }
            return Ok(());
        }
        let known = self.functions.0.scalar_functions.get(node.name());
        by_name(("function", node.name()), (node, known), buf)
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        let to = match buf {
            [PLAIN] => None,
            [CAST, to @ ..] => {
                let to = ArrowType::decode(to)
                    .map_err(|error| DataFusionError::External(Box::new(error)))?;
                Some((&to).try_into()?)
            }
            _ => return registered(name, buf, &self.functions.0.scalar_functions),
        };
        let inserted = Inserted { name: name.to_owned(), to };
        match inserted.function() {
            Some(function) => Ok(function),
            None => not_impl_err!("there is no function {name} here"),
        }
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        let known = self.functions.0.aggregate_functions.get(node.name());
        by_name(("aggregate function", node.name()), (node, known), buf)
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        registered(name, buf, &self.functions.0.aggregate_functions)
    }

    fn try_encode_higher_order_function(
        &self,
        node: &HigherOrderUDF,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        let known = self.functions.0.higher_order_functions.get(node.name());
        by_name(("function", node.name()), (node, known), buf)
    }

    fn try_decode_higher_order_function(
        &self,
        name: &str,
        buf: &[u8],
    ) -> Result<Arc<HigherOrderUDF>> {
        registered(name, buf, &self.functions.0.higher_order_functions)
    }

    fn try_encode_udwf(&self, node: &WindowUDF, buf: &mut Vec<u8>) -> Result<()> {
        let known = self.functions.0.window_functions.get(node.name());
        by_name(("window function", node.name()), (node, known), buf)
    }

    fn try_decode_udwf(&self, name: &str, buf: &[u8]) -> Result<Arc<WindowUDF>> {
        registered(name, buf, &self.functions.0.window_functions)
    }
}
