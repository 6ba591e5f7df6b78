//! Who is compared: Evenkeel with either engine, HAProxy, nginx. Each has a listener for each
//! origin, tries nothing again and passes bodies on as they come. nginx takes a new connection for
//! each request: it would ask on one that the origin is about to close, and not again.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::nginx;
use evenkeel_testkit::program::Program;

use super::origin::Origin;

/// Somebody between clients and origins.
pub(super) struct Subject {
    pub(super) name: &'static str,
    /// A listener for each of the origins.
    pub(super) lanes: Vec<(SocketAddr, Origin)>,
    /// They end with it.
    _process: Option<Process>,
    _program: Option<Program>,
}

/// Addresses for a program that must be told them. They are not on the address where everybody
/// else's free ports are: those come and go while the program starts.
fn places(count: usize) -> Vec<SocketAddr> {
    static TAKEN: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 64 | high, low, TAKEN.fetch_add(1, Relaxed));
    (0..count).map(|number| SocketAddr::from((own, 8000 + number as u16))).collect()
}

fn origins(count: usize) -> Vec<Origin> {
    (0..count).map(|_| Origin::start()).collect()
}

/// Evenkeel.
pub(super) fn evenkeel(engine: &'static str, lanes: usize) -> Subject {
    let origins = origins(lanes);
    let mut text = format!("[process]\nworkers = 1\nengine = '{engine}'\n");
    for (number, origin) in origins.iter().enumerate() {
        let address = origin.address;
        text += &format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'u{number}'\n\
             [upstream.u{number}]\nreplicas = ['{address}']\n"
        );
    }
    let config = Config::read(&Node::parse(&text, "peers.toml").unwrap());
    let process = Process::start(config.unwrap_or_else(|problems| panic!("{problems}"))).unwrap();
    let lanes = process.listens().to_vec().into_iter().zip(origins).collect();
    Subject { name: engine, lanes, _process: Some(process), _program: None }
}

/// HAProxy, where it is installed.
pub(super) fn haproxy(folder: &Folder, lanes: usize) -> Option<Subject> {
    let (ports, origins) = (places(lanes), origins(lanes));
    let mut text = "global\n  nbthread 1\ndefaults\n  mode http\n  retries 0\n\
                    \x20 timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n"
        .to_owned();
    for (number, (address, origin)) in ports.iter().zip(&origins).enumerate() {
        let origin = origin.address;
        text += &format!(
            "frontend f{number}\n  bind {address}\n  default_backend b{number}\n\
             backend b{number}\n  server s {origin}\n"
        );
    }
    let file = folder.file("haproxy.cfg");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Program::start_if_installed(&mut command).or_else(|| {
        // Where Debian puts it.
        let mut command = Command::new("/usr/sbin/haproxy");
        command.args(["-db", "-f"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        Program::start_if_installed(&mut command)
    });
    let Some(program) = started else {
        println!("SKIPPED: no HAProxy here (Debian: apt-get install haproxy)");
        return None;
    };
    Some(of_program("haproxy", program, ports, origins))
}

/// nginx, where it is installed.
pub(super) fn nginx(folder: &Folder, lanes: usize) -> Option<Subject> {
    let Some(binary) = nginx::find() else {
        println!("SKIPPED: no nginx here (Debian: apt-get install nginx-light)");
        return None;
    };
    let (ports, origins) = (places(lanes), origins(lanes));
    let path = folder.path().display();
    let mut text = format!(
        "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\n\
         events {{}}\nhttp {{ access_log off; client_body_temp_path {path}/body;\n\
         proxy_temp_path {path}/proxy; fastcgi_temp_path {path}/fastcgi;\n\
         uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;\n\
         proxy_http_version 1.1; proxy_set_header Connection ''; proxy_request_buffering off;\n\
         proxy_set_header Host $http_host; proxy_next_upstream off;\n"
    );
    for (address, origin) in ports.iter().zip(&origins) {
        let origin = origin.address;
        text += &format!(
            "server {{ listen {address}; location / {{ proxy_pass http://{origin}; }} }}\n"
        );
    }
    let file = folder.file("nginx.conf");
    std::fs::write(&file, text + "}\n").unwrap();
    let mut command = Command::new(binary);
    command.arg("-c").arg(&file).arg("-p").arg(folder.path());
    Some(of_program("nginx", Program::start(&mut command), ports, origins))
}

fn of_program(
    name: &'static str,
    mut program: Program,
    ports: Vec<SocketAddr>,
    origins: Vec<Origin>,
) -> Subject {
    ports.iter().for_each(|address| program.wait_listening(*address));
    let lanes = ports.into_iter().zip(origins).collect();
    Subject { name, lanes, _process: None, _program: Some(program) }
}
