//! WebSocket through the proxy: the handshake, bytes in both directions, how each side ends; and
//! that nothing of it is a tunnel before the replica agrees.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_testkit::wait::PATIENCE;

const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nhost: web\r\nconnection: keep-alive, Upgrade\r\n\
                         upgrade: WebSocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                         sec-websocket-version: 13\r\n\r\n";
const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
                      connection: Upgrade\r\n\
                      sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A replica that serves each connection so; tells the heads that came.
fn replica(
    serve: impl Fn(&mut TcpStream) + Send + Clone + 'static,
) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (told, heads) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, serve, told) = (stream.unwrap(), serve.clone(), told.clone());
            std::thread::spawn(move || {
                while let Some(head) = head(&mut stream) {
                    let _ = told.send(head);
                    serve(&mut stream);
                }
            });
        }
    });
    (address, heads)
}

/// Reads one head and no byte more.
fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

fn exactly(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn rest(stream: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    String::from_utf8(rest).unwrap()
}

/// Sends everything back as it comes, and "bye" when the other side has ended.
fn echo(stream: &mut TcpStream) {
    let mut buffer = [0; 65_536];
    loop {
        match stream.read(&mut buffer).unwrap_or(0) {
            0 => break,
            count => stream.write_all(&buffer[..count]).unwrap(),
        }
    }
    let _ = stream.write_all(b"bye");
    let _ = stream.shutdown(Shutdown::Both);
}

fn start(replica: SocketAddr, more: &str) -> Process {
    let engine = module_path!().rsplit("::").next().unwrap(); // one of both
    let text = format!(
        "[process]\nworkers = 1\ndrain = '1s'\nengine = '{engine}'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         [upstream.web]\nreplicas = ['{replica}']\n{more}"
    );
    let config = Config::read(&Node::parse(&text, "run.toml").unwrap());
    Process::start(config.unwrap_or_else(|problems| panic!("{problems}"))).unwrap()
}

fn connect(proxy: &Process) -> TcpStream {
    let stream = TcpStream::connect(proxy.listens()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn bytes_pass_in_both_directions_until_each_side_ends() {
    let (address, heads) = replica(|stream| {
        stream.write_all(format!("{AGREED}hello").as_bytes()).unwrap();
        echo(stream);
    });
    let proxy = start(address, "");
    let mut client = connect(&proxy);
    // What the client has to say may come with its request, what the replica says with its answer.
    client.write_all(format!("{HANDSHAKE}early").as_bytes()).unwrap();
    let answer = head(&mut client).unwrap().to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    for line in ["connection: upgrade\r\n", "upgrade: websocket\r\n", "sec-websocket-accept: s3p"] {
        assert!(answer.contains(line), "{answer}");
    }
    assert_eq!(exactly(&mut client, 10), "helloearly");
    let asked = heads.recv_timeout(PATIENCE).unwrap().to_ascii_lowercase();
    for line in ["connection: upgrade\r\n", "upgrade: websocket\r\n", "sec-websocket-key: dghl"] {
        assert!(asked.contains(line), "{asked}");
    }
    // More than all buffers hold, in one direction while the other one flows.
    let message = "x".repeat(3 << 20);
    let mut writer = client.try_clone().unwrap();
    let whole = message.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(whole.as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let came = rest(&mut client);
    writing.join().unwrap();
    assert!(came == message + "bye", "{} bytes", came.len());
    proxy.stop().unwrap();
}

#[test]
fn without_an_agreement_the_answer_is_passed_on_and_nothing_behind_it_is_a_request() {
    let (address, heads) = replica(|stream| {
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno").unwrap();
    });
    let proxy = start(address, "");
    let mut client = connect(&proxy);
    let hidden = "GET /hidden HTTP/1.1\r\nhost: web\r\n\r\n";
    client.write_all(format!("{HANDSHAKE}{hidden}").as_bytes()).unwrap();
    let answer = head(&mut client).unwrap().to_ascii_lowercase();
    assert!(
        answer.starts_with("http/1.1 403 ") && answer.contains("connection: close"),
        "{answer}"
    );
    assert_eq!(rest(&mut client), "no");
    assert!(heads.recv_timeout(PATIENCE).unwrap().starts_with("GET /chat "));
    proxy.stop().unwrap();
    assert!(!heads.try_iter().any(|head| head.contains("hidden")));
}

#[test]
fn a_101_that_nobody_asked_for_or_of_another_protocol_is_refused() {
    let other = AGREED.replace("websocket", "h2c");
    let (address, _heads) = replica(move |stream| stream.write_all(other.as_bytes()).unwrap());
    let proxy = start(address, "");
    let plain = "GET / HTTP/1.1\r\nhost: web\r\n\r\n";
    for request in [HANDSHAKE, plain] {
        let mut client = connect(&proxy);
        client.write_all(request.as_bytes()).unwrap();
        let answer = head(&mut client).unwrap();
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
    proxy.stop().unwrap();
}

#[test]
fn what_is_no_handshake_is_refused_before_any_replica() {
    let (address, heads) = replica(echo);
    let proxy = start(address, "");
    for (from, to, status) in [
        ("upgrade: WebSocket", "upgrade: foo", "501"),
        ("GET", "POST", "400"),
        (", Upgrade", "", "400"),
        ("sec-websocket-version: 13", "content-length: 3", "400"),
        ("HTTP/1.1", "HTTP/1.0", "400"),
    ] {
        let mut client = connect(&proxy);
        client.write_all(HANDSHAKE.replacen(from, to, 1).as_bytes()).unwrap();
        let answer = head(&mut client).unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{from:?} is {to:?}: {answer}");
    }
    proxy.stop().unwrap();
    assert!(heads.try_iter().next().is_none(), "none was passed on");
}

#[test]
fn a_tunnel_ends_when_nothing_moves_or_the_process_has_to_stop() {
    let (address, _heads) = replica(|stream| {
        stream.write_all(AGREED.as_bytes()).unwrap();
        echo(stream);
    });
    let proxy = start(address, "[upstream.web.timeouts]\ntunnel = '200ms'\n");
    let mut client = connect(&proxy);
    client.write_all(HANDSHAKE.as_bytes()).unwrap();
    head(&mut client).unwrap();
    assert_eq!(rest(&mut client), "", "it ends");
    proxy.stop().unwrap();
    let proxy = start(address, "");
    let mut client = connect(&proxy);
    client.write_all(HANDSHAKE.as_bytes()).unwrap();
    head(&mut client).unwrap();
    proxy.stop().unwrap();
    assert_eq!(rest(&mut client), "", "cut off at the end of the drain");
}
