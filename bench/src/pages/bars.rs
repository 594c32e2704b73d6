//! A chart of bars: for each step a block of bars, one for each server; bars of a block share a
//! scale, blocks do not.

use crate::pages::numbers::{Metric, written};
use crate::pages::svg::{Svg, WIDTH};
use crate::record::GroupRecord;

const BAR: f64 = 16.0;
const BAR_STEP: f64 = 20.0;
const HEAD: f64 = 20.0;
const BLOCK_GAP: f64 = 14.0;
const LEFT: f64 = 12.0;
/// Room at the right for the value after the longest bar.
const VALUE_ROOM: f64 = 150.0;

/// The chart of one number of a group.
pub(crate) fn chart(group: &GroupRecord, metric: &Metric, servers: &[String]) -> String {
    let better = if metric.larger_is_better { "more is better" } else { "less is better" };
    let mut svg = Svg::new(&metric.title, better, servers);
    let mut y = Svg::TOP + 6.0;
    for point in &group.points {
        let spreads: Vec<_> = point.samples.iter().map(|samples| metric.spread(samples)).collect();
        if spreads.iter().all(Option::is_none) {
            continue;
        }
        svg.text(LEFT, y + 11.0, "label", &point.name);
        y += HEAD;
        let max = spreads.iter().flatten().map(|spread| spread.median).fold(0.0, f64::max);
        for (place, spread) in spreads.iter().enumerate() {
            let Some(spread) = spread else { continue };
            let full = WIDTH - LEFT - VALUE_ROOM;
            let width = if max > 0.0 { spread.median / max * full } else { 0.0 };
            let value = written(spread.median, metric.unit);
            let range = format!(
                "{} to {}",
                written(spread.min, metric.unit),
                written(spread.max, metric.unit)
            );
            let text = format!("{}, {}: {value} ({range})", servers[place], point.name);
            svg.pointed(&text, |svg| {
                svg.bar(place, LEFT, y, width, BAR);
                svg.text(LEFT + width.max(1.0) + 7.0, y + 12.5, "value", &value);
            });
            y += BAR_STEP;
        }
        y += BLOCK_GAP;
    }
    svg.element(y)
}
