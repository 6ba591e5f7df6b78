//! Where Debian's package of ZooKeeper has the server's classes and those they need.

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
pub(crate) fn class_path() -> Option<String> {
    let jars = LIBRARIES.map(|name| format!("{CLASSES}/{name}.jar"));
    std::path::Path::new(&jars[0]).exists().then(|| jars.join(":"))
}
