//! `[redirect]`: writes that stay, and what is said of pairs of sites.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use evenkeel_core::request::ring::{Asked, Consistency, Presence, travel};
use evenkeel_geo::curve::Prior;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::joint::{Prices, Service};
use evenkeel_geo::planner::Writes;
use evenkeel_mesh::config::RedirectPair;
use evenkeel_planner::duplicates::policy;
use evenkeel_server::config::Config;
use evenkeel_settings::Node;
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::folder::Folder;

/// The three sites of the guide, and what is added to its `[redirect]` and behind its sites.
fn configuration(keys: &str, behind: &str) -> String {
    let guide = include_str!("../../../../docs/redirect.md");
    let mut blocks = guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let whole = blocks.find(|block| block.contains("[redirect]\nupstream")).unwrap();
    format!("{}\n{behind}\n", whole.replace("[redirect]\n", &format!("[redirect]\n{keys}\n")))
}

fn read(keys: &str, behind: &str) -> Result<Config, Vec<String>> {
    read_text(&configuration(keys, behind))
}

fn read_text(text: &str) -> Result<Config, Vec<String>> {
    let config = Node::parse(text, "run.toml").and_then(|node| Config::read(&node));
    config.map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

fn pair(of: &str) -> String {
    format!("[[redirect.pairs]]\n{of}\n")
}

#[test]
fn without_a_word_nothing_is_special() {
    let config = read("", "").unwrap();
    let redirect = config.redirect.unwrap();
    let planner = redirect.planner();
    assert_eq!((planner.prices, planner.limits_ppm), (None, None));
    assert_eq!(planner.writes, Writes::Redirected);
    assert!(!redirect.split().writes_stay);
}

#[test]
fn writes_that_stay_are_told_to_the_planner_and_to_those_who_split() {
    let redirect = read("writes_stay = true", "").unwrap().redirect.unwrap();
    assert_eq!(redirect.planner().writes, Writes::Home);
    assert!(redirect.split().writes_stay);
}

#[test]
fn pairs_reach_the_planner_as_squares_of_hundredths_and_millionths() {
    let pairs = [
        pair("from = 'london'\nto = 'frankfurt'\nprice = 1.5\nlimit = 0.3"),
        pair("from = 'ireland'\nto = 'london'\nlimit = 0"),
    ];
    let redirect = read("aim = 'cost'", &pairs.concat()).unwrap().redirect.unwrap();
    let [london, ireland, frankfurt] = [0, 1, 2].map(SiteId::new);
    let reported =
        RedirectPair { from: london, to: frankfurt, price_percent: 150, limit_ppm: 300_000 };
    let never = RedirectPair { from: ireland, to: london, price_percent: 100, limit_ppm: 0 };
    assert_eq!(redirect.pairs, [reported, never]);
    let planner = redirect.planner();
    let prices = vec![vec![100, 100, 150], vec![100; 3], vec![100; 3]];
    assert_eq!(planner.prices, Some(prices));
    let all = 1_000_000;
    let limits = vec![vec![all, all, 300_000], vec![0, all, all], vec![all; 3]];
    assert_eq!(planner.limits_ppm, Some(limits));
}

#[test]
fn limits_alone_need_no_aim_of_cost_and_bring_no_prices() {
    let limit = pair("from = 'london'\nto = 'ireland'\nlimit = '5%'");
    let planner = read("", &limit).unwrap().redirect.unwrap().planner();
    assert_eq!(planner.prices, None);
    assert_eq!(planner.limits_ppm.unwrap()[0][1], 50_000);
}

/// The tables of the guide.
fn exports() -> String {
    let guide = include_str!("../../../../docs/redirect.md");
    let (_, rest) = guide.split_once("```toml\n[redirect.istio]").unwrap();
    format!("[redirect.istio]{}", rest.split("```").next().unwrap())
}

#[test]
fn an_address_that_kubernetes_refuses_is_no_replica_where_it_is_told_the_plan() {
    let slices = "[redirect.kubernetes]\nfile = 'slices.json'\nservice = 'shop'";
    for (address, is_one) in [("127.0.0.1", false), ("[fe80::1]", false), ("10.9.9.9", true)] {
        let of = |behind: &str| {
            read_text(&configuration("", behind).replace("\"10.1.0.11:", &format!("\"{address}:")))
        };
        assert!(of("").is_ok(), "nobody else minds {address}");
        let problems = of(slices).map(|_| ()).map_err(|problems| problems.join("\n"));
        let Err(words) = problems else {
            assert!(is_one, "{address}");
            continue;
        };
        let expected = "an address that all nodes can reach";
        assert!(!is_one && words.contains(expected), "{address}: {words}");
    }
}

#[test]
fn nobody_else_is_told_the_plan_without_a_word_and_the_guide_tells_three() {
    assert!(read("", "").unwrap().redirect.unwrap().exports.is_empty());
    let told = read("", &exports()).unwrap().redirect.unwrap().exports;
    let (istio, kubernetes, dns) =
        (told.istio.unwrap(), told.kubernetes.unwrap(), told.dns.unwrap());
    assert_eq!(istio.localities, ["eu-west-2/*", "eu-west-1/*", "eu-central-1/*"]);
    assert_eq!((istio.namespace.as_str(), istio.name.as_str()), ("default", "shop"));
    assert_eq!(kubernetes.zones, ["zone-a", "zone-b", "zone-c"]);
    assert_eq!(dns.targets[1], ("ireland.shop.example".to_owned(), 443));
    assert_eq!(dns.key.unwrap().0, "evenkeel");
}

#[test]
fn what_others_cannot_be_told_is_refused_with_its_place() {
    for (from, to, says) in [
        ("ireland = \"eu-west-1/*\"", "paris = \"eu/*\"", "the site \"paris\""),
        ("eu-west-2/*", "eu//x", "a locality such as"),
        ("service = \"shop\"", "service = \"Shop\"", "small letters, digits and hyphens"),
        ("\"zone-b\"", "\"zone b\"", "letters, digits, hyphens, _ or ."),
        (
            "name = \"_http._tcp.london.shop.example\"",
            "name = \"shop.test\"",
            "a name in \"shop.example\"",
        ),
        (", frankfurt = \"frankfurt.shop.example:443\"", "", "none for \"frankfurt\""),
        ("london.shop.example:443", "london.shop.example", "a host and a port"),
        ("key_name = \"evenkeel\"\n", "", "key_file alone, expected both"),
        ("server = \"10.0.0.53:53\"", "server = \"ns.shop.example\"", "server"),
        ("server =", "ttl = \"1500ms\"\nserver =", "whole seconds"),
    ] {
        let text = exports().replacen(from, to, 1);
        assert_ne!(text, exports(), "{from}");
        let found = read("", &text).unwrap_err();
        assert!(found.iter().any(|problem| problem.contains(says)), "{to}: {found:#?}");
    }
    let found = read("writes_stay = true", &exports()).unwrap_err();
    assert_eq!(found.iter().filter(|it| it.contains("all are divided alike")).count(), 3);
}

/// What each site of the guide is told to be for plans by price.
fn read_priced(keys: &str, of_sites: &str, behind: &str) -> Result<Config, Vec<String>> {
    let text = configuration(keys, behind);
    let text = text.replace("curves = [", &format!("{of_sites}\ncurves = ["));
    let config = Node::parse(&text, "run.toml").and_then(|node| Config::read(&node));
    config.map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

#[test]
fn prices_and_work_reach_the_planner() {
    let sites = "work = '10ms'\nlean_work = '1ms'\nhedged_curves = ['hedged.profile.toml']";
    let redirect = read_priced("aim = 'price'\nprices = {wan = 0.5, copies = '3%'}", sites, "");
    let redirect = redirect.unwrap().redirect.unwrap();
    let hedged = redirect.sites.iter().flat_map(|site| &site.hedged_curves).count();
    let pricing = redirect.pricing(None).unwrap();
    let prices = Prices { wan: 500_000, ..Prices::default() };
    assert_eq!((pricing.prices, redirect.prices.unwrap().copies_ppm), (prices, 30_000));
    let service = Service { full_us: 10_000, lean_us: 1_000 };
    assert_eq!((pricing.services, hedged), (vec![service; 3], 3));
    // Nothing is said: the defaults, and nothing can be left out.
    let redirect = read("aim = 'price'", "").unwrap().redirect.unwrap();
    let pricing = redirect.pricing(None).unwrap();
    assert_eq!(
        (pricing.prices, pricing.services),
        (Prices::default(), vec![Service::default(); 3])
    );
    assert!(read("", "").unwrap().redirect.unwrap().pricing(None).is_none());
}

/// A service of duplicates with these keys.
fn duplicates(keys: &str) -> String {
    let listen = "listen = '127.0.0.1:6379'\ndirectory = '/var/cart'";
    format!("[duplicates.cart]\n{listen}\npartitions = 2\n{keys}\n")
}

#[test]
fn one_set_of_prices_is_for_plans_and_for_duplicates_and_each_may_say_its_own() {
    let of = |keys: &str, prices: &str, of_duplicates: &str| {
        let config = read(keys, &format!("{prices}\n{}", duplicates(of_duplicates))).unwrap();
        let plans = config.redirect.unwrap().prices.map(|it| it.prices);
        (plans, config.duplicates[0].manager.as_ref().map(|it| it.prices))
    };
    let (by_price, managed) = ("aim = 'price'", "objective = '5ms'");
    let unsaid = Prices::default();
    let shared = "[prices]\nnode = 0.5\noptional = 0.2";
    let plans = Prices { node_second: 500_000, optional: 200_000, ..unsaid };
    let nodes = |per_node, per_violation| policy::Prices { per_node, per_violation };
    assert_eq!(of(by_price, "", managed), (Some(unsaid), Some(nodes(1.0, 0.0))));
    assert_eq!(of(by_price, shared, managed), (Some(plans), Some(nodes(0.5, 1.0))));
    assert_eq!(of("", shared, managed), (None, Some(nodes(0.5, 1.0))));
    assert_eq!(of(by_price, shared, ""), (Some(plans), None));
    let own = of(
        "aim = 'price'\nprices = {node = 0.1}",
        shared,
        "objective = '5ms'\ncost = {per_violation = 3}",
    );
    assert_eq!(own.0, Some(Prices { node_second: 100_000, ..plans }));
    assert_eq!(own.1, Some(nodes(0.5, 3.0)));
    let unused = read("", shared).unwrap_err();
    assert!(unused[0].contains("prices that nobody goes by"), "{unused:?}");
}

#[test]
fn mistakes_of_prices_are_told() {
    let by_price = "aim = 'price'";
    for (keys, of_sites, says) in [
        ("prices = {wan = 0.1}", "", "aim = \"price\" too"),
        ("", "work = '10ms'", "aim = \"price\" too"),
        ("aim = 'price'\nprices = {wan = 11}", "", "prices.wan: got 11"),
        ("aim = 'price'\nprices = {byte = 1}", "", "byte"),
        ("aim = 'price'\nrelay = true", "", "every site may relay"),
        ("aim = 'price'\noverload = 'curve'", "", "overload has a price"),
        ("aim = 'price'\ntarget = 0.1", "", "aim = \"cost\" too"),
        (by_price, "lean_work = '1ms'", "work too"),
        (by_price, "hedged_curves = ['x']", "work too"),
        (by_price, "work = '1ms'\nlean_work = '2ms'", "at most 1ms"),
        (by_price, "work = '1ms'\nhedged_curves = ['x', 'y']", "as many as its curves"),
    ] {
        let found = read_priced(keys, of_sites, "").unwrap_err();
        assert!(found.iter().any(|problem| problem.contains(says)), "{keys}: {found:#?}");
    }
}

#[test]
fn a_site_without_curves_must_learn() {
    let read = |keys: &str| {
        let text = configuration(keys, "").replacen("curves = [\"shop.profile.toml\"]\n", "", 1);
        let config = Node::parse(&text, "run.toml").and_then(|node| Config::read(&node));
        config.map_err(|problems| problems.to_string())
    };
    let redirect = read("").unwrap().redirect.unwrap();
    assert_eq!(redirect.learns(), Some(Prior::Guess), "it is the first, this one");
    let refused = read("learn = false").unwrap_err();
    assert!(refused.contains("false, and \"london\" has no curves"), "{refused}");
    let hedged = "work = '1ms'\nhedged_curves = ['x']\n";
    let text = configuration("aim = 'price'", "");
    let text = text.replacen("curves = [\"shop.profile.toml\"]\n", hedged, 1);
    let refused = Node::parse(&text, "run.toml").and_then(|node| Config::read(&node)).unwrap_err();
    let words = "1 hedged_curves of london, expected 0, as many as its curves";
    assert!(refused.to_string().contains(words), "{refused}");
    let profiled = configuration("learn = false", "");
    let config = Node::parse(&profiled, "run.toml").and_then(|node| Config::read(&node));
    assert_eq!(config.unwrap().redirect.unwrap().learns(), None);
}

#[test]
fn mistakes_are_told_with_their_lines() {
    let both = "from = 'london'\nto = 'ireland'";
    let limited = format!("{both}\nlimit = 0.1");
    for (keys, behind, says) in [
        (
            "",
            pair("from = 'london'\nto = 'paris'\nlimit = 0.1"),
            "expected one of london, ireland, frankfurt",
        ),
        ("", pair("from = 'london'\nlimit = 0.1"), "pairs.0.to: got nothing"),
        ("", pair(&limited) + &pair(&limited), "the pair \"london\" to \"ireland\" twice"),
        ("", pair("from = 'london'\nto = 'london'\nlimit = 0.1"), "expected two different sites"),
        ("", pair(&format!("{both}\nlimit = -0.1")), "pairs.0.limit: got -0.1"),
        ("", pair(&format!("{both}\nlimit = 1.1")), "pairs.0.limit: got 1.1"),
        ("aim = 'cost'", pair(&format!("{both}\nprice = -1")), "a number from 0 to 100"),
        ("aim = 'cost'", pair(&format!("{both}\nprice = 101")), "a number from 0 to 100"),
        ("", pair(&format!("{both}\nprice = 2")), "aim = \"cost\" too"),
        ("", pair(both), "neither price nor limit"),
        ("", pair(&format!("{limited}\ncost = 1")), "cost"),
        ("writes_stay = 'yes'", String::new(), "true or false"),
        ("writes_stay = true", "[envoy]\ndirectory = 'x'".to_owned(), "writes_stay = false"),
    ] {
        let found = read(keys, &behind).unwrap_err();
        assert!(found.iter().any(|problem| problem.contains(says)), "{behind}: {found:#?}");
        assert!(found.iter().all(|problem| problem.starts_with("run.toml:")), "{found:#?}");
    }
}

const CASSANDRA: &str = include_str!("../../../../docs/cassandra.md");

/// The guide's three sites, as each of them has to be: as far as a site can be checked without
/// nodes.
#[test]
fn the_three_sites_of_the_guide_of_cassandra_are_sound_at_each_site() {
    let (folder, authority) = (Folder::new("cassandra-guide"), Authority::new());
    let mut blocks = CASSANDRA.split("```toml\n").skip(1).map(|it| it.split("```").next().unwrap());
    let london = blocks.find(|block| block.contains("[redirect]")).unwrap();
    for (number, site, datacenter) in
        [(1, "london", "eu_west_2"), (2, "ireland", "eu_west_1"), (3, "frankfurt", "eu_central_1")]
    {
        let certificates = folder.path().join("certificates");
        let files = authority.write(&certificates, &[site]);
        std::fs::rename(files.certificate, certificates.join(format!("{site}.pem"))).unwrap();
        std::fs::rename(files.key, certificates.join(format!("{site}.key"))).unwrap();
        let text = london
            .replace("site = \"london\"", &format!("site = \"{site}\""))
            .replace("listen = \"10.1.0.1", &format!("listen = \"10.{number}.0.1"))
            .replace("certificates/london", &format!("certificates/{site}"))
            .replace(
                "[\"10.1.0.11:9042\", \"10.1.0.12:9042\"]",
                &format!("[\"10.{number}.0.11:9042\"]"),
            )
            .replacen("datacenter = \"eu_west_2\"", &format!("datacenter = \"{datacenter}\""), 1);
        let path = folder.file(&format!("{site}.toml"));
        std::fs::write(&path, text).unwrap();
        let config = Config::load(&path).unwrap_or_else(|problems| panic!("{site}: {problems}"));
        let redirect = config.redirect.unwrap();
        assert_eq!(redirect.sites[redirect.site.index()].datacenter.as_deref(), Some(datacenter));
        assert_eq!(redirect.planner().limits_ppm.unwrap()[0][2], 100_000);
        assert_eq!(evenkeel_mesh::check(&redirect).unwrap(), [""; 0]);
    }
}

#[test]
fn the_table_of_consistency_levels_says_of_all_whether_they_move() {
    for level in Consistency::ALL {
        let asked = Asked {
            consistency: level,
            serial: None,
            is_conditional: false,
            is_write: false,
            writes_stay: false,
        };
        let row = CASSANDRA.lines().find(|line| line.starts_with(&format!("| `{level}`"))).unwrap();
        let moves = if travel(&asked, Presence::There).is_ok() { "yes" } else { "no" };
        assert_eq!(row.split('|').nth(3).unwrap().trim(), moves, "{row}");
    }
}
