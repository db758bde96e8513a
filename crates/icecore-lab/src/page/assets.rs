//! What the page is made of beside the numbers.

use maud::{Markup, html};

/// The version of uPlot in `assets/uplot`.
const UPLOT_VERSION: &str = "1.6.32";

pub(super) const UPLOT_JS: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
pub(super) const UPLOT_CSS: &str = include_str!("../../assets/uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../assets/uplot/LICENSE");
pub(super) const REPORT_JS: &str = include_str!("../../assets/report.js");
pub(super) const REPORT_CSS: &str = include_str!("../../assets/report.css");

/// Who made the page and its charts, with the licence that has to go along.
pub(super) fn notice() -> Markup {
    html! {
        footer {
            p { "Made by icecore " (env!("CARGO_PKG_VERSION")) ". Charts by uPlot " (UPLOT_VERSION) "." }
            details { summary { "Licence of uPlot" } pre { (UPLOT_LICENCE) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vendored_version_is_the_one_that_the_page_names_and_nothing_ends_its_element() {
        assert!(UPLOT_JS.contains(&format!("(v{UPLOT_VERSION})")));
        assert!(include_str!("../../assets/uplot/README.md").contains(&format!("uPlot {UPLOT_VERSION}")));
        for text in [UPLOT_JS, UPLOT_CSS, REPORT_JS, REPORT_CSS, crate::figure::STYLE] {
            assert!(!text.contains("</"), "an element would end too early");
        }
    }
}
