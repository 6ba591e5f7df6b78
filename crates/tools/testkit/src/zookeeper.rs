//! Real ZooKeeper servers, as Debian's package has them.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::Program;
use crate::story::skipped;
use crate::wait::block_until;

const CLASSES: &str = "/usr/share/java";
const LIBRARIES: [&str; 14] = [
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-log4j12",
    "log4j-1.2",
    "netty-handler",
    "netty-transport",
    "netty-common",
    "netty-buffer",
    "netty-codec",
    "netty-resolver",
    "snappy-java",
    "metrics-core",
    "commons-cli",
];

/// What `java -cp` wants to hear; `None` where the package is not installed.
#[must_use]
pub fn class_path() -> Option<String> {
    let jars = LIBRARIES.map(|name| format!("{CLASSES}/{name}.jar"));
    Path::new(&jars[0]).exists().then(|| jars.join(":"))
}

/// Starts one server alone that listens there and keeps its files in a folder. `None`, said aloud,
/// where it is not installed.
///
/// # Panics
/// When it does not start.
#[must_use]
pub fn start(address: SocketAddr, folder: &Path) -> Option<Program> {
    let Some(classes) = class_path() else {
        skipped("no ZooKeeper (Debian package zookeeper)");
        return None;
    };
    let settings = format!(
        "tickTime=500\ndataDir={}\nclientPortAddress={}\nclientPort={}\n\
         admin.enableServer=false\n",
        folder.display(),
        address.ip(),
        address.port()
    );
    let config = folder.join("zoo.cfg");
    std::fs::write(&config, settings).expect("files can be written");
    let mut command = Command::new("java");
    command
        .args(["-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"])
        .args(["-Dzookeeper.forceSync=no", "-Dzookeeper.root.logger=ERROR,CONSOLE"])
        .args(["-cp", &format!("/etc/zookeeper/conf_example:{classes}")])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(config)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Some(mut program) = Program::start_if_installed(&mut command) else {
        skipped("no java (Debian package default-jre-headless)");
        return None;
    };
    program.wait_listening(address);
    // It listens before it serves, and a session that is opened in between waits for half a minute.
    block_until("ZooKeeper serves", || answer(address).is_ok_and(|it| it.contains("Mode:")));
    Some(program)
}

/// What a server says of itself.
fn answer(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"srvr")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
