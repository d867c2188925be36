//! The values that KLL sketches rank.

use std::fmt::Debug;

use arrow::datatypes::{ArrowPrimitiveType, Float32Type, Float64Type, Int64Type};
use datasketches::kll::{KllFloat, KllValue};

use crate::values::java_text::{write_double, write_float};

/// A value that is ranked: a BIGINT, a FLOAT or a DOUBLE.
pub(in crate::functions) trait Item:
    KllValue + Ord + Copy + Debug + Send + Sync + 'static
{
    /// Columns of it.
    type Column: ArrowPrimitiveType;
    /// What Java's library calls sketches of it.
    const KIND: &'static str;
    /// The aggregate that makes such sketches, for messages.
    const MAKER: &'static str;
    /// The value of a column, unless it is a NaN, which has no rank.
    fn of(value: <Self::Column as ArrowPrimitiveType>::Native) -> Option<Self>;
    /// As a column has it.
    fn native(self) -> <Self::Column as ArrowPrimitiveType>::Native;
    /// As Java writes it.
    fn text(self) -> String;
}

impl Item for i64 {
    type Column = Int64Type;
    const KIND: &'static str = "KllLongsSketch";
    const MAKER: &'static str = "kll_sketch_agg_bigint";

    fn of(value: i64) -> Option<Self> {
        Some(value)
    }

    fn native(self) -> i64 {
        self
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl Item for KllFloat<f32> {
    type Column = Float32Type;
    const KIND: &'static str = "KllFloatsSketch";
    const MAKER: &'static str = "kll_sketch_agg_float";

    fn of(value: f32) -> Option<Self> {
        Self::new(value).ok()
    }

    fn native(self) -> f32 {
        self.into_inner()
    }

    fn text(self) -> String {
        let mut text = String::new();
        write_float(self.into_inner(), &mut text);
        text
    }
}

impl Item for KllFloat<f64> {
    type Column = Float64Type;
    const KIND: &'static str = "KllDoublesSketch";
    const MAKER: &'static str = "kll_sketch_agg_double";

    fn of(value: f64) -> Option<Self> {
        Self::new(value).ok()
    }

    fn native(self) -> f64 {
        self.into_inner()
    }

    fn text(self) -> String {
        let mut text = String::new();
        write_double(self.into_inner(), &mut text);
        text
    }
}
