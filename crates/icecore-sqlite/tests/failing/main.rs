//! Transactions in which calls and allocations fail: a commit happens in all files of a pool or in none, and
//! what the connection reads afterwards is what is stored.

#[path = "../common/mod.rs"]
mod common;

mod commits;
mod full;
mod kills;
mod memory;
mod on_top;
mod shim;

use common::{open_uri, run};
use rusqlite::Connection;

/// The schemas of a connection with up to four files, and their names.
const FILES: [(&str, &str); 4] = [("main", "a.db"), ("b", "b.db"), ("c", "c.db"), ("d", "d.db")];

/// A connection with the first `files` files; `uri` makes a URI of a file's name.
fn attach(files: usize, uri: impl Fn(&str) -> String) -> Connection {
    let db = open_uri(&uri(FILES[0].1));
    for (schema, name) in &FILES[1..files] {
        run(&db, &format!("ATTACH '{}' AS {schema}", uri(name)));
    }
    db
}
