//! A replica that writes down what it is told, and answers what it was told to.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use evenkeel_testkit::corpus::Case;

use super::message::{Kind, Message, Reader};

/// A replica.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    told: Vec<Message>,
    /// What `/case` is answered with.
    answer: Case,
}

impl Origin {
    /// It serves until the end of the process.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let serving = origin.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, origin) = (stream.unwrap(), serving.clone());
                stream.set_nodelay(true).unwrap();
                std::thread::spawn(move || origin.serve(&stream));
            }
        });
        origin
    }

    /// A new case begins, in which `/case` is answered so.
    pub(super) fn begin(&self, answer: Case) {
        *self.state.lock().unwrap() = State { told: Vec::new(), answer };
    }

    /// The whole requests of this case.
    pub(super) fn told(&self) -> Vec<Message> {
        self.state.lock().unwrap().told.clone()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = Reader::new(stream, Vec::new());
        while let Some(request) = reader.message(Kind::Request).filter(|it| it.is_whole) {
            let (method, target) = (request.word(0).to_owned(), request.word(1).to_owned());
            let answer = {
                let mut state = self.state.lock().unwrap();
                state.told.push(request);
                state.answer.clone()
            };
            let is_over = match target == "/case" {
                true => write_case(stream, &answer, &[]),
                false => {
                    let body = format!("{method} {target}");
                    let length = body.len();
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                    let sent = if method == "HEAD" { head } else { head + &body };
                    (&mut &*stream).write_all(sent.as_bytes()).is_err()
                }
            };
            if is_over {
                return;
            }
        }
    }
}

/// Writes the pieces of a case, the last one together with what is behind it; whether the
/// connection is over.
pub(super) fn write_case(mut stream: &TcpStream, case: &Case, behind: &[u8]) -> bool {
    let count = case.pieces.len();
    for (number, piece) in case.pieces.iter().enumerate() {
        if number > 0 {
            // Each write is to be a read: that it sometimes is not makes a case weaker, not wrong.
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let is_last = number + 1 == count;
        let bytes = [&piece[..], if is_last { behind } else { &[] }].concat();
        if stream.write_all(&bytes).is_err() {
            return true;
        }
    }
    if case.closes {
        let _ = stream.shutdown(Shutdown::Write);
    }
    case.closes
}
