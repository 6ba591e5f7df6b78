//! `evenkeel check` with the files that `[redirect]` names: what is wrong with profiles and
//! certificates is told before anything runs.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use common::{evenkeel, text};
use evenkeel_core::distribution::Recorder;
use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::curve::{LoadStep, Profile, Saturation};
use evenkeel_settings::profile;
use evenkeel_testkit::folder::Folder;
use rcgen::{CertificateParams, Issuer, KeyPair};

const DAY: Duration = Duration::from_secs(86_400);

/// A site with certificates for so many days, and everything else as it should be.
fn site(name: &str, days: u32) -> Folder {
    let folder = Folder::new(name);
    certificates(folder.path(), days);
    fs::write(folder.file("shop.profile.toml"), profile::write(&four_servers())).unwrap();
    fs::write(folder.file("london.toml"), configuration("127.0.0.1:7400")).unwrap();
    folder
}

/// Four servers that answer 1,000 requests of each load in 20 ms.
fn four_servers() -> Profile {
    let step = |per_s: f64| {
        let mut latencies = Recorder::default();
        (0..1_000).for_each(|_| latencies.record(Duration::from_millis(20)));
        LoadStep {
            load: Rate::new(per_s).unwrap(),
            write_share: Probability::ZERO,
            latencies: latencies.buckets().collect(),
            unanswered: 0,
        }
    };
    let load = Rate::new(200.0).unwrap();
    let saturations = vec![Saturation { write_share: Probability::ZERO, load }];
    Profile {
        servers: 4.try_into().unwrap(),
        steps: [50.0, 100.0, 150.0].map(step).into(),
        saturations,
    }
}

fn certificates(out: &Path, days: u32) {
    let (out, days) = (out.to_str().unwrap(), days.to_string());
    let output = evenkeel(&["certificates", "--out", out, "--days", &days, "london", "ireland"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn configuration(mesh: &str) -> String {
    format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'shop'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'shop'\nforwarded_requests = 'trust'\n\
         [upstream.shop]\nreplicas = ['127.0.0.1:9']\n[upstream.shop.health]\npath = '/'\n\
         [upstream.shop.sites]\nireland = ['127.0.0.1:11']\n\
         [redirect]\nupstream = 'shop'\nsite = 'london'\nobjective = '100ms'\n\
         listen = '{mesh}'\ncertificate = 'london.pem'\nkey = 'london.key'\n\
         ca_file = 'authority.pem'\n\
         [[redirect.sites]]\nname = 'london'\npeer = '{mesh}'\ncurves = ['shop.profile.toml']\n\
         [[redirect.sites]]\nname = 'ireland'\npeer = '127.0.0.1:7401'\n\
         curves = ['shop.profile.toml']\n"
    )
}

/// The exit code, and all that was said.
fn check(folder: &Folder) -> (Option<i32>, String) {
    let output = evenkeel(&["check", folder.file("london.toml").to_str().unwrap()]);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn sound_files_are_sound_and_nothing_is_started() {
    let (folder, taken) = (site("check-sound", 365), TcpListener::bind("127.0.0.1:0").unwrap());
    let mesh = taken.local_addr().unwrap().to_string();
    fs::write(folder.file("london.toml"), configuration(&mesh)).unwrap();
    let (code, said) = check(&folder);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(": valid") && !said.contains("warning:"), "{said}");
}

#[test]
fn a_certificate_that_expires_within_a_fortnight_is_doubtful() {
    for (days, is_doubtful) in [(1, true), (13, true), (16, false)] {
        let (code, said) = check(&site(&format!("check-days-{days}"), days));
        assert_eq!(code, Some(0), "{said}");
        // In the second in which it is made, a day more is left to the second.
        let doubt = |days: u32| format!("london.pem: expires in less than {days} day");
        let is_told = said.contains(&doubt(days)) || said.contains(&doubt(days + 1));
        assert_eq!(is_told, is_doubtful, "{said}");
        assert_eq!(said.contains("warning:"), is_doubtful, "{said}");
    }
}

/// A certificate of the same authority for the same key that was good until a day ago.
fn expire(folder: &Folder) {
    let read = |name: &str| fs::read_to_string(folder.file(name)).unwrap();
    let authority = KeyPair::from_pem(&read("authority.key")).unwrap();
    let authority = Issuer::from_ca_cert_pem(&read("authority.pem"), authority).unwrap();
    let mut params = CertificateParams::new(vec!["london".to_owned()]).unwrap();
    params.not_before = (SystemTime::now() - DAY * 3).into();
    params.not_after = (SystemTime::now() - DAY).into();
    let key = KeyPair::from_pem(&read("london.key")).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    fs::write(folder.file("london.pem"), certificate.pem()).unwrap();
}

fn copy(folder: &Folder, from: &str, to: &str) {
    fs::copy(folder.file(from), folder.file(to)).unwrap();
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_name_and_the_likely_cause() {
    type Spoil = fn(&Folder);
    let spoilt: [(&str, Spoil, &[&str]); 8] = [
        ("expired", expire, &["london.pem: ", "expired", "in its time?"]),
        ("other-site", |f| copy(f, "ireland.pem", "london.pem"), &["another site", "london"]),
        ("other-key", |f| copy(f, "ireland.key", "london.key"), &["london.pem: ", "its key?"]),
        ("no-key", |f| copy(f, "london.pem", "london.key"), &["london.key: no private key"]),
        (
            "other-authority",
            |f| {
                let other = f.file("other");
                certificates(&other, 30);
                fs::copy(other.join("authority.pem"), f.file("authority.pem")).unwrap();
            },
            &["london.pem: ", "of the authority in", "authority.pem"],
        ),
        (
            "no-certificate",
            |f| fs::write(f.file("london.pem"), "nothing").unwrap(),
            &["london.pem: got no certificate"],
        ),
        (
            "no-profile",
            |f| fs::write(f.file("shop.profile.toml"), "name = 'shop'\n").unwrap(),
            &["shop.profile.toml"],
        ),
        (
            "all-missing",
            |f| {
                fs::remove_file(f.file("shop.profile.toml")).unwrap();
                fs::remove_file(f.file("london.key")).unwrap();
            },
            &["shop.profile.toml: ", "london.key: ", "evenkeel certificates"],
        ),
    ];
    for (name, spoil, words) in spoilt {
        let folder = site(&format!("check-{name}"), 30);
        assert_eq!(check(&folder).0, Some(0), "{name}");
        spoil(&folder);
        let (code, said) = check(&folder);
        assert_eq!(code, Some(1), "{name}: {said}");
        let missing: Vec<_> = words.iter().filter(|word| !said.contains(**word)).collect();
        assert!(missing.is_empty(), "{name}: {missing:?} in {said}");
        assert!(!said.contains(": valid"), "{name}: {said}");
    }
}

#[test]
fn a_list_of_replicas_is_read_and_a_wrong_one_is_told_with_its_place() {
    let folder = Folder::new("check-replicas");
    let text = "[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'shop'\n\
                [upstream.shop]\ndiscover = { file = 'replicas.json' }\n";
    fs::write(folder.file("london.toml"), text).unwrap();
    for (list, code, words) in [
        (Some("[{\"targets\": [\"10.0.0.1:80\"]}]"), 0, ": valid"),
        (
            Some("[{\"targets\": [\"10.0.0.1\"]}]"),
            1,
            "replicas.json: 0.targets.0: got \"10.0.0.1\"",
        ),
        (Some("[{"), 1, "line 1 column 2"),
        (None, 1, "london.toml:5:21: upstream.shop.discover.file: "),
    ] {
        match list {
            Some(list) => fs::write(folder.file("replicas.json"), list).unwrap(),
            None => fs::remove_file(folder.file("replicas.json")).unwrap(),
        }
        let (found, said) = check(&folder);
        assert_eq!(found, Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let more = "replicas = ['127.0.0.1:9']\n[log]\naccess = { path = '/nowhere/access.log' }\n";
    let text = text.replace("discover = { file = 'replicas.json' }\n", more);
    fs::write(folder.file("london.toml"), text).unwrap();
    let (found, said) = check(&folder);
    assert_eq!(found, Some(1), "{said}");
    let words = "london.toml:7:19: [log] access: got /nowhere/access.log, expected a file in a";
    assert!(said.contains(words), "{said}");
}
