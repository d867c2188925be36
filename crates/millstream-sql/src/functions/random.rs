//! `rand`, `randn`, `uniform` and `randstr`: random numbers and texts.
//!
//! With a seed Spark gives the same numbers again, which depend on how it splits the rows into
//! partitions: each has a generator of its own. Only the row of a SELECT without FROM is in the
//! first partition whatever the machine. So a seed is taken there, with Spark's generator, and
//! nowhere else.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{ArrayRef, Float64Array, PrimitiveArray, new_null_array};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::{known_by_name, within_column};
use super::murmur;
use crate::types::spark_type;
use crate::values::java_math;

/// The longest text of `randstr`.
const LENGTH_MAX: i32 = 1 << 20;

/// The most digits of a DECIMAL whose every value is a double.
const DOUBLE_DIGITS: u8 = 15;

/// Functions that DataFusion must not compute while it plans, but that give the same for the same
/// row: those that read the clock of the batch, those that fail, and values of subqueries.
const STEADY: &[&str] = &[
    "current_timestamp",
    "localtimestamp",
    "current_date",
    "current_unix_timestamp",
    "raise_error",
    "assert_true",
    super::if_any::IF_ANY,
];

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let function = |kind: Kind| {
        let (name, aliases) = kind.names();
        let aliases = aliases.iter().map(|&alias| alias.to_owned()).collect();
        let signature = Signature::user_defined(Volatility::Volatile);
        Arc::new(ScalarUDF::from(Random { kind, name, aliases, signature }))
    };
    [Kind::Unit, Kind::Normal, Kind::Between, Kind::Text].into_iter().map(function).collect()
}

/// Whether `expr` may have another value when it is computed again for the same row.
pub(crate) fn is_random(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| {
        let Expr::ScalarFunction(call) = expr else { return Ok(false) };
        Ok(expr.is_volatile_node() && !STEADY.contains(&call.func.name()))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// From 0 to less than 1.
    Unit,
    /// Of the standard normal distribution.
    Normal,
    /// Between two numbers.
    Between,
    /// Text of a length.
    Text,
}

impl Kind {
    fn names(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Unit => ("rand", &["random"]),
            Self::Normal => ("randn", &[]),
            Self::Between => ("uniform", &[]),
            Self::Text => ("randstr", &[]),
        }
    }

    /// How many arguments there are before the seed.
    fn arguments(self) -> usize {
        match self {
            Self::Unit | Self::Normal => 0,
            Self::Between => 2,
            Self::Text => 1,
        }
    }
}

struct Random {
    kind: Kind,
    name: &'static str,
    aliases: Vec<String>,
    signature: Signature,
}

known_by_name!(Random);

impl ScalarUDFImpl for Random {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (name, before) = (self.name, self.kind.arguments());
        if given.len() != before && given.len() != before + 1 {
            return plan_err!(
                "{name} takes {before} arguments and a seed, and got {}",
                given.len()
            );
        }
        let mut types = given.to_vec();
        if let Some(seed) = types.get_mut(before) {
            if !seed.is_signed_integer() && !seed.is_null() {
                return plan_err!("the seed of {name} is an INT or a BIGINT");
            }
            *seed = DataType::Int64;
        }
        if self.kind == Kind::Text {
            if !types[0].is_numeric() {
                return plan_err!("the length of a randstr is an INT");
            }
            types[0] = DataType::Int32;
        }
        Ok(types)
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match self.kind {
            Kind::Unit | Kind::Normal => Ok(DataType::Float64),
            Kind::Between => type_between(&args[0], &args[1]),
            Kind::Text => Ok(DataType::Utf8),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = args.args.iter().map(|arg| self.constant(arg));
        let values: Vec<&ScalarValue> = values.collect::<Result<_>>()?;
        let mut generator = match values.get(self.kind.arguments()) {
            Some(ScalarValue::Int64(seed)) => Generator::new(seed.unwrap_or(0)),
            _ => Generator::new(RandomState::new().build_hasher().finish().cast_signed()),
        };
        let rows = args.number_rows;
        let numbers =
            |of: &mut dyn FnMut() -> f64| (0..rows).map(|_| of()).collect::<Float64Array>();
        Ok(ColumnarValue::Array(match self.kind {
            Kind::Unit => Arc::new(numbers(&mut || generator.double())),
            Kind::Normal => Arc::new(numbers(&mut || generator.normal())),
            Kind::Between => {
                let returns = args.return_type();
                let (Some(least), Some(most)) = (double(values[0])?, double(values[1])?) else {
                    return Ok(ColumnarValue::Array(new_null_array(returns, rows)));
                };
                // As Spark's expression, so that the roundings are the same.
                let numbers = numbers(&mut || least + (most - least) * generator.double());
                between(&numbers, returns)?
            }
            Kind::Text => texts(&mut generator, values[0], rows)?,
        }))
    }
}

impl Random {
    fn constant<'a>(&self, arg: &'a ColumnarValue) -> Result<&'a ScalarValue> {
        match arg {
            ColumnarValue::Scalar(value) => Ok(value),
            ColumnarValue::Array(_) => exec_err!("{} takes constants only", self.name),
        }
    }
}

/// Refuses a seed in a query whose numbers would not be Spark's.
pub(crate) fn check_seeds(plan: &LogicalPlan) -> Result<()> {
    let (mut seeded, mut is_one_row) = (None, true);
    plan.apply_with_subqueries(|node| {
        is_one_row &= match node {
            LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_) => true,
            _ => false,
        };
        node.apply_expressions(|expr| {
            seeded = seeded.or(seeded_within(expr)?);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    match seeded {
        Some(name) if !is_one_row => refuse_seed(name),
        _ => Ok(()),
    }
}

/// Refuses a seed in an expression that is computed for each of several rows.
pub(crate) fn check_no_seed(expr: &Expr) -> Result<()> {
    seeded_within(expr)?.map_or(Ok(()), refuse_seed)
}

fn refuse_seed(name: &str) -> Result<()> {
    plan_err!(
        "{name} takes a seed only in a SELECT without FROM: Spark's numbers for several rows \
         depend on its partitions; leave the seed out, or take a hash of a column"
    )
}

/// The function that a call in `expr` gives a seed.
fn seeded_within(expr: &Expr) -> Result<Option<&'static str>> {
    let mut seeded = None;
    expr.apply(|part| {
        seeded = seeded.or(seeded_call(part));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(seeded)
}

fn seeded_call(expr: &Expr) -> Option<&'static str> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let random = call.func.inner().downcast_ref::<Random>()?;
    (call.args.len() > random.kind.arguments()).then_some(random.name)
}

/// The type of what is between values of two types.
fn type_between(least: &DataType, most: &DataType) -> Result<DataType> {
    use DataType::{Decimal128, Float32, Float64};
    let is_whole = |of: &DataType| of.is_signed_integer();
    let is_plain = |of: &DataType| of.is_signed_integer() || of.is_floating();
    Ok(match (least, most) {
        // Between NULL and anything is NULL.
        (a, b) if a.is_null() || b.is_null() => Float64,
        (a, b) if is_whole(a) && is_whole(b) => {
            if a.primitive_width() >= b.primitive_width() {
                a.clone()
            } else {
                b.clone()
            }
        }
        (a, b) if is_plain(a) && is_plain(b) => {
            if *a == Float64 || *b == Float64 {
                Float64
            } else {
                Float32
            }
        }
        (Decimal128(digits, _), other) | (other, Decimal128(digits, _))
            if *digits <= DOUBLE_DIGITS && (is_whole(other) || least == most) =>
        {
            if least.is_signed_integer() { most.clone() } else { least.clone() }
        }
        (a @ Decimal128(..), b @ Decimal128(..)) if holds_all(a, b) => a.clone(),
        (a @ Decimal128(..), b @ Decimal128(..)) if holds_all(b, a) => b.clone(),
        (a, b) => {
            let (a, b) = (spark_type(a), spark_type(b));
            return plan_err!("uniform takes no {a} with {b} here; cast them to DOUBLE");
        }
    })
}

/// Whether a DECIMAL has no fewer digits than another on both sides of its point, and not more than
/// a double.
fn holds_all(one: &DataType, other: &DataType) -> bool {
    match (one, other) {
        (DataType::Decimal128(digits, scale), DataType::Decimal128(fewer, less)) => {
            let whole = |digits: u8, scale: i8| i32::from(digits) - i32::from(scale);
            let is_wider = whole(*digits, *scale) >= whole(*fewer, *less) && scale >= less;
            is_wider && *digits <= DOUBLE_DIGITS
        }
        _ => false,
    }
}

fn double(value: &ScalarValue) -> Result<Option<f64>> {
    match value.cast_to(&DataType::Float64)? {
        ScalarValue::Float64(value) => Ok(value),
        other => internal_err!("{other} is no DOUBLE"),
    }
}

fn between(numbers: &Float64Array, returns: &DataType) -> Result<ArrayRef> {
    Ok(match returns {
        DataType::Int8 => whole::<Int8Type>(numbers)?,
        DataType::Int16 => whole::<Int16Type>(numbers)?,
        DataType::Int32 => whole::<Int32Type>(numbers)?,
        DataType::Int64 => whole::<Int64Type>(numbers)?,
        DataType::Float32 => Arc::new(numbers.unary::<_, Float32Type>(|number| number as f32)),
        DataType::Float64 => Arc::new(numbers.clone()),
        decimal => super::cast::cast(&(Arc::new(numbers.clone()) as ArrayRef), decimal, true)?,
    })
}

/// Without their fractions, as casts leave them away.
fn whole<T: ArrowPrimitiveType>(numbers: &Float64Array) -> Result<ArrayRef>
where
    T::Native: TryFrom<i64>,
{
    let value = |number: &f64| match T::Native::try_from(*number as i64) {
        Ok(value) if number.abs() < i64::MAX as f64 => Ok(value),
        _ => exec_err!("{number} is beyond the type of a uniform"),
    };
    let values = numbers.values().iter().map(value).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(PrimitiveArray::<T>::from_iter_values(values)))
}

fn texts(generator: &mut Generator, length: &ScalarValue, rows: usize) -> Result<ArrayRef> {
    let length = match length {
        ScalarValue::Int32(Some(length)) if (0..=LENGTH_MAX).contains(length) => *length as usize,
        other => {
            return exec_err!("the length of a randstr is from 0 to {LENGTH_MAX}, not {other}");
        }
    };
    let (mut out, mut text, mut total) = (StringBuilder::new(), String::new(), 0);
    for _ in 0..rows {
        within_column(&mut total, length)?;
        text.clear();
        text.extend((0..length).map(|_| generator.character()));
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

/// Bytes that nobody can guess: hashes of a count, under keys of the operating system's.
#[derive(Default)]
pub(super) struct Unguessable {
    keys: RandomState,
    next: u64,
}

impl Unguessable {
    /// Fills `bytes` with others than all before.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(size_of::<u64>()) {
            let hash = self.keys.hash_one(self.next).to_le_bytes();
            part.copy_from_slice(&hash[..part.len()]);
            self.next += 1;
        }
    }
}

/// Marsaglia's "xorshift" with Spark's shifts, asked as Java's `Random` asks for bits.
struct Generator(u64);

impl Generator {
    /// The seed is mixed first: near seeds would give near numbers.
    fn new(seed: i64) -> Self {
        const OF_ARRAYS: u32 = 0x3C07_4A61;
        let bytes = seed.to_be_bytes();
        let low = murmur::of_bytes(&bytes, OF_ARRAYS);
        let high = murmur::of_bytes(&bytes, low);
        Self(u64::from(high) << 32 | u64::from(low))
    }

    /// The next `count` bits, up to 32.
    fn bits(&mut self, count: u32) -> u64 {
        self.0 ^= self.0 << 21;
        self.0 ^= self.0 >> 35;
        self.0 ^= self.0 << 4;
        self.0 & ((1 << count) - 1)
    }

    /// From 0 to less than 1, of 53 bits.
    fn double(&mut self) -> f64 {
        let bits = (self.bits(26) << 27) + self.bits(27);
        bits as f64 / (1_u64 << 53) as f64
    }

    /// By the polar method: points in a circle, one coordinate each.
    fn normal(&mut self) -> f64 {
        loop {
            let [x, y] = [2.0 * self.double() - 1.0, 2.0 * self.double() - 1.0];
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * java_math::ln(square) / square).sqrt();
            }
        }
    }

    /// One of ten digits and 26 letters of each case.
    fn character(&mut self) -> char {
        let number = (self.bits(32) as u32).cast_signed() % 62;
        let number = number.unsigned_abs() as u8;
        char::from(match number {
            0..10 => b'0' + number,
            10..36 => b'a' + number - 10,
            _ => b'A' + number - 36,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_seed_are_those_of_spark() {
        assert_eq!(Generator::new(0).double(), 0.760_495_375_828_591_5);
        assert_eq!(Generator::new(0).normal().to_string(), "1.6034991609278433");
        let mut generator = Generator::new(7);
        let text: String = (0..12).map(|_| generator.character()).collect();
        assert_eq!(text, "6Ogz59i3TI1A");
    }

    #[test]
    fn types_between_two() {
        let decimal = DataType::Decimal128(10, 3);
        let type_of = |a: &DataType, b: &DataType| type_between(a, b).ok();
        assert_eq!(type_of(&DataType::Int32, &DataType::Int64), Some(DataType::Int64));
        assert_eq!(type_of(&DataType::Int32, &DataType::Float32), Some(DataType::Float32));
        assert_eq!(type_of(&DataType::Int32, &decimal), Some(decimal.clone()));
        assert_eq!(type_of(&decimal, &DataType::Int32), Some(decimal.clone()));
        assert_eq!(type_of(&decimal, &DataType::Float64), None);
        let wider = DataType::Decimal128(11, 4);
        assert_eq!(type_of(&decimal, &wider), Some(wider.clone()));
        assert_eq!(type_of(&wider, &decimal), Some(wider.clone()));
        assert_eq!(type_of(&wider, &DataType::Decimal128(11, 3)), None);
        assert_eq!(type_of(&DataType::Utf8, &DataType::Int32), None);
        assert_eq!(type_of(&DataType::Null, &DataType::Int32), Some(DataType::Float64));
    }
}
