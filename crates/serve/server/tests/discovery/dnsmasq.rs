//! A real DNS server: services (SRV), hosts that come and go, and its end.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use evenkeel_core::discovery::Standing;
use evenkeel_server::process::Process;
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::{nobody, skipped, story_within};
use evenkeel_testkit::wait::{found, until};

use crate::{Fleet, LIMIT, Requests, get, ip, log, members, start, stop, text};

/// One that knows the hosts of a file, which it reads again after a SIGHUP.
fn dnsmasq(at: SocketAddr, folder: &Folder, services: &[String]) -> Option<Program> {
    let mut command = Command::new("dnsmasq");
    command.args(["--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-interfaces"]);
    command.args(["--conf-file=/dev/null", "--pid-file=", "--local=/test/", "--user=root"]);
    command.args(["--local-ttl=1", "--listen-address=127.0.0.1"]);
    command.arg(format!("--port={}", at.port()));
    command.arg(format!("--addn-hosts={}", folder.file("hosts").display()));
    command.args(services).stderr(Stdio::null());
    Program::start_if_installed(&mut command)
}

#[test]
fn a_service_of_a_real_dns_server_is_followed_and_outlives_it() {
    log::keep();
    story_within(LIMIT, async {
        let (fleet, folder, at) = (Fleet::start(6), Folder::new("dnsmasq"), nobody());
        let hosts = |numbers: &[usize]| {
            let line =
                |number: &usize| format!("{} {}.test\n", ip(*number), ["a", "b"][number % 2]);
            std::fs::write(folder.file("hosts"), numbers.iter().map(line).collect::<String>())
                .unwrap();
        };
        hosts(&[0, 1]);
        let service = |host: &str, priority: u16| {
            format!("--srv-host=_http._tcp.shop.test,{host}.test,{},{priority},7", fleet.port)
        };
        let services = [service("a", 1), service("b", 1), service("far", 2)];
        let Some(mut server) = dnsmasq(at, &folder, &services) else {
            skipped("dnsmasq is not installed: apt-get install dnsmasq-base");
            return;
        };
        server.wait_listening(at);
        let discover = "discover = { dns = '_http._tcp.shop.test' }";
        let process = start(&text("served", at, discover));
        let (states, main) = (Arc::clone(process.upstreams()), process.listens()[0]);
        assert_eq!(members(&states), fleet.addresses(0..2), "those of the first priority");
        let requests = Requests::start(main);
        for numbers in [&[0, 1, 2, 3, 4, 5][..], &[4, 5]] {
            hosts(numbers);
            server.signal("-HUP");
            let all = fleet.addresses(numbers.iter().copied());
            until("the hosts are followed", || members(&states) == all).await;
        }
        fleet.take_part(4..6).await;
        server.kill();
        let is_stale = || states.sources(0).iter().all(|it| it.standing == Standing::Failing);
        until("its end is seen", is_stale).await;
        fleet.take_part(4..6).await;
        assert_eq!(members(&states), fleet.addresses(4..6));
        let said = log::count("served", "replicas stay");
        assert_eq!(said, 2, "of the service and of its hosts: {:?}", log::all("served"));
        let mut server = dnsmasq(at, &folder, &services).expect("it was there");
        server.wait_listening(at);
        let is_well = || states.sources(0).iter().all(|it| it.standing == Standing::Well);
        until("it is back", is_well).await;
        requests.none_is_lost(&states).await;
        stop(process).await;
    });
}

/// An upstream by name is who its certificate says, wherever the name leads.
#[test]
fn tls_is_spoken_with_the_name_that_a_real_dns_server_knows() {
    log::keep();
    story_within(LIMIT, async {
        let (fleet, folder, at) = (Fleet::start(1), Folder::new("dnsmasq-tls"), nobody());
        let port = nobody().port();
        let authority = Authority::new();
        let secure: Vec<Process> = [0, 1]
            .map(|number| {
                let folder = Folder::new("dnsmasq-tls-replica");
                let files = authority.write(folder.path(), &["a.test"]);
                let (certificate, key) = (files.certificate.display(), files.key.display());
                start(&format!(
                    "[process]\nworkers = 1\n[[listen]]\naddress = '{}:{port}'\n\
                     upstream = 'app'\ntls = {{ certificate = '{certificate}', key = '{key}' }}\n\
                     [upstream.app]\nreplicas = ['{}:{}']\n",
                    ip(number),
                    ip(0),
                    fleet.port
                ))
            })
            .into();
        let hosts = |of_a: usize| {
            let text = format!("{} a.test\n{} b.test\n", ip(of_a), ip(0));
            std::fs::write(folder.file("hosts"), text).unwrap();
        };
        hosts(0);
        let Some(mut server) = dnsmasq(at, &folder, &[]) else {
            skipped("dnsmasq is not installed: apt-get install dnsmasq-base");
            return;
        };
        server.wait_listening(at);
        std::fs::write(folder.file("ca.pem"), authority.pem()).unwrap();
        let front = |host: &str| {
            let ca = folder.file("ca.pem");
            let more =
                format!("replicas = ['{host}.test:{port}']\ntls = {{ ca = '{}' }}\n", ca.display());
            start(&text("secure", at, &more))
        };
        let (right, wrong) = (front("a"), front("b"));
        assert!(get(right.listens()[0], "/").await.ends_with("served"));
        let refused = get(wrong.listens()[0], "/").await;
        assert!(refused.starts_with("HTTP/1.1 502"), "another name's certificate: {refused}");
        hosts(1);
        server.signal("-HUP");
        let [first, second] = <[Process; 2]>::try_from(secure).ok().unwrap();
        stop(first).await;
        // The last address stays in use until DNS is asked again, which a failed connection makes.
        found("the name leads elsewhere, and TLS holds", async || {
            get(right.listens()[0], "/").await.ends_with("served").then_some(())
        })
        .await;
        for process in [right, wrong, second] {
            stop(process).await;
        }
    });
}
