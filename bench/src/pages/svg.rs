//! The drawing that lines and bars share: the frame, the title, the legend, and the colours.
//!
//! Colours are classes: the page defines them for light and dark; a chart that stands alone in a
//! file carries the same style sheet inside.

use std::fmt::Write as _;

/// The style sheet of the charts, in the page and in each file.
pub(crate) const STYLE: &str = include_str!("chart.css");

/// Width of every chart in its own units; the page scales it.
pub(crate) const WIDTH: f64 = 460.0;

/// The number of servers with their own colour; further ones start again.
pub(crate) const COLOURS: usize = 6;

/// A chart under construction.
pub(crate) struct Svg {
    body: String,
    title: String,
}

/// `<`, `>`, `&` and quotes as markup needs them.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(letter),
        }
    }
    out
}

/// About how wide a text of the charts' size is; letters differ, so this errs on the wide side.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.6
}

impl Svg {
    /// A chart with its title, what is better, and the servers' names; the drawing begins at `TOP`.
    pub(crate) fn new(title: &str, better: &str, servers: &[String]) -> Svg {
        let mut svg = Svg { body: String::new(), title: title.into() };
        svg.text(12.0, 22.0, "title", title);
        svg.text(WIDTH - 12.0, 22.0, "note end", better);
        let mut x = 12.0;
        for (place, server) in servers.iter().enumerate() {
            svg.mark(x + 5.0, 40.0, place);
            svg.text(x + 14.0, 44.0, "label", server);
            x += text_width(server) + 30.0;
        }
        svg
    }

    /// Where the drawing under title and legend begins.
    pub(crate) const TOP: f64 = 60.0;

    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = escaped(text);
        let _ = write!(self.body, r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{text}</text>"#);
    }

    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
            from.0, from.1, to.0, to.1
        );
    }

    /// A line through points, in the colour of server number `place`.
    pub(crate) fn path(&mut self, place: usize, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        let place = place % COLOURS;
        let _ = write!(self.body, r#"<path class="line stroke{place}" d="{path}"/>"#);
    }

    /// Draws the mark of server number `place`: its form distinguishes it without colours.
    pub(crate) fn mark(&mut self, x: f64, y: f64, place: usize) {
        let class = format!("mark fill{}", place % COLOURS);
        let _ = match place % 4 {
            0 => write!(self.body, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4.5"/>"#),
            1 => write!(
                self.body,
                r#"<rect class="{class}" x="{:.1}" y="{:.1}" width="8" height="8"/>"#,
                x - 4.0,
                y - 4.0
            ),
            2 => write!(
                self.body,
                r#"<path class="{class}" d="M{x:.1} {:.1}l5.2 9h-10.4z"/>"#,
                y - 5.5
            ),
            _ => write!(
                self.body,
                r#"<path class="{class}" d="M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>"#,
                y - 5.5
            ),
        };
    }

    /// A bar from the left, in the colour of server number `place`.
    pub(crate) fn bar(&mut self, place: usize, x: f64, y: f64, width: f64, height: f64) {
        let place = place % COLOURS;
        let _ = write!(
            self.body,
            r#"<rect class="bar fill{place}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{height:.1}" rx="2"/>"#,
            width.max(1.0)
        );
    }

    /// A group whose parts show a text when they are pointed at.
    pub(crate) fn pointed(&mut self, text: &str, draw: impl FnOnce(&mut Svg)) {
        let _ = write!(self.body, "<g><title>{}</title>", escaped(text));
        draw(self);
        self.body.push_str("</g>");
    }

    /// The chart as an element of a page.
    pub(crate) fn element(&self, height: f64) -> String {
        format!(
            r#"<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {WIDTH} {height:.0}">{}</svg>"#,
            escaped(&self.title),
            self.body
        )
    }
}

/// An element as a file of its own.
pub(crate) fn file(element: &str) -> String {
    let head = r#"<svg xmlns="http://www.w3.org/2000/svg" "#;
    let style =
        format!("><style>{STYLE}</style><rect class=\"paper\" width=\"100%\" height=\"100%\"/>");
    let element = element.replacen("<svg ", head, 1).replacen('>', &style, 1);
    format!("{element}\n")
}
