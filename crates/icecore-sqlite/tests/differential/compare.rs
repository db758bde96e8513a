//! Runs a script on both sides and compares what they answer.

use crate::answer::Answer;
use crate::common::Place;
use crate::differences::{DIFFERENCES, Difference, OPEN};
use crate::script::{Action, Script, Setting};
use crate::world::{DIRECTORY, Side, World};
use std::fmt;

/// What has happened when an action is judged: the last of the actions and answers are its own.
pub struct Case<'case> {
    pub setting: &'case Setting,
    pub actions: &'case [Action],
    pub ours: &'case [Answer],
    pub plain: &'case [Answer],
}

impl Case<'_> {
    pub fn action(&self) -> &Action {
        &self.actions[self.actions.len() - 1]
    }

    pub fn ours(&self) -> &Answer {
        &self.ours[self.ours.len() - 1]
    }

    pub fn plain(&self) -> &Answer {
        &self.plain[self.plain.len() - 1]
    }
}

/// How a script ended.
pub enum Outcome {
    /// Both sides answered alike.
    Same,
    /// It ended early, with a difference that ends scripts.
    Known(&'static str),
    /// They did not.
    Different(Discrepancy),
}

/// A difference that no table explains.
#[derive(Clone)]
pub struct Discrepancy {
    pub index: usize,
    /// What kind of action it is that answers differently.
    pub kind: std::mem::Discriminant<Action>,
    pub ours: Answer,
    pub plain: Answer,
}

impl Discrepancy {
    /// Whether two of them look like one: what a shortened script must still show.
    pub fn resembles(&self, other: &Self) -> bool {
        let traits = |this: &Self| (this.kind, this.ours.code, this.plain.code);
        traits(self) == traits(other)
    }
}

impl fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "action {} answers differently", self.index)?;
        writeln!(f, "  icecore: {}", self.ours)?;
        writeln!(f, "  plain:   {}", self.plain)?;
        if self.ours.code != 0 {
            writeln!(f, "  icecore_last_error(): {:?}", icecore_sqlite::last_error())?;
        }
        Ok(())
    }
}

fn needs_directory(script: &Script) -> bool {
    script.actions.iter().any(|action| match action {
        Action::Open { file, .. } => file == DIRECTORY,
        other => other.sql().contains("{directory}"),
    })
}

/// Runs a script in a new place.
pub fn run(script: &Script) -> Outcome {
    icecore_sqlite::register().expect("the VFS");
    let place = Place::in_memory();
    if needs_directory(script) {
        place.with_pool(|pool| {
            let dataset = pool.dataset("ds").expect("the dataset");
            let root = icecore::units::InodeNumber::ROOT;
            let directory = icecore::Creation::directory();
            dataset.create(root, DIRECTORY.as_bytes(), &directory).expect("a directory");
            dataset.sync().expect("a sync");
        });
    }
    let mut ours = World::new(Side::Icecore, &place, &script.setting);
    let mut plain = World::new(Side::Plain, &place, &script.setting);
    let (mut our_answers, mut plain_answers) = (Vec::new(), Vec::new());
    for (index, action) in script.actions.iter().enumerate() {
        our_answers.push(ours.act(action));
        plain_answers.push(plain.act(action));
        if our_answers[index] == plain_answers[index] {
            continue;
        }
        let case = Case {
            setting: &script.setting,
            actions: &script.actions[..=index],
            ours: &our_answers,
            plain: &plain_answers,
        };
        let known = DIFFERENCES.iter().chain(OPEN).find(|difference| (difference.is)(&case));
        match known {
            Some(Difference { ends: false, .. }) => {}
            Some(Difference { name, .. }) => return Outcome::Known(name),
            None => {
                let (ours, plain) = (case.ours().clone(), case.plain().clone());
                return Outcome::Different(Discrepancy {
                    index,
                    kind: std::mem::discriminant(action),
                    ours,
                    plain,
                });
            }
        }
    }
    Outcome::Same
}
