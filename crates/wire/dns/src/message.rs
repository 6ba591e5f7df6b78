//! Questions to DNS servers and their answers, as bytes (RFC 1035, RFC 2782).
//!
//! Without EDNS, as the C library asks by default: every server understands it, and an answer of
//! more than 512 bytes comes over TCP.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

/// The longest chain of aliases (CNAME) that is followed.
const ALIASES_MAX: usize = 16;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    A,
    Aaaa,
    Srv,
}

impl Kind {
    const fn record(self) -> TYPE {
        match self {
            Self::A => TYPE::A,
            Self::Aaaa => TYPE::AAAA,
            Self::Srv => TYPE::SRV,
        }
    }
}

/// A record of a service (SRV): one server of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// Servers of a higher number are for when those of lower ones cannot be reached.
    pub priority: u16,
    /// The share of requests that it should get among those of its priority.
    pub weight: u16,
    /// Its port.
    pub port: u16,
    /// Its host name.
    pub host: String,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The name does not exist, or has no such records.
    Nobody,
    Records(Records),
    /// Not all fits: it is to be asked over TCP.
    Truncated,
    /// The server could not or would not say.
    Refused(&'static str),
}

/// The records of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) ips: BTreeSet<IpAddr>,
    pub(crate) services: BTreeSet<Service>,
    /// The shortest time to live.
    pub(crate) ttl: Duration,
}

/// Why bytes are no answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Odd {
    /// They answer something else: another packet may be the answer.
    Foreign,
    /// They are no DNS message.
    Malformed,
}

/// A question, as bytes; `None` for what is no name.
pub(crate) fn question(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).ok()?;
    let class = QCLASS::CLASS(CLASS::IN);
    packet.questions.push(Question::new(name, QTYPE::TYPE(kind.record()), class, false));
    packet.build_bytes_vec().ok()
}

/// What bytes answer to a question.
pub(crate) fn answer(bytes: &[u8], id: u16, name: &str, kind: Kind) -> Result<Said, Odd> {
    let packet = Packet::parse(bytes).map_err(|_| Odd::Malformed)?;
    let name = Name::new(name).map_err(|_| Odd::Malformed)?;
    let is_ours = |question: &Question<'_>| {
        question.qname == name && question.qtype == QTYPE::TYPE(kind.record())
    };
    // Servers that understand nothing may leave the question out.
    let is_bare = packet.questions.is_empty() && packet.rcode() != RCODE::NoError;
    let is_answer = packet.id() == id && packet.has_flags(PacketFlag::RESPONSE);
    if !is_answer || !(is_bare || matches!(&packet.questions[..], [one] if is_ours(one))) {
        return Err(Odd::Foreign);
    }
    match packet.rcode() {
        RCODE::NoError if packet.has_flags(PacketFlag::TRUNCATION) => Ok(Said::Truncated),
        RCODE::NoError => Ok(records(&packet, name)),
        RCODE::NameError => Ok(Said::Nobody),
        RCODE::ServerFailure => Ok(Said::Refused("SERVFAIL")),
        RCODE::Refused => Ok(Said::Refused("REFUSED")),
        RCODE::FormatError => Ok(Said::Refused("FORMERR")),
        RCODE::NotImplemented => Ok(Said::Refused("NOTIMP")),
        _ => Ok(Said::Refused("an unexpected RCODE")),
    }
}

/// The records of the name or of what it is an alias of.
fn records(packet: &Packet<'_>, name: Name<'_>) -> Said {
    let mut names = vec![name];
    let mut found = Records { ttl: Duration::MAX, ..Records::default() };
    let alias = |names: &[Name<'_>]| {
        packet.answers.iter().find_map(|record| match &record.rdata {
            RData::CNAME(alias) if names.contains(&record.name) && !names.contains(&alias.0) => {
                Some((alias.0.clone().into_owned(), record.ttl))
            }
            _ => None,
        })
    };
    while let Some((next, ttl)) = alias(&names).filter(|_| names.len() <= ALIASES_MAX) {
        names.push(next);
        found.ttl = found.ttl.min(seconds(ttl));
    }
    for record in packet.answers.iter().filter(|record| names.contains(&record.name)) {
        match &record.rdata {
            RData::SRV(service) => {
                found.services.insert(Service {
                    priority: service.priority,
                    weight: service.weight,
                    port: service.port,
                    host: service.target.to_string(),
                });
            }
            other => match ip(other) {
                Some(ip) => {
                    found.ips.insert(ip);
                }
                None => continue,
            },
        }
        found.ttl = found.ttl.min(seconds(record.ttl));
    }
    match found.ips.is_empty() && found.services.is_empty() {
        true => Said::Nobody,
        false => Said::Records(found),
    }
}

fn ip(data: &RData<'_>) -> Option<IpAddr> {
    match data {
        RData::A(it) => Some(Ipv4Addr::from_bits(it.address).into()),
        RData::AAAA(it) => Some(Ipv6Addr::from_bits(it.address).into()),
        _ => None,
    }
}

/// A time to live; more than 31 bits are none (RFC 2181).
fn seconds(ttl: u32) -> Duration {
    Duration::from_secs(if ttl > i32::MAX as u32 { 0 } else { ttl.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{A, CNAME, SRV};

    fn name(text: &str) -> Name<'_> {
        Name::new(text).unwrap()
    }

    fn record<'a>(of: &'a str, ttl: u32, data: RData<'a>) -> ResourceRecord<'a> {
        ResourceRecord::new(name(of), CLASS::IN, ttl, data)
    }

    fn a(host: u8) -> RData<'static> {
        RData::A(A { address: Ipv4Addr::new(10, 0, 0, host).into() })
    }

    /// An answer to a question for addresses of `shop.test`.
    fn reply<'a>(answers: Vec<ResourceRecord<'a>>) -> Packet<'a> {
        let mut packet = Packet::new_reply(7);
        let class = QCLASS::CLASS(CLASS::IN);
        let asked = Question::new(name("shop.test"), QTYPE::TYPE(TYPE::A), class, false);
        packet.questions.push(asked);
        packet.answers = answers;
        packet
    }

    fn read(packet: &Packet<'_>) -> Result<Said, Odd> {
        answer(&packet.build_bytes_vec_compressed().unwrap(), 7, "shop.test", Kind::A)
    }

    #[test]
    fn addresses_are_those_of_the_name_and_of_its_aliases() {
        let found = read(&reply(vec![
            record("SHOP.test", 300, RData::CNAME(CNAME(name("blue.test")))),
            record("other.test", 1, a(9)),
            record("blue.test", 60, a(1)),
            record("blue.test", 90, a(2)),
        ]));
        let ips = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let ttl = Duration::from_secs(60);
        let records = Records { ips: ips.into(), ttl, ..Records::default() };
        assert_eq!(found, Ok(Said::Records(records)));
        // A chain that ends nowhere, and one that goes round.
        let round = vec![
            record("shop.test", 5, RData::CNAME(CNAME(name("a.test")))),
            record("a.test", 5, RData::CNAME(CNAME(name("shop.test")))),
        ];
        assert_eq!(read(&reply(round)), Ok(Said::Nobody));
        assert_eq!(read(&reply(vec![])), Ok(Said::Nobody));
    }

    #[test]
    fn an_answer_to_something_else_is_none() {
        let bytes = reply(vec![record("shop.test", 5, a(1))]).build_bytes_vec().unwrap();
        assert_eq!(answer(&bytes, 8, "shop.test", Kind::A), Err(Odd::Foreign));
        assert_eq!(answer(&bytes, 7, "shop.example", Kind::A), Err(Odd::Foreign));
        assert_eq!(answer(&bytes, 7, "shop.test", Kind::Aaaa), Err(Odd::Foreign));
        let asked = question(7, "shop.test", Kind::A).unwrap();
        assert_eq!(answer(&asked, 7, "shop.test", Kind::A), Err(Odd::Foreign), "our own");
        assert_eq!(answer(b"HTTP/1.1 400", 7, "shop.test", Kind::A), Err(Odd::Malformed));
        let mut refused = reply(vec![]);
        *refused.rcode_mut() = RCODE::ServerFailure;
        assert_eq!(read(&refused), Ok(Said::Refused("SERVFAIL")));
        refused.questions.clear();
        assert_eq!(read(&refused), Ok(Said::Refused("SERVFAIL")));
        let mut long = reply(vec![]);
        long.set_flags(PacketFlag::TRUNCATION);
        assert_eq!(read(&long), Ok(Said::Truncated));
    }

    #[test]
    fn services_are_read_whatever_comes_along() {
        let mut packet = reply(vec![]);
        packet.questions[0].qtype = QTYPE::TYPE(TYPE::SRV);
        let service = SRV { priority: 1, weight: 5, port: 8_080, target: name("One.test") };
        packet.answers.push(record("shop.test", 20, RData::SRV(service)));
        packet.additional_records.push(record("one.test", 4, a(1)));
        let bytes = packet.build_bytes_vec().unwrap();
        let Ok(Said::Records(found)) = answer(&bytes, 7, "shop.test", Kind::Srv) else {
            panic!("records are expected")
        };
        let service = Service { priority: 1, weight: 5, port: 8_080, host: "One.test".to_owned() };
        assert_eq!(found.services, [service].into());
        assert!(found.ips.is_empty(), "addresses that come along are not of this name");
        assert_eq!(found.ttl, Duration::from_secs(20));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = answer(&bytes, 7, "shop.test", Kind::Srv);
        }

        /// An answer with some bytes changed or cut off.
        #[test]
        fn nor_do_broken_answers(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let packet = reply(vec![
                record("shop.test", 300, RData::CNAME(CNAME(name("blue.test")))),
                record("blue.test", 60, a(1)),
            ]);
            let mut bytes = packet.build_bytes_vec_compressed().unwrap();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            let _ = answer(&bytes, 7, "shop.test", Kind::A);
        }
    }
}
