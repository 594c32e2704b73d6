//! Trigonometry of decimal128: computed with 80 digits, rounded to 34.

use marula_bson::Decimal128;
use marula_bson::decimal128::{EXPONENT_MIN, Parts};

use super::number::{Big, DecContext, big_context, decimal_with, from_big, to_big};

/// π with more digits than the inner steps have.
const PI: &str =
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803";

/// Digits to which series are summed, relative to their first term.
const DIGITS: i32 = 78;

type Context = dec::Context<Big>;

fn pi(context: &mut Context) -> Big {
    context.parse(PI).expect("the constant is a number")
}

fn number(context: &mut Context, integer: i32) -> Big {
    context.from_i32(integer)
}

fn times(context: &mut Context, a: &Big, b: &Big) -> Big {
    let mut product = *a;
    context.mul(&mut product, b);
    product
}

fn over(context: &mut Context, a: &Big, b: &Big) -> Big {
    let mut quotient = *a;
    context.div(&mut quotient, b);
    quotient
}

fn plus(context: &mut Context, a: &Big, b: &Big) -> Big {
    let mut sum = *a;
    context.add(&mut sum, b);
    sum
}

fn minus(context: &mut Context, a: &Big, b: &Big) -> Big {
    let mut difference = *a;
    context.sub(&mut difference, b);
    difference
}

fn root(context: &mut Context, a: &Big) -> Big {
    let mut root = *a;
    context.sqrt(&mut root);
    root
}

fn logarithm(context: &mut Context, a: &Big) -> Big {
    let mut logarithm = *a;
    context.ln(&mut logarithm);
    logarithm
}

/// The decimal power of ten of a number's leading digit.
fn magnitude(a: &Big) -> i32 {
    a.exponent() + i32::try_from(a.digits()).unwrap_or(0)
}

/// Applies `function` to a finite number that is not zero; zero and NaN are their own results.
fn odd(x: Decimal128, infinity: Decimal128, function: fn(&mut Context, &Big) -> Big) -> Decimal128 {
    if x.is_nan() || x.is_zero() {
        return x;
    }
    if x.is_infinite() {
        return if x.is_negative() { negated(infinity) } else { infinity };
    }
    let mut context = big_context();
    from_big(&function(&mut context, &to_big(x)))
}

fn negated(x: Decimal128) -> Decimal128 {
    let mut bytes = x.bytes();
    bytes[15] ^= 0x80;
    Decimal128::from_bytes(bytes)
}

/// The one of functions that are even: 1.000000000000000000000000000000000.
fn one_with_all_digits() -> Decimal128 {
    "1.000000000000000000000000000000000".parse().expect("the constant is a number")
}

fn rounded_pi(divisor: i32) -> Decimal128 {
    let mut context = big_context();
    let pi = pi(&mut context);
    let divisor = number(&mut context, divisor);
    from_big(&over(&mut context, &pi, &divisor))
}

/// Sums `first · (1 + r₁ + r₁r₂ + …)`, where a term is the one before times `square` over two integers.
fn power_series(context: &mut Context, first: &Big, square: &Big, mut at: i32) -> Big {
    let mut term = *first;
    let mut sum = *first;
    while term.is_finite() && !term.is_zero() && magnitude(&term) > magnitude(&sum) - DIGITS {
        let divisor = number(context, at * (at + 1));
        term = times(context, &term, square);
        term = over(context, &term, &divisor);
        sum = plus(context, &sum, &term);
        at += 2;
    }
    sum
}

fn negative_square(context: &mut Context, x: &Big) -> Big {
    let mut square = times(context, x, x);
    context.minus(&mut square);
    square
}

/// The angle brought to between −π and π.
fn reduced(context: &mut Context, x: &Big) -> Big {
    let two = number(context, 2);
    let pi = pi(context);
    let turn = times(context, &pi, &two);
    let mut angle = *x;
    context.rem_near(&mut angle, &turn);
    angle
}

fn big_sin(context: &mut Context, x: &Big) -> Big {
    let angle = reduced(context, x);
    let square = negative_square(context, &angle);
    power_series(context, &angle, &square, 2)
}

fn big_cos(context: &mut Context, x: &Big) -> Big {
    let angle = reduced(context, x);
    let square = negative_square(context, &angle);
    let one = number(context, 1);
    power_series(context, &one, &square, 1)
}

/// The sine.
pub(super) fn sin(x: Decimal128) -> Decimal128 {
    odd(x, Decimal128::NAN, big_sin)
}

/// The cosine.
pub(super) fn cos(x: Decimal128) -> Decimal128 {
    if x.is_zero() {
        return one_with_all_digits();
    }
    odd(x, Decimal128::NAN, big_cos)
}

/// The tangent.
pub(super) fn tan(x: Decimal128) -> Decimal128 {
    if x.is_zero() {
        return scaled_zero(x, -40);
    }
    odd(x, Decimal128::NAN, |context, x| {
        let sin = big_sin(context, x);
        let cos = big_cos(context, x);
        over(context, &sin, &cos)
    })
}

/// The arc tangent: the argument is halved until the series is short.
fn big_atan(context: &mut Context, x: &Big) -> Big {
    const HALVINGS: u32 = 6;
    let one = number(context, 1);
    let mut small = *x;
    for _ in 0..HALVINGS {
        let square = times(context, &small, &small);
        let below = plus(context, &one, &square);
        let below = root(context, &below);
        let below = plus(context, &one, &below);
        small = over(context, &small, &below);
    }
    let square = negative_square(context, &small);
    let mut power = small;
    let mut sum = small;
    let mut at = 3;
    while power.is_finite() && !power.is_zero() && magnitude(&power) > magnitude(&sum) - DIGITS {
        power = times(context, &power, &square);
        let divisor = number(context, at);
        let term = over(context, &power, &divisor);
        sum = plus(context, &sum, &term);
        at += 2;
    }
    let factor = number(context, 1 << HALVINGS);
    times(context, &sum, &factor)
}

/// The arc tangent.
pub(super) fn atan(x: Decimal128) -> Decimal128 {
    odd(x, rounded_pi(2), big_atan)
}

/// The arc sine.
pub(super) fn asin(x: Decimal128) -> Decimal128 {
    if x.is_zero() {
        return scaled_zero(x, -40);
    }
    odd(x, Decimal128::NAN, big_asin)
}

fn big_asin(context: &mut Context, x: &Big) -> Big {
    let one = number(context, 1);
    let square = times(context, x, x);
    let rest = minus(context, &one, &square);
    if rest.is_zero() {
        let pi = pi(context);
        let two = number(context, 2);
        let mut right = over(context, &pi, &two);
        if x.is_negative() {
            context.minus(&mut right);
        }
        return right;
    }
    let side = root(context, &rest);
    let ratio = over(context, x, &side);
    big_atan(context, &ratio)
}

/// The arc cosine.
pub(super) fn acos(x: Decimal128) -> Decimal128 {
    if x.to_exact_i64() == Some(1) {
        return least_zero(false);
    }
    if x.is_nan() {
        return x;
    }
    let mut context = big_context();
    let context = &mut context;
    let pi = pi(context);
    let two = number(context, 2);
    let right = over(context, &pi, &two);
    let asin = if x.is_zero() { number(context, 0) } else { big_asin(context, &to_big(x)) };
    from_big(&minus(context, &right, &asin))
}

/// A zero of `x`'s sign, its exponent so much greater: functions that mongod computes as a product have such zeros.
fn scaled_zero(x: Decimal128, by: i32) -> Decimal128 {
    let Parts::Finite { negative, exponent, .. } = x.parts() else { return x };
    let exponent = (exponent + by).max(EXPONENT_MIN);
    Decimal128::from_parts(Parts::Finite { negative, exponent, coefficient: 0 }).unwrap_or(x)
}

/// The zero of the least exponent: what mongod's functions come to that are zero without being exact.
pub(super) fn least_zero(negative: bool) -> Decimal128 {
    let parts = Parts::Finite { negative, exponent: EXPONENT_MIN, coefficient: 0 };
    Decimal128::from_parts(parts).unwrap_or(Decimal128::ZERO)
}

/// The angle of a point, by quadrant.
pub(super) fn atan2(y: Decimal128, x: Decimal128) -> Decimal128 {
    if y.is_nan() || x.is_nan() {
        return Decimal128::NAN;
    }
    let mut owned = big_context();
    let context = &mut owned;
    let pi = pi(context);
    let of_pi = |context: &mut Context, numerator: i32, denominator: i32| {
        let numerator = number(context, numerator);
        let denominator = number(context, denominator);
        let product = times(context, &pi, &numerator);
        over(context, &product, &denominator)
    };
    let magnitude = match (y.is_infinite(), x.is_infinite()) {
        (true, true) if x.is_negative() => of_pi(context, 3, 4),
        (true, true) => of_pi(context, 1, 4),
        (true, false) => of_pi(context, 1, 2),
        (false, true) if x.is_negative() => pi,
        (false, true) => number(context, 0),
        _ if y.is_zero() && x.is_negative() => pi,
        _ if y.is_zero() => number(context, 0),
        _ if x.is_zero() => of_pi(context, 1, 2),
        _ => {
            let mut ratio = over(context, &to_big(y), &to_big(x));
            context.abs(&mut ratio);
            let angle = big_atan(context, &ratio);
            if x.is_negative() { minus(context, &pi, &angle) } else { angle }
        }
    };
    let angle = from_big(&magnitude);
    if angle.is_zero() {
        return least_zero(y.is_negative());
    }
    if y.is_negative() { negated(angle) } else { angle }
}

fn exponentials(context: &mut Context, x: &Big) -> (Big, Big) {
    let mut up = *x;
    context.exp(&mut up);
    let mut down = *x;
    context.minus(&mut down);
    context.exp(&mut down);
    (up, down)
}

fn big_sinh(context: &mut Context, x: &Big) -> Big {
    // Of small numbers the difference of exponentials would lose the digits.
    if magnitude(x) <= 0 {
        let square = times(context, x, x);
        return power_series(context, x, &square, 2);
    }
    let (up, down) = exponentials(context, x);
    let difference = minus(context, &up, &down);
    let two = number(context, 2);
    over(context, &difference, &two)
}

fn big_cosh(context: &mut Context, x: &Big) -> Big {
    let (up, down) = exponentials(context, x);
    let sum = plus(context, &up, &down);
    let two = number(context, 2);
    over(context, &sum, &two)
}

/// The hyperbolic sine.
pub(super) fn sinh(x: Decimal128) -> Decimal128 {
    if x.is_zero() {
        return scaled_zero(x, -40);
    }
    odd(x, Decimal128::INFINITY, big_sinh)
}

/// The hyperbolic cosine.
pub(super) fn cosh(x: Decimal128) -> Decimal128 {
    if x.is_zero() {
        return one_with_all_digits();
    }
    if x.is_infinite() {
        return Decimal128::INFINITY;
    }
    odd(x, Decimal128::INFINITY, big_cosh)
}

/// The hyperbolic tangent.
pub(super) fn tanh(x: Decimal128) -> Decimal128 {
    odd(x, Decimal128::from_i64(1), |context, x| {
        // Beyond a hundred the result is one in all its digits.
        if magnitude(x) > 2 {
            return number(context, if x.is_negative() { -1 } else { 1 });
        }
        let sinh = big_sinh(context, x);
        let cosh = big_cosh(context, x);
        over(context, &sinh, &cosh)
    })
}

/// The inverse hyperbolic sine.
pub(super) fn asinh(x: Decimal128) -> Decimal128 {
    if x.is_zero() {
        return least_zero(x.is_negative());
    }
    odd(x, Decimal128::INFINITY, |context, x| {
        let mut size = *x;
        context.abs(&mut size);
        let one = number(context, 1);
        let square = times(context, &size, &size);
        let hypotenuse = plus(context, &square, &one);
        let hypotenuse = root(context, &hypotenuse);
        let sum = plus(context, &size, &hypotenuse);
        let mut result = logarithm(context, &sum);
        if x.is_negative() {
            context.minus(&mut result);
        }
        result
    })
}

/// The inverse hyperbolic cosine.
pub(super) fn acosh(x: Decimal128) -> Decimal128 {
    odd(x, Decimal128::INFINITY, |context, x| {
        let one = number(context, 1);
        let square = times(context, x, x);
        let side = minus(context, &square, &one);
        let side = root(context, &side);
        let sum = plus(context, x, &side);
        logarithm(context, &sum)
    })
}

/// The inverse hyperbolic tangent; infinite at one.
pub(super) fn atanh(x: Decimal128) -> Decimal128 {
    if x.is_zero() {
        return least_zero(x.is_negative());
    }
    match x.to_exact_i64() {
        Some(1) => return Decimal128::INFINITY,
        Some(-1) => return Decimal128::NEG_INFINITY,
        _ => {}
    }
    odd(x, Decimal128::NAN, |context, x| {
        let one = number(context, 1);
        let above = plus(context, &one, x);
        let below = minus(context, &one, x);
        let ratio = over(context, &above, &below);
        let logarithm = logarithm(context, &ratio);
        let two = number(context, 2);
        over(context, &logarithm, &two)
    })
}

/// Degrees as radians.
pub(super) fn to_radians(x: Decimal128) -> Decimal128 {
    // π/180 with 34 digits: the product is rounded once more, as mongod's is.
    scaled(x, "0.01745329251994329576923690768488613")
}

/// Radians as degrees.
pub(super) fn to_degrees(x: Decimal128) -> Decimal128 {
    scaled(x, "57.29577951308232087679815481410517")
}

fn scaled(x: Decimal128, factor: &str) -> Decimal128 {
    let factor = factor.parse().expect("the constant is a number");
    decimal_with(x, factor, DecContext::mul)
}
