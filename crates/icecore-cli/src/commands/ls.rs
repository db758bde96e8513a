//! `icecore ls`

use super::files::{base_name, found, kind_name, pin, read_directory};
use super::{finish, take};
use crate::format;
use crate::output::{Align, Output, Table, insert_name};
use crate::pool::{Context, open_to_read};
use clap::Args;
use icecore::InodeKind;
use icecore::admin::protocol::FileAttributes;
use icecore::admin::{Access, Request, Response};
use icecore::units::ByteLength;
use serde_json::{Map, Value, json};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Bytes of a name that cannot be printed are escaped as `ls -b` does it; -0
prints names as they are.

Example:
  icecore ls -l db@monday")]
pub struct Arguments {
    /// A version, or a directory or file in it
    #[arg(value_name = "VERSION[/PATH]")]
    path: OsString,

    /// Mode, links, owner, group, size and time as well
    #[arg(short, long)]
    long: bool,

    /// Exact sizes
    #[arg(short, long)]
    parsable: bool,

    /// Names as they are, each ended by a zero byte
    #[arg(short = '0', long, conflicts_with_all = ["long", "json"])]
    null: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// A file to show.
struct Shown {
    name: Vec<u8>,
    attributes: FileAttributes,
    /// Where a symbolic link leads.
    target: Option<Vec<u8>>,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let location = context.locate(&arguments.path)?;
    let path = location.path()?;
    let mut access = open_to_read(&location.pool)?;
    let read = read(&mut access, path, arguments);
    let (version, files) = finish(access, read)?;
    let mut output = Output::new();
    if arguments.json {
        let files: Vec<Value> = files.iter().map(document).collect();
        output.document("ls", &location.pool, json!({ "dataset_or_snapshot": version, "files": files }))?;
    } else if arguments.null {
        files.iter().try_for_each(|file| output.bytes(&[file.name.as_slice(), b"\0"].concat()))?;
    } else if arguments.long {
        print_long(&files, arguments.parsable, &mut output)?;
    } else {
        files.iter().try_for_each(|file| output.line(format::escaped(&file.name)))?;
    }
    output.finish()
}

/// The version's name, and what it has at that path.
fn read(access: &mut Access, path: &[u8], arguments: &Arguments) -> anyhow::Result<(String, Vec<Shown>)> {
    let pinned = pin(access, path)?;
    let attributes = found(&pinned)?.clone();
    let mut files = match attributes.kind {
        InodeKind::Directory => read_directory(access, pinned.pin, attributes.inode)?
            .into_iter()
            .map(|entry| Shown { name: entry.name, attributes: entry.attributes, target: None })
            .collect(),
        _ => vec![Shown { name: base_name(&pinned.file).to_vec(), attributes, target: None }],
    };
    if arguments.long || arguments.json {
        for link in files.iter_mut().filter(|file| file.attributes.kind == InodeKind::Symlink) {
            let response =
                access.call(Request::ReadLink { pin: pinned.pin, inode: link.attributes.inode })?;
            link.target = Some(take!(response, Response::Data(target) => target));
        }
    }
    take!(access.call(Request::Unpin { pin: pinned.pin })?, Response::Done => ());
    Ok((pinned.version, files))
}

fn print_long(files: &[Shown], exact: bool, output: &mut Output) -> anyhow::Result<()> {
    let columns =
        [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Left, Align::Left];
    // Without headers, as people know it from ls; but in columns.
    let mut table = Table::new(columns.map(|align| (String::new(), align)));
    for file in files {
        let attributes = &file.attributes;
        let name = format::escaped(&file.name);
        table.row(vec![
            mode_text(attributes),
            attributes.links.to_string(),
            attributes.owner.uid.to_string(),
            attributes.owner.gid.to_string(),
            if exact { attributes.size.to_string() } else { format::size(ByteLength(attributes.size)) },
            format::time(attributes.modified),
            match &file.target {
                Some(target) => format!("{name} -> {}", format::escaped(target)),
                None => name,
            },
        ]);
    }
    table.print_bare(output)
}

/// Type and permissions as `ls -l` shows them.
fn mode_text(attributes: &FileAttributes) -> String {
    let kind = match attributes.kind {
        InodeKind::File => '-',
        InodeKind::Directory => 'd',
        InodeKind::Symlink => 'l',
        InodeKind::Fifo => 'p',
        InodeKind::Socket => 's',
        InodeKind::CharDevice => 'c',
        InodeKind::BlockDevice => 'b',
    };
    let mode = attributes.mode;
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn document(file: &Shown) -> Value {
    let attributes = &file.attributes;
    let mut object = Map::new();
    insert_name(&mut object, "name", &file.name);
    object.insert("type".into(), json!(kind_name(attributes.kind)));
    object.insert("inode".into(), json!(attributes.inode.get()));
    object.insert("mode".into(), json!(attributes.mode));
    object.insert("links".into(), json!(attributes.links));
    object.insert("uid".into(), json!(attributes.owner.uid));
    object.insert("gid".into(), json!(attributes.owner.gid));
    object.insert("size".into(), json!(attributes.size));
    object.insert("stored".into(), json!(attributes.stored));
    object.insert("modified".into(), json!(format::exact_time(attributes.modified)));
    if let Some(target) = &file.target {
        insert_name(&mut object, "target", target);
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore::admin::protocol::Owner;
    use icecore::units::{InodeNumber, Timestamp};

    #[test]
    fn modes_look_as_ls_shows_them() {
        let shown = |kind, mode| {
            mode_text(&FileAttributes {
                inode: InodeNumber(2),
                kind,
                mode,
                links: 1,
                owner: Owner::default(),
                size: 0,
                stored: 0,
                modified: Timestamp(0),
            })
        };
        assert_eq!(shown(InodeKind::File, 0o644), "-rw-r--r--");
        assert_eq!(shown(InodeKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(shown(InodeKind::File, 0o6711), "-rws--s--x");
        assert_eq!(shown(InodeKind::Symlink, 0o7000), "l--S--S--T");
    }
}
