//! What a tuple sketch keeps beside a hash: a number, and how it joins others.

use arrow::datatypes::{ArrowPrimitiveType, Float64Type, Int32Type};
use datafusion::common::{Result, exec_err};

/// How the numbers of one value become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::functions) enum Mode {
    Sum,
    Min,
    Max,
    /// The number is 1, whatever is given.
    AlwaysOne,
}

impl Mode {
    /// All of them, at the places by which sketches name them.
    const ALL: [Self; 4] = [Self::Sum, Self::Min, Self::Max, Self::AlwaysOne];

    /// By its name, whatever the case.
    pub fn named(function: &str, name: &str) -> Result<Self> {
        match name.to_lowercase().as_str() {
            "sum" => Ok(Self::Sum),
            "min" => Ok(Self::Min),
            "max" => Ok(Self::Max),
            "alwaysone" => Ok(Self::AlwaysOne),
            _ => exec_err!(
                "function '{function}' takes the modes sum, min, max and alwaysone, not '{name}'"
            ),
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Sum => 0,
            Self::Min => 1,
            Self::Max => 2,
            Self::AlwaysOne => 3,
        }
    }
}

/// A number of a summary: a DOUBLE or an INT.
pub(in crate::functions) trait Number:
    Copy + std::fmt::Debug + PartialOrd + Send + Sync + 'static
{
    /// Columns of it.
    type Column: ArrowPrimitiveType<Native = Self>;
    /// How many bytes it has.
    const SIZE: usize;
    /// The aggregate that makes such sketches, for messages.
    const MAKER: &'static str;
    /// What a summary begins with: a number that changes no other one.
    fn start(mode: Mode) -> Self;
    /// The sum, as Java computes it: an INT starts again where it does not fit.
    fn plus(self, other: Self) -> Self;
    /// Appends its bytes.
    fn write(self, bytes: &mut Vec<u8>);
    /// The number of exactly [`SIZE`](Self::SIZE) bytes.
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl Number for f64 {
    type Column = Float64Type;
    const SIZE: usize = 8;
    const MAKER: &'static str = "tuple_sketch_agg_double";

    fn start(mode: Mode) -> Self {
        match mode {
            Mode::Sum => 0.0,
            Mode::Min => Self::INFINITY,
            Mode::Max => Self::NEG_INFINITY,
            Mode::AlwaysOne => 1.0,
        }
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn write(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_le_bytes)
    }
}

impl Number for i32 {
    type Column = Int32Type;
    const SIZE: usize = 4;
    const MAKER: &'static str = "tuple_sketch_agg_integer";

    fn start(mode: Mode) -> Self {
        match mode {
            Mode::Sum => 0,
            Mode::Min => Self::MAX,
            Mode::Max => Self::MIN,
            Mode::AlwaysOne => 1,
        }
    }

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn write(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_le_bytes)
    }
}

/// A number with the mode of the sketch that it was made in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::functions) struct Summary<N> {
    pub number: N,
    mode: Mode,
}

impl<N: Number> Summary<N> {
    /// How many bytes a summary has.
    pub const SIZE: usize = N::SIZE + 1;

    /// That of no numbers.
    pub fn new(mode: Mode) -> Self {
        Self { number: N::start(mode), mode }
    }

    /// With one number more.
    pub fn with(self, number: N) -> Self {
        // A NaN is neither less nor greater, and so is left out.
        let number = match self.mode {
            Mode::Sum => self.number.plus(number),
            Mode::Min if number < self.number => number,
            Mode::Max if number > self.number => number,
            Mode::Min | Mode::Max => self.number,
            Mode::AlwaysOne => N::start(Mode::AlwaysOne),
        };
        Self { number, ..self }
    }

    /// Two as one.
    pub fn joined(mode: Mode, one: Self, other: Self) -> Self {
        Self::new(mode).with(one.number).with(other.number)
    }

    /// Appends its bytes.
    pub fn write(self, bytes: &mut Vec<u8>) {
        self.number.write(bytes);
        bytes.push(self.mode.byte());
    }

    /// The summary of exactly [`SIZE`](Self::SIZE) bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (mode, number) = bytes.split_last()?;
        let mode = Mode::ALL.get(usize::from(*mode))?;
        Some(Self { number: N::read(number)?, mode: *mode })
    }
}
