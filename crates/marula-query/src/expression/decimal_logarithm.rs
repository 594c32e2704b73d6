//! The natural logarithm of an 80-digit number.
//!
//! libdecnumber computes a logarithm from several exponentials. Here the number is `m · 10ᵉ` with
//! `m` close to a number `c` of two digits whose logarithm is known, so that the rest is a short
//! series: `ln a = ln c + e · ln 10 + 2 · artanh((m − c) / (m + c))`.

use std::sync::OnceLock;

use super::number::Big;

type Context = dec::Context<Big>;

/// The least and the greatest `c`, in tenths. About one they lie on both sides of it, so that the
/// logarithm of a number close to one is the series alone and loses no digits.
const TENTHS_MIN: usize = 5;
const TENTHS_MAX: usize = 50;

/// The number of digits to which the series is summed.
const DIGITS: i32 = 80;
/// The maximum number of terms: each adds at least two digits.
const TERMS_MAX: usize = 42;

static LOGARITHMS: [OnceLock<Big>; TENTHS_MAX + 1] = [const { OnceLock::new() }; TENTHS_MAX + 1];
static LN_10: OnceLock<Big> = OnceLock::new();
/// One over each odd number, the coefficients of the series.
static COEFFICIENTS: OnceLock<[Big; TERMS_MAX]> = OnceLock::new();

/// The natural logarithm.
pub(super) fn ln(context: &mut Context, a: &Big) -> Big {
    if a.is_zero() || a.is_negative() || !a.is_finite() {
        return by_library(context, a);
    }
    let digits = i32::try_from(a.digits()).unwrap_or(0);
    let mut mantissa = *a;
    mantissa.set_exponent(1 - digits);
    let mut exponent = a.exponent() + digits - 1;
    let mut tenths = tenths_of(context, mantissa);
    if tenths > TENTHS_MAX {
        mantissa.set_exponent(-digits);
        exponent += 1;
        tenths = tenths_of(context, mantissa);
    }
    let near = number(context, tenths, -1);
    let (mut difference, mut sum) = (mantissa, mantissa);
    context.sub(&mut difference, &near);
    context.add(&mut sum, &near);
    context.div(&mut difference, &sum);
    let mut logarithm = twice_artanh(context, &difference);
    if tenths != 10 {
        let known = LOGARITHMS[tenths].get_or_init(|| by_library(context, &near));
        context.add(&mut logarithm, known);
    }
    if exponent != 0 {
        let ten = context.from_i32(10);
        let mut shift = context.from_i32(exponent);
        let of_ten = LN_10.get_or_init(|| by_library(context, &ten));
        context.mul(&mut shift, of_ten);
        context.add(&mut logarithm, &shift);
    }
    logarithm
}

fn by_library(context: &mut Context, a: &Big) -> Big {
    let mut logarithm = *a;
    context.ln(&mut logarithm);
    logarithm
}

fn number(context: &mut Context, coefficient: usize, exponent: i32) -> Big {
    let mut number = context.from_u32(u32::try_from(coefficient).unwrap_or(u32::MAX));
    number.set_exponent(exponent);
    number
}

/// The nearest number of tenths.
fn tenths_of(context: &mut Context, mantissa: Big) -> usize {
    let tenths = (context.try_into_f64(mantissa).unwrap_or(1.0) * 10.0).round();
    // The mantissa is between 0.5 and 10.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let tenths = tenths as usize;
    tenths.max(TENTHS_MIN)
}

/// Two times the inverse hyperbolic tangent of a number below 0.06, by its series.
fn twice_artanh(context: &mut Context, z: &Big) -> Big {
    if z.is_zero() {
        return *z;
    }
    let coefficients = COEFFICIENTS.get_or_init(|| {
        let one = context.from_i32(1);
        std::array::from_fn(|at| {
            let mut coefficient = one;
            let divisor = number(context, 2 * at + 1, 0);
            context.div(&mut coefficient, &divisor);
            coefficient
        })
    });
    let mut square = *z;
    context.mul(&mut square, z);
    let digits_of_term = -square.exponent() - i32::try_from(square.digits()).unwrap_or(0);
    let terms = usize::try_from(DIGITS / digits_of_term.max(2)).unwrap_or(0) + 2;
    let (last, earlier) = coefficients[..terms.min(TERMS_MAX)].split_last().expect("two or more");
    let mut sum = *last;
    for coefficient in earlier.iter().rev() {
        context.mul(&mut sum, &square);
        context.add(&mut sum, coefficient);
    }
    context.mul(&mut sum, z);
    let two = context.from_i32(2);
    context.mul(&mut sum, &two);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::number::big_context;

    /// Close to one, at the ends of the table, at powers of ten, very large and very small.
    #[test]
    fn a_logarithm_is_that_of_the_library() {
        let mut context = big_context();
        let texts = "1 2 9.99999999999999 10 4.95 4.96 5 5.04 5.05 5.06 5.1 0.5 0.45 0.999999999999999999 \
             1.000000000000000000000001 1.05 0.95 0.949999 3.14159265358979323846264338327950288 \
             7 123456789 1E+6144 1E-6176 9.999E+4464 6.62607015E-34 0.1 0.01 99 1234567890123456789012345678901234";
        for text in texts.split_whitespace() {
            let number = context.parse(text).expect("a number");
            let (found, mut error) = (ln(&mut context, &number), ln(&mut context, &number));
            let expected = by_library(&mut context, &number);
            context.sub(&mut error, &expected);
            let digits = |x: &Big| x.exponent() + i32::try_from(x.digits()).unwrap_or(0);
            let is_close = error.is_zero() || digits(&error) <= digits(&expected) - 76;
            assert!(is_close, "{text}: {found} instead of {expected}");
        }
    }
}
