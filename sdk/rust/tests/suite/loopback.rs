//! A server and a client on loopback.

use std::net::SocketAddr;

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves until the runtime of the test ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The values of a header, joined as HTTP joins them; `None` if it did not come.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        let values: Vec<_> = fields
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

/// Asks for a path with these header lines, over a connection of its own.
pub(crate) async fn ask(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut connection = send(address, path, headers).await;
    let mut text = Vec::new();
    connection.read_to_end(&mut text).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// Sends a request and leaves the connection to the caller.
pub(crate) async fn send(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> TcpStream {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}
