//! One answer of those of several groups.

use evenkeel_leadership::Group;
use evenkeel_stores::resp::whole::{self, Cursor};
use evenkeel_stores::resp::{Protocol, encode, info, merge, reply};

/// Partitions that a cursor can tell apart, dealt to groups as partitions are.
const PLACES: usize = 64;

/// How answers become one.
#[derive(Debug)]
pub(super) enum Join {
    /// That of the first part; of the others only an error.
    First,
    /// The first that is no error.
    Any,
    Sum,
    /// The least number.
    Least,
    /// One value for each of so many keys; by part, where its keys stand.
    Values(usize, Vec<Vec<usize>>),
    /// All elements.
    Arrays,
    /// `INFO` of all.
    Info,
    /// Of `RANDOMKEY`: a key and how many there are, in turn; and a number to draw by.
    Draw(u64),
    /// Of `SCAN`, of this group.
    Scan(Group),
}

/// Where a cursor of a client leads: a group, and the cursor there.
pub(super) fn group_of(cursor: u64, groups: usize) -> Option<(usize, u64)> {
    if cursor == 0 {
        return Some((0, 0));
    }
    let mut known = Cursor::unpack(cursor)?;
    let group = Group::all(groups).find(|group| group.share(PLACES).contains(&known.partition))?;
    known.partition -= group.share(PLACES).start;
    let is_new = known.own == 0 && known.partition == 0;
    Some((group.number, if is_new { 0 } else { known.pack()? }))
}

/// What a client gets as the cursor of a group's scan; `None`: there is no room for it.
fn cursor_of(own: u64, group: Group) -> Option<u64> {
    let first = |group: Group| Cursor { partition: group.share(PLACES).start, ..Cursor::default() };
    if own == 0 {
        let next = Group { number: group.number + 1, ..group };
        return if next.number == next.of { Some(0) } else { first(next).pack() };
    }
    let mut cursor = Cursor::unpack(own)?;
    cursor.partition += group.share(PLACES).start;
    group.share(PLACES).contains(&cursor.partition).then(|| cursor.pack())?
}

fn is_error(answer: &[u8]) -> bool {
    matches!(answer.first(), Some(b'-' | b'!'))
}

impl Join {
    /// The answer of these parts: that of one that failed, if one did.
    pub(super) fn joined(&self, parts: Vec<Vec<u8>>, protocol: Protocol) -> Vec<u8> {
        let failed = parts.iter().position(|part| is_error(part));
        let mut out = Vec::new();
        let numbers = || parts.iter().map(|part| reply::integer(part).unwrap_or_default());
        match (self, failed) {
            (Self::Any | Self::Info, Some(at)) if parts.iter().all(|part| is_error(part)) => {
                return parts[at].clone();
            }
            (Self::Any, _) => {
                return parts.into_iter().find(|part| !is_error(part)).unwrap_or_default();
            }
            (Self::Info, _) => {
                let texts = parts.iter().filter(|part| !is_error(part));
                let texts: Vec<&str> = texts.map(|part| text_of(part)).collect();
                encode::text(&mut out, &info::merge(&texts, &[], 0), protocol);
            }
            (_, Some(at)) => return parts[at].clone(),
            (Self::First, None) => return parts.into_iter().next().unwrap_or_default(),
            (Self::Sum, None) => {
                encode::integer(&mut out, numbers().fold(0, i64::saturating_add));
            }
            (Self::Least, None) => encode::integer(&mut out, numbers().min().unwrap_or_default()),
            (Self::Values(count, places), None) => {
                let parts = places.iter().map(|it| &**it).zip(parts.iter().map(|it| &**it));
                merge::values(parts, *count, &mut out);
            }
            (Self::Arrays, None) => {
                merge::arrays(parts.iter().map(|part| &**part), |_, _| true, &mut out);
            }
            (Self::Draw(number), None) => return drawn(&parts, *number, protocol),
            (Self::Scan(group), None) => scanned(&parts[0], *group, &mut out),
        }
        out
    }
}

/// What a reply of text says, without its format.
fn text_of(reply: &[u8]) -> &str {
    let text = reply::payload(reply).unwrap_or_default();
    let text = if reply.first() == Some(&b'=') { text.get(4..).unwrap_or_default() } else { text };
    str::from_utf8(text).unwrap_or_default()
}

/// One of the keys, of which each stands for so many.
fn drawn(parts: &[Vec<u8>], number: u64, protocol: Protocol) -> Vec<u8> {
    let count = |pair: &[Vec<u8>]| {
        let is_there = reply::payload(&pair[0]).is_some();
        let count = reply::integer(&pair[1]).and_then(|count| u64::try_from(count).ok());
        if is_there { count.unwrap_or_default().max(1) } else { 0 }
    };
    let pairs = || parts.chunks_exact(2);
    let all = pairs().fold(0_u64, |all, pair| all.saturating_add(count(pair)));
    let mut at = if all == 0 { 0 } else { number % all };
    for pair in pairs() {
        if at < count(pair) {
            return pair[0].clone();
        }
        at -= count(pair);
    }
    let mut none = Vec::new();
    encode::null(&mut none, protocol);
    none
}

/// A page of one group.
fn scanned(page: &[u8], group: Group, out: &mut Vec<u8>) {
    let mut elements = reply::elements(page);
    let own = elements.next().and_then(reply::payload).and_then(whole::cursor);
    let Some(cursor) = own.and_then(|own| cursor_of(own, group)) else {
        let Group { number, of } = group;
        let text = format!(
            "ERR group {number} of {of} has more partitions than a cursor tells apart, expected at \
             most {}: scan it at its door, as a client of Redis Cluster",
            group.share(PLACES).len()
        );
        return encode::error(out, &text);
    };
    encode::array(out, 2);
    encode::bulk(out, cursor.to_string().as_bytes());
    elements.for_each(|keys| out.extend_from_slice(keys));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_goes_through_all_groups_and_its_cursors_are_exact_for_javascript() {
        for of in [2, 3, 4, 7, 32, 64] {
            let mut cursor = 0;
            for group in Group::all(of) {
                assert_eq!(group_of(cursor, of), Some((group.number, 0)), "it begins");
                let own = Cursor { partition: 0, layout: 3, pin: 4_095, own: (1 << 30) - 1 };
                let own = own.pack().unwrap();
                let told = cursor_of(own, group).unwrap();
                assert!(told < 1 << 53);
                assert_eq!(group_of(told, of), Some((group.number, own)));
                cursor = cursor_of(0, group).unwrap();
                assert!(cursor < 1 << 53);
            }
            assert_eq!(cursor, 0, "it ends");
        }
        let last = Cursor { partition: 16, layout: 1, pin: 1, own: 7 }.pack().unwrap();
        assert_eq!(cursor_of(last, Group { number: 1, of: 4 }), None, "it would be group 2's");
        assert_eq!(group_of(1 << 60, 4), None);
    }

    #[test]
    fn what_one_group_refuses_is_refused_and_numbers_are_added() {
        let parts = |parts: &[&[u8]]| parts.iter().map(|part| part.to_vec()).collect::<Vec<_>>();
        let of = |join: Join, them: &[&[u8]]| join.joined(parts(them), Protocol::Resp2);
        assert_eq!(of(Join::Sum, &[b":2\r\n", b":40\r\n"]), b":42\r\n");
        assert_eq!(of(Join::Sum, &[b":2\r\n", b"-ERR no\r\n"]), b"-ERR no\r\n");
        assert_eq!(of(Join::Least, &[b":2\r\n", b":1\r\n"]), b":1\r\n");
        assert_eq!(of(Join::Any, &[b"-NOTBUSY no\r\n", b"+OK\r\n"]), b"+OK\r\n");
        assert_eq!(of(Join::Any, &[b"-A\r\n", b"-B\r\n"]), b"-A\r\n");
        let values = Join::Values(3, vec![vec![1], vec![0, 2]]);
        let told = of(values, &[b"*1\r\n$1\r\nb\r\n", b"*2\r\n$1\r\na\r\n$-1\r\n"]);
        assert_eq!(told, b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n");
        let infos: [&[u8]; 2] = [
            b"$24\r\n# Keyspace\r\ndb0:keys=1\r\n\r\n",
            b"=29\r\ntxt:# Keyspace\r\ndb0:keys=41\r\n\r\n",
        ];
        let told = String::from_utf8(of(Join::Info, &infos)).unwrap();
        assert!(told.contains("db0:keys=42"), "{told}");
    }

    #[test]
    fn a_random_key_is_drawn_by_how_many_each_group_has() {
        let parts: Vec<Vec<u8>> =
            [&b"$1\r\na\r\n"[..], b":1\r\n", b"$-1\r\n", b":0\r\n", b"$1\r\nb\r\n", b":3\r\n"]
                .map(<[u8]>::to_vec)
                .into();
        let drawn = |number| drawn(&parts, number, Protocol::Resp2);
        let told: Vec<Vec<u8>> = (0..4).map(drawn).collect();
        let (a, b) = (b"$1\r\na\r\n".to_vec(), b"$1\r\nb\r\n".to_vec());
        assert_eq!(told, [a, b.clone(), b.clone(), b]);
        assert_eq!(super::drawn(&parts[2..4], 7, Protocol::Resp3), b"_\r\n");
    }
}
