//! A short form for defining a function: its parameters by kind, its result type, and a Rust
//! function over columns.
//!
//! Arguments are cast to their parameters' types before the call, as Spark casts them implicitly.
//! A constant argument stays a single value; only columns have one value a row.

use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, PrimitiveArray,
    StringArray,
};
use arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Int32Type, Int64Type, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::types::{is_variant, spark_type, timestamp, variant};

/// The kind of arguments that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Param {
    Text,
    Int,
    Long,
    Double,
    Boolean,
    Binary,
    /// BINARY unchanged, anything else as text.
    TextOrBinary,
    /// BINARY and an ARRAY of anything unchanged, anything else as text.
    TextOrBinaryOrArray,
    Date,
    Timestamp,
    /// A TIMESTAMP, a TIMESTAMP_NTZ as it is, a DATE as its midnight; text is cast to TIMESTAMP.
    AnyTime,
    /// A window, or what is an [`AnyTime`](Self::AnyTime) without being a number.
    EventTime,
    /// An ARRAY of anything.
    Array,
    /// A VARIANT as it is; nothing else is cast to one.
    Variant,
    /// Whatever is given.
    Any,
    /// A BINARY, or NULL, and nothing that would have to be cast.
    OnlyBinary,
    /// A whole number, as an INT, or NULL. While a query is planned all numbers in it are BIGINTs.
    OnlyInt,
    /// A STRING, or NULL.
    OnlyText,
    /// A BOOLEAN, or NULL.
    OnlyBoolean,
}

impl Param {
    /// The type to cast an argument to.
    pub(super) fn coerced(self, given: &DataType) -> Result<DataType> {
        Ok(match self {
            Self::Text => DataType::Utf8,
            Self::Int => DataType::Int32,
            Self::Long => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Boolean => DataType::Boolean,
            Self::Binary => DataType::Binary,
            Self::TextOrBinary | Self::TextOrBinaryOrArray => match given {
                DataType::Binary | DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
                DataType::List(_) if self == Self::TextOrBinaryOrArray => given.clone(),
                given if given.is_nested() => {
                    return plan_err!("expected text or BINARY, found {}", spark_type(given));
                }
                _ => DataType::Utf8,
            },
            Self::Date => DataType::Date32,
            Self::EventTime if given.is_numeric() || given.is_nested() => given.clone(),
            Self::Timestamp | Self::AnyTime | Self::EventTime => match given {
                DataType::Timestamp(_, None) if self != Self::Timestamp => {
                    DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None)
                }
                _ => timestamp(),
            },
            Self::Array => match given {
                DataType::List(_) => given.clone(),
                DataType::Null => DataType::new_list(DataType::Null, true),
                DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                    DataType::List(Arc::clone(item))
                }
                other => return plan_err!("expected an ARRAY, found {}", spark_type(other)),
            },
            Self::Variant => match given {
                of if is_variant(of) || of.is_null() => variant(),
                other => {
                    return plan_err!(
                        "expected a VARIANT, found {}; write parse_json(text) or CAST(x AS VARIANT)",
                        spark_type(other)
                    );
                }
            },
            Self::Any => match given {
                DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
                DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
                DataType::Dictionary(_, values) => values.as_ref().clone(),
                other => other.clone(),
            },
            Self::OnlyBinary => only(DataType::Binary, given)?,
            Self::OnlyInt if given.is_signed_integer() => DataType::Int32,
            Self::OnlyInt => only(DataType::Int32, given)?,
            Self::OnlyText => only(DataType::Utf8, given)?,
            Self::OnlyBoolean => only(DataType::Boolean, given)?,
        })
    }
}

/// The type `wanted`, if that is given, or NULL.
fn only(wanted: DataType, given: &DataType) -> Result<DataType> {
    match Param::Any.coerced(given)? {
        DataType::Null => Ok(wanted),
        found if found == wanted => Ok(wanted),
        found => plan_err!("expected {}, found {}", spark_type(&wanted), spark_type(&found)),
    }
}

/// The definition of a function.
#[derive(Clone, Copy)]
pub(super) struct Function {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// All parameters; the last one repeats if the function is `variadic`.
    pub params: &'static [Param],
    /// How many arguments must be given.
    pub required: usize,
    pub variadic: bool,
    /// Whether only a NULL has the result NULL, so that a column without any stays one.
    pub keeps_nulls: bool,
    /// Whether each row has a result of its own, for the same arguments another one each time.
    pub varies: bool,
    /// The result's type for argument types after the cast.
    pub returns: fn(&[DataType]) -> Result<DataType>,
    /// The result for [`Arguments::rows`] rows.
    pub call: fn(&Arguments) -> Result<ArrayRef>,
}

impl Function {
    /// A function of exactly these parameters.
    pub const fn new(
        name: &'static str,
        params: &'static [Param],
        returns: fn(&[DataType]) -> Result<DataType>,
        call: fn(&Arguments) -> Result<ArrayRef>,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            params,
            required: params.len(),
            variadic: false,
            keeps_nulls: false,
            varies: false,
            returns,
            call,
        }
    }

    /// Also known under other names.
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// With only the first `required` parameters mandatory.
    pub const fn required(mut self, required: usize) -> Self {
        self.required = required;
        self
    }

    /// With any number of arguments for the last parameter.
    pub const fn variadic(mut self) -> Self {
        self.variadic = true;
        self
    }

    /// With NULL as its result for NULL alone.
    pub const fn keeps_nulls(mut self) -> Self {
        self.keeps_nulls = true;
        self
    }

    /// With another result each time.
    pub const fn varies(mut self) -> Self {
        self.varies = true;
        self
    }

    /// The types to cast arguments of the types `given` to.
    pub fn coerced(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let Self { name, params, required, variadic, .. } = *self;
        if given.len() < required || (given.len() > params.len() && !variadic) {
            let wanted = if required == params.len() {
                required.to_string()
            } else {
                format!("{required} to {}", params.len())
            };
            return plan_err!("{name} takes {wanted} arguments and got {}", given.len());
        }
        let param = |at: usize| params[at.min(params.len() - 1)];
        given.iter().enumerate().map(|(at, given)| param(at).coerced(given)).collect()
    }

    /// For registration.
    pub fn udf(self) -> Arc<ScalarUDF> {
        let volatility = if self.varies { Volatility::Volatile } else { Volatility::Immutable };
        let signature = Signature::user_defined(volatility);
        let aliases = self.aliases.iter().map(|&alias| alias.to_owned()).collect();
        Arc::new(ScalarUDF::from(Defined { function: self, signature, aliases }))
    }
}

/// Makes a type one that stands among the options of a session and has none itself. It is for who
/// makes a plan: in one that is made the functions say what it changes.
macro_rules! without_options {
    ($type:ty) => {
        impl datafusion::common::config::ExtensionOptions for $type {
            fn as_any(&self) -> &dyn std::any::Any {
                self
            }

            fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
                self
            }

            fn cloned(&self) -> Box<dyn datafusion::common::config::ExtensionOptions> {
                Box::new(self.clone())
            }

            fn set(&mut self, key: &str, _: &str) -> datafusion::common::Result<()> {
                datafusion::common::plan_err!("there is no option {key}")
            }

            fn entries(&self) -> Vec<datafusion::common::config::ConfigEntry> {
                Vec::new()
            }
        }
    };
}
pub(super) use without_options;

/// `Debug`, equality and hash of a type by its `name()`: no other function has that name.
macro_rules! known_by_name {
    ($type:ty) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.name() == other.name()
            }
        }

        impl Eq for $type {}

        impl std::hash::Hash for $type {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.name().hash(state);
            }
        }
    };
}
pub(super) use known_by_name;

struct Defined {
    function: Function,
    signature: Signature,
    aliases: Vec<String>,
}

known_by_name!(Defined);

impl ScalarUDFImpl for Defined {
    fn name(&self) -> &str {
        self.function.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerced(given)
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        (self.function.returns)(args)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types = args.arg_fields.iter().map(|field| field.data_type().clone());
        let returns = self.return_type(&types.collect::<Vec<_>>())?;
        let has_nulls = args.arg_fields.iter().any(|field| field.is_nullable());
        let is_nullable = !self.function.keeps_nulls || has_nulls;
        Ok(Arc::new(Field::new(self.name(), returns, is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.function.varies {
            let returns = args.return_type().clone();
            let arguments = Arguments::new(&args.args, args.number_rows, returns)?;
            return (self.function.call)(&arguments).map(ColumnarValue::Array);
        }
        call(&args, |arguments| (self.function.call)(arguments))
    }
}

/// Calls `function`: once if all arguments are constants, else for every row.
pub(super) fn call(
    args: &ScalarFunctionArgs,
    function: impl FnOnce(&Arguments) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { args.number_rows };
    let arguments = Arguments::new(&args.args, rows, args.return_type().clone())?;
    let result = function(&arguments)?;
    if constant {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
    }
    Ok(ColumnarValue::Array(result))
}

/// The arguments of a call.
pub(super) struct Arguments {
    /// Each with whether it is a constant, an array of one value.
    args: Vec<(ArrayRef, bool)>,
    /// How many rows to make.
    pub rows: usize,
    /// The type to return.
    pub returns: DataType,
}

impl Arguments {
    fn new(args: &[ColumnarValue], rows: usize, returns: DataType) -> Result<Self> {
        let args = args.iter().map(|arg| match arg {
            ColumnarValue::Array(array) => Ok((Arc::clone(array), false)),
            ColumnarValue::Scalar(value) => Ok((value.to_array()?, true)),
        });
        Ok(Self { args: args.collect::<Result<_>>()?, rows, returns })
    }

    /// How many arguments were given.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// An argument's values and whether it is a constant.
    pub fn array(&self, at: usize) -> (&ArrayRef, bool) {
        (&self.args[at].0, self.args[at].1)
    }

    /// An argument as one value for each row, constants repeated.
    pub fn expanded(&self, at: usize) -> Result<ArrayRef> {
        let (array, constant) = self.array(at);
        if !constant {
            return Ok(Arc::clone(array));
        }
        ScalarValue::try_from_array(array, 0)?.to_array_of_size(self.rows)
    }

    pub fn data_type(&self, at: usize) -> &DataType {
        self.args[at].0.data_type()
    }

    pub fn text(&self, at: usize) -> Values<'_, StringArray> {
        self.values(at, self.args[at].0.as_string::<i32>())
    }

    pub fn binary(&self, at: usize) -> Values<'_, BinaryArray> {
        self.values(at, self.args[at].0.as_binary::<i32>())
    }

    pub fn boolean(&self, at: usize) -> Values<'_, BooleanArray> {
        self.values(at, self.args[at].0.as_boolean())
    }

    pub fn int(&self, at: usize) -> Values<'_, PrimitiveArray<Int32Type>> {
        self.primitive(at)
    }

    pub fn long(&self, at: usize) -> Values<'_, PrimitiveArray<Int64Type>> {
        self.primitive(at)
    }

    pub fn date(&self, at: usize) -> Values<'_, PrimitiveArray<Date32Type>> {
        self.primitive(at)
    }

    pub fn timestamp(&self, at: usize) -> Values<'_, PrimitiveArray<TimestampMicrosecondType>> {
        self.primitive(at)
    }

    pub fn primitive<T: ArrowPrimitiveType>(&self, at: usize) -> Values<'_, PrimitiveArray<T>> {
        self.values(at, self.args[at].0.as_primitive::<T>())
    }

    fn values<'a, A>(&'a self, at: usize, array: &'a A) -> Values<'a, A> {
        Values { array, constant: self.args[at].1 }
    }

    /// A STRING column of which each value is written by `write`, which says whether there is one.
    pub fn write(
        &self,
        mut write: impl FnMut(usize, &mut String) -> Result<bool>,
    ) -> Result<ArrayRef> {
        let mut out = StringBuilder::with_capacity(self.rows, self.rows * 16);
        let (mut text, mut total) = (String::new(), 0);
        for row in 0..self.rows {
            text.clear();
            if write(row, &mut text)? {
                within_column(&mut total, text.len())?;
                out.append_value(&text);
            } else {
                out.append_null()
            }
        }
        Ok(Arc::new(out.finish()))
    }

    /// A column of numbers, dates or times.
    pub fn primitives<T: ArrowPrimitiveType>(
        &self,
        value: impl FnMut(usize) -> Result<Option<T::Native>>,
    ) -> Result<ArrayRef> {
        let values: PrimitiveArray<T> =
            (0..self.rows).map(value).collect::<Result<Vec<_>>>()?.into_iter().collect();
        Ok(Arc::new(values.with_data_type(self.returns.clone())))
    }

    /// A BOOLEAN column.
    pub fn booleans(&self, value: impl FnMut(usize) -> Result<Option<bool>>) -> Result<ArrayRef> {
        Ok(Arc::new((0..self.rows).map(value).collect::<Result<BooleanArray>>()?))
    }
}

/// Adds the length of a value to that of its column, whose offsets of 32 bits end before 2 GiB.
pub(super) fn within_column(total: &mut usize, length: usize) -> Result<()> {
    *total += length;
    match i32::try_from(*total) {
        Ok(_) => Ok(()),
        Err(_) => exec_err!("the results of a micro-batch are longer than a column can be"),
    }
}

/// The values of an argument, by row.
#[derive(Clone, Copy)]
pub(super) struct Values<'a, A> {
    array: &'a A,
    constant: bool,
}

impl<'a, A: Array> Values<'a, A> {
    /// The index of the value for `row`, if it is not null.
    fn index(&self, row: usize) -> Option<usize> {
        let index = if self.constant { 0 } else { row };
        self.array.is_valid(index).then_some(index)
    }
}

impl<'a> Values<'a, StringArray> {
    pub fn get(&self, row: usize) -> Option<&'a str> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl<'a> Values<'a, BinaryArray> {
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl Values<'_, BooleanArray> {
    pub fn get(&self, row: usize) -> Option<bool> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl<T: ArrowPrimitiveType> Values<'_, PrimitiveArray<T>> {
    pub fn get(&self, row: usize) -> Option<T::Native> {
        self.index(row).map(|index| self.array.value(index))
    }
}

/// The literal text of an argument, for functions whose type depends on it.
pub(super) fn literal_text<'a>(function: &str, value: Option<&'a ScalarValue>) -> Result<&'a str> {
    match value.and_then(|value| value.try_as_str()) {
        Some(Some(text)) => Ok(text),
        _ => plan_err!("{function}: this argument must be a string literal"),
    }
}

/// An error of a row, in Spark's manner: it ends the query.
pub(super) fn invalid<T>(value: &str, wanted: &str) -> Result<T> {
    exec_err!(
        "the value '{value}' of type STRING cannot be cast to {wanted} because it is malformed; \
         use try_cast to get NULL instead"
    )
}

pub(super) fn returns_text(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8)
}

pub(super) fn returns_boolean(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Boolean)
}

pub(super) fn returns_int(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int32)
}

pub(super) fn returns_long(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int64)
}

pub(super) fn returns_double(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Float64)
}

pub(super) fn returns_timestamp(_: &[DataType]) -> Result<DataType> {
    Ok(timestamp())
}

pub(super) fn returns_date(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Date32)
}

pub(super) fn returns_texts(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::new_list(DataType::Utf8, true))
}
