//! Names of files as text.

/// A file name on one line, without loss: what is not printable, and the backslash, is escaped as `ls -b`
/// does.
#[must_use]
pub fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\x07' => text.push_str("\\a"),
                '\x08' => text.push_str("\\b"),
                '\x0c' => text.push_str("\\f"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\x0b' => text.push_str("\\v"),
                _ if character.is_control() || is_invisible(character) => {
                    octal(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => text.push(character),
            }
        }
        octal(&mut text, chunk.invalid());
    }
    text
}

/// Characters that change how a terminal shows their neighbours, or end a line in some readers.
const fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn octal(text: &mut String, bytes: &[u8]) {
    use std::fmt::Write as _;
    for byte in bytes {
        let _ = write!(text, "\\{byte:03o}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_names_are_escaped_as_ls_does() {
        assert_eq!(escaped("größe one.db".as_bytes()), "größe one.db");
        assert_eq!(escaped(b"a\nb\\c\x1b[31m\xff"), "a\\nb\\\\c\\033[31m\\377");
        assert_eq!(escaped("\u{202e}x".as_bytes()), "\\342\\200\\256x");
    }

    /// Reads what `escaped` wrote, to show that nothing is lost.
    fn unescaped(text: &str) -> Vec<u8> {
        let mut bytes = text.bytes();
        let mut name = Vec::new();
        while let Some(byte) = bytes.next() {
            if byte != b'\\' {
                name.push(byte);
                continue;
            }
            name.push(match bytes.next().unwrap() {
                b'a' => 7,
                b'b' => 8,
                b't' => 9,
                b'n' => 10,
                b'v' => 11,
                b'f' => 12,
                b'r' => 13,
                b'\\' => b'\\',
                high => {
                    let digits = [high, bytes.next().unwrap(), bytes.next().unwrap()];
                    digits.iter().fold(0, |value, digit| (value << 3) | (digit - b'0'))
                }
            });
        }
        name
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn escaping_loses_nothing(name in proptest::collection::vec(any::<u8>(), 0..40)) {
            let text = escaped(&name);
            prop_assert!(!text.contains(|character: char| character.is_control()));
            prop_assert_eq!(unescaped(&text), name);
        }
    }
}
