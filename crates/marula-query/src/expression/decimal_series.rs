//! Functions of 80-digit numbers, by series and libdecnumber; their results are rounded to
//! binary128.

pub(super) use super::decimal_logarithm::ln;
use super::number::Big;

/// π with more digits than the computations.
const PI: &str =
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803";

/// The relative precision to which series are summed.
const DIGITS: i32 = 78;

type Context = dec::Context<Big>;

/// π.
pub(super) fn pi(context: &mut Context) -> Big {
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

/// The square root.
pub(super) fn sqrt(context: &mut Context, a: &Big) -> Big {
    let mut root = *a;
    context.sqrt(&mut root);
    root
}

/// The logarithm to base two.
pub(super) fn log2(context: &mut Context, a: &Big) -> Big {
    let two = number(context, 2);
    let (logarithm, of_two) = (ln(context, a), ln(context, &two));
    over(context, &logarithm, &of_two)
}

/// One over the natural logarithm.
pub(super) fn reciprocal_ln(context: &mut Context, a: &Big) -> Big {
    let one = number(context, 1);
    let logarithm = ln(context, a);
    over(context, &one, &logarithm)
}

/// The number times the natural logarithm of ten.
pub(super) fn times_ln_10(context: &mut Context, a: &Big) -> Big {
    let ten = number(context, 10);
    let logarithm = ln(context, &ten);
    times(context, a, &logarithm)
}

/// The number times the right angle.
pub(super) fn right_angle(context: &mut Context, a: &Big) -> Big {
    let two = number(context, 2);
    let pi = pi(context);
    let right = over(context, &pi, &two);
    times(context, a, &right)
}

/// The decimal power of ten of a number's leading digit.
fn magnitude(a: &Big) -> i32 {
    a.exponent() + i32::try_from(a.digits()).unwrap_or(0)
}

/// The natural logarithm of one more than the number.
pub(super) fn ln_1p(context: &mut Context, a: &Big) -> Big {
    if magnitude(a) > -8 {
        let one = number(context, 1);
        let sum = plus(context, &one, a);
        return ln(context, &sum);
    }
    // For a small number the sum would lose digits.
    let mut power = *a;
    let mut sum = *a;
    let mut at = 2;
    while !power.is_zero() && magnitude(&power) > magnitude(&sum) - DIGITS {
        power = times(context, &power, a);
        context.minus(&mut power);
        let divisor = number(context, at);
        let term = over(context, &power, &divisor);
        sum = plus(context, &sum, &term);
        at += 1;
    }
    sum
}

/// e to the power of the number.
pub(super) fn exp(context: &mut Context, a: &Big) -> Big {
    let mut power = *a;
    context.exp(&mut power);
    power
}

/// Two to the power of the number.
pub(super) fn exp2(context: &mut Context, a: &Big) -> Big {
    let mut power = number(context, 2);
    context.pow(&mut power, a);
    power
}

/// Ten to the power of the number.
pub(super) fn exp10(context: &mut Context, a: &Big) -> Big {
    let mut power = number(context, 10);
    context.pow(&mut power, a);
    power
}

/// Sums `first · (1 + r₁ + r₁r₂ + …)`, where each term is the previous one times `square` divided
/// by two integers.
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

/// The sine of an angle between −1 and 1 right angle.
pub(super) fn sin(context: &mut Context, x: &Big) -> Big {
    let square = negative_square(context, x);
    power_series(context, x, &square, 2)
}

/// The cosine of an angle in the same range.
pub(super) fn cos(context: &mut Context, x: &Big) -> Big {
    let square = negative_square(context, x);
    let one = number(context, 1);
    power_series(context, &one, &square, 1)
}

/// The tangent of an angle in the same range.
pub(super) fn tan(context: &mut Context, x: &Big) -> Big {
    let sin = sin(context, x);
    let cos = cos(context, x);
    over(context, &sin, &cos)
}

/// The arc tangent: the argument is halved until the series is short.
pub(super) fn atan(context: &mut Context, x: &Big) -> Big {
    const HALVINGS: u32 = 6;
    let one = number(context, 1);
    let mut small = *x;
    for _ in 0..HALVINGS {
        let square = times(context, &small, &small);
        let below = plus(context, &one, &square);
        let below = sqrt(context, &below);
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

/// The arc sine of a number between −1 and 1.
pub(super) fn asin(context: &mut Context, x: &Big) -> Big {
    let one = number(context, 1);
    let square = times(context, x, x);
    let rest = minus(context, &one, &square);
    if rest.is_zero() {
        return right_angle(context, x);
    }
    let side = sqrt(context, &rest);
    let ratio = over(context, x, &side);
    atan(context, &ratio)
}

/// The arc cosine of a number between −1 and 1.
pub(super) fn acos(context: &mut Context, x: &Big) -> Big {
    let one = number(context, 1);
    let right = right_angle(context, &one);
    let asin = asin(context, x);
    minus(context, &right, &asin)
}

fn exponentials(context: &mut Context, x: &Big) -> (Big, Big) {
    let up = exp(context, x);
    let one = number(context, 1);
    let down = over(context, &one, &up);
    (up, down)
}

/// The hyperbolic sine.
pub(super) fn sinh(context: &mut Context, x: &Big) -> Big {
    // For small numbers the difference of exponentials would lose digits.
    if magnitude(x) <= 0 {
        let square = times(context, x, x);
        return power_series(context, x, &square, 2);
    }
    let (up, down) = exponentials(context, x);
    let difference = minus(context, &up, &down);
    let two = number(context, 2);
    over(context, &difference, &two)
}

/// The hyperbolic cosine.
pub(super) fn cosh(context: &mut Context, x: &Big) -> Big {
    let (up, down) = exponentials(context, x);
    let sum = plus(context, &up, &down);
    let two = number(context, 2);
    over(context, &sum, &two)
}

/// The hyperbolic tangent.
pub(super) fn tanh(context: &mut Context, x: &Big) -> Big {
    let sinh = sinh(context, x);
    let cosh = cosh(context, x);
    over(context, &sinh, &cosh)
}

/// The inverse hyperbolic sine.
pub(super) fn asinh(context: &mut Context, x: &Big) -> Big {
    let mut size = *x;
    context.abs(&mut size);
    let one = number(context, 1);
    let square = times(context, &size, &size);
    let hypotenuse = plus(context, &square, &one);
    let hypotenuse = sqrt(context, &hypotenuse);
    // √(x² + 1) − 1, without a subtraction.
    let below = plus(context, &hypotenuse, &one);
    let beyond = over(context, &square, &below);
    let sum = plus(context, &size, &beyond);
    let mut result = ln_1p(context, &sum);
    if x.is_negative() {
        context.minus(&mut result);
    }
    result
}

/// The inverse hyperbolic cosine of a number greater than one.
pub(super) fn acosh(context: &mut Context, x: &Big) -> Big {
    let one = number(context, 1);
    let square = times(context, x, x);
    let side = minus(context, &square, &one);
    let side = sqrt(context, &side);
    let sum = plus(context, x, &side);
    ln(context, &sum)
}
