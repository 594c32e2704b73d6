//! A chart of lines: a number against connections or rows, a line for each server, whiskers from
//! the smallest run to the largest.

use crate::pages::numbers::{Metric, Read, Spread, short, thousands, written};
use crate::pages::svg::{COLOURS, Svg, WIDTH};
use crate::record::GroupRecord;

const HEIGHT: f64 = 290.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 18.0;
const BOTTOM: f64 = HEIGHT - 40.0;

/// Latencies further apart than this are drawn on a logarithmic axis.
const LINEAR_RATIO_MAX: f64 = 40.0;

/// The chart of one number of a group.
pub(crate) fn chart(group: &GroupRecord, metric: &Metric, servers: &[String]) -> String {
    let lines: Vec<Vec<(f64, Spread)>> = (0..servers.len())
        .map(|place| {
            let spread = |samples: &Vec<Vec<_>>| metric.spread(samples.get(place)?);
            let points = group.points.iter();
            points.filter_map(|point| Some((point.x, spread(&point.samples)?))).collect()
        })
        .collect();
    let better = if metric.larger_is_better { "more is better" } else { "less is better" };
    let mut svg = Svg::new(&metric.title, better, servers);
    let spreads = || lines.iter().flatten().map(|(_, spread)| *spread);
    let max = spreads().map(|spread| spread.max).fold(0.0, f64::max).max(1e-9);
    let min = spreads().map(|spread| spread.min).filter(|min| *min > 0.0).fold(max, f64::min);
    let vertical = match matches!(metric.of, Read::Wait(..)) && max / min > LINEAR_RATIO_MAX {
        true => Vertical::logarithmic(min, max),
        false => Vertical::linear(max),
    };
    for tick in &vertical.ticks {
        let y = vertical.y(*tick);
        svg.line("rule", (LEFT, y), (RIGHT, y));
        svg.text(LEFT - 6.0, y + 4.0, "end", &short(*tick, metric.unit));
    }
    svg.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));

    let horizontal = Horizontal::of(group);
    for x in &horizontal.ticks {
        let at = horizontal.x(*x);
        svg.line("axis", (at, BOTTOM), (at, BOTTOM + 4.0));
        let label = if group.axis == "rows" { short_count(*x) } else { thousands(*x) };
        svg.text(at, BOTTOM + 18.0, "middle", &label);
    }
    svg.text((LEFT + RIGHT) / 2.0, HEIGHT - 6.0, "note middle", &group.axis);

    for (place, line) in lines.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            line.iter().map(|(x, spread)| (horizontal.x(*x), vertical.y(spread.median))).collect();
        svg.path(place, &points);
        for ((x, spread), (at, y)) in line.iter().zip(points) {
            let text = format!(
                "{}, {} {}: {} ({} to {})",
                servers[place],
                thousands(*x),
                group.axis,
                written(spread.median, metric.unit),
                written(spread.min, metric.unit),
                written(spread.max, metric.unit)
            );
            svg.pointed(&text, |svg| {
                let class = format!("spread stroke{}", place % COLOURS);
                svg.line(&class, (at, vertical.y(spread.min)), (at, vertical.y(spread.max)));
                svg.mark(at, y, place);
            });
        }
    }
    svg.element(HEIGHT)
}

/// The vertical axis.
struct Vertical {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Vertical {
    fn linear(max: f64) -> Vertical {
        let step = nice_step(max / 4.0);
        let count = (max / step).ceil().max(1.0);
        let ticks = (0..=count as usize).map(|i| i as f64 * step).collect();
        Vertical { low: 0.0, high: count * step, logarithmic: false, ticks }
    }

    fn logarithmic(min: f64, max: f64) -> Vertical {
        let (first, last) = (min.log10().floor() as i32, max.log10().ceil() as i32);
        let ticks = (first..=last).map(|power| 10f64.powi(power)).collect();
        Vertical { low: first.into(), high: last.max(first + 1).into(), logarithmic: true, ticks }
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(1e-9).log10() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        BOTTOM - share * (BOTTOM - Svg::TOP)
    }
}

/// The horizontal axis: connections double from place to place, rows do not.
struct Horizontal {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Horizontal {
    fn of(group: &GroupRecord) -> Horizontal {
        let mut ticks: Vec<f64> = group.points.iter().map(|point| point.x).collect();
        ticks.dedup();
        let logarithmic = group.axis == "connections";
        let low = if logarithmic { ticks.first().copied().unwrap_or(1.0) } else { 0.0 };
        let high = ticks.last().copied().unwrap_or(1.0);
        if !logarithmic && ticks.len() > 6 {
            ticks = ticks.into_iter().skip(1).step_by(2).collect();
        }
        Horizontal { low, high, logarithmic, ticks }
    }

    fn x(&self, value: f64) -> f64 {
        let place = |value: f64| if self.logarithmic { value.max(1e-9).ln() } else { value };
        let width = place(self.high) - place(self.low);
        let share = if width > 0.0 { (place(value) - place(self.low)) / width } else { 0.5 };
        let margin = 14.0;
        LEFT + margin + share * (RIGHT - LEFT - 2.0 * margin)
    }
}

/// The least of 1, 2, 2.5, 5 times a power of ten that is not below `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.iter().map(|step| step * power).find(|step| *step >= least * 0.999).unwrap_or(least)
}

/// A number of rows in few letters.
fn short_count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", (v / 1e5).round() / 10.0),
        v if v >= 1e3 => format!("{}k", (v / 1e2).round() / 10.0),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_numbers() {
        let check = |least: f64, wanted: f64| {
            assert!((nice_step(least) - wanted).abs() < wanted * 1e-9, "{least}");
        };
        check(0.9, 1.0);
        check(1.0, 1.0);
        check(1.1, 2.0);
        check(2.1, 2.5);
        check(26_000.0, 50_000.0);
        check(0.003, 0.005);
        check(70.0, 100.0);
    }

    #[test]
    fn an_axis_holds_its_values() {
        for max in [0.4, 7.0, 99.0, 123_456.0] {
            let axis = Vertical::linear(max);
            assert!(axis.high >= max && axis.ticks.len() <= 6, "{max}");
        }
        let axis = Vertical::logarithmic(3.0, 4_500.0);
        assert_eq!(axis.ticks, [1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
    }
}
