//! Numbers as Java, and therefore Spark, writes them.

use std::fmt::Write;

/// Appends a DOUBLE: `1.0`, `1.0E10`, `NaN`, `-Infinity`.
pub(crate) fn write_double(value: f64, out: &mut String) {
    if write_special(value, out) {
        return;
    }
    let mut digits = Digits::default();
    write!(digits, "{value:e}").expect("the shortest form of a double fits");
    // Java has two digits where the value has any, which of the smallest are nearer than one.
    if value.abs() < 1.0e-322 && value != 0.0 {
        let mut two = Digits::default();
        write!(two, "{value:.1e}").expect("two digits fit");
        if two.text().parse::<f64>() == Ok(value) && !two.text().contains(".0") {
            digits = two;
        }
    }
    digits.write_java(out);
}

/// Appends a FLOAT, in the shortest form that reads back as the same FLOAT.
pub(crate) fn write_float(value: f32, out: &mut String) {
    if write_special(f64::from(value), out) {
        return;
    }
    let mut digits = Digits::default();
    write!(digits, "{value:e}").expect("the shortest form of a float fits");
    if value.abs() < 1.0e-43 && value != 0.0 {
        let mut two = Digits::default();
        write!(two, "{value:.1e}").expect("two digits fit");
        if two.text().parse::<f32>() == Ok(value) && !two.text().contains(".0") {
            digits = two;
        }
    }
    digits.write_java(out);
}

fn write_special(value: f64, out: &mut String) -> bool {
    let text = match value {
        value if value.is_nan() => "NaN",
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => return false,
    };
    out.push_str(text);
    true
}

/// A number in Rust's scientific form, `-1.234e5`, on the stack.
#[derive(Default)]
struct Digits {
    bytes: [u8; 32],
    length: usize,
}

impl Write for Digits {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes
            .get_mut(self.length..end)
            .ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

impl Digits {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("digits are ASCII")
    }

    /// Java writes plainly from 10^-3 up to 10^7, and scientifically outside.
    fn write_java(&self, out: &mut String) {
        let (mantissa, exponent) = self.text().split_once('e').expect("{:e} writes an exponent");
        let exponent: i32 = exponent.parse().expect("{:e} writes an integer exponent");
        let mantissa = match mantissa.strip_prefix('-') {
            Some(positive) => {
                out.push('-');
                positive
            }
            None => mantissa,
        };
        let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        match exponent {
            -3..=-1 => {
                out.push_str("0.");
                (1..-exponent).for_each(|_| out.push('0'));
                out.push_str(first);
                out.push_str(rest);
            }
            0..=6 => {
                let exponent = exponent as usize;
                out.push_str(first);
                out.push_str(&rest[..exponent.min(rest.len())]);
                (rest.len()..exponent).for_each(|_| out.push('0'));
                out.push('.');
                let fraction = rest.get(exponent..).filter(|digits| !digits.is_empty());
                out.push_str(fraction.unwrap_or("0"));
            }
            _ => {
                let rest = if rest.is_empty() { "0" } else { rest };
                write!(out, "{first}.{rest}E{exponent}").expect("a String takes everything");
            }
        }
    }
}

/// Appends a DECIMAL of `scale` digits after the point, plainly, as a cast to STRING does.
pub(crate) fn write_decimal(unscaled: i128, scale: i8, out: &mut String) {
    if unscaled < 0 {
        out.push('-');
    }
    let digits = unscaled.unsigned_abs();
    match u32::try_from(scale) {
        Ok(0) => write!(out, "{digits}"),
        Ok(scale) => {
            let unit = 10_u128.pow(scale);
            write!(out, "{}.{:0width$}", digits / unit, digits % unit, width = scale as usize)
        }
        Err(_) => {
            write!(out, "{digits}{:0<1$}", "", usize::from(scale.unsigned_abs()))
        }
    }
    .expect("a String takes everything");
}

/// Appends a DECIMAL as Java's `BigDecimal.toString` does: scientific if it is below 10^-6.
pub(crate) fn write_big_decimal(unscaled: i128, scale: i8, out: &mut String) {
    let digits = unscaled.unsigned_abs().to_string();
    let adjusted = digits.len() as i32 - 1 - i32::from(scale);
    if scale >= 0 && adjusted >= -6 {
        return write_decimal(unscaled, scale, out);
    }
    if unscaled < 0 {
        out.push('-');
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    write!(out, "{first}{point}{rest}E{adjusted:+}").expect("a String takes everything");
}
