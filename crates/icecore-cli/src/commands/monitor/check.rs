//! What one look at one thing came to.

use serde_json::{Value, json};
use std::fmt::Display;

/// As Nagios counts them: the numbers are exit codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    Ok = 0,
    Warning = 1,
    Critical = 2,
    Unknown = 3,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// What is certainly bad goes before what nobody knows.
    pub const fn severity(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Unknown => 2,
            Self::Critical => 3,
        }
    }
}

/// A finding, good or bad.
pub struct Check {
    pub name: String,
    pub state: State,
    pub text: String,
    /// `'label'=value;warn;crit`
    pub perfdata: Vec<String>,
    values: Vec<(String, String)>,
}

impl Check {
    pub fn new(name: impl Into<String>, state: State, text: impl Into<String>) -> Self {
        Self { name: name.into(), state, text: text.into(), perfdata: Vec::new(), values: Vec::new() }
    }

    /// Adds a figure. Names of datasets have no quotes, so that a label in quotes needs no care.
    pub fn with(
        mut self,
        label: impl Display,
        value: impl Display,
        unit: &str,
        limits: [impl Display; 2],
    ) -> Self {
        let [warn, crit] = limits;
        let text = format!("'{label}'={value}{unit};{warn};{crit}");
        self.perfdata.push(text.trim_end_matches(';').to_owned());
        self.values.push((label.to_string(), value.to_string()));
        self
    }

    pub fn document(&self) -> Value {
        let number = |text: &String| text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number));
        let values: serde_json::Map<String, Value> =
            self.values.iter().map(|(label, value)| (label.clone(), number(value))).collect();
        json!({ "name": self.name, "state": self.state.name(), "text": self.text, "values": values })
    }
}
