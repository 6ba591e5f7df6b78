//! Messages of HTTP/1.1 that servers read differently: `crates/wire/http/corpus`, whose README.md
//! has the form.

/// What clients send.
pub const REQUESTS: &str = include_str!("../../../wire/http/corpus/requests.txt");
/// What replicas answer.
pub const RESPONSES: &str = include_str!("../../../wire/http/corpus/responses.txt");

/// One message, or several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Case {
    /// Unlike any other of its file.
    pub name: String,
    /// What it is, in words.
    pub words: String,
    /// Whether it answers HEAD.
    pub head: bool,
    /// Whether whoever sends it closes, or stops writing, behind it.
    pub closes: bool,
    /// The bytes, by writes.
    pub pieces: Vec<Vec<u8>>,
}

/// All cases of a file.
///
/// # Panics
/// Where it is not in its form.
#[must_use]
pub fn read(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("== ") {
            let (name, words) = title.split_once(' ').expect("a case has a name and words");
            assert!(cases.iter().all(|case| case.name != name), "twice: {name}");
            let (name, words) = (name.to_owned(), words.to_owned());
            cases.push(Case { name, words, pieces: vec![Vec::new()], ..Case::default() });
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let case = cases.last_mut().expect("lines are of a case");
        match line {
            "head" => case.head = true,
            "closes" => case.closes = true,
            "--" => case.pieces.push(Vec::new()),
            _ => {
                let said = line.strip_prefix('|');
                let said = said.unwrap_or_else(|| panic!("line {}: {line:?}", number + 1));
                let piece = case.pieces.last_mut().expect("there is one");
                bytes(said, piece);
            }
        }
    }
    cases
}

/// Appends what a line stands for.
fn bytes(line: &str, to: &mut Vec<u8>) {
    let mut rest = line;
    while let Some(at) = rest.find('\\') {
        to.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let Some(kind) = rest.chars().next() else { return }; // the line has no end
        rest = &rest[1..];
        match kind {
            'r' => to.push(b'\r'),
            'n' => to.push(b'\n'),
            't' => to.push(b'\t'),
            '\\' => to.push(b'\\'),
            'x' => {
                to.push(u8::from_str_radix(&rest[..2], 16).expect("two digits behind \\x"));
                rest = &rest[2..];
            }
            '{' => {
                let (repeated, behind) = rest.split_once('}').expect("a } behind \\{");
                let (count, what) = repeated.split_once(':').expect("a number, then a colon");
                let mut once = Vec::new();
                bytes(&format!("{what}\\"), &mut once);
                let count = count.parse().expect("a number of times");
                to.extend_from_slice(&once.repeat(count));
                rest = behind;
            }
            other => panic!("\\{other} in {line:?}"),
        }
    }
    to.extend_from_slice(rest.as_bytes());
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_its_readme_says() {
        let text = "# words\n\n== a b c\nhead\n|x\\x00\\\\\n|\\{3:y\\r}\n--\ncloses\n|z\\\n";
        let pieces = vec![b"x\0\\\r\ny\ry\ry\r\r\n".to_vec(), b"z".to_vec()];
        let (name, words) = ("a".to_owned(), "b c".to_owned());
        assert_eq!(read(text), [Case { name, words, head: true, closes: true, pieces }]);
    }

    #[test]
    fn the_corpus_is_as_large_as_it_is_to_be() {
        let (requests, responses) = (read(REQUESTS), read(RESPONSES));
        assert!(requests.len() + responses.len() >= 170 && responses.len() >= 100);
        let is_sent = |case: &Case| case.closes || !case.pieces.concat().is_empty();
        assert!(requests.iter().chain(&responses).all(is_sent));
    }
}
