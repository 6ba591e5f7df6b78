//! What a node reads (configuration, options of Java, certificates), and what clears away after it.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::{PORT, Spec};
use crate::certificates::Authority;

/// A new folder for one cluster.
pub(super) fn own_folder(address: Ipv4Addr) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("evenkeel-cassandra-{address}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A shell that ends the nodes when this process ends: statics are never dropped, and a killed
/// process drops nothing. It knows nodes by their folder, which is in their command lines. After a
/// panic it leaves their logs.
#[derive(Debug)]
pub(super) struct Reaper {
    shell: Child,
    /// Its closing is the sign; the kernel does it for whoever is killed.
    held: Option<ChildStdin>,
}

impl Reaper {
    const SCRIPT: &str = r#"
        trap '' INT TERM HUP
        read -r nothing
        for file in /proc/[0-9]*/cmdline; do
            process=${file#/proc/}; process=${process%/cmdline}
            if tr '\0' ' ' <"$file" 2>/dev/null | grep -qF -- "-Dcassandra.storagedir=$1/"
            then kill -9 "$process"
            fi
        done
        sleep 0.2
        if [ -e "$1/failed" ]
        then rm -rf "$1"/*/data "$1"/*/commitlog "$1"/*/hints "$1"/*/cdc "$1"/*/saved_caches
        else rm -rf "$1"
        fi"#;

    pub(super) fn start(folder: &Path) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", Self::SCRIPT, "sh"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let held = shell.stdin.take();
        let (folder, next) = (folder.to_path_buf(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            next(panic);
            if fs::write(folder.join("failed"), "").is_ok() {
                eprintln!("logs of Cassandra stay in {}", folder.display());
            }
        }));
        Self { shell, held }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.held = None;
        let _ = self.shell.wait();
    }
}

/// How Java is started for a node.
#[derive(Debug)]
pub(super) struct Java {
    options: Vec<String>,
    class_path: String,
    jmx_port: u16,
}

/// Packages of Java that Cassandra needs opened, as its own `jvm17-server.options` has them.
const EXPORTS: [&str; 11] = [
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach",
];
const OPENS: [&str; 23] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.nio.charset",
    "java.base/java.nio.file.spi",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util",
    "java.base/jdk.internal.util.jar",
    "java.base/jdk.internal.vm",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
    "jdk.management.jfr/jdk.management.jfr",
];

fn opened() -> impl Iterator<Item = String> {
    let exports = EXPORTS.iter().map(|package| format!("--add-exports={package}=ALL-UNNAMED"));
    exports.chain(OPENS.iter().map(|package| format!("--add-opens={package}=ALL-UNNAMED")))
}

/// Options that hold for a node whenever it starts.
pub(super) fn java(spec: &Spec, lib: &Path) -> Java {
    let jars = fs::read_dir(lib).unwrap().map(|entry| entry.unwrap().path());
    let mut jars: Vec<String> = jars.map(|path| path.display().to_string()).collect();
    jars.sort_unstable();
    let agent = jars.iter().find(|jar| jar.contains("/jamm-")).expect("Cassandra needs jamm");
    let mut options = vec![
        format!("-Xmx{}M", spec.heap_mib),
        "-Xss512k".to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        "-XX:MaxDirectMemorySize=256M".to_owned(),
        "-XX:ActiveProcessorCount=2".to_owned(),
        "-XX:-UsePerfData".to_owned(),
        "-Djdk.attach.allowAttachSelf=true".to_owned(),
        "-Djava.net.preferIPv4Stack=true".to_owned(),
        "-Djna.nosys=true".to_owned(),
        "-Dio.netty.tryReflectionSetAccessible=true".to_owned(),
        "-Dcassandra.skip_wait_for_gossip_to_settle=0".to_owned(),
        "-Dcassandra.ring_delay_ms=2000".to_owned(),
        "-Dcassandra-foreground=yes".to_owned(),
        "-Dcassandra.superuser_setup_delay_ms=0".to_owned(),
        // Measuring this takes seconds of every start; it is what a measurement gives.
        "-Dcassandra.memtable.row_overhead_size=180".to_owned(),
        format!("-javaagent:{agent}"),
    ];
    if !spec.optimized {
        options.push("-XX:TieredStopAtLevel=1".to_owned());
    }
    options.extend(opened());
    options.extend(spec.options.iter().cloned());
    let jmx_port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    Java { options, class_path: jars.join(":"), jmx_port: jmx_port.port() }
}

impl Java {
    pub(super) fn daemon(&self, home: &Path) -> Vec<String> {
        let home = home.display();
        let mut all = self.options.clone();
        all.extend([
            format!("-Dcassandra.config=file://{home}/cassandra.yaml"),
            format!("-Dcassandra-rackdc.properties=file://{home}/rackdc.properties"),
            format!("-Dlogback.configurationFile={home}/logback.xml"),
            format!("-Dcassandra.logdir={home}/logs"),
            format!("-Dcassandra.storagedir={home}"),
            format!("-Dcassandra.jmx.local.port={}", self.jmx_port),
            "-cp".to_owned(),
            self.class_path.clone(),
            "org.apache.cassandra.service.CassandraDaemon".to_owned(),
        ]);
        all
    }

    /// Its history of commands goes to a folder of ours.
    pub(super) fn nodetool(&self, folder: &Path) -> Vec<String> {
        let words = ["-Xmx64M", "-XX:TieredStopAtLevel=1", "-Dcom.sun.jndi.rmiURLParsing=legacy"];
        let mut all = words.map(str::to_owned).to_vec();
        all.push(format!("-Duser.home={}", folder.display()));
        all.extend(opened());
        all.extend(["-cp".to_owned(), self.class_path.clone()]);
        all.push("org.apache.cassandra.tools.NodeTool".to_owned());
        all.extend(["-p".to_owned(), self.jmx_port.to_string()]);
        all
    }
}

/// Writes what one node reads; answers its folder.
pub(super) fn write(spec: &Spec, folder: &Path, addresses: &[Ipv4Addr], index: usize) -> PathBuf {
    let home = home(folder, index);
    fs::create_dir_all(home.join("logs")).unwrap();
    fs::write(home.join("cassandra.yaml"), yaml(spec, &home, addresses, index)).unwrap();
    let (data_center, rack) = &spec.places[index];
    let place = format!("dc={data_center}\nrack={rack}\nprefer_local=false\n");
    fs::write(home.join("rackdc.properties"), place).unwrap();
    fs::write(home.join("logback.xml"), LOGBACK).unwrap();
    home
}

const LOGBACK: &str = r#"<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>${cassandra.logdir}/system.log</file>
    <encoder><pattern>%date %-5level [%thread] %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"#;

/// Every node's tokens are given, so that all may start at once. All are seeds for the same reason.
fn yaml(spec: &Spec, home: &Path, addresses: &[Ipv4Addr], index: usize) -> String {
    let seeds: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let (seeds, own, home) = (seeds.join(","), addresses[index], home.display());
    let tokens: Vec<String> =
        tokens(addresses.len(), spec.tokens, index).iter().map(ToString::to_string).collect();
    let (count, tokens) = (tokens.len(), tokens.join(","));
    let (authenticator, authorizer) = match spec.password {
        true => ("PasswordAuthenticator", "CassandraAuthorizer"),
        false => ("AllowAllAuthenticator", "AllowAllAuthorizer"),
    };
    let mut tls = if spec.tls { TLS.replace("HOME", &home.to_string()) } else { String::new() };
    if let Some(version) = spec.tls_version {
        tls.push_str(&format!("  accepted_protocols: [{version}]\n"));
    }
    let Spec { name, dynamic_snitch, yaml, .. } = spec;
    format!(
        "cluster_name: {name}
num_tokens: {count}
initial_token: '{tokens}'
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
authenticator: {authenticator}
authorizer: {authorizer}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: '{seeds}'}}]
listen_address: {own}
rpc_address: {own}
storage_port: 7000
native_transport_port: {PORT}
start_native_transport: true
endpoint_snitch: GossipingPropertyFileSnitch
data_file_directories: [{home}/data]
commitlog_directory: {home}/commitlog
hints_directory: {home}/hints
saved_caches_directory: {home}/saved_caches
cdc_raw_directory: {home}/cdc
commitlog_sync: periodic
commitlog_sync_period: 10000ms
commitlog_segment_size: 8MiB
commitlog_total_space: 64MiB
file_cache_size: 32MiB
networking_cache_size: 16MiB
key_cache_size: 8MiB
counter_cache_size: 1MiB
concurrent_reads: 16
concurrent_writes: 16
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
disk_optimization_strategy: ssd
dynamic_snitch: {dynamic_snitch}
auto_snapshot: false
auto_bootstrap: false
{tls}{yaml}
"
    )
}

const TLS: &str = "client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: false
  keystore: HOME/identity.pem
  truststore: HOME/authority.pem
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
";

/// The tokens of a node: evenly spread, with turns that change, so that the order of owners around
/// the ring is not the order of nodes.
pub(super) fn tokens(nodes: usize, each: usize, index: usize) -> Vec<i64> {
    let step = u64::MAX / (nodes * each) as u64;
    let place = |round: usize| round * nodes + (index + nodes - round % nodes) % nodes;
    let token = |round: usize| {
        let above_least = step / 2 + step * place(round) as u64;
        i64::MIN.wrapping_add_unsigned(above_least)
    };
    (0..each).map(token).collect()
}

/// Where a node has its files.
pub(super) fn home(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("node-{index}"))
}

/// An authority, and for each node a certificate of its own; answers the authority's as PEM.
pub(super) fn write_certificates(folder: &Path, addresses: &[Ipv4Addr]) -> String {
    let authority = Authority::new();
    for (index, address) in addresses.iter().enumerate() {
        let home = home(folder, index);
        fs::create_dir_all(&home).unwrap();
        let (certificate, key) = authority.issue(&[&address.to_string()]);
        fs::write(home.join("identity.pem"), format!("{key}{certificate}")).unwrap();
        fs::write(home.join("authority.pem"), authority.pem()).unwrap();
    }
    authority.pem()
}
