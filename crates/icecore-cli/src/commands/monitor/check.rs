//! What one look at one thing came to.

use serde_json::{Value, json};
use std::fmt::Display;
use std::path::Path;

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

    /// What is certainly bad goes before what is unknown.
    pub const fn severity(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Unknown => 2,
            Self::Critical => 3,
        }
    }

    /// The one of two that goes before the other.
    pub const fn worse(self, other: Self) -> Self {
        if other.severity() > self.severity() { other } else { self }
    }
}

/// A finding, good or bad.
pub struct Check {
    pub name: String,
    pub state: State,
    pub text: String,
    /// `'label'=value;warn;crit`
    pub perfdata: Vec<String>,
    /// The command to run next, without the pool.
    next: Option<String>,
    /// What that is good for.
    because: Option<String>,
    /// Lines with more of it.
    pub details: Vec<String>,
    values: Vec<(String, String)>,
}

impl Check {
    pub fn new(name: impl Into<String>, state: State, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state,
            text: text.into(),
            perfdata: Vec::new(),
            next: None,
            because: None,
            details: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Says which command to run next: the pool comes behind it.
    pub fn next(self, command: &str) -> Self {
        Self { next: Some(command.to_owned()), ..self }
    }

    /// Says what the next command is good for.
    pub fn because(self, why: &str) -> Self {
        Self { because: Some(why.to_owned()), ..self }
    }

    /// Adds a line.
    pub fn detail(mut self, line: String) -> Self {
        self.details.push(line);
        self
    }

    /// The command to run next, for this pool.
    fn command(&self, pool: &Path) -> Option<String> {
        self.next.as_ref().map(|next| format!("{next} {}", pool.display()))
    }

    /// The finding in one line, which has nothing in it that Nagios would take for performance data.
    pub fn line(&self, pool: &Path) -> String {
        let mut text = self.text.clone();
        if let Some(command) = self.command(pool) {
            text.push_str(&format!("; run: {command}"));
        }
        if let Some(because) = &self.because {
            text.push_str(&format!(" ({because})"));
        }
        plain(&text)
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

    pub fn document(&self, pool: &Path) -> Value {
        let number = |text: &String| text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number));
        let values: serde_json::Map<String, Value> =
            self.values.iter().map(|(label, value)| (label.clone(), number(value))).collect();
        json!({
            "name": self.name,
            "state": self.state.name(),
            "text": self.text,
            "next": self.command(pool),
            "details": self.details,
            "values": values,
        })
    }
}

/// Text without line ends, and without the bar that performance data follow.
pub fn plain(text: &str) -> String {
    text.replace(['|', '\n'], " ")
}
