//! A chart as SVG, drawn by hand: it follows the reader's light or dark mode, and needs no font,
//! no script and no library.

mod iterations;
mod scale;
mod shapes;

use crate::chart::{Chart, Kind, Source};
use scale::Ruler;
use std::fmt::Write as _;

pub use iterations::{ITERATION_SERIES, time_per_iteration};
pub use scale::short;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 52.0;
/// Height of a line of the legend.
const ROW: f64 = 18.0;

/// Colours and fonts of every picture, and of the page that holds pictures.
pub const STYLE: &str = include_str!("../../assets/figure.css");

/// The chart as a file of its own.
#[must_use]
pub fn svg(chart: &Chart) -> String {
    draw(chart, &format!("<style>\n{STYLE}</style>\n"))
}

/// The chart as part of a page that has [`STYLE`].
#[must_use]
pub fn inline(chart: &Chart) -> String {
    draw(chart, "")
}

fn draw(chart: &Chart, style: &str) -> String {
    let legend = Legend::of(chart);
    let top = legend.bottom + 26.0;
    let height = HEIGHT + legend.bottom - 52.0;
    let bounds = chart.heat.iter().flat_map(|heat| heat.bounds.iter().copied());
    let ends = chart.heat.iter().map(|heat| heat.column * heat.counts.len() as f64);
    let series = chart.series.iter();
    let xs = series.clone().flat_map(|series| series.x.iter().copied()).chain(ends);
    let ys = series.flat_map(|series| series.y.iter().copied()).chain(bounds);
    let x = Ruler::new(&chart.x, xs, LEFT, WIDTH - RIGHT);
    let y = Ruler::new(&chart.y, ys, height - BOTTOM, top).rounded();
    let mut svg = format!(
        "<svg class=\"figure\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"{}\">\n{style}<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
        escaped(&chart.title)
    );
    text(&mut svg, LEFT, 24.0, "title", &chart.title);
    text(&mut svg, LEFT, 42.0, "small", &chart.subtitle);
    text(&mut svg, LEFT, 58.0, "warn", &chart.labels.join(" · "));
    draw_axes(&mut svg, chart, &x, &y, (top, height));
    shapes::draw(&mut svg, chart, &x, &y);
    draw_marks(&mut svg, chart, &x, (top, height));
    svg.push_str(&legend.text);
    svg.push_str("</svg>\n");
    svg
}

fn draw_axes(svg: &mut String, chart: &Chart, x: &Ruler, y: &Ruler, (top, height): (f64, f64)) {
    for (index, (value, name)) in y.ticks().into_iter().enumerate() {
        let (class, end, at) = (if index == 0 { "axis" } else { "grid" }, WIDTH - RIGHT, y.at(value));
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
        text(svg, LEFT - 8.0, at + 4.0, "end", &name);
    }
    let ticks = x.ticks();
    // Long names would cover each other in one line.
    let room = (WIDTH - LEFT - RIGHT) / ticks.len().max(1) as f64;
    for (index, (value, name)) in ticks.into_iter().enumerate() {
        let below = if name.len() as f64 * 6.4 > room && index % 2 == 1 { 30.0 } else { 17.0 };
        text(svg, x.at(value), height - BOTTOM + below, "middle", &name);
    }
    text(svg, (LEFT + WIDTH - RIGHT) / 2.0, height - 8.0, "middle", &chart.x.label);
    text(svg, 8.0, top - 12.0, "", &chart.y.label);
}

fn draw_marks(svg: &mut String, chart: &Chart, x: &Ruler, (top, height): (f64, f64)) {
    for mark in &chart.marks {
        let (at, bottom) = (x.at(mark.at), height - BOTTOM);
        let _ = writeln!(
            svg,
            "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>"
        );
        text(svg, at + 3.0, top + 10.0, "small", &mark.label);
    }
}

/// The names of the series, in as many lines as they need.
struct Legend {
    text: String,
    bottom: f64,
}

impl Legend {
    fn of(chart: &Chart) -> Self {
        let (mut svg, mut x) = (String::new(), LEFT);
        let mut y = if chart.labels.is_empty() { 60.0 } else { 60.0 + ROW };
        for series in &chart.series {
            let label = match series.source {
                Source::Measured | Source::Counted => series.label.clone(),
                Source::Published => format!("{} (published)", series.label),
            };
            let width = 58.0 + 6.4 * label.chars().count() as f64;
            if x > LEFT && x + width > WIDTH - RIGHT {
                (x, y) = (LEFT, y + ROW);
            }
            let class = shapes::class(series);
            let _ = match chart.kind {
                Kind::Bars => {
                    let top = y - 7.0;
                    writeln!(
                        svg,
                        "<rect class=\"bar {class}\" x=\"{x}\" y=\"{top}\" width=\"14\" height=\"12\"/>"
                    )
                }
                _ => {
                    let end = x + 24.0;
                    writeln!(
                        svg,
                        "<line class=\"line {class}\" x1=\"{x}\" x2=\"{end}\" y1=\"{y}\" y2=\"{y}\"/>"
                    )
                }
            };
            text(&mut svg, x + 30.0, y + 4.0, "", &label);
            x += width;
        }
        Self { text: svg, bottom: y }
    }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, words: &str) {
    if !words.is_empty() {
        let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(words));
    }
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Heat, Mark, Series};

    fn lines(values: &[&[f64]]) -> Chart {
        let mut chart = Chart::new("x", "title", Kind::Lines, Axis::linear("iteration"), Axis::linear("ms"));
        chart.subtitle = "x \"y\"".to_owned();
        for (color, values) in values.iter().enumerate() {
            let points = (1..).map(f64::from).zip(values.iter().copied());
            chart.add(Series::measured("a < b & c", color, points));
        }
        chart
    }

    /// Heights of the bars, without those of the legend.
    fn heights(svg: &str) -> Vec<f64> {
        let bars = svg.lines().filter(|line| line.contains("<title>"));
        let height = |bar: &str| bar.split_once(" height=\"")?.1.split_once('"')?.0.parse().ok();
        bars.map(|bar| height(bar).expect("a number")).collect()
    }

    #[test]
    fn every_point_lies_on_the_canvas_and_words_are_escaped() {
        let svg = svg(&lines(&[&[10.0, 250.0, 180.0], &[5.0, 90.0, 100.0], &[6.0, 91.0, 99.0]]));
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains("x &quot;y&quot;"));
        let points: Vec<(f64, f64)> = svg
            .split("points=\"")
            .skip(1)
            .flat_map(|part| part.split('"').next().unwrap_or("").split(' '))
            .map(|point| {
                let (x, y) = point.split_once(',').expect("a pair");
                (x.parse().expect("number"), y.parse().expect("number"))
            })
            .collect();
        assert_eq!(points.len(), 9);
        let inside =
            |&(x, y): &(f64, f64)| (LEFT..=WIDTH - RIGHT).contains(&x) && (0.0..=HEIGHT).contains(&y);
        assert!(points.iter().all(inside));
    }

    #[test]
    fn zeros_alone_can_be_drawn_and_so_can_nothing() {
        assert!(svg(&lines(&[&[0.0, 0.0]])).ends_with("</svg>\n"));
        assert!(svg(&lines(&[])).ends_with("</svg>\n"));
    }

    #[test]
    fn bars_are_as_high_as_their_values_and_published_ones_look_different() {
        let names = vec!["lvm".to_owned(), "icecore".to_owned()];
        let mut chart =
            Chart::new("x", "t", Kind::Bars, Axis::names("system", names), Axis::linear("requests"));
        chart.add(Series::measured("here", 1, [(0.0, 5.0), (1.0, 10.0)]));
        chart.add(Series::published("study", 2, [(0.0, 2.5)]));
        let svg = inline(&chart);
        assert!(svg.contains("study (published)") && svg.contains("bar c2 published"));
        let [half, whole, quarter] = heights(&svg)[..] else { panic!("{svg}") };
        assert!((half / whole - 0.5).abs() < 0.01 && (quarter / whole - 0.25).abs() < 0.01, "{svg}");
    }

    #[test]
    fn a_heat_map_has_a_cell_for_each_count_and_labels_and_marks_are_shown() {
        let mut chart = Chart::new("x", "t", Kind::Heat, Axis::linear("s"), Axis::log("us"));
        let counts = vec![vec![1, 0], vec![0, 7]];
        chart.heat = Some(Heat { column: 0.5, bounds: vec![1.0, 10.0, 100.0], counts });
        chart.labels = vec!["quick run".to_owned(), "emulated machine".to_owned()];
        chart.marks.push(Mark { at: 0.5, label: "snapshot".to_owned() });
        let svg = svg(&chart);
        assert_eq!(svg.matches("class=\"cell").count(), 2);
        assert!(svg.contains("quick run · emulated machine") && svg.contains(">snapshot<"));
    }
}
