//! A chart as data. The page of a report and the static pictures draw the same chart, so they show the same
//! numbers.

use serde::{Deserialize, Serialize};

/// One chart.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Chart {
    /// What `--chart` calls it: lower case, digits and hyphens, distinct within a document.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// How it was measured: rounds and machine.
    pub subtitle: String,
    /// What the reader must know before quoting it, such as `quick run`. Every picture shows them.
    pub labels: Vec<String>,
    /// How to draw it.
    pub kind: Kind,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn; empty for a heat map.
    pub series: Vec<Series>,
    /// Moments to mark on the horizontal axis.
    pub marks: Vec<Mark>,
    /// The cells of a heat map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heat: Option<Heat>,
}

/// How to draw a chart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A line for each series.
    Lines,
    /// Bars in groups, one group for each name of the horizontal axis.
    Bars,
    /// Single points.
    Points,
    /// Counts in cells.
    Heat,
}

/// One axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    /// How values lie on it.
    pub scale: Scale,
}

/// How values lie on an axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By powers of ten. All values are positive.
    Log,
    /// The value is the index of a name.
    Names(Vec<String>),
}

/// One line, or the bars of one colour.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Number of the colour in the palette.
    pub color: usize,
    /// Where the numbers come from.
    pub source: Source,
    /// Whether the line is dashed, to tell two lines of one colour apart.
    pub dashed: bool,
    /// Places on the horizontal axis, rising.
    pub x: Vec<f64>,
    /// Values, one for each place; finite.
    pub y: Vec<f64>,
}

/// Where numbers come from. They are never mixed in one series.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Measured by the run of the document.
    Measured,
    /// Printed by a study, about another machine.
    Published,
    /// Counted by this project, in another machine.
    Counted,
}

/// A moment to mark.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// Place on the horizontal axis.
    pub at: f64,
    /// What happened then.
    pub label: String,
}

/// Counts in columns of equal width, and rows between bounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Heat {
    /// Width of a column in units of the horizontal axis; the first begins at 0.
    pub column: f64,
    /// Bounds of the rows, rising: one more than there are rows.
    pub bounds: Vec<f64>,
    /// Counts by column, then by row.
    pub counts: Vec<Vec<u64>>,
}

/// Colours of the palette; numbers from here on begin again.
pub const COLORS: usize = 10;

impl Chart {
    /// A chart with nothing in it.
    #[must_use]
    pub fn new(id: impl Into<String>, title: impl Into<String>, kind: Kind, x: Axis, y: Axis) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            subtitle: String::new(),
            labels: Vec::new(),
            kind,
            x,
            y,
            series: Vec::new(),
            marks: Vec::new(),
            heat: None,
        }
    }

    /// Adds a series. The line is dashed if another one has its colour already.
    pub fn add(&mut self, mut series: Series) {
        series.dashed |= self.series.iter().any(|other| other.color == series.color && !other.dashed);
        self.series.push(series);
    }

    /// The names of the horizontal axis; none where it has numbers.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match &self.x.scale {
            Scale::Names(names) => names,
            Scale::Linear | Scale::Log => &[],
        }
    }

    /// Whether there is anything to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let cells = self.heat.iter().flat_map(|heat| &heat.counts).flatten();
        self.series.iter().all(|series| series.x.is_empty()) && cells.sum::<u64>() == 0
    }
}

impl Axis {
    /// An axis that begins at 0.
    #[must_use]
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear }
    }

    /// An axis by powers of ten.
    #[must_use]
    pub fn log(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Log }
    }

    /// An axis with a name at each place.
    #[must_use]
    pub fn names(label: &str, names: Vec<String>) -> Self {
        Self { label: label.to_owned(), scale: Scale::Names(names) }
    }
}

impl Series {
    /// Measured points. Points that are not finite are left out.
    #[must_use]
    pub fn measured(
        label: impl Into<String>,
        color: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        let (x, y) = points.into_iter().filter(finite).unzip();
        Self { label: label.into(), color: color % COLORS, source: Source::Measured, dashed: false, x, y }
    }

    /// Published points.
    #[must_use]
    pub fn published(
        label: impl Into<String>,
        color: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self { source: Source::Published, dashed: true, ..Self::measured(label, color, points) }
    }

    /// Points that were counted in another machine.
    #[must_use]
    pub fn counted(
        label: impl Into<String>,
        color: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self { source: Source::Counted, ..Self::published(label, color, points) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_line_of_a_colour_is_dashed_and_what_is_not_finite_left_out() {
        let mut chart = Chart::new("a", "b", Kind::Lines, Axis::linear("s"), Axis::log("us"));
        assert!(chart.is_empty());
        chart.add(Series::measured("one", 3, [(0.0, 1.0), (1.0, f64::NAN), (2.0, 5.0)]));
        chart.add(Series::measured("two", 3 + COLORS, [(0.0, f64::INFINITY)]));
        assert_eq!(chart.series[0].y, [1.0, 5.0]);
        assert!(!chart.series[0].dashed && chart.series[1].dashed);
        assert!(chart.series[1].x.is_empty() && !chart.is_empty());
    }
}
