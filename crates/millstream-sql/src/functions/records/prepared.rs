//! Functions that prepare their work from literal arguments.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use parking_lot::Mutex;

use super::super::define::call;
use crate::types::spark_type;

/// How many calls with different literals are kept ready for each function.
const KEPT_MAX: usize = 32;

/// What a function has made of its literal arguments.
pub(super) trait Prepared: Send + Sync + Sized + 'static {
    /// The function's name.
    const NAME: &'static str;
    /// How it is called, for messages.
    const USAGE: &'static str;
    /// How many arguments it takes, at least and at most.
    const ARGUMENTS: (usize, usize);

    /// The type that the first argument, the data, is cast to.
    fn data(given: &DataType) -> DataType;

    /// Replaces what a literal refers to outside the query by what is there.
    fn resolve(_literals: &mut [Option<ScalarValue>]) -> Result<()> {
        Ok(())
    }

    /// Makes it of the data's type and the literals.
    fn prepare(data: &FieldRef, literals: &Literals<'_>) -> Result<Self>;

    /// Says what is wrong with the data's type. It is asked for only when types are final: while a
    /// query is read, a number in it is a BIGINT that becomes an INT later.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The type of the results, and whether they can be null.
    fn returns(&self) -> (DataType, bool);

    /// The result for each row of the data.
    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef>;
}

/// The arguments of a call by their places; `None` where one is no literal.
pub(super) struct Literals<'a> {
    function: &'static str,
    values: &'a [Option<ScalarValue>],
}

impl Literals<'_> {
    /// The value of an argument, if it is there and not NULL.
    pub fn get(&self, at: usize) -> Result<Option<&ScalarValue>> {
        match self.values.get(at) {
            None => Ok(None),
            Some(Some(value)) if value.is_null() => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            Some(None) => plan_err!("{}: argument {} must be a literal", self.function, at + 1),
        }
    }

    /// An argument that must be a text.
    pub fn text(&self, at: usize, what: &str) -> Result<&str> {
        let value = self.values.get(at).and_then(Option::as_ref);
        match value.and_then(|value| value.try_as_str()) {
            Some(Some(text)) => Ok(text),
            _ => plan_err!(
                "{}: argument {} is {what}, which must be a string literal",
                self.function,
                at + 1
            ),
        }
    }
}

/// What a prepared function was made of.
#[derive(PartialEq)]
struct Key {
    data: FieldRef,
    literals: Vec<Option<ScalarValue>>,
}

struct Function<P> {
    signature: Signature,
    /// The latest last. What is made costs more than a small batch of rows does.
    kept: Mutex<Vec<(Key, Arc<P>)>>,
}

/// The function, for registration.
pub(super) fn udf<P: Prepared>() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Function::<P> { signature, kept: Mutex::default() }))
}

/// The type of a call over BINARY with these arguments, if they are right.
pub(super) fn returned_type<P: Prepared>(
    mut literals: Vec<Option<ScalarValue>>,
) -> Option<DataType> {
    P::resolve(&mut literals).ok()?;
    let data = Arc::new(Field::new("", DataType::Binary, true));
    let literals = Literals { function: P::NAME, values: &literals };
    Some(P::prepare(&data, &literals).ok()?.returns().0)
}

impl<P: Prepared> Function<P> {
    fn prepared(&self, data: &FieldRef, mut literals: Vec<Option<ScalarValue>>) -> Result<Arc<P>> {
        P::resolve(&mut literals)?;
        // The name of a column means nothing here.
        let data = Field::new("", data.data_type().clone(), data.is_nullable());
        let key = Key { data: Arc::new(data), literals };
        if let Some((_, made)) = self.kept.lock().iter().find(|(kept, _)| *kept == key) {
            return Ok(Arc::clone(made));
        }
        let literals = Literals { function: P::NAME, values: &key.literals };
        let made = Arc::new(P::prepare(&key.data, &literals)?);
        let mut kept = self.kept.lock();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push((key, Arc::clone(&made)));
        Ok(made)
    }
}

impl<P: Prepared> std::fmt::Debug for Function<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(P::NAME)
    }
}

impl<P: Prepared> PartialEq for Function<P> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<P: Prepared> Eq for Function<P> {}

impl<P: Prepared> std::hash::Hash for Function<P> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        P::NAME.hash(state);
    }
}

impl<P: Prepared> ScalarUDFImpl for Function<P> {
    fn name(&self) -> &str {
        P::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (least, most) = P::ARGUMENTS;
        if given.len() < least || given.len() > most {
            return plan_err!(
                "{} takes {least} to {most} arguments and got {}: {}",
                P::NAME,
                given.len(),
                P::USAGE
            );
        }
        let data = P::data(&given[0]);
        Ok(std::iter::once(data).chain(given[1..].iter().cloned()).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("{} has its type from return_field_from_args", P::NAME)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let literals = args.scalar_arguments.iter().map(|value| value.cloned()).collect();
        let (data_type, nullable) = self.prepared(&args.arg_fields[0], literals)?.returns();
        Ok(Arc::new(Field::new(P::NAME, data_type, nullable)))
    }

    /// Puts what a literal refers to into the query itself: it is read once, and whichever process
    /// runs the plan need not have it.
    fn simplify(
        &self,
        mut args: Vec<Expr>,
        context: &SimplifyContext,
    ) -> Result<ExprSimplifyResult> {
        let literal = |expr: &Expr| match expr {
            Expr::Literal(value, _) => Some(value.clone()),
            _ => None,
        };
        let before: Vec<Option<ScalarValue>> = args.iter().map(literal).collect();
        let mut after = before.clone();
        P::resolve(&mut after)?;
        if let Ok(data_type) = args[0].get_type(context.schema().as_ref()) {
            let data = Arc::new(Field::new("", data_type, true));
            self.prepared(&data, after.clone())?.check()?;
        }
        if before == after {
            return Ok(ExprSimplifyResult::Original(args));
        }
        for (arg, value) in args.iter_mut().zip(after) {
            if let (Expr::Literal(known, _), Some(value)) = (arg, value) {
                *known = value;
            }
        }
        let function = Arc::new(ScalarUDF::from(Self {
            signature: self.signature.clone(),
            kept: Mutex::default(),
        }));
        Ok(ExprSimplifyResult::Simplified(function.call(args)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let literal = |value: &ColumnarValue| match value {
            ColumnarValue::Scalar(value) => Some(value.clone()),
            ColumnarValue::Array(_) => None,
        };
        let literals = args.args.iter().map(literal).collect();
        let prepared = self.prepared(&args.arg_fields[0], literals)?;
        if prepared.returns().0 != *args.return_type() {
            return internal_err!(
                "{} was planned as {} and gives {}",
                P::NAME,
                spark_type(args.return_type()),
                spark_type(&prepared.returns().0)
            );
        }
        call(&args, |arguments| prepared.compute(arguments.array(0).0))
    }
}

/// The type that bytes to decode are cast to. What are none is refused by [`expect_bytes`], which
/// can say more about it.
pub(super) fn bytes(given: &DataType) -> DataType {
    match given {
        DataType::LargeBinary | DataType::BinaryView | DataType::Null => DataType::Binary,
        other => other.clone(),
    }
}

/// Refuses data that are no bytes, as Spark does.
pub(super) fn expect_bytes(function: &str, data: &FieldRef) -> Result<()> {
    match data.data_type() {
        DataType::Binary => Ok(()),
        other => plan_err!(
            "{function} reads BINARY, not {}; if the bytes of records are in it, write \
             CAST(... AS BINARY)",
            spark_type(other)
        ),
    }
}

/// The type of values to encode, without the forms that Arrow has of the same values.
pub(super) fn plain(given: &DataType) -> DataType {
    let field = |field: &FieldRef| {
        Arc::new(field.as_ref().clone().with_data_type(plain(field.data_type())))
    };
    match given {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => plain(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(field(item))
        }
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect::<Fields>()),
        other => other.clone(),
    }
}
