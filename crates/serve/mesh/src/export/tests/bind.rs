//! A real BIND takes the plan. Without one the tests say so and pass by.

use std::process::{Command, Stdio};

use evenkeel_dns::Resolver;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::skipped;
use evenkeel_testkit::wait::found;

use super::*;

const SECRET: &str = "bzlHbmRyc0JXOXZ5YkVTcHZ5dVhPdz09";

/// A primary of `shop.test` that takes updates signed with the key `evenkeel`, on a port that is
/// free now.
struct Bind {
    folder: Folder,
    at: SocketAddr,
    program: Program,
}

impl Bind {
    fn start(name: &str) -> Option<Self> {
        let folder = Folder::new(name);
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let zone = "$TTL 5\n\
            @ IN SOA ns.shop.test. admin.shop.test. 1 60 60 3600 5\n\
            @ IN NS ns.shop.test.\n\
            ns IN A 127.0.0.1\n";
        std::fs::write(folder.file("shop.zone"), zone).unwrap();
        std::fs::write(folder.file("secret"), format!("{SECRET}\n")).unwrap();
        let directory = folder.path().display();
        let conf = format!(
            "key evenkeel {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n\
             controls {{}};\n\
             options {{ directory \"{directory}\"; pid-file none; session-keyfile none; \
             listen-on port {0} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no; \
             dnssec-validation no; }};\n\
             zone \"shop.test\" {{ type primary; file \"shop.zone\"; \
             update-policy {{ grant evenkeel subdomain shop.test. SRV; }}; }};\n",
            at.port()
        );
        std::fs::write(folder.file("named.conf"), conf).unwrap();
        let program = Self::run(&folder)?;
        let mut bind = Self { folder, at, program };
        bind.program.wait_listening(at);
        Some(bind)
    }

    fn run(folder: &Folder) -> Option<Program> {
        let mut command = Command::new("named");
        command.args(["-f", "-n", "1", "-c"]).arg(folder.file("named.conf"));
        let program =
            Program::start_if_installed(command.stdout(Stdio::null()).stderr(Stdio::null()));
        if program.is_none() {
            skipped("`named` is not installed (cargo xtask needs --install)");
        }
        program
    }

    fn again(&mut self) {
        self.program = Self::run(&self.folder).unwrap();
        self.program.wait_listening(self.at);
    }

    fn config(&self) -> ExportsConfig {
        let key = Some(("evenkeel".to_owned(), self.folder.file("secret")));
        ExportsConfig { dns: Some(dns(self.at, key)), ..Default::default() }
    }

    /// What it says now: hosts and their weights.
    async fn weights(&self) -> Option<Vec<(String, u16)>> {
        let asked = Resolver::new(vec![self.at]);
        let found = asked.services("_http._tcp.shop.test").await.ok()?;
        Some(found.records.into_iter().map(|it| (it.host, it.weight)).collect())
    }

    async fn until_it_says(&self, what: &str, expected: &[(&str, u16)]) {
        let mut expected: Vec<_> =
            expected.iter().map(|(site, weight)| (format!("{site}.shop.test"), *weight)).collect();
        expected.sort();
        found(what, async || {
            let mut weights = self.weights().await?;
            weights.sort();
            (weights == expected).then_some(())
        })
        .await;
    }
}

#[test]
fn a_real_bind_has_the_weights_of_the_plan_and_of_none_when_it_is_old() {
    on_one_thread(async {
        let Some(bind) = Bind::start("exports-bind") else { return };
        let world = World::start(&bind.config());
        bind.until_it_says("all stays at home", &[("london", 10_000)]).await;
        world.plan(plan(), Duration::from_secs(3));
        let split = [("london", 8_500), ("ireland", 1_000), ("frankfurt", 500)];
        bind.until_it_says("the plan", &split).await;
        bind.until_it_says("an old plan is taken back", &[("london", 10_000)]).await;
        assert_eq!(world.state("dns").failed, 0, "{:?}", world.words.borrow());
    });
}

#[test]
fn a_bind_that_hangs_dies_and_comes_back_has_the_newest_plan() {
    on_one_thread(async {
        let Some(mut bind) = Bind::start("exports-bind-dies") else { return };
        let world = World::start(&bind.config());
        bind.until_it_says("all stays at home", &[("london", 10_000)]).await;
        bind.program.signal("-STOP");
        world.plan(plan(), PATIENCE);
        until("that it hangs is told", || world.state("dns").failed >= 1).await;
        world.plan(rows([[1, 1, 0], [0, 1, 0], [0, 0, 1]]), PATIENCE);
        bind.program.signal("-CONT");
        bind.until_it_says("the newest plan", &[("london", 5_000), ("ireland", 5_000)]).await;
        bind.program.kill();
        world.plan(plan(), PATIENCE);
        until("that it is dead is told", || {
            world.state("dns").problem.is_some_and(|why| why.contains("cannot be told"))
        })
        .await;
        bind.again();
        let split = [("london", 8_500), ("ireland", 1_000), ("frankfurt", 500)];
        bind.until_it_says("the plan after its death", &split).await;
    });
}

#[test]
fn a_bind_that_refuses_the_key_changes_nothing_and_says_why() {
    on_one_thread(async {
        let Some(bind) = Bind::start("exports-bind-refuses") else { return };
        std::fs::write(bind.folder.file("secret"), "b3RoZXI=").unwrap();
        let world = World::start(&bind.config());
        until("it is refused", || world.state("dns").problem.is_some()).await;
        let problem = world.state("dns").problem.unwrap();
        assert!(problem.contains("BADSIG (is the secret the same"), "{problem}");
        assert_eq!(bind.weights().await, Some(Vec::new()));
        // What the policy of the zone does not allow: another zone than it has.
        std::fs::write(bind.folder.file("secret"), SECRET).unwrap();
        let mut config = bind.config();
        let dns = config.dns.as_mut().unwrap();
        (dns.zone, dns.name) = ("other.test".to_owned(), "_http._tcp.other.test".to_owned());
        let world = World::start(&config);
        until("it is refused", || world.state("dns").problem.is_some()).await;
        let problem = world.state("dns").problem.unwrap();
        assert!(problem.contains("NOTAUTH (is it the primary"), "{problem}");
    });
}
