//! What is refused, and in which words.

use super::super::world::World;
use super::*;
use evenkeel_stores::resp::commands::COMMANDS;
use evenkeel_stores::resp::commands::refusals::SUBCOMMANDS;

/// What a client of its own is told at once for a command.
fn told(world: &mut World, words: &[&str]) -> String {
    let client = world.client();
    let _ = world.tell(client, words);
    let heard = world.heard(client);
    world.engine.borrow().dismiss(client);
    heard
}

fn errors<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    texts.map(|text| format!("-{text}\r\n")).collect()
}

#[test]
fn clients_are_told_the_words_of_the_table_and_nothing_else_is_refused() {
    let mut world = World::start(1, |_| {});
    let of_commands = COMMANDS.iter().filter_map(|command| match command.class {
        Class::Refused(why) => Some(why),
        _ => None,
    });
    let whys = SUBCOMMANDS.iter().flat_map(|it| it.why).copied();
    let all = errors(of_commands.chain(whys));
    for command in COMMANDS {
        let count = usize::from(command.arity.unsigned_abs());
        let words: Vec<&str> =
            std::iter::once(command.name).chain(std::iter::repeat_n("1", count - 1)).collect();
        let heard = told(&mut world, &words);
        match command.class {
            Class::Refused(why) => assert_eq!(heard, format!("-{why}\r\n"), "{words:?}"),
            _ => assert!(!all.contains(&heard), "{words:?}: {heard}"),
        }
    }
}

#[test]
fn subcommands_of_redis_are_known_or_refused_with_the_words_of_the_table() {
    /// Those of Redis 7.0.15, by `COMMAND LIST`, without those of `CLUSTER`.
    const THEIRS: &[(&str, &str)] = &[
        ("acl", "cat deluser dryrun genpass getuser help list log save setuser users whoami"),
        ("client", "caching getname getredir help id info kill list no-evict pause reply"),
        ("client", "setname tracking trackinginfo unblock unpause"),
        ("command", "count docs getkeys getkeysandflags help info list"),
        ("config", "get help resetstat rewrite set"),
        ("function", "delete dump flush help kill list load restore stats"),
        ("latency", "doctor graph help histogram history latest reset"),
        ("memory", "doctor help malloc-stats purge stats usage"),
        ("module", "help list load loadex unload"),
        ("object", "encoding freq help idletime refcount"),
        ("pubsub", "channels help numpat numsub shardchannels shardnumsub"),
        ("script", "debug exists flush help kill load"),
        ("slowlog", "get help len reset"),
        ("xgroup", "create createconsumer delconsumer destroy help setid"),
        ("xinfo", "consumers groups help stream"),
    ];
    let mut world = World::start(1, |_| {});
    let whys = errors(SUBCOMMANDS.iter().flat_map(|it| it.why).copied());
    for (of, names) in THEIRS {
        for name in names.split(' ') {
            let said: Vec<String> = (0..5)
                .map(|count| {
                    let more = std::iter::repeat_n("default", count);
                    let words: Vec<&str> = [*of, name].into_iter().chain(more).collect();
                    told(&mut world, &words)
                })
                .collect();
            let is_known = said.iter().any(|it| !it.contains("subcommand"));
            assert!(is_known, "{of} {name}: {said:?}");
            let mut rows = SUBCOMMANDS.iter().filter(|it| it.of == *of);
            let is_refused = rows.any(|it| it.names.contains(&name));
            let came = said.iter().any(|it| whys.contains(it));
            assert_eq!(came, is_refused, "{of} {name}: {said:?}");
        }
    }
}
