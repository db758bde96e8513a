//! What a picture shows between its axes: lines, points, bars and cells.

use super::scale::Ruler;
use crate::chart::{Chart, Heat, Kind, Series, Source};
use std::fmt::Write as _;

/// Part of the room of a name that its bars take.
const GROUP: f64 = 0.8;

pub(super) fn draw(svg: &mut String, chart: &Chart, x: &Ruler, y: &Ruler) {
    match chart.kind {
        Kind::Lines => chart.series.iter().for_each(|series| draw_line(svg, series, x, y)),
        Kind::Points => chart.series.iter().for_each(|series| draw_points(svg, series, x, y)),
        Kind::Bars => draw_bars(svg, chart, x, y),
        Kind::Heat => chart.heat.iter().for_each(|heat| draw_cells(svg, heat, x, y)),
    }
}

/// The classes of a series in the style sheet.
pub(super) fn class(series: &Series) -> String {
    let source = match series.source {
        Source::Measured => "",
        Source::Published | Source::Counted => " published",
    };
    let dashed = if series.dashed { " dashed" } else { "" };
    format!("c{}{source}{dashed}", series.color)
}

fn draw_line(svg: &mut String, series: &Series, x: &Ruler, y: &Ruler) {
    if series.x.len() < 2 {
        return draw_points(svg, series, x, y);
    }
    let points = series.x.iter().zip(&series.y).fold(String::new(), |mut points, (&at, &value)| {
        let _ = write!(points, "{:.1},{:.1} ", x.at(at), y.at(value));
        points
    });
    let _ = writeln!(svg, "<polyline class=\"line {}\" points=\"{}\"/>", class(series), points.trim_end());
}

fn draw_points(svg: &mut String, series: &Series, x: &Ruler, y: &Ruler) {
    for (&at, &value) in series.x.iter().zip(&series.y) {
        let (at, value, class) = (x.at(at), y.at(value), class(series));
        let _ = writeln!(svg, "<circle class=\"point {class}\" cx=\"{at:.1}\" cy=\"{value:.1}\" r=\"4\"/>");
    }
}

fn draw_bars(svg: &mut String, chart: &Chart, x: &Ruler, y: &Ruler) {
    let group = (x.at(1.0) - x.at(0.0)).max(0.0);
    // One name alone has no neighbour to keep away from.
    let group = if chart.names().len() < 2 { (x.at(0.0) - super::LEFT) * 2.0 } else { group } * GROUP;
    let width = group / chart.series.len().max(1) as f64;
    for (number, series) in chart.series.iter().enumerate() {
        for (&at, &value) in series.x.iter().zip(&series.y) {
            let left = x.at(at) - group / 2.0 + width * number as f64;
            let (top, class) = (y.at(value), class(series));
            let (width, height) = (width * 0.92, y.base() - top);
            let _ = writeln!(
                svg,
                "<rect class=\"bar {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
                 <title>{}: {value}</title></rect>",
                super::escaped(&series.label)
            );
            if width > 20.0 {
                super::text(svg, left + width / 2.0, top - 3.0, "small middle", &super::short(value));
            }
        }
    }
}

fn draw_cells(svg: &mut String, heat: &Heat, x: &Ruler, y: &Ruler) {
    let most = heat.counts.iter().flatten().copied().max().unwrap_or(0);
    for (column, counts) in (0..).map(f64::from).zip(&heat.counts) {
        let (left, right) = (x.at(column * heat.column), x.at((column + 1.0) * heat.column));
        for (bounds, &count) in heat.bounds.windows(2).zip(counts).filter(|(_, count)| **count > 0) {
            let (bottom, top) = (y.at(bounds[0]), y.at(bounds[1]));
            let (width, height) = (right - left, bottom - top);
            let strength = shade(count, most);
            let _ = writeln!(
                svg,
                "<rect class=\"cell\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 fill-opacity=\"{strength:.2}\"/>"
            );
        }
    }
}

/// How dark a cell is: by the logarithm, so that single values can be seen beside thousands.
fn shade(count: u64, most: u64) -> f64 {
    0.15 + 0.85 * (count as f64).ln_1p() / (most as f64).ln_1p()
}
