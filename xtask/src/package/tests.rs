//! What is made, of a script in place of the program.

use serde_json::Value;

use super::*;

/// Says what the program would, without a build.
const PROGRAM: &str = "#!/bin/sh
case \"$1\" in
    --version) echo evenkeel 1.2.3 ;;
    completions) echo \"complete for $2\" ;;
    man) echo .TH > \"$2/evenkeel.1\" ;;
esac
";

fn made(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("evenkeel-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("program");
    fs::write(&program, PROGRAM).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let out = folder.join("out");
    make(&program, &out, PROGRAM_BYTES_MAX).unwrap();
    out
}

fn done(out: &Path) {
    fs::remove_dir_all(out.parent().unwrap()).unwrap();
}

#[test]
fn a_package_has_what_an_operator_needs() {
    if workspace::find_program("dpkg-deb").is_none() {
        eprintln!("skipped: no dpkg-deb");
        return;
    }
    let out = made("deb");
    let file = out.join(format!("evenkeel_1.2.3_{}.deb", deb::architecture()));
    let contents = output(Command::new("dpkg-deb").arg("-c").arg(&file)).unwrap();
    for path in [
        "./usr/bin/evenkeel",
        "./etc/evenkeel/evenkeel.toml",
        "./usr/lib/systemd/system/evenkeel.service",
        "./usr/share/bash-completion/completions/evenkeel",
        "./usr/share/zsh/vendor-completions/_evenkeel",
        "./usr/share/fish/vendor_completions.d/evenkeel.fish",
        "./usr/share/man/man1/evenkeel.1.gz",
        "./usr/share/doc/evenkeel/evenkeel.schema.json",
        "./usr/share/doc/evenkeel/configuration.md",
        "./usr/share/doc/evenkeel/copyright",
    ] {
        let line = contents.lines().find(|line| line.ends_with(path));
        let line = line.unwrap_or_else(|| panic!("no {path} in\n{contents}"));
        let mode = if path.ends_with("bin/evenkeel") { "-rwxr-xr-x" } else { "-rw-r--r--" };
        assert!(line.starts_with(&format!("{mode} root/root")), "{line}");
    }
    let control = output(Command::new("dpkg-deb").arg("-f").arg(&file)).unwrap();
    assert!(control.contains("Version: 1.2.3\n") && !control.contains("Depends"), "{control}");
    let again = made("deb-again");
    let sums = |out: &Path| fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    assert_eq!(sums(&out), sums(&again), "the same files give the same packages");
    assert_eq!(sums(&out).lines().count(), 3);
    done(&out);
    done(&again);
}

#[test]
fn every_digest_of_an_image_is_that_of_its_blob() {
    let out = made("image");
    let read = |path: &str| -> Value {
        serde_json::from_slice(&fs::read(out.join("oci").join(path)).unwrap()).unwrap()
    };
    let checked = |of: &Value| {
        let sum = of["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
        let path = format!("blobs/sha256/{sum}");
        let file = out.join("oci").join(&path);
        let found = output(Command::new("sha256sum").arg(&file)).unwrap();
        assert!(found.starts_with(&sum), "{found}");
        assert_eq!(fs::metadata(file).unwrap().len(), of["size"].as_u64().unwrap());
        path
    };
    let manifest = read(&checked(&read("index.json")["manifests"][0]));
    let config = read(&checked(&manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/evenkeel");
    let layer = out.join("oci").join(checked(&manifest["layers"][0]));
    let plain = "gzip -dc \"$0\" | sha256sum";
    let plain = output(Command::new("sh").args(["-c", plain]).arg(&layer)).unwrap();
    let diff = config["rootfs"]["diff_ids"][0].as_str().unwrap();
    assert!(plain.starts_with(diff.strip_prefix("sha256:").unwrap()), "{diff} {plain}");
    let listed = output(Command::new("tar").arg("-tvzf").arg(&layer)).unwrap();
    assert!(listed.contains("-rwxr-xr-x 0/0"), "{listed}");
    done(&out);
}

#[test]
fn options_that_are_not_known_are_usage_errors() {
    for options in [&["--static"][..], &["--program"], &["--program", "a", "--program", "b"]] {
        assert!(run(options).unwrap_err().is::<UsageError>(), "{options:?}");
    }
    let missing = run(&["--program", "/no/such/program"]).unwrap_err();
    assert!(format!("{missing:#}").contains("/no/such/program"));
}

#[test]
fn a_program_that_is_too_large_is_no_package() {
    let folder = std::env::temp_dir().join(format!("evenkeel-large-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("program");
    fs::write(&program, "#!/bin/sh\necho evenkeel 1.0.0\n").unwrap();
    let error = make(&program, &folder.join("out"), 10).unwrap_err().to_string();
    fs::remove_dir_all(&folder).unwrap();
    assert!(error.contains("has 30 bytes, expected at most 10"), "{error}");
}
