//! Every experiment runs, small, and leaves a document that the published schema describes.
//!
//! Studies that mostly wait, and that may share the machine, are in `together`.

mod documents;
mod kills;
mod model;
#[path = "../shared/runs.rs"]
mod runs;
mod store;
mod timed;

/// The lab starts this test program again with this test alone.
#[test]
fn serve_as_a_child() {
    runs::serve_as_a_child();
}
