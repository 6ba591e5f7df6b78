//! A DNS server that can lie, on threads of its own: `Process::start` holds a test's thread up.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    #[default]
    Honest,
    Silent,
    NoSuchName,
    Empty,
    ServFail,
    Garbage,
}

#[derive(Debug, Default)]
pub(crate) struct Zone {
    pub(crate) manner: Manner,
    /// A records by name.
    pub(crate) hosts: BTreeMap<String, Vec<Ipv4Addr>>,
    pub(crate) ttl: u32,
    /// Questions for A records, by name.
    pub(crate) asked: BTreeMap<String, u32>,
}

/// It runs until the end of the test's process.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let zone = Arc::new(Mutex::new(Zone { ttl: 1, ..Zone::default() }));
        let server = Self { address: udp.local_addr().unwrap(), zone };
        let (packets, streams) = (server.clone(), server.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = udp.recv_from(&mut buffer) {
                if let Some(mut answer) = packets.answer(&buffer[..length]) {
                    if answer.len() > 512 {
                        answer.truncate(length);
                        answer[2] |= 2; // TC
                        answer[6..8].fill(0);
                    }
                    let _ = udp.send_to(&answer, from);
                }
            }
        });
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = tcp.accept() {
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                let mut length = [0; 2];
                let _ = stream.read_exact(&mut length);
                let mut asked = vec![0; u16::from_be_bytes(length).into()];
                let _ = stream.read_exact(&mut asked);
                if let Some(answer) = streams.answer(&asked) {
                    let length = (answer.len() as u16).to_be_bytes();
                    let _ = stream.write_all(&[&length[..], &answer].concat());
                }
            }
        });
        server
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Zone)) {
        change(&mut self.zone.lock().unwrap());
    }

    pub(crate) fn host(&self, name: &str, ips: &[Ipv4Addr]) {
        self.set(|zone| drop(zone.hosts.insert(name.to_owned(), ips.to_vec())));
    }

    pub(crate) fn asked(&self, name: &str) -> u32 {
        self.zone.lock().unwrap().asked.get(name).copied().unwrap_or_default()
    }

    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let (mut name, mut at) = (String::new(), 12);
        while *question.get(at)? != 0 {
            let end = at + 1 + usize::from(question[at]);
            name += &(String::from_utf8_lossy(question.get(at + 1..end)?) + ".");
            at = end;
        }
        let name = name.trim_end_matches('.');
        let is_a = question.get(at + 1..at + 3)? == [0, 1];
        let mut zone = self.zone.lock().unwrap();
        if is_a {
            *zone.asked.entry(name.to_owned()).or_default() += 1;
        }
        let known = zone.hosts.get(name);
        let code = match zone.manner {
            Manner::Silent => return None,
            Manner::Garbage => return Some(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
            Manner::ServFail => 2,
            Manner::NoSuchName => 3,
            Manner::Empty => 0,
            Manner::Honest => {
                if known.is_some() {
                    0
                } else {
                    3
                }
            }
        };
        let ips = known.filter(|_| is_a && zone.manner == Manner::Honest);
        let ips: &[Ipv4Addr] = ips.map_or(&[], Vec::as_slice);
        let mut answer = question.get(..at + 5)?.to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x80 | code]);
        answer[6..8].copy_from_slice(&(ips.len() as u16).to_be_bytes());
        for ip in ips {
            answer.extend([0xc0, 12, 0, 1, 0, 1]);
            answer.extend(zone.ttl.to_be_bytes());
            answer.extend([0, 4]);
            answer.extend(ip.octets());
        }
        Some(answer)
    }
}
