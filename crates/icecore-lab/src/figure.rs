//! A line figure as SVG, drawn by hand: it follows the reader's light or dark mode, and needs no font,
//! no script and no library.

use crate::error::{Error, Result};
use crate::report::{Report, System};
use crate::statistics::median;
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 78.0;
const BOTTOM: f64 = 52.0;
const TICKS_MAX: f64 = 6.0;

/// Name of the series that the figure draws: seconds of each iteration, one list per run.
pub const ITERATION_SERIES: &str = "iteration_s";

/// One line of the figure.
struct Line<'report> {
    label: String,
    class: &'report str,
    /// One value for each iteration: the median over the runs, in milliseconds.
    values: Vec<f64>,
}

/// Time per iteration of the experiment `valuation-store`: plain (the faster journal mode), Icecore, Icecore with
/// snapshots.
pub fn time_per_iteration(report: &Report) -> Result<String> {
    let plain = crate::experiments::valuation_store::faster_plain(report)?;
    let label = if plain.ends_with("wal") { "plain SQLite, WAL" } else { "plain SQLite, rollback journal" };
    let lines = [
        line(report, plain, label, "plain")?,
        line(report, "icecore", "Icecore", "stored")?,
        line(report, "icecore_snapshots", "Icecore, a snapshot after each", "snapshots")?,
    ];
    let runs = report.systems.get(plain).map_or(0, |system| system.samples.len());
    let machine = &report.machine;
    let subtitle = format!(
        "median of {runs} runs; synchronous=FULL; {} cores; {}; one flush takes {:.0} us",
        machine.cores, machine.filesystem, machine.flush_us
    );
    Ok(draw("Time per iteration of 20,000 changed rows", &subtitle, &lines))
}

fn line<'report>(report: &Report, name: &str, label: &str, class: &'report str) -> Result<Line<'report>> {
    let missing = || Error::NotAResult {
        what: format!("the result of {}", report.experiment),
        reason: format!("it has no times per iteration of {name}"),
    };
    let system = report.systems.get(name).ok_or_else(missing)?;
    let values = medians_by_iteration(system).filter(|values| values.len() > 1).ok_or_else(missing)?;
    Ok(Line { label: label.to_owned(), class, values })
}

fn medians_by_iteration(system: &System) -> Option<Vec<f64>> {
    let runs = system.series.get(ITERATION_SERIES)?;
    let iterations = runs.iter().map(Vec::len).min()?;
    let at = |iteration: usize| runs.iter().map(|run| run[iteration] * 1e3).collect::<Vec<_>>();
    Some((0..iterations).map(|iteration| median(&at(iteration))).collect())
}

/// Where values lie on the canvas.
struct Scale {
    iterations: usize,
    top: f64,
    step: f64,
}

impl Scale {
    fn of(lines: &[Line]) -> Self {
        let highest = lines.iter().flat_map(|line| &line.values).copied().fold(0.0, f64::max);
        let step = round_step(highest / TICKS_MAX);
        let iterations = lines.iter().map(|line| line.values.len()).max().unwrap_or(2).max(2);
        Self { iterations, top: (highest / step).ceil().max(1.0) * step, step }
    }

    fn x(&self, iteration: usize) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (iteration - 1) as f64 / (self.iterations - 1) as f64
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    if least.is_nan() || least <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|&step| step >= least * 0.999_999)
        .unwrap_or(10.0 * power)
}

fn draw(title: &str, subtitle: &str, lines: &[Line]) -> String {
    let scale = Scale::of(lines);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{}\">\n{STYLE}\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        escaped(title)
    );
    text(&mut svg, LEFT, 24.0, "title", title);
    text(&mut svg, LEFT, 42.0, "small", subtitle);
    draw_axes(&mut svg, &scale);
    for line in lines {
        draw_line(&mut svg, &scale, line);
    }
    draw_legend(&mut svg, lines);
    svg.push_str("</svg>\n");
    svg
}

const STYLE: &str = "<style>
  text { font: 12px system-ui, sans-serif; fill: #33383d; }
  .title { font-size: 15px; font-weight: 600; }
  .small { font-size: 10.5px; fill: #5d646b; }
  .middle { text-anchor: middle; } .end { text-anchor: end; }
  .paper { fill: #ffffff; } .grid { stroke: #e3e6e8; } .axis { stroke: #8b9299; }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .plain { stroke: #b4540a; } .stored { stroke: #1f5fd0; } .snapshots { stroke: #0b7f76; stroke-dasharray: 5 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #d5dae0; } .small { fill: #9aa3ac; }
    .paper { fill: #0f1419; } .grid { stroke: #262d35; } .axis { stroke: #6b747d; }
    .plain { stroke: #f2a65a; } .stored { stroke: #76a9fa; } .snapshots { stroke: #45d0c1; }
  }
</style>";

fn draw_axes(svg: &mut String, scale: &Scale) {
    let decimals = if scale.step < 1.0 { 1 } else { 0 };
    let mut value = 0.0;
    while value <= scale.top * 1.000_001 {
        let y = scale.y(value);
        let class = if value == 0.0 { "axis" } else { "grid" };
        let end = WIDTH - RIGHT;
        let _ =
            writeln!(svg, "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        text(svg, LEFT - 8.0, y + 4.0, "end", &format!("{value:.decimals$}"));
        value += scale.step;
    }
    let step = round_step(scale.iterations as f64 / 10.0).max(1.0) as usize;
    for iteration in (1..=scale.iterations).filter(|iteration| *iteration == 1 || iteration % step == 0) {
        text(svg, scale.x(iteration), HEIGHT - BOTTOM + 18.0, "middle", &iteration.to_string());
    }
    text(svg, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0, "middle", "iteration");
    text(svg, LEFT - 8.0, TOP - 14.0, "end", "ms");
}

fn draw_line(svg: &mut String, scale: &Scale, line: &Line) {
    let points = (1..).zip(&line.values).fold(String::new(), |mut points, (iteration, &value)| {
        let _ = write!(points, "{:.1},{:.1} ", scale.x(iteration), scale.y(value));
        points
    });
    let _ = writeln!(svg, "<polyline class=\"line {}\" points=\"{}\"/>", line.class, points.trim_end());
}

fn draw_legend(svg: &mut String, lines: &[Line]) {
    let mut x = LEFT;
    for line in lines {
        let _ = writeln!(
            svg,
            "<line class=\"line {}\" x1=\"{x}\" x2=\"{}\" y1=\"60\" y2=\"60\"/>",
            line.class,
            x + 24.0
        );
        text(svg, x + 30.0, 64.0, "", &line.label);
        x += 58.0 + 6.4 * line.label.len() as f64;
    }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(words));
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(values: &[&[f64]]) -> Vec<Line<'static>> {
        let classes = ["plain", "stored", "snapshots"];
        let line = |(class, values): (&'static str, &&[f64])| Line {
            label: "a < b & c".to_owned(),
            class,
            values: values.to_vec(),
        };
        classes.into_iter().zip(values).map(line).collect()
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(round_step(0.9), 1.0);
        assert_eq!(round_step(13.0), 20.0);
        assert_eq!(round_step(50.0), 50.0);
        assert_eq!(round_step(0.0), 1.0);
    }

    #[test]
    fn every_point_lies_on_the_canvas_and_words_are_escaped() {
        let svg = draw(
            "title",
            "x \"y\"",
            &lines(&[&[10.0, 250.0, 180.0], &[5.0, 90.0, 100.0], &[6.0, 91.0, 99.0]]),
        );
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
        assert!(
            points
                .iter()
                .all(|&(x, y)| (LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=HEIGHT - BOTTOM).contains(&y))
        );
    }

    #[test]
    fn zeros_alone_can_be_drawn() {
        assert!(draw("t", "s", &lines(&[&[0.0, 0.0]])).ends_with("</svg>\n"));
    }
}
