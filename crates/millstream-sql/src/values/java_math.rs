//! Functions of doubles as Java's `StrictMath` has them, to the last bit.
//!
//! Spark computes with these. The C library rounds some of their results otherwise: there e to the
//! power 1 is e, and in Java it is the double above.
//!
//! Origin: Sun Microsystems' fdlibm, which is what the documentation of `StrictMath` names. The
//! order of the operations is part of the result.

const LN2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
const ONE_BY_LN2: f64 = f64::from_bits(0x3ff7_1547_652b_82fe);

/// The polynomial of `exp`, the lowest power first.
const EXP: [f64; 5] = [
    f64::from_bits(0x3fc5_5555_5555_553e),
    f64::from_bits(0xbf66_c16c_16be_bd93),
    f64::from_bits(0x3f11_566a_af25_de2c),
    f64::from_bits(0xbebb_bd41_c5d2_6bf1),
    f64::from_bits(0x3e66_3769_72be_a4d0),
];

/// The polynomial of `ln`, the lowest power first.
const LN: [f64; 7] = [
    f64::from_bits(0x3fe5_5555_5555_5593),
    f64::from_bits(0x3fd9_9999_9997_fa04),
    f64::from_bits(0x3fd2_4924_9422_9359),
    f64::from_bits(0x3fcc_71c5_1d8e_78af),
    f64::from_bits(0x3fc7_4664_96cb_03de),
    f64::from_bits(0x3fc3_9a09_d078_c69f),
    f64::from_bits(0x3fc2_f112_df3e_5244),
];

/// The upper half of the bits of a number that is not negative.
fn upper(value: f64) -> u32 {
    (value.to_bits() >> 32) as u32
}

/// e to the power `x`.
pub(crate) fn exp(x: f64) -> f64 {
    const OVERFLOWS: f64 = f64::from_bits(0x4086_2e42_fefa_39ef);
    const VANISHES: f64 = f64::from_bits(0xc087_4910_d52d_3051);
    if x.is_nan() {
        return x;
    }
    if x > OVERFLOWS {
        return f64::INFINITY;
    }
    if x < VANISHES {
        return 0.0;
    }
    let size = upper(x.abs());
    if size < 0x3e30_0000 {
        return 1.0 + x;
    }
    // x is `twos` times ln 2, and a rest of at most half of that.
    let twos = if size <= 0x3fd6_2e42 {
        0.0
    } else if size < 0x3ff0_a2b2 {
        1.0_f64.copysign(x)
    } else {
        (ONE_BY_LN2 * x + 0.5_f64.copysign(x)).trunc()
    };
    let (high, low) = (x - twos * LN2_HIGH, twos * LN2_LOW);
    let rest = high - low;
    let square = rest * rest;
    let [a, b, c, d, e] = EXP;
    let even = rest - square * (a + square * (b + square * (c + square * (d + square * e))));
    let of_rest = 1.0 - ((low - (rest * even) / (2.0 - even)) - high);
    times_power_of_two(of_rest, twos as i64)
}

/// `value`, which is near 1, times 2 to the power `twos`.
fn times_power_of_two(value: f64, twos: i64) -> f64 {
    const SMALL: f64 = f64::from_bits(0x0170_0000_0000_0000);
    let scaled = |twos: i64| f64::from_bits(value.to_bits().wrapping_add_signed(twos << 52));
    if twos >= -1021 { scaled(twos) } else { scaled(twos + 1000) * SMALL }
}

/// The natural logarithm.
pub(crate) fn ln(x: f64) -> f64 {
    const TWO_TO_54: f64 = (1_u64 << 54) as f64;
    if x.is_nan() || x == f64::INFINITY {
        return x;
    }
    if x <= 0.0 {
        return if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    }
    let is_subnormal = x < f64::MIN_POSITIVE;
    let (x, shifted) = if is_subnormal { (x * TWO_TO_54, 54.0) } else { (x, 0.0) };
    let (exponent, mantissa) = (upper(x) >> 20, upper(x) & 0xf_ffff);
    // x is 2 to the power `twos` times 1 + `f`, which is between the roots of 1/2 and 2.
    let halved = (mantissa + 0x9_5f64) & 0x10_0000;
    let twos = f64::from(exponent + (halved >> 20)) - 1023.0 - shifted;
    let scaled = u64::from(mantissa | (halved ^ 0x3ff0_0000)) << 32;
    let f = f64::from_bits(scaled | (x.to_bits() & 0xffff_ffff)) - 1.0;
    let (high, low) = (twos * LN2_HIGH, twos * LN2_LOW);
    if (mantissa + 2) & 0xf_ffff < 3 {
        if f == 0.0 {
            return high + low;
        }
        let tail = f * f * (0.5 - (1.0 / 3.0) * f);
        return high - ((tail - low) - f);
    }
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let odd = w * (LN[1] + w * (LN[3] + w * LN[5]));
    let even = z * (LN[0] + w * (LN[2] + w * (LN[4] + w * LN[6])));
    let tail = even + odd;
    // In the middle of the range the square of `f` is taken out, so that less is rounded.
    if (0x6_147a..=0x6_b851).contains(&mantissa) {
        let half_square = 0.5 * f * f;
        return high - ((half_square - (s * (half_square + tail) + low)) - f);
    }
    high - ((s * (f - tail) - low) - f)
}

/// The hyperbolic cosine.
pub(crate) fn cosh(x: f64) -> f64 {
    const OVERFLOWS: f64 = f64::from_bits(0x4086_33ce_8fb9_f87d);
    let x = x.abs();
    let size = upper(x);
    if size < 0x3fd6_2e43 {
        let less_one = x.exp_m1();
        let power = 1.0 + less_one;
        return 1.0 + (less_one * less_one) / (power + power);
    }
    if size < 0x4036_0000 {
        let power = exp(x);
        return 0.5 * power + 0.5 / power;
    }
    if size < 0x4086_2e42 {
        return 0.5 * exp(x);
    }
    if x <= OVERFLOWS {
        let root = exp(0.5 * x);
        return 0.5 * root * root;
    }
    if x.is_nan() { x } else { f64::INFINITY }
}

/// The root of the sum of two squares.
pub(crate) fn hypot(x: f64, y: f64) -> f64 {
    const LARGE: f64 = f64::from_bits(0x5f30_0000_ffff_ffff);
    const SMALL: f64 = f64::from_bits(0x20b0_0000_0000_0000);
    const UP: f64 = f64::from_bits(0x6570_0000_0000_0000);
    const DOWN: f64 = f64::from_bits(0x1a70_0000_0000_0000);
    let (a, b) = (x.abs().max(y.abs()), x.abs().min(y.abs()));
    if a.is_infinite() {
        return a;
    }
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    if upper(a) - upper(b) > 0x3c0_0000 {
        return a + b;
    }
    // Squares of what is scaled neither overflow nor vanish.
    let (a, b, scale) = match () {
        () if a > LARGE => (a * DOWN, b * DOWN, UP),
        () if b == 0.0 => return a,
        () if b < f64::MIN_POSITIVE => {
            const MOST: f64 = f64::from_bits(0x7fd0_0000_0000_0000);
            (a * MOST, b * MOST, f64::MIN_POSITIVE)
        }
        () if b < SMALL => (a * UP, b * UP, DOWN),
        () => (a, b, 1.0),
    };
    let high = |value: f64| f64::from_bits(value.to_bits() & 0xffff_ffff_0000_0000);
    let beside = a - b;
    let root = if beside > b {
        let (first, rest) = (high(a), a - high(a));
        (first * first - (b * (-b) - rest * (a + first))).sqrt()
    } else {
        let twice = a + a;
        let (b_high, a_high) = (high(b), high(twice));
        let (b_rest, a_rest) = (b - b_high, twice - a_high);
        (a_high * b_high - (beside * (-beside) - (a_high * b_rest + a_rest * b))).sqrt()
    };
    scale * root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_java() {
        assert_eq!(exp(1.0).to_string(), "2.7182818284590455");
        assert_eq!(cosh(1.0).to_string(), "1.543080634815244");
        assert_eq!(cosh(-1.0).to_bits(), cosh(1.0).to_bits());
        assert_eq!((exp(0.0), ln(1.0), cosh(0.0)), (1.0, 0.0, 1.0));
    }

    #[test]
    fn hypotenuses_are_those_of_java() {
        assert_eq!(hypot(3.0, -4.0), 5.0);
        assert_eq!(hypot(1.0e200, 1.0e200).to_string(), format!("{}", 1.414213562373095e200));
        assert_eq!(hypot(0.0, -0.0), 0.0);
        assert_eq!((hypot(3.0e-310, 4.0e-310), hypot(0.0, 2.0)), (5.0e-310, 2.0));
        assert_eq!(hypot(f64::NAN, f64::NEG_INFINITY), f64::INFINITY);
        assert!(hypot(1.0, f64::NAN).is_nan());
    }

    #[test]
    fn edges_are_kept() {
        assert_eq!((exp(710.0), exp(f64::INFINITY)), (f64::INFINITY, f64::INFINITY));
        assert_eq!((exp(-746.0), exp(f64::NEG_INFINITY)), (0.0, 0.0));
        assert_eq!((ln(0.0), ln(f64::INFINITY)), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!((cosh(711.0), cosh(f64::NEG_INFINITY)), (f64::INFINITY, f64::INFINITY));
        assert!(
            [exp(f64::NAN), ln(-1.0), ln(f64::NAN), cosh(f64::NAN)].iter().all(|of| of.is_nan())
        );
    }

    /// Both libraries are wrong by a few units of the last place at most.
    #[test]
    fn results_are_near_those_of_the_c_library() {
        let near = |one: f64, other: f64| one.to_bits().abs_diff(other.to_bits()) <= 4;
        let mut x = -745.0_f64;
        while x < 709.0 {
            assert!(near(exp(x), x.exp()), "exp({x})");
            assert!(near(cosh(x), x.cosh()), "cosh({x})");
            x += 0.37;
        }
        for exponent in -1074..1024 {
            for part in [1.0, 1.000_000_1, 1.25, 1.39, 1.41, 1.5, 1.99] {
                let x = 2.0_f64.powi(exponent) * part;
                assert!(near(ln(x), x.ln()), "ln({x})");
            }
        }
    }
}
