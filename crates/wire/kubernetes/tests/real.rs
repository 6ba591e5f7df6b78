//! A real API server: `kube-apiserver` before a real etcd, with RBAC as in the manifest.
//!
//! Ignored, since nobody packages that server: build it from the Go module k8s.io/kubernetes (about
//! seven minutes of CPU time), then
//!
//!     EVENKEEL_KUBE_APISERVER=FILE cargo test -p evenkeel-kubernetes --test real -- --ignored

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use evenkeel_dns::Resolver;
use evenkeel_kubernetes::{Api, Limits, Offer, Port, Service, Watcher};
use evenkeel_settings::address::Target;
use evenkeel_testkit::certificates::{Authority, Files};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::{free_addresses, skipped};
use evenkeel_testkit::wait::block_until;

const ROLE: &str = include_str!("../../../../packaging/kubernetes/gateway.yaml");

struct World {
    folder: Folder,
    api: SocketAddr,
    files: Files,
    _etcd: Program,
    server: Program,
}

impl World {
    fn start(program: &str) -> Option<Self> {
        let folder = Folder::new("kube-apiserver");
        let [client, peer, api] = free_addresses::<3>();
        let files = Authority::new().write(&folder.file("tls"), &["localhost", "127.0.0.1"]);
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(folder.file("etcd")).stdout(Stdio::null()).stderr(Stdio::null());
        for (key, at) in [
            ("--listen-client-urls", client),
            ("--advertise-client-urls", client),
            ("--listen-peer-urls", peer),
            ("--initial-advertise-peer-urls", peer),
        ] {
            etcd.arg(format!("{key}=http://{at}"));
        }
        etcd.arg(format!("--initial-cluster=default=http://{peer}"));
        let mut etcd = Program::start_if_installed(&mut etcd)?;
        etcd.wait_listening(client);
        let tokens =
            "root,root,1,system:masters\nours,system:serviceaccount:shop:evenkeel-gateway,2\n";
        std::fs::write(folder.file("tokens"), tokens).unwrap();
        std::fs::write(folder.file("token"), "ours\n").unwrap();
        let server = Self::api_server(program, (client, api), &folder, &files);
        let world = Self { folder, api, files, _etcd: etcd, server };
        block_until("it is ready", || world.kubectl(&["get", "--raw", "/readyz"], "").is_some());
        Some(world)
    }

    fn api_server(
        program: &str,
        (etcd, api): (SocketAddr, SocketAddr),
        folder: &Folder,
        files: &Files,
    ) -> Program {
        let mut command = Command::new(program);
        let option = |name: &str, file: &Path| format!("--{name}={}", file.display());
        command
            .arg(format!("--etcd-servers=http://{etcd}"))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", api.port()))
            .arg(option("tls-cert-file", &files.certificate))
            .arg(option("tls-private-key-file", &files.key))
            .arg(option("service-account-key-file", &files.certificate))
            .arg(option("service-account-signing-key-file", &files.key))
            .arg(option("token-auth-file", &folder.file("tokens")))
            .args(["--service-account-issuer=https://localhost", "--authorization-mode=RBAC"])
            .args(["--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none"])
            .args(["--disable-admission-plugins=ServiceAccount"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.file("log")).unwrap());
        Program::start(&mut command)
    }

    /// What it says; `None` where it fails.
    fn kubectl(&self, arguments: &[&str], input: &str) -> Option<String> {
        use std::io::Write as _;
        let mut child = Command::new("kubectl")
            .arg(format!("--server=https://{}", self.api))
            .arg(format!("--certificate-authority={}", self.files.authority.display()))
            .args(["--token=root", "--namespace=shop"])
            .args(arguments)
            .env("HOME", self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn apply(&self, yaml: &str) {
        assert!(self.kubectl(&["apply", "-f", "-"], yaml).is_some(), "{yaml}");
    }

    fn slice(&self, name: &str, endpoints: &[(&str, bool)]) {
        let endpoint = |(ip, is_ready): &(&str, bool)| {
            format!("- {{ addresses: [\"{ip}\"], conditions: {{ ready: {is_ready} }} }}\n")
        };
        self.apply(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}\n  \
             labels: {{ kubernetes.io/service-name: shop }}\naddressType: IPv4\nports:\n\
             - {{ name: http, port: 8080 }}\nendpoints:\n{}",
            endpoints.iter().map(endpoint).collect::<String>()
        ));
    }

    fn watcher(&self) -> Watcher {
        let api = Api::At {
            server: Target::Address(self.api),
            is_tls: true,
            token_file: Some(self.folder.file("token")),
            ca: Some(self.files.authority.clone()),
        };
        let service = Service {
            name: "shop".to_owned(),
            namespace: Some("shop".to_owned()),
            port: Some(Port::Name("http".to_owned())),
        };
        let limits = Limits { watch: Duration::from_secs(4), ..Limits::default() };
        Watcher::new(api, service, limits)
    }
}

async fn until(watcher: &mut Watcher, wanted: &[&str]) {
    let resolver = Resolver::new(Vec::new());
    let asked = async {
        loop {
            match watcher.next(&resolver).await {
                Ok(Offer::These(who)) => {
                    let who: Vec<String> = who.iter().map(ToString::to_string).collect();
                    if who == wanted {
                        return;
                    }
                }
                Ok(other) => eprintln!("{other:?}"),
                Err(error) => {
                    eprintln!("{error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| panic!("never {wanted:?}"));
}

#[tokio::test]
#[ignore = "needs a kube-apiserver, which is built from its Go module"]
async fn a_real_api_server_is_listed_and_watched_with_the_role_of_the_manifest() {
    let program = std::env::var("EVENKEEL_KUBE_APISERVER").expect("EVENKEEL_KUBE_APISERVER");
    let Some(mut world) = World::start(&program) else {
        skipped("etcd is not installed");
        return;
    };
    world.apply("apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n");
    world.slice("shop-1", &[("10.0.0.1", true), ("10.0.0.2", false)]);
    let mut watcher = world.watcher();
    let refused = watcher.next(&Resolver::new(Vec::new())).await.unwrap_err().to_string();
    assert!(refused.contains("403") && refused.contains("cannot list resource"), "{refused}");
    let role = ROLE.split("---\n").filter(|it| it.contains("rbac.authorization"));
    let role: Vec<&str> = role.collect();
    assert_eq!(role.len(), 2);
    let named = "name: evenkeel-gateway\n";
    for part in role {
        world.apply(&part.replace(named, &format!("{named}    namespace: shop\n")));
    }
    until(&mut watcher, &["10.0.0.1:8080"]).await;
    world.slice("shop-1", &[("10.0.0.1", true), ("10.0.0.2", true)]);
    until(&mut watcher, &["10.0.0.1:8080", "10.0.0.2:8080"]).await;
    world.slice("shop-2", &[("10.0.0.3", true)]);
    until(&mut watcher, &["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"]).await;
    world.kubectl(&["delete", "endpointslice", "shop-1"], "").unwrap();
    until(&mut watcher, &["10.0.0.3:8080"]).await;
    // Watches end and go on, and bookmarks come.
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        let offer = watcher.next(&Resolver::new(Vec::new())).await.unwrap();
        assert!(matches!(&offer, Offer::These(who) if who.len() == 1), "{offer:?}");
    }
    world.server.kill();
    let resolver = Resolver::new(Vec::new());
    let error =
        tokio::time::timeout(Duration::from_secs(30), watcher.next(&resolver)).await.unwrap();
    assert!(error.unwrap_err().to_string().contains("Connection refused"));
}
