//! What each disk is written where the files of a database lie on several.

use super::slug;
use crate::chart::{Axis, Chart, Kind, Series};
use crate::report::Report;

/// Counters, with the disk that they are of.
pub(crate) const DISKS: [(&str, &str); 3] =
    [("hdd_written_mb", "hard disk"), ("ssd_written_mb", "SSD"), ("second_ssd_written_mb", "second SSD")];
/// Colours of the bars: by disk, not by system.
const FIRST_COLOR: usize = 7;

pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let counted =
        |system: &crate::report::System| DISKS.iter().any(|(name, _)| system.counters.contains_key(*name));
    let systems: Vec<_> = report.systems.iter().filter(|(_, system)| counted(system)).collect();
    let names = systems.iter().map(|(name, _)| (*name).clone()).collect();
    let mut chart = Chart::new(
        slug(&["written", "by", "disk"]),
        "Written to each disk".to_owned(),
        Kind::Bars,
        Axis::names("system", names),
        Axis::linear("MB written"),
    );
    for (number, (counter, disk)) in DISKS.iter().enumerate() {
        let places = (0..).map(f64::from).zip(&systems);
        let points = places.filter_map(|(place, (_, system))| Some((place, *system.counters.get(*counter)?)));
        chart.add(Series::measured(*disk, FIRST_COLOR + number, points));
    }
    vec![chart]
}
