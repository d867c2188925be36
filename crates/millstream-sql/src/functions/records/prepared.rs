//! Functions that prepare their work from literal arguments.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, ScalarValue, internal_err, plan_datafusion_err, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use parking_lot::Mutex;

use super::super::define::call;
use super::super::types::schema_of;
use crate::types::{map_of, spark_type};

/// How many calls with different literals are kept ready for each function.
const KEPT_MAX: usize = 32;

/// How many bytes their literals may have together. The latest call is kept whatever it has.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// What a function has made of its literal arguments.
pub(super) trait Prepared: Send + Sync + Sized + 'static {
    /// The function's name.
    const NAME: &'static str;
    /// How it is called, for messages.
    const USAGE: &'static str;
    /// How many arguments it takes, at least and at most.
    const ARGUMENTS: (usize, usize);

    /// Whether `map()`, whose keys and values have no type, is taken for no options.
    const TAKES_NO_ENTRIES: bool = false;

    /// The type that the first argument, the data, is cast to.
    fn data(given: &DataType) -> DataType;

    /// What a literal argument refers to outside the query, to be put in its place.
    fn resolve(_at: usize, _value: &ScalarValue) -> Result<Option<ScalarValue>> {
        Ok(None)
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

/// An argument; `None` if it is no literal.
type Literal<'a> = Option<Cow<'a, ScalarValue>>;

/// The arguments of a call by their places.
pub(super) struct Literals<'a> {
    function: &'static str,
    values: &'a [Literal<'a>],
}

/// Arguments with what they refer to outside the query in their place.
fn resolved<'a, P: Prepared>(
    arguments: impl Iterator<Item = Option<&'a ScalarValue>>,
) -> Result<Vec<Literal<'a>>> {
    let resolve = |(at, value): (usize, Option<&'a ScalarValue>)| {
        let Some(value) = value else { return Ok(None) };
        let found = P::resolve(at, value)?;
        Ok(Some(found.map_or(Cow::Borrowed(value), Cow::Owned)))
    };
    arguments.enumerate().map(resolve).collect()
}

/// What a `map()` without entries stands for. While a query is planned it is no literal, but a call
/// of which the type says all.
static NO_ENTRIES: ScalarValue = ScalarValue::Null;

/// The value of an argument of a type, if it is a literal.
fn literal<'a, P: Prepared>(
    value: Option<&'a ScalarValue>,
    of: &DataType,
) -> Option<&'a ScalarValue> {
    let is_void = P::TAKES_NO_ENTRIES && *of == map_of(DataType::Null, DataType::Null);
    if is_void { Some(&NO_ENTRIES) } else { value }
}

impl Literals<'_> {
    /// The value of an argument, if it is there and not NULL.
    pub fn get(&self, at: usize) -> Result<Option<&ScalarValue>> {
        match self.values.get(at) {
            None => Ok(None),
            Some(Some(value)) if value.is_null() => Ok(None),
            Some(Some(value)) => Ok(Some(value.as_ref())),
            Some(None) => plan_err!("{}: argument {} must be a literal", self.function, at + 1),
        }
    }

    /// An argument that must be a text.
    pub fn text(&self, at: usize, what: &str) -> Result<&str> {
        let value = self.values.get(at).and_then(Option::as_deref);
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
struct Key {
    data: FieldRef,
    literals: Vec<Option<ScalarValue>>,
}

impl Key {
    fn is(&self, data: &Field, literals: &[Literal<'_>]) -> bool {
        let known = self.literals.iter().map(Option::as_ref);
        *self.data == *data && known.eq(literals.iter().map(Option::as_deref))
    }

    fn size(&self) -> usize {
        self.literals.iter().flatten().map(ScalarValue::size).sum()
    }
}

/// What was made, with what of; the latest last.
struct Kept<P>(Vec<(Key, Arc<P>)>);

impl<P> Kept<P> {
    fn find(&self, data: &Field, literals: &[Literal<'_>]) -> Option<Arc<P>> {
        let (_, made) = self.0.iter().find(|(key, _)| key.is(data, literals))?;
        Some(Arc::clone(made))
    }

    fn push(&mut self, key: Key, made: Arc<P>) {
        let mut size = key.size() + self.0.iter().map(|(key, _)| key.size()).sum::<usize>();
        let mut oldest = 0;
        while let Some((key, _)) = self.0.get(oldest)
            && (self.0.len() - oldest >= KEPT_MAX || size > KEPT_BYTES_MAX)
        {
            size -= key.size();
            oldest += 1;
        }
        self.0.drain(..oldest);
        self.0.push((key, made));
    }
}

struct Function<P> {
    signature: Signature,
    /// What is made costs more than a small batch of rows does.
    kept: Mutex<Kept<P>>,
}

/// The function, for registration.
pub(super) fn udf<P: Prepared>() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Function::<P>::new(signature)))
}

/// The type of a call over BINARY with these arguments, if they are right.
pub(super) fn returned_type<P: Prepared>(literals: &[Option<ScalarValue>]) -> Option<DataType> {
    Some(of_literals::<P>(literals)?.returns().0)
}

/// What is made of these arguments over BINARY, if they are right.
pub(super) fn of_literals<P: Prepared>(literals: &[Option<ScalarValue>]) -> Option<P> {
    let values = resolved::<P>(literals.iter().map(Option::as_ref)).ok()?;
    let data = Arc::new(Field::new("", DataType::Binary, true));
    let literals = Literals { function: P::NAME, values: &values };
    P::prepare(&data, &literals).ok()
}

impl<P: Prepared> Function<P> {
    fn new(signature: Signature) -> Self {
        Self { signature, kept: Mutex::new(Kept(Vec::new())) }
    }

    /// The literals are copied only where nothing was made of them before: they can be large.
    fn prepared(&self, data: &FieldRef, literals: &[Literal<'_>]) -> Result<Arc<P>> {
        // The name of a column means nothing here.
        let data = Arc::new(Field::new("", data.data_type().clone(), data.is_nullable()));
        if let Some(made) = self.kept.lock().find(&data, literals) {
            return Ok(made);
        }
        let made = P::prepare(&data, &Literals { function: P::NAME, values: literals })?;
        let made = Arc::new(made);
        let literals = literals.iter().map(|value| value.as_deref().cloned()).collect();
        self.kept.lock().push(Key { data, literals }, Arc::clone(&made));
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
        let arguments = args.scalar_arguments.iter().zip(args.arg_fields);
        let literals =
            resolved::<P>(arguments.map(|(value, field)| literal::<P>(*value, field.data_type())))?;
        let (data_type, nullable) = self.prepared(&args.arg_fields[0], &literals)?.returns();
        Ok(Arc::new(Field::new(P::NAME, data_type, nullable)))
    }

    /// Puts what a literal refers to into the query itself: it is read once, and whichever process
    /// runs the plan need not have it.
    fn simplify(
        &self,
        mut args: Vec<Expr>,
        context: &SimplifyContext,
    ) -> Result<ExprSimplifyResult> {
        let literals = resolved::<P>(args.iter().map(|expr| match expr {
            Expr::Literal(value, _) => literal::<P>(Some(value), &value.data_type()),
            call => literal::<P>(None, &call.get_type(context.schema().as_ref()).ok()?),
        }))?;
        if let Ok(data_type) = args[0].get_type(context.schema().as_ref()) {
            let data = Arc::new(Field::new("", data_type, true));
            self.prepared(&data, &literals)?.check()?;
        }
        let found = |value| match value {
            Some(Cow::Owned(value)) => Some(value),
            _ => None,
        };
        let found: Vec<Option<ScalarValue>> = literals.into_iter().map(found).collect();
        if found.iter().all(Option::is_none) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        for (arg, value) in args.iter_mut().zip(found) {
            if let (Expr::Literal(known, _), Some(value)) = (arg, value) {
                *known = value;
            }
        }
        let function = Arc::new(ScalarUDF::from(Self::new(self.signature.clone())));
        Ok(ExprSimplifyResult::Simplified(function.call(args)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let literals = resolved::<P>(args.args.iter().map(|value| match value {
            ColumnarValue::Scalar(value) => literal::<P>(Some(value), &value.data_type()),
            ColumnarValue::Array(_) => None,
        }))?;
        let prepared = self.prepared(&args.arg_fields[0], &literals)?;
        if prepared.returns().0 != *args.return_type() {
            return internal_err!(
                "{} was planned as {} and gives {}",
                P::NAME,
                spark_type(args.return_type()),
                spark_type(&prepared.returns().0)
            );
        }
        // A constant is computed before anything is simplified.
        prepared.check()?;
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

/// The type of texts to decode; a NULL without a type is one.
pub(super) fn texts(given: &DataType) -> DataType {
    match given {
        DataType::Null => DataType::Utf8,
        other => plain(other),
    }
}

/// Refuses anything but texts, once types are final.
pub(super) fn expect_texts(function: &str, given: &DataType) -> Result<()> {
    match given {
        DataType::Utf8 => Ok(()),
        other => plan_err!("{function} reads a STRING, not {}; cast it", spark_type(other)),
    }
}

/// The columns that a schema in a call has.
pub(super) fn columns_of(function: &str, ddl: &str) -> Result<Fields> {
    let of = schema_of(ddl).map_err(|error| plan_datafusion_err!("{function}: {error}"))?;
    match of {
        DataType::Struct(fields) => Ok(fields),
        other => plan_err!(
            "{function}: the schema is columns, such as a INT, b STRING, not {}",
            spark_type(&other)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_limited_in_number_and_bytes() {
        let data = Arc::new(Field::new("", DataType::Binary, true));
        let literals = |bytes: usize, id: u8| {
            let mut value = vec![0; bytes];
            value[0] = id;
            vec![None, Some(ScalarValue::Binary(Some(value)))]
        };
        let mut kept = Kept(Vec::new());
        let mut push = |bytes, id: u8| {
            let key = Key { data: Arc::clone(&data), literals: literals(bytes, id) };
            kept.push(key, Arc::new(id));
            kept.0.iter().map(|(_, made)| **made).collect::<Vec<u8>>()
        };
        assert_eq!(push(24 << 20, 1), [1]);
        assert_eq!(push(24 << 20, 2), [1, 2]);
        assert_eq!(push(24 << 20, 3), [2, 3]);
        assert_eq!(push(1, 4), [2, 3, 4]);
        assert_eq!(push(65 << 20, 5), [5], "the latest stays");
        for id in 6..100 {
            let ids = push(1, id);
            assert!(ids.len() <= KEPT_MAX && ids.ends_with(&[id]), "{ids:?}");
        }
        let found = |id| {
            let literals = literals(1, id);
            let values: Vec<Literal<'_>> =
                literals.iter().map(|value| value.as_ref().map(Cow::Borrowed)).collect();
            kept.find(&data, &values)
        };
        assert_eq!(found(99).as_deref(), Some(&99));
        assert_eq!(found(99 - 31).as_deref(), Some(&68));
        assert_eq!(found(99 - 32), None);
    }
}
