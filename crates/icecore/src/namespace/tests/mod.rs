//! Tests of the namespace, beside a model of plain maps.

mod cases;
mod history;
mod model;
mod scattered;

use super::*;
use crate::error::{Error, FileFault};
use crate::tree::tests::{Books, Random, Store, cases, verify};
use crate::units::{BlockCount, FileBlock, InodeNumber, LogAddress, Stream, Timestamp};
use model::Model;
use std::collections::BTreeSet;

/// Few hashes: names of one first letter collide.
fn weak_hash(name: &[u8]) -> u64 {
    u64::from(name[0] % 3)
}

/// Books of nodes and of data blocks.
#[derive(Clone, Default)]
struct Accounts {
    nodes: Books,
    data: BTreeSet<(Stream, u64)>,
}

impl NodeLedger for Accounts {
    fn draw_node(&mut self) -> LogAddress {
        self.nodes.draw_node()
    }

    fn drop_node(&mut self, address: LogAddress) {
        self.nodes.drop_node(address);
    }
}

impl Ledger for Accounts {
    fn drop_run(&mut self, run: Run) {
        for address in run.start.0..run.end().0 {
            assert!(self.data.remove(&(run.stream, address)), "{run:?} dropped, but not referred to");
        }
    }
}

/// A head or a snapshot, and what it should be.
#[derive(Clone)]
struct Version {
    tree: Tree,
    accounts: Accounts,
    model: Model,
    hash: NameHash,
}

fn new_inode(kind: InodeKind, time: i64) -> NewInode {
    NewInode { kind, mode: 0o644, uid: 7, gid: 8, rdev: 9, generation: 10, time: Timestamp(time) }
}

impl Version {
    fn new(store: &Store, hash: NameHash) -> Self {
        let mut accounts = Accounts::default();
        let tree = Tree::new(&mut accounts);
        let mut version = Self { tree, accounts, model: Model::new(0), hash };
        version.writer(store).format(&new_inode(InodeKind::Directory, 0)).unwrap();
        version
    }

    fn writer<'a>(&'a mut self, store: &'a Store) -> TreeWriter<'a> {
        let mut writer = TreeWriter::new(&mut self.tree, store, &mut self.accounts);
        writer.name_hash = self.hash;
        writer
    }

    fn reader<'a>(&'a self, store: &'a Store) -> TreeReader<'a> {
        let mut reader = TreeReader::new(&self.tree, store);
        reader.name_hash = self.hash;
        reader
    }

    fn verify(&self, store: &Store) {
        verify(&self.tree, store, &self.accounts.nodes);
        check(&self.reader(store)).unwrap();
        let mut data = BTreeSet::new();
        data_runs(&self.tree, store, &mut |_, _, run| {
            (run.start.0..run.end().0).for_each(|address| assert!(data.insert((run.stream, address))));
            Ok(())
        })
        .unwrap();
        assert_eq!(data, self.accounts.data);
        self.model.verify(&self.reader(store));
    }
}

/// The fault of a file operation; other errors are not expected.
fn fault<T>(outcome: Result<T>) -> Result<T, FileFault> {
    outcome.map_err(|error| match error {
        Error::File(fault) => fault,
        other => panic!("{other}"),
    })
}
