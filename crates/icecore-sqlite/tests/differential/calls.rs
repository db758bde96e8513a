//! Actions that are calls of SQLite's interface and no SQL: file controls, backups, cursors and blobs.

use crate::generate::{Generator, OUTSIDE, SLOTS};
use crate::script::{Action, Control, LinkId, Opening, Profile, Schema};
use crate::sql;

impl Generator {
    pub fn control(&mut self, link: LinkId) {
        let schema = self.schema_of(link);
        let control = match self.random.below(14) {
            0 => Control::PowersafeOverwrite,
            1 => Control::PersistWal,
            2 => Control::TemporaryName,
            3 => Control::HasMoved,
            4 => Control::LastErrno,
            5 => Control::ExternalReader,
            7..=8 if self.setting.profile == Profile::Alone && !self.setting.wal => Control::LockState,
            _ => Control::DataVersion,
        };
        self.push(Action::Control { schema, control });
    }

    pub fn backup(&mut self, link: LinkId) {
        let ours = self.schema_of(link);
        let other = if self.random.chance(60) || self.links == 1 {
            let index = self.random.index(2);
            let link = OUTSIDE[index];
            let file = format!("out{index}.db");
            self.push(Action::Open { link, file, how: Opening::Create });
            Schema { link, name: "main".to_owned() }
        } else {
            let link = self.link();
            self.schema_of(link)
        };
        if self.file_of(&other) == self.file_of(&ours) {
            // The same file, of which SQLite says nothing.
            return;
        }
        let into_a_pool = (self.setting.wal || other.link != OUTSIDE[0]) && self.random.chance(50);
        let (from, to) = if into_a_pool { (other, ours) } else { (ours, other) };
        let pages = *self.random.pick(&[1, 3, 7, -1]).unwrap_or(&1);
        if self.setting.profile == Profile::Turns || self.random.chance(30) {
            return self.push(Action::Backup { from, to, pages });
        }
        self.backup_in_steps(from, to, pages);
    }

    /// A backup, and writes to its source and others in between.
    fn backup_in_steps(&mut self, from: Schema, to: Schema, pages: i32) {
        let slot = self.random.index(SLOTS);
        let source = from.clone();
        self.push(Action::StartBackup { slot, from, to });
        for _ in 0..=self.random.below(8) {
            self.push(Action::StepBackup { slot, pages });
            if self.random.chance(40) {
                let link = if self.random.chance(60) { source.link } else { self.link() };
                let name = if link == source.link { source.name.clone() } else { self.schema(link) };
                let sql = sql::write(&mut self.random, &name);
                self.push(Action::Run { link, sql });
            }
        }
        if self.random.chance(90) {
            self.push(Action::StepBackup { slot, pages: -1 });
            self.push(Action::EndBackup { slot });
        }
    }

    pub fn cursor(&mut self, link: LinkId, schema: &str) {
        let slot = self.random.index(SLOTS);
        match self.random.below(6) {
            0..=1 => {
                let sql = sql::read(&mut self.random, schema);
                self.push(Action::StartCursor { link, slot, sql });
                self.push(Action::StepCursor { slot, rows: 1 });
            }
            2 => self.push(Action::EndCursor { slot }),
            _ => {
                let rows = 1 + self.random.index(4);
                self.push(Action::StepCursor { slot, rows });
            }
        }
    }

    pub fn blob(&mut self, link: LinkId, name: String) {
        let slot = self.random.index(SLOTS);
        let row = self.random.below(6) as i64;
        if self.random.chance(60) {
            let schema = Schema { link, name };
            self.push(Action::OpenBlob { schema, slot, row, for_writing: row % 3 != 0 });
        }
        for _ in 0..self.random.below(4) {
            let most = if self.random.chance(50) { 60 } else { 6000 };
            let offset = self.random.below(most) as i32;
            let length = self.random.below(most / 3) as i32;
            let action = match self.random.below(8) {
                0..=2 => Action::ReadBlob { slot, offset, length },
                3..=5 => Action::WriteBlob { slot, offset, length, byte: self.random.below(256) as u8 },
                6 => Action::ReopenBlob { slot, row: self.random.below(6) as i64 },
                _ => Action::CloseBlob { slot },
            };
            self.push(action);
        }
    }
}
