//! Fields beside a list of lines, and what of parsers they rely on.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// The slow and obvious form: each line with its name as it came.
type Model = Vec<(String, HeaderValue)>;

/// A head, and where it begins in what was read.
struct Came {
    bytes: Bytes,
    is_request: bool,
}

/// The names and values that a parser finds in a head, if it takes it.
fn parsed<'a>(came: &'a Came) -> Option<Vec<httparse::Header<'a>>> {
    let mut lines = [httparse::EMPTY_HEADER; 64];
    let (status, lines) = if came.is_request {
        let mut request = httparse::Request::new(&mut lines);
        (request.parse(&came.bytes), request.headers)
    } else {
        let mut response = httparse::Response::new(&mut lines);
        (response.parse(&came.bytes), response.headers)
    };
    matches!(status, Ok(httparse::Status::Complete(_))).then(|| lines.to_vec())
}

/// The same as fields, if no name is too long.
fn taken_up(came: &Came) -> Option<Fields> {
    let lines = parsed(came)?;
    let mut fields = Fields::of_head(came.bytes.clone(), lines.len());
    for line in lines {
        fields.take_up(line.name.as_bytes(), line.value)?;
    }
    Some(fields)
}

/// A head of these lines, somewhere in what was read.
fn head(is_request: bool, lines: &[u8]) -> Came {
    let begin: &[u8] = if is_request { b"GET / HTTP/1.1\r\n" } else { b"HTTP/1.1 200 OK\r\n" };
    let before = b"what came before";
    let bytes = Bytes::from([before, begin, lines, b"\r\nbody"].concat());
    Came { bytes: bytes.slice(before.len()..), is_request }
}

/// A line as it comes, with spaces that parsers take away.
#[derive(Clone, Debug)]
struct Typed {
    name: String,
    before: &'static str,
    value: Vec<u8>,
    after: &'static str,
}

const NAMES: [&str; 9] =
    ["x-a", "x_a", "x-ab", "cookie", "host", "te", "connection", "proxy-a", "content-length"];

/// A name in whatever case.
fn a_name() -> impl Strategy<Value = String> {
    (select(&NAMES[..]), any::<u32>()).prop_map(|(name, upper)| {
        let cased = |(at, letter): (usize, char)| match upper >> at & 1 {
            1 => letter.to_ascii_uppercase(),
            _ => letter,
        };
        name.char_indices().map(cased).collect()
    })
}

fn a_value() -> impl Strategy<Value = Vec<u8>> {
    let text = "[!-~]([ -~\t]{0,6}[!-~])?".prop_map(String::into_bytes);
    let other = vec(0x80..=0xff_u8, 1..4);
    prop_oneof![4 => text, 1 => Just(Vec::new()), 1 => other]
}

fn a_line() -> impl Strategy<Value = Typed> {
    let before = select(&[" ", " ", " ", "", "   ", "\t", " \t"][..]);
    let after = select(&["\r\n", "\r\n", "\r\n", "  \r\n", "\t\r\n", "\n", " \n"][..]);
    (a_name(), before, a_value(), after).prop_map(|(name, before, value, after)| Typed {
        name,
        before,
        value,
        after,
    })
}

/// Something that is done to fields.
#[derive(Clone, Debug)]
enum Step {
    Append(HeaderName, HeaderValue),
    Insert(HeaderName, HeaderValue),
    Remove(String),
    Take(String),
    TakeOnly(String),
    RemoveLike(HeaderName),
    Retain(String),
    RetainRoles(Role),
    TakeBack,
}

fn a_new_line() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    let value = (a_value(), any::<bool>()).prop_map(|(value, is_sensitive)| {
        let mut value = HeaderValue::from_bytes(&value).unwrap();
        value.set_sensitive(is_sensitive);
        value
    });
    (select(&NAMES[..]).prop_map(HeaderName::from_static), value)
}

fn a_step() -> impl Strategy<Value = Step> {
    let role = a_name().prop_map(|name| Step::RetainRoles(Role::of(name.as_bytes())));
    prop_oneof![
        4 => a_new_line().prop_map(|(name, value)| Step::Append(name, value)),
        4 => a_new_line().prop_map(|(name, value)| Step::Insert(name, value)),
        1 => a_name().prop_map(Step::Remove),
        1 => a_name().prop_map(Step::Take),
        1 => a_name().prop_map(Step::TakeOnly),
        1 => select(&NAMES[..]).prop_map(|name| Step::RemoveLike(HeaderName::from_static(name))),
        1 => a_name().prop_map(Step::Retain),
        1 => role,
        1 => Just(Step::TakeBack),
    ]
}

fn is(name: &str, other: &str) -> bool {
    name.eq_ignore_ascii_case(other)
}

/// Does it to both, and compares what comes of it.
fn take_step(step: Step, fields: &mut Fields, model: &mut Model) {
    match step {
        Step::Append(name, value) => {
            fields.append(&name, &value);
            model.push((name.to_string(), value));
        }
        Step::Insert(name, value) => {
            fields.insert(&name, &value);
            let line = (name.to_string(), value);
            match model.iter().position(|(other, _)| is(other, name.as_str())) {
                None => model.push(line),
                Some(first) => {
                    let mut rest = model.split_off(first);
                    rest.retain(|(other, _)| !is(other, name.as_str()));
                    model.push(line);
                    model.append(&mut rest);
                }
            }
        }
        Step::Remove(name) => {
            let before = model.len();
            model.retain(|(other, _)| !is(other, &name));
            assert_eq!(fields.remove(&name), model.len() < before);
        }
        Step::Take(name) => {
            let first = model.iter().find(|(other, _)| is(other, &name));
            let first = first.map(|(_, value)| value.clone());
            let taken = fields.take(&name);
            let sensitive =
                |value: &Option<HeaderValue>| value.as_ref().is_some_and(HeaderValue::is_sensitive);
            assert_eq!(sensitive(&taken), sensitive(&first));
            assert_eq!(taken, first);
            model.retain(|(other, _)| !is(other, &name));
        }
        Step::TakeOnly(name) => {
            let all: Vec<_> = values(model, &name).cloned().collect();
            let expected = if all.len() > 1 { Err(Repeated) } else { Ok(all.first().cloned()) };
            assert_eq!(fields.take_only(&name), expected);
            model.retain(|(other, _)| !is(other, &name));
        }
        Step::RemoveLike(name) => {
            fields.remove_like(&name);
            let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "_");
            model.retain(|(other, _)| plain(other) != plain(name.as_str()));
        }
        Step::Retain(name) => {
            fields.retain(|other| other != *name);
            model.retain(|(other, _)| !is(other, &name));
        }
        Step::RetainRoles(role) => {
            fields.retain_roles(|other| other != role);
            model.retain(|(other, _)| Role::of(other.as_bytes()) != role);
        }
        Step::TakeBack => {
            fields.take_back();
            model.pop();
        }
    }
}

/// All that can be asked.
fn compare(fields: &Fields, model: &Model) {
    assert_eq!((fields.len(), fields.is_empty()), (model.len(), model.is_empty()));
    let line = |(name, value): (FieldName<'_>, FieldValue<'_>)| {
        let value = value.to_value();
        (name.to_string(), value.is_sensitive(), value)
    };
    let all = model.iter().map(|(name, value)| (name.clone(), value.is_sensitive(), value));
    assert!(fields.iter().map(line).eq(all.clone().map(|(n, s, v)| (n, s, v.clone()))));
    assert!(fields.iter().rev().map(line).eq(all.rev().map(|(n, s, v)| (n, s, v.clone()))));
    let names = model.iter().map(|(name, _)| name.as_bytes());
    assert!(fields.names().map(FieldName::as_bytes).eq(names));
    let roles = model.iter().map(|(name, value)| (Role::of(name.as_bytes()), value.as_bytes()));
    assert!(fields.roles().map(|field| (field.role(), field.value().as_bytes())).eq(roles));
    for prefix in NAMES.into_iter().flat_map(|name| [name, &name[..1], &name[..name.len() / 2]]) {
        let begins = |(name, _): &(String, _)| name.to_ascii_lowercase().starts_with(prefix);
        assert_eq!(fields.contains_prefix(prefix), model.iter().any(begins));
    }
    for name in NAMES.into_iter().chain(["x", "x-b", "cookies", ""]) {
        for name in [name.to_owned(), name.to_ascii_uppercase()] {
            let values: Vec<_> = values(model, &name).collect();
            assert_eq!(fields.contains(&name), !values.is_empty());
            assert!(fields.get(&name) == values.first().map(|it| FieldValue::from(*it)));
            assert!(fields.get_all(&name).eq(values.iter().map(|it| FieldValue::from(*it))));
            let only = fields.get_only(&name);
            match values[..] {
                [] => assert_eq!(only, Ok(None)),
                [value] => assert_eq!(only, Ok(Some(FieldValue::from(value)))),
                _ => assert_eq!(only, Err(Repeated)),
            }
        }
    }
}

fn values<'a>(model: &'a Model, name: &str) -> impl Iterator<Item = &'a HeaderValue> + Clone {
    model.iter().filter(move |(other, _)| is(other, name)).map(|(_, value)| value)
}

/// What leaves is what is there, if a bit of this number says that it is wanted.
fn compare_written(fields: &Fields, model: &Model, wanted: u32) {
    let (mut written, mut at) = (b"before\r\n".to_vec(), 0);
    fields.write(&mut written, |field| {
        let (role, value) = (field.role(), field.value());
        let (name, expected) = &model[at];
        assert_eq!(role, Role::of(name.as_bytes()));
        assert!(value == *expected);
        at += 1;
        wanted >> (at % 32) & 1 == 1
    });
    assert_eq!(at, model.len(), "each line is asked for once");
    let lines = model.iter().enumerate().filter(|(at, _)| wanted >> ((at + 1) % 32) & 1 == 1);
    let lines: Vec<_> = lines.map(|(_, line)| line).collect();
    let mut expected = b"before\r\n".to_vec();
    for (name, value) in &lines {
        expected.extend([name.as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    assert_eq!(written.escape_ascii().to_string(), expected.escape_ascii().to_string());
    let again = head(true, &written[b"before\r\n".len()..]);
    let again = parsed(&again).expect("what is written can be read");
    let again = again.iter().map(|line| (line.name, line.value));
    assert!(again.eq(lines.iter().map(|(name, value)| (&**name, value.as_bytes()))));
}

/// The crate `http` keeps the order of lines of one name only.
fn compare_as_map(fields: &Fields, model: &Model) {
    let map = fields.to_map();
    let back = Fields::from(&map);
    assert_eq!((map.len(), back.len()), (model.len(), model.len()));
    for name in NAMES {
        let all = values(model, name).map(|value| (value, value.is_sensitive()));
        let in_map = map.get_all(name).iter().map(|value| (value, value.is_sensitive()));
        assert!(in_map.eq(all.clone()));
        let again: Vec<_> = back.get_all(name).map(FieldValue::to_value).collect();
        assert!(again.iter().map(|value| (value, value.is_sensitive())).eq(all));
    }
    let lines = model.iter().map(|(name, value)| (name.parse().unwrap(), value.clone()));
    assert_eq!(lines.collect::<Fields>(), *fields, "the same in lower case");
}

proptest! {
    #[test]
    fn fields_that_came_and_were_changed_are_those_of_a_list_of_lines(
        is_request in any::<bool>(),
        came in vec(a_line(), 0..8),
        steps in vec(a_step(), 0..12),
        wanted in any::<u32>(),
    ) {
        let mut text = Vec::new();
        let mut model = Model::new();
        for Typed { name, before, value, after } in came {
            let (before, after) = (before.as_bytes(), after.as_bytes());
            text.extend([name.as_bytes(), b":", before, &value, after].concat());
            model.push((name, HeaderValue::from_bytes(&value).unwrap()));
        }
        let mut fields = taken_up(&head(is_request, &text)).expect("it can be read");
        compare(&fields, &model);
        for step in steps {
            take_step(step, &mut fields, &mut model);
            compare(&fields, &model);
            compare_written(&fields, &model, u32::MAX);
            compare_written(&fields, &model, wanted);
            compare_as_map(&fields, &model);
            compare(&fields.clone(), &model);
        }
    }
}

#[test]
fn lines_that_came_as_they_are_sent_leave_as_one() {
    let text = b"Host: a\r\nX-A: 1\r\nx-b: \xe9\r\n";
    let fields = taken_up(&head(true, text)).unwrap();
    assert!(fields.lines.iter().all(|line| line.is(IS_PLAIN)));
    let mut written = Vec::new();
    fields.write(&mut written, |_| true);
    assert_eq!(written, text);
}

#[test]
fn what_was_removed_is_not_written() {
    let mut fields = taken_up(&head(true, b"Host: a\r\nX-Secret: 1\r\nx-b: 2\r\n")).unwrap();
    assert!(fields.remove("x-secret"));
    fields.insert(http::header::HOST, &HeaderValue::from_static("b"));
    fields.insert(http::header::HOST, &HeaderValue::from_static("c"));
    let mut written = Vec::new();
    fields.write(&mut written, |_| true);
    assert_eq!(written, b"host: c\r\nx-b: 2\r\n");
    assert_eq!(format!("{fields:?}"), r#"[("host", "c"), ("x-b", "2")]"#);
}

#[test]
fn a_sensitive_value_is_not_shown_and_stays_sensitive() {
    let mut secret = HeaderValue::from_static("secret");
    secret.set_sensitive(true);
    let mut fields = Fields::new();
    fields.append(http::header::AUTHORIZATION, &secret);
    assert_eq!(format!("{fields:?}"), r#"[("authorization", Sensitive)]"#);
    assert!(fields.to_map()["authorization"].is_sensitive());
    assert!(fields.take("Authorization").unwrap().is_sensitive());
    assert!(fields.is_empty());
}

#[test]
fn a_name_has_its_role_in_any_case_and_no_other_name_has_it() {
    let known = [
        ("connection", Role::Connection),
        ("content-length", Role::ContentLength),
        ("date", Role::Date),
        ("expect", Role::Expect),
        ("host", Role::Host),
        ("keep-alive", Role::KeepAlive),
        ("proxy-", Role::Proxy),
        ("proxy-a", Role::Proxy),
        ("proxy-authz", Role::Proxy),
        ("proxy-connection", Role::KeepAlive),
        ("proxy-authorization", Role::Proxy),
        ("te", Role::Te),
        ("trailer", Role::Trailer),
        ("transfer-encoding", Role::TransferEncoding),
        ("upgrade", Role::Upgrade),
    ];
    for (name, role) in known {
        let title = format!("{}{}", name[..1].to_ascii_uppercase(), &name[1..]);
        for name in [name, &name.to_ascii_uppercase(), &title] {
            assert_eq!(Role::of(name.as_bytes()), role, "{name}");
        }
        let told_by = if name.starts_with("proxy-") { "proxy-".len() } else { name.len() };
        for at in 0..told_by {
            let mut other = name.as_bytes().to_vec();
            other[at] ^= 0x40;
            assert_eq!(Role::of(&other), Role::Other, "{}", other.escape_ascii());
        }
    }
    for name in ["", "t", "tee", "hosts", "proxy", "proxied", "content_length", "x-te"] {
        assert_eq!(Role::of(name.as_bytes()), Role::Other, "{name}");
    }
}

/// Heads with this byte in a name, or in a value, at each place where a parser that reads many
/// bytes at once may look at it in another way.
fn heads_with(byte: u8, is_in_name: bool) -> impl Iterator<Item = Came> {
    let lengths = [0, 1, 2, 3, 6, 7, 8, 9, 14, 15, 16, 17, 30, 31, 32, 33, 47, 62, 63, 64, 70];
    let places = lengths.into_iter().flat_map(|before| [0, 1, 40].map(|after| (before, after)));
    places.flat_map(move |(before, after)| {
        let (before, after) = ("x".repeat(before), "y".repeat(after));
        let with = [before.as_bytes(), &[byte], after.as_bytes()].concat();
        let line = match is_in_name {
            true => [&with, &b": v\r\n"[..]].concat(),
            false => [b"x: ", &with[..], b"\r\n"].concat(),
        };
        [true, false].map(|is_request| head(is_request, &[b"host: a\r\n", &*line].concat()))
    })
}

/// [`Fields::to_map`] and [`FieldValue::to_value`] rely on it.
#[test]
fn what_a_parser_takes_for_a_name_or_a_value_is_one_to_the_crate_http() {
    let mut taken = [Vec::new(), Vec::new()];
    for (byte, is_in_name) in (0..=255).flat_map(|byte| [(byte, true), (byte, false)]) {
        let mut is_taken = false;
        for came in heads_with(byte, is_in_name) {
            let Some(lines) = parsed(&came) else { continue };
            is_taken = true;
            for line in lines {
                let text = came.bytes.escape_ascii();
                assert!(HeaderName::from_bytes(line.name.as_bytes()).is_ok(), "{text}");
                assert!(HeaderValue::from_bytes(line.value).is_ok(), "{text}");
            }
            let fields = taken_up(&came).expect("no name is too long");
            assert_eq!(fields.to_map().len(), fields.len());
            fields.iter().for_each(|(_, value)| drop(value.to_value()));
        }
        taken[usize::from(is_in_name)].extend(is_taken.then_some(byte));
    }
    let [values, names] = taken;
    assert!((b' '..=b'~').all(|byte| values.contains(&byte)), "{}", values.escape_ascii());
    assert!((b'a'..=b'z').all(|byte| names.contains(&byte)), "{}", names.escape_ascii());
}

#[test]
fn a_name_may_be_as_long_as_in_the_crate_http() {
    for (length, is_fine) in [(NAME_BYTES_MAX, true), (NAME_BYTES_MAX + 1, false)] {
        let name = "x".repeat(length);
        let fields = taken_up(&head(true, format!("{name}: 1\r\n").as_bytes()));
        assert_eq!(fields.is_some(), is_fine);
        assert_eq!(HeaderName::from_bytes(name.as_bytes()).is_ok(), is_fine);
        if let Some(fields) = fields {
            assert_eq!(fields.to_map()[&name], "1");
            assert_eq!(Fields::from(&fields.to_map()), fields);
        }
    }
}

#[test]
fn every_name_of_a_stream_is_one_again() {
    for byte in 0..=255_u8 {
        for name in [vec![b'x', byte, b'y'], [&[b'x'; 70][..], &[byte]].concat()] {
            let Ok(name) = HeaderName::from_lowercase(&name) else { continue };
            let map = HeaderMap::from_iter([(name, HeaderValue::from_static("1"))]);
            assert_eq!(Fields::from(&map).to_map(), map);
        }
    }
}

#[test]
fn a_name_may_be_there_as_often_as_a_stream_has_it() {
    let mut map = HeaderMap::new();
    for _ in 0..30_000 {
        map.append("x", HeaderValue::from_static("1"));
    }
    assert_eq!(Fields::from(&map).to_map().len(), 30_000);
}
