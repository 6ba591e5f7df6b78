//! Kubernetes and Istio take what is written: their own validation says so (`tests/objects`).
//! Without Go the tests say so and pass by.

use std::io::Write as _;
use std::net::IpAddr;
use std::process::Stdio;

use evenkeel_testkit::program::made;
use evenkeel_testkit::story::skipped;

use super::*;
use crate::export::config;

/// Why objects would be refused, a line for each reason; `None` where nobody can say.
fn refused(text: &str) -> Option<Vec<String>> {
    let program = made("objects").join("objects");
    if !program.is_file() {
        skipped("what Kubernetes and Istio refuse (cargo xtask needs --install)");
        return None;
    }
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("it reads all");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let words = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<String> = words.lines().map(str::to_owned).collect();
    let end = lines.pop();
    let is_done = output.status.success() && end.as_deref() == Some("done");
    assert!(is_done, "{}{text}", String::from_utf8_lossy(&output.stderr));
    Some(lines)
}

fn list(objects: &[String]) -> String {
    format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{}]}}"#, objects.join(","))
}

/// What `[redirect]` has of the two tables, where it may be so.
fn read(text: &str, sites: &[&str]) -> Option<ExportsConfig> {
    let node = evenkeel_settings::Node::parse(text, "run.toml").expect("TOML");
    node.read(|table| config::read(table, sites, None)).ok()
}

/// Of each wrong one at least one reason is told: the validation is there.
#[test]
fn what_is_wrong_is_refused() {
    let (plan, sites) = (plan(), standing([4, 4, 4]));
    let rule = istio::rule(&istio(Path::new("/")), &now(Some(&plan), &sites));
    let slices = kubernetes::slices(&kubernetes(Path::new("/")), &now(Some(&plan), &sites));
    for (good, from, to, reason) in [
        (&rule, "\"eu-west-1/*\": 10", "\"eu-west-1/*\": 11", "!= 100"),
        (&rule, "eu-west-1/*", "eu-*/a", "wildcard"),
        (&rule, "localityLbSetting", "localitySetting", "unknown field"),
        (&rule, "\"metadata\"", "\"meta\"", "unknown field"),
        (&slices, "\"zone\"", "\"zones\"", "unknown field"),
        (&slices, "10.0.0.0", "127.0.0.1", "loopback"),
        (&slices, "IPv4", "IPv6", "must be an IPv6 address"),
        (&slices, "\"http\"", "\"Http\"", "lowercase"),
    ] {
        assert!(good.contains(from), "{from}: {good}");
        let Some(reasons) = refused(&good.replace(from, to)) else { return };
        assert!(reasons.iter().any(|it| it.contains(reason)), "{to}: {reasons:?}");
    }
}

#[test]
fn plans_of_all_kinds_are_taken() {
    let mut many = standing([4, 4, 4]);
    let number = |it: u32| SocketAddr::from(((0x0a00_0000 + it).to_be_bytes(), 8_080));
    many[0].all = (0..2_100).map(number).collect();
    many[0].up = many[0].all.clone();
    let mut mixed = standing([4, 0, 4]);
    for address in ["[fd00::1]:8080", "[::ffff:10.0.9.1]:8080", "10.0.9.2:9090"] {
        mixed[0].all.push(address.parse().expect("an address"));
    }
    mixed[0].up = mixed[0].all.clone();
    let plans = [plan(), rows([[0, 100, 50], [7, 0, 0], [0, 0, 0]]), rows([[3, 1, 0]; 3])];
    let mut objects = Vec::new();
    for sites in [many, mixed, standing([0, 0, 0])] {
        for plan in plans.iter().map(|it| Some(it.as_slice())).chain([None]) {
            objects.push(istio::rule(&istio(Path::new("/")), &now(plan, &sites)));
            objects.push(kubernetes::slices(&kubernetes(Path::new("/")), &now(plan, &sites)));
        }
    }
    let Some(reasons) = refused(&list(&objects)) else { return };
    assert_eq!(reasons, [""; 0]);
}

/// Words that a table may have: whatever is not refused when the file is read is refused by nobody.
#[test]
fn who_reads_the_configuration_refuses_what_they_would_refuse() {
    const WORDS: [&str; 26] = [
        "shop", "Shop", "a", "7", "1a", "a-b", "-a", "a-", "a_b", "_a", "a.b", "a.", ".a", "a..b",
        "a.7", "*", "a*", "*.a", "a/*", "*/a", "a/*/b", "a/b/c/d", "a/b/*", "a b", "é", "a/b*",
    ];
    let long = "a".repeat(63);
    let longer = format!("{}.b", "a".repeat(62));
    let words = || WORDS.into_iter().chain([long.as_str(), &longer]);
    let (plan, sites) = (plan(), standing([4, 4, 4]));
    let mut objects = Vec::new();
    for word in words() {
        for (key, other) in [("host", "name"), ("name", "host"), ("namespace", "")] {
            let rest = if other.is_empty() { "host = 'a'\nname = 'a'" } else { "" };
            let other = if other.is_empty() { String::new() } else { format!("{other} = 'a'") };
            let table = format!("[istio]\nfile = 'i'\n{key} = '{word}'\n{other}\n{rest}");
            let config = read(&table, &NAMES).and_then(|it| it.istio);
            objects.extend(config.map(|it| istio::rule(&it, &now(Some(&plan), &sites))));
        }
        for at in ["london", "ireland"] {
            let table = format!(
                "[istio]\nfile = 'i'\nhost = 'a'\nname = 'a'\nlocalities = {{ {at} = '{word}' }}"
            );
            let config = read(&table, &NAMES).and_then(|it| it.istio);
            objects.extend(config.map(|it| istio::rule(&it, &now(Some(&plan), &sites))));
        }
        for key in ["service", "namespace", "port_name"] {
            let service = if key == "service" { "" } else { "service = 'a'" };
            let table = format!("[kubernetes]\nfile = 'k'\n{key} = '{word}'\n{service}");
            let config = read(&table, &NAMES).and_then(|it| it.kubernetes);
            objects.extend(config.map(|it| kubernetes::slices(&it, &now(Some(&plan), &sites))));
        }
        let table =
            format!("[kubernetes]\nfile = 'k'\nservice = 'a'\nzones = {{ london = '{word}' }}");
        let names = [word, "ireland", "frankfurt"];
        let unnamed = "[kubernetes]\nfile = 'k'\nservice = 'a'";
        for config in [read(&table, &NAMES), read(unnamed, &names)] {
            let config = config.and_then(|it| it.kubernetes);
            objects.extend(config.map(|it| kubernetes::slices(&it, &now(Some(&plan), &sites))));
        }
    }
    assert!(objects.len() > 60, "{} were accepted", objects.len());
    let Some(reasons) = refused(&list(&objects)) else { return };
    assert_eq!(reasons, [""; 0]);
}

#[test]
fn addresses_are_endpoints_where_kubernetes_takes_them() {
    for (address, is_one) in [
        ("10.0.0.1", true),
        ("8.8.8.8", true),
        ("169.253.1.1", true),
        ("169.254.1.1", false),
        ("127.0.0.1", false),
        ("127.9.9.9", false),
        ("0.0.0.0", false),
        ("0.0.0.1", true),
        ("224.0.0.7", false),
        ("224.0.1.7", true),
        ("255.255.255.255", true),
        ("fd00::1", true),
        ("::1", false),
        ("::", false),
        ("fe80::1", false),
        ("febf::1", false),
        ("fec0::1", true),
        ("ff02::1", false),
        ("ff12::1", false),
        ("ff05::1", true),
        ("::ffff:127.0.0.1", false),
        ("::ffff:10.0.0.1", true),
    ] {
        let ip: IpAddr = address.parse().expect("an address");
        assert_eq!(config::is_endpoint(ip), is_one, "{address}");
        let mut sites = standing([1, 1, 1]);
        sites[0].all = vec![SocketAddr::new(ip, 8_080)];
        sites[0].up = sites[0].all.clone();
        let text = kubernetes::slices(&kubernetes(Path::new("/")), &now(None, &sites));
        let Some(reasons) = refused(&text) else { return };
        assert_eq!(reasons.is_empty(), is_one, "{address}: {reasons:?}");
    }
}
