//! Documents, the schema, and experiments that are not there.

use crate::runs::schema;
use icecore_lab::targets::TARGETS;
use icecore_lab::{EXPERIMENTS, Options, Report};
use serde_json::json;

#[test]
fn an_unknown_experiment_is_refused_and_the_known_ones_named() {
    let error = icecore_lab::run("nothing", &Options::new(".")).expect_err("refused").to_string();
    assert!(EXPERIMENTS.iter().all(|experiment| error.contains(experiment.name)), "{error}");
}

#[test]
fn the_schema_knows_exactly_the_checks_and_experiments_that_there_are() {
    let schema = schema();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(schema["$defs"]["check"]["properties"]["name"]["enum"], json!(names));
    let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    assert_eq!(schema["properties"]["experiment"]["enum"], json!(names));
}

#[test]
fn documents_of_another_version_or_kind_are_refused() {
    let refused = |text: &str| Report::from_json("x.json", text).expect_err("refused").to_string();
    assert!(refused("{}").contains("x.json"));
    assert!(refused("not JSON").contains("x.json"));
}
