//! What a side does with cursors, backups and blobs: they stay open from one action to another.

use crate::answer::Answer;
use crate::raw::{Backup, BlobPlace, Link, Statement, summary};
use crate::script::{Action, Schema};
use crate::world::World;
use rusqlite::ffi;
use std::rc::Rc;

impl World {
    pub fn act_on_cursor(&mut self, action: &Action) -> Option<Answer> {
        match action {
            Action::StartCursor { link, slot, sql } => {
                self.cursors.remove(slot);
                let connection = self.free_link(*link)?;
                match connection.prepare(&self.with_names(sql)) {
                    Ok((statement, _)) => {
                        self.cursors.insert(*slot, (*link, statement?));
                        Some(Answer::of(&connection))
                    }
                    Err(failure) => Some(Answer { ..Answer::of(&connection) }.with(failure)),
                }
            }
            Action::StepCursor { slot, rows } => {
                let link = self.free_link(self.cursors.get(slot)?.0)?;
                let (_, statement) = self.cursors.get_mut(slot)?;
                let answer = step(&link, statement, *rows);
                if answer.code != 0 || answer.rows.len() < *rows {
                    // A statement that has ended would start anew.
                    self.cursors.remove(slot);
                }
                Some(answer)
            }
            Action::EndCursor { slot } => {
                let id = self.cursors.get(slot)?.0;
                let link = self.free_link(id)?;
                self.cursors.remove(slot);
                Some(Answer::of(&link))
            }
            _ => None,
        }
    }

    pub fn act_on_backup(&mut self, action: &Action) -> Option<Answer> {
        match action {
            Action::StartBackup { slot, from, to } => {
                self.backups.remove(slot);
                let (source, destination) = (self.free_link(from.link)?, self.free_link(to.link)?);
                // What uses the destination meanwhile is undefined in SQLite.
                self.cursors.retain(|_, (owner, _)| *owner != to.link);
                self.blobs.retain(|_, (owner, _)| *owner != to.link);
                match Backup::begin((&source, &from.name), (&destination, &to.name)) {
                    Ok(backup) => {
                        self.backups.insert(*slot, backup);
                        Some(Answer::of(&source))
                    }
                    Err(failure) => Some(Answer::of(&destination).with(failure)),
                }
            }
            Action::StepBackup { slot, pages } => {
                let (code, remaining, pages) = self.backups.get_mut(slot)?.step(*pages);
                Some(Answer { code, ..Answer::note(&format!("{remaining} of {pages} pages remain")) })
            }
            Action::EndBackup { slot } => {
                let outcome = self.backups.remove(slot)?.finish();
                Some(outcome.map_or_else(Answer::failed, |()| Answer::note("finished")))
            }
            _ => None,
        }
    }

    pub fn whole_backup(&self, from: &Schema, to: &Schema, pages: i32) -> Option<Answer> {
        let (source, destination) = (self.free_link(from.link)?, self.free_link(to.link)?);
        let mut backup = match Backup::begin((&source, &from.name), (&destination, &to.name)) {
            Ok(backup) => backup,
            Err(failure) => return Some(Answer::of(&destination).with(failure)),
        };
        let mut steps = Vec::new();
        loop {
            let step = backup.step(pages);
            steps.push(format!("{step:?}"));
            if step.0 != ffi::SQLITE_OK {
                break;
            }
        }
        let answer = match backup.finish() {
            Ok(()) => Answer::of(&destination),
            Err(failure) => Answer::of(&destination).with(failure),
        };
        Some(Answer { rows: steps, ..answer })
    }

    pub fn act_on_blob(&mut self, action: &Action) -> Option<Answer> {
        let slot = match action {
            Action::OpenBlob { schema, slot, row, for_writing } => {
                self.blobs.remove(slot);
                let link = self.free_link(schema.link)?;
                let place = BlobPlace {
                    schema: &schema.name,
                    table: "t",
                    column: "b",
                    row: *row,
                    for_writing: *for_writing,
                };
                return Some(match link.open_blob(&place) {
                    Ok(blob) => {
                        let length = blob.length();
                        self.blobs.insert(*slot, (schema.link, blob));
                        Answer { rows: vec![format!("{length} bytes")], ..Answer::of(&link) }
                    }
                    Err(failure) => Answer::of(&link).with(failure),
                });
            }
            Action::ReadBlob { slot, .. }
            | Action::WriteBlob { slot, .. }
            | Action::ReopenBlob { slot, .. }
            | Action::CloseBlob { slot } => slot,
            _ => return None,
        };
        let (owner, blob) = self.blobs.get_mut(slot)?;
        let (owner, link) = (*owner, Rc::clone(blob.link()));
        let outcome = match action {
            Action::ReadBlob { offset, length, .. } => {
                blob.read(*offset, *length).map(|bytes| summary(&bytes))
            }
            Action::WriteBlob { offset, length, byte, .. } => {
                let bytes = vec![*byte; usize::try_from(*length).unwrap_or(0)];
                blob.write(*offset, &bytes).map(|()| "written".to_owned())
            }
            Action::ReopenBlob { row, .. } => blob.reopen(*row).map(|()| format!("{} bytes", blob.length())),
            _ => self.blobs.remove(slot)?.1.close().map(|()| "closed".to_owned()),
        };
        debug_assert!(self.links.contains_key(&owner));
        Some(match outcome {
            Ok(text) => Answer { rows: vec![text], ..Answer::of(&link) },
            Err(failure) => Answer::of(&link).with(failure),
        })
    }
}

fn step(link: &Rc<Link>, statement: &mut Statement, most: usize) -> Answer {
    let mut rows = Vec::new();
    while rows.len() < most {
        match statement.step() {
            Ok(Some(row)) => rows.push(row),
            Ok(None) => break,
            Err(failure) => return Answer { rows, ..Answer::of(link).with(failure) },
        }
    }
    Answer { rows, ..Answer::of(link) }
}
