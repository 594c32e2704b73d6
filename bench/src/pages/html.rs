//! The page: what was compared, how the servers stand to each other, then charts and numbers of
//! every comparison.
//!
//! One file without scripts, pictures or fonts from elsewhere; it follows the reader's choice of
//! light or dark.

use std::fmt::Write as _;

use crate::pages::markdown::machine;
use crate::pages::numbers::{Metric, Percentile, Read, metrics, written};
use crate::pages::svg::{self, escaped};
use crate::pages::{bars, lines};
use crate::record::{GroupRecord, Point, Record};

/// One drawn chart: the name of its file, and its element.
pub(crate) struct Chart {
    pub(crate) name: String,
    pub(crate) element: String,
}

/// Returns the charts of a group: the middle percentiles, and values that are the same everywhere,
/// are only in the tables.
pub(crate) fn charts(record: &Record, group: &GroupRecord) -> Vec<Chart> {
    let servers: Vec<String> = record.targets.iter().map(|target| target.name.clone()).collect();
    let drawn = metrics(group).into_iter().filter(|metric| match metric.of {
        Read::Wait(_, percentile) => group.axis != "steps" && percentile != Percentile::P50,
        Read::Memory | Read::WrittenEach => false,
        _ => true,
    });
    drawn
        .map(|metric| {
            let words = metric.title.to_lowercase().replace([',', '.'], "").replace(' ', "-");
            let element = match group.axis.as_str() {
                "steps" => bars::chart(group, &metric, &servers),
                _ => lines::chart(group, &metric, &servers),
            };
            Chart { name: format!("{}-{}-{words}", record.name, group.id), element }
        })
        .collect()
}

/// The page of all records.
pub(crate) fn page(records: &[Record]) -> String {
    let mut body = String::from("<h1>Comparisons of document stores</h1>\n");
    body.push_str(
        "<p>Medians over interleaved runs; whiskers go from the smallest run to the largest. CPU is the server's per \
         operation, as the kernel accounts for it, and what a machine can do with it; latencies are those that the \
         client saw. Every answer was checked. The client speaks MongoDB's protocol, and PostgreSQL's with prepared \
         statements and binary parameters, from one event loop on one thread. A ratio between servers counts; a lone \
         number depends on the machine.</p>\n<nav>",
    );
    for record in records {
        let _ = write!(body, "<a href=\"#{}\">{}</a>", record.name, escaped(&record.title));
    }
    body.push_str("</nav>\n");
    overview(records, &mut body);
    records.iter().for_each(|record| section(record, &mut body));
    framed(&body)
}

/// The page of one record's charts alone, for a picture of it.
pub(crate) fn sheet(record: &Record) -> String {
    let mut body = format!(
        "<h1>{}</h1>\n<p class=\"soft\">{}</p>\n",
        escaped(&record.title),
        escaped(&machine(record))
    );
    for group in record.groups.iter().filter(|group| !group.points.is_empty()) {
        charts_of(record, group, &mut body);
    }
    framed(&body)
}

fn framed(body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>marula bench</title>\n\
         <style>\n{}{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        include_str!("page.css"),
        svg::STYLE
    )
}

fn section(record: &Record, body: &mut String) {
    let _ = writeln!(
        body,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n<p class=\"soft\">{}</p>",
        record.name,
        escaped(&record.title),
        escaped(&record.about),
        escaped(&machine(record))
    );
    let _ = writeln!(body, "<pre><code>{}</code></pre>", escaped(&record.command));
    if let Some(why) = &record.stopped {
        let _ = writeln!(body, "<p class=\"stopped\"><b>Not complete:</b> {}</p>", escaped(why));
    }
    body.push_str(
        "<div class=\"scroll\"><table><tr><th>server</th><th>version</th><th>started as</th></tr>",
    );
    for target in &record.targets {
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{}</td><td><code>{}</code></td></tr>",
            escaped(&target.name),
            escaped(&target.version),
            escaped(&target.setting)
        );
    }
    body.push_str("</table></div>\n");
    ratios(record, body);
    for group in record.groups.iter().filter(|group| !group.points.is_empty()) {
        charts_of(record, group, body);
        table(record, group, body);
    }
    body.push_str("</section>\n");
}

fn charts_of(record: &Record, group: &GroupRecord, body: &mut String) {
    let _ = writeln!(body, "<h3>{}</h3>\n<div class=\"charts\">", escaped(&group.title));
    for chart in charts(record, group) {
        let _ = writeln!(body, "{}", chart.element);
    }
    body.push_str("</div>\n");
}

/// Writes all comparisons in a few lines: the first server compared with each of the others, as
/// geometric means over all steps.
fn overview(records: &[Record], body: &mut String) {
    let compared = || records.iter().filter(|record| record.targets.len() > 1);
    if compared().next().is_none() {
        return;
    }
    body.push_str(
        "<h3>At a glance: the first server beside the others, geometric means over all steps</h3>\n\
         <div class=\"scroll\"><table><tr><th>comparison</th><th>servers</th>\
         <th class=\"number\">Server CPU per operation</th><th class=\"number\">Operations per second</th></tr>",
    );
    for record in compared() {
        let mut title = escaped(&record.title);
        for (place, other) in record.targets.iter().enumerate().skip(1) {
            let first = escaped(&record.targets[0].name);
            let _ = write!(body, "<tr><td>{title}</td><td>{first} ÷ {}</td>", escaped(&other.name));
            for metric in [Metric::server_cpu(), Metric::rate()] {
                let points = record.groups.iter().flat_map(|group| &group.points);
                let logs: Vec<f64> = points
                    .filter_map(|point| ratio(std::slice::from_ref(point), &metric, place))
                    .filter(|ratio| *ratio > 0.0)
                    .map(f64::ln)
                    .collect();
                let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
                ratio_cell(Some(mean).filter(|_| !logs.is_empty()), &metric, body);
            }
            body.push_str("</tr>");
            title.clear();
        }
    }
    body.push_str("</table></div>\n");
}

/// Writes the first server compared with each of the others: its number divided by the other's. For
/// a group with an axis it is the median over its steps; steps without an axis are of different
/// kinds and are listed one by one.
fn ratios(record: &Record, body: &mut String) {
    let Some((first, others)) = record.targets.split_first() else { return };
    if others.is_empty() {
        return;
    }
    let _ = write!(
        body,
        "<h3>{} beside the others</h3>\n<div class=\"scroll\"><table><tr><th>work</th><th>number</th>",
        escaped(&first.name)
    );
    for other in others {
        let _ = write!(body, "<th class=\"number\">÷ {}</th>", escaped(&other.name));
    }
    body.push_str("</tr>");
    for group in &record.groups {
        let parts: Vec<(&str, &[Point])> = match group.axis.as_str() {
            "steps" => group.points.iter().map(|p| (&*p.name, std::slice::from_ref(p))).collect(),
            _ => vec![(&group.title, &group.points)],
        };
        let shown: Vec<Metric> = metrics(group)
            .into_iter()
            .filter(|metric| match metric.of {
                Read::Wait(_, percentile) => group.axis != "steps" && percentile != Percentile::P50,
                Read::Memory | Read::WrittenEach => false,
                _ => true,
            })
            .collect();
        for (title, points) in parts {
            let mut title = title;
            for metric in &shown {
                let of = |place| ratio(points, metric, place);
                let ratios: Vec<Option<f64>> = (1..record.targets.len()).map(of).collect();
                if ratios.iter().all(Option::is_none) {
                    continue;
                }
                let (work, number) = (escaped(title), escaped(&metric.title));
                let _ = write!(body, "<tr><td>{work}</td><td>{number}</td>");
                ratios.iter().for_each(|ratio| ratio_cell(*ratio, metric, body));
                body.push_str("</tr>");
                title = "";
            }
        }
    }
    body.push_str("</table></div>\n");
}

/// Ratios closer to 1 than this are not called better or worse.
const EVEN: f64 = 0.05;

fn ratio_cell(ratio: Option<f64>, metric: &Metric, body: &mut String) {
    let Some(ratio) = ratio else {
        body.push_str("<td class=\"number\">–</td>");
        return;
    };
    let class = match (ratio > 1.0) == metric.larger_is_better {
        _ if (ratio - 1.0).abs() < EVEN => "",
        true => "good",
        false => "bad",
    };
    let _ = write!(body, "<td class=\"number {class}\">{ratio:.2}</td>");
}

/// The median over steps of the first server's number divided by that of server number `place`.
fn ratio(points: &[Point], metric: &Metric, place: usize) -> Option<f64> {
    let mut ratios: Vec<f64> = points
        .iter()
        .filter_map(|point| {
            let own = metric.spread(point.samples.first()?)?.median;
            let other = metric.spread(point.samples.get(place)?)?.median;
            (other > 0.0).then(|| own / other)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.len().checked_sub(1)? / 2;
    Some((ratios[middle] + ratios[ratios.len() / 2]) / 2.0)
}

/// Every number of a group.
fn table(record: &Record, group: &GroupRecord, body: &mut String) {
    let metrics = metrics(group);
    body.push_str("<details><summary>Numbers</summary>\n<div class=\"scroll\"><table><tr><th>step</th><th>server</th>");
    for metric in &metrics {
        let _ = write!(body, "<th class=\"number\">{}</th>", escaped(&metric.title));
    }
    body.push_str("<th class=\"number\">Client CPU per operation</th></tr>\n");
    for point in &group.points {
        for (target, samples) in record.targets.iter().zip(&point.samples) {
            let _ = write!(
                body,
                "<tr><td>{}</td><td>{}</td>",
                escaped(&point.name),
                escaped(&target.name)
            );
            for metric in metrics.iter().chain([&Metric::client_cpu()]) {
                let value = metric.spread(samples);
                let value = value.map_or("–".into(), |value| written(value.median, metric.unit));
                let _ = write!(body, "<td class=\"number\">{value}</td>");
            }
            body.push_str("</tr>\n");
        }
    }
    body.push_str("</table></div></details>\n");
}
