//! What is printed is read back with readers of the documented grammars.

use proptest::prelude::*;

use super::*;

/// A word of SQL.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    Name(String),
    Text(String),
    Sign(char),
}

/// Reads SQL: quotes are doubled within quotes, and nothing else is special there.
fn tokens(statement: &str, name_quote: char) -> Vec<Token> {
    let mut letters = statement.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(letter) = letters.next() {
        if letter == name_quote || letter == '\'' {
            let mut text = String::new();
            loop {
                match letters.next().expect("a quote is closed") {
                    end if end == letter && letters.peek() == Some(&letter) => {
                        letters.next();
                        text.push(letter);
                    }
                    end if end == letter => break,
                    within => text.push(within),
                }
            }
            tokens.push(if letter == '\'' { Token::Text(text) } else { Token::Name(text) });
        } else if letter.is_ascii_alphanumeric() {
            let mut word = letter.to_string();
            while let Some(next) =
                letters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_')
            {
                word.push(next);
            }
            tokens.push(Token::Word(word));
        } else if letter != ' ' {
            tokens.push(Token::Sign(letter));
        }
    }
    tokens
}

fn words(text: &str) -> Vec<Token> {
    text.split(' ').map(|word| Token::Word(word.to_owned())).collect()
}

/// `{"+region=a": 1, …}` as pairs, and that every pair is one.
fn dictionary(text: &str) -> Vec<(String, usize)> {
    let within = text.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
    let pair = |pair: &str| {
        let (key, count) = pair.split_once(": ").expect("a blank follows the colon");
        let key = key.strip_prefix("\"+region=").unwrap().strip_suffix('"').unwrap();
        (key.to_owned(), count.parse().unwrap())
    };
    within.split(", ").map(pair).collect()
}

/// The options of one statement: `name = 'text'` or `name = number`, with or without commas.
fn options(tokens: &[Token]) -> Vec<(String, String)> {
    let tokens: Vec<_> = tokens.iter().filter(|token| **token != Token::Sign(',')).collect();
    let (end, pairs) = tokens.split_last().unwrap();
    assert_eq!(**end, Token::Sign(';'));
    let pair = |three: &[&Token]| match three {
        [Token::Word(name), Token::Sign('='), Token::Text(value) | Token::Word(value)] => {
            (name.clone(), value.clone())
        }
        other => panic!("{other:?}"),
    };
    pairs.chunks(3).map(pair).collect()
}

fn sites(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn layout(leader: usize, voters: &[usize], replicas: &[usize]) -> Layout {
    Layout::new(leader, voters.to_vec(), replicas.to_vec()).unwrap()
}

fn of_database(database: &str) -> Subject<'_> {
    Subject { database, ..Subject::default() }
}

const REGIONS: [&str; 4] = ["us-east1", "europe-west1", "asia-east1", "us-west1"];

fn pairs(of: &[(&str, usize)]) -> Vec<(String, usize)> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn cockroachdb_is_told_how_many_where_and_who_leads() {
    let layout = layout(1, &[0, 1, 2], &[0, 1, 2, 3]);
    let lines =
        statements(System::CockroachDb, &layout, &sites(&REGIONS), &of_database("shop")).unwrap();
    let zone = lines.iter().find(|line| line.starts_with("ALTER")).unwrap();
    let tokens = tokens(zone, '"');
    let begins = [words("ALTER DATABASE"), vec![Token::Name("shop".to_owned())]].concat();
    assert_eq!(tokens[..3], begins);
    assert_eq!(tokens[3..6], words("CONFIGURE ZONE USING"));
    let options = options(&tokens[6..]);
    let names: Vec<&str> = options.iter().map(|(name, _)| &**name).collect();
    let expected =
        ["num_replicas", "num_voters", "constraints", "voter_constraints", "lease_preferences"];
    assert_eq!(names, expected);
    assert_eq!((&*options[0].1, &*options[1].1), ("4", "3"));
    let all = pairs(&[("asia-east1", 1), ("europe-west1", 1), ("us-east1", 1), ("us-west1", 1)]);
    assert_eq!(dictionary(&options[2].1), all);
    assert_eq!(dictionary(&options[3].1), all[..3]);
    assert_eq!(options[4].1, "[[+region=europe-west1]]");

    let two = Layout::new(0, vec![0, 1], vec![0, 1, 2]).unwrap();
    let subject = of_database("shop");
    let error =
        statements(System::CockroachDb, &two, &sites(&REGIONS), &subject).unwrap_err().to_string();
    assert!(error.contains("CockroachDB refuses two"), "{error}");
}

#[test]
fn two_sites_of_a_region_are_counted_together() {
    let names = sites(&["a", "a", "b"]);
    let layout = layout(0, &[0, 1, 2], &[0, 1, 2]);
    let subject = of_database("shop");
    let cockroach = statements(System::CockroachDb, &layout, &names, &subject).unwrap().join("\n");
    assert!(cockroach.contains("voter_constraints = '{\"+region=a\": 2, \"+region=b\": 1}'"));
    let tidb = statements(System::TiDb, &layout, &names, &subject).unwrap().join("\n");
    assert!(tidb.contains("FOLLOWER_CONSTRAINTS='{\"+region=a\": 1, \"+region=b\": 1}'"), "{tidb}");
}

#[test]
fn tidb_has_a_policy_for_the_database_and_each_table() {
    let layout = layout(1, &[0, 1, 2], &[0, 1, 2, 3]);
    let tables = sites(&["orders", "odd`one"]);
    let subject = Subject { tables: &tables, ..of_database("shop") };
    let lines = statements(System::TiDb, &layout, &sites(&REGIONS), &subject).unwrap();
    let policy = Token::Name("evenkeel_shop".to_owned());
    let is_policy = |line: &&String| line.contains("PLACEMENT POLICY") && line.contains("LEADER_");
    let made: Vec<Vec<Token>> =
        lines.iter().filter(is_policy).map(|line| tokens(line, '`')).collect();
    let begin = [words("CREATE PLACEMENT POLICY IF NOT EXISTS"), vec![policy.clone()]].concat();
    assert_eq!(made[0][..7], begin);
    assert_eq!(made[1][..4], [words("ALTER PLACEMENT POLICY"), vec![policy.clone()]].concat());
    assert_eq!(made[0][7..], made[1][4..], "made and changed to the same");
    let options = options(&made[0][7..]);
    assert_eq!(options[0], ("LEADER_CONSTRAINTS".to_owned(), "[+region=europe-west1]".to_owned()));
    assert_eq!(options[1].0, "FOLLOWER_CONSTRAINTS");
    assert_eq!(dictionary(&options[1].1), pairs(&[("asia-east1", 1), ("us-east1", 1)]));
    assert_eq!(options[2].0, "LEARNER_CONSTRAINTS");
    assert_eq!(dictionary(&options[2].1), pairs(&[("us-west1", 1)]));
    assert_eq!(options.len(), 3);
    let given: Vec<Vec<Token>> = lines
        .iter()
        .filter(|line| line.contains("POLICY=") && !line.starts_with("--"))
        .map(|line| tokens(line, '`'))
        .collect();
    assert_eq!(given.len(), 3);
    for (line, table) in given[1..].iter().zip(&tables) {
        assert_eq!(line[..2], words("ALTER TABLE"));
        assert_eq!(line[4], Token::Name(table.clone()));
        assert_eq!(line[line.len() - 2], policy);
    }
    let lonely = Layout::new(0, vec![0], vec![0]).unwrap();
    let error =
        statements(System::TiDb, &lonely, &sites(&REGIONS), &subject).unwrap_err().to_string();
    assert!(error.contains("two or more"), "{error}");
}

#[test]
fn yugabytedb_places_zones_before_it_prefers_one() {
    let names = sites(&["gcp.us-west1.a", "gcp.us-west1.b", "gcp.us-east4.a", "gcp.asia-east1.a"]);
    let layout = layout(2, &[0, 1, 2], &[0, 1, 2, 3]);
    let subject = Subject { masters: "m1:7100,m2:7100", ..Subject::default() };
    let lines = statements(System::YugabyteDb, &layout, &names, &subject).unwrap();
    let commands: Vec<Vec<&str>> = lines
        .iter()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').collect())
        .collect();
    for command in &commands {
        assert_eq!(command[..3], ["yb-admin", "--master_addresses", "m1:7100,m2:7100"]);
    }
    let blocks = "gcp.us-east4.a:1,gcp.us-west1.a:1,gcp.us-west1.b:1";
    assert_eq!(commands[0][3..], ["modify_placement_info", blocks, "3"]);
    assert_eq!(commands[1][3..], ["set_preferred_zones", "gcp.us-east4.a:1"]);
    let reads = ["add_read_replica_placement_info", "gcp.asia-east1.a:1", "1"];
    assert_eq!(commands[2][3..], reads);
    assert_eq!(commands[3][3..], ["get_is_load_balancer_idle"]);

    let wrong = statements(System::YugabyteDb, &layout, &sites(&REGIONS), &subject)
        .unwrap_err()
        .to_string();
    assert!(wrong.contains("us-east1") && wrong.contains("cloud.region.zone"), "{wrong}");
    for masters in ["m1", "m1:7100;reboot", "m1:7100,", "-x:1", "m1:7100 -h"] {
        let subject = Subject { masters, ..Subject::default() };
        let error =
            statements(System::YugabyteDb, &layout, &names, &subject).unwrap_err().to_string();
        assert!(error.contains("masters"), "{masters}: {error}");
    }
}

#[test]
fn names_that_no_system_has_are_refused() {
    let layout = layout(0, &[0, 1], &[0, 1]);
    for place in ["", "a b", "a'", "a]", "a\"", "-a", "a:1", "é", "a\n", &"a".repeat(129)] {
        for system in System::ALL {
            let error = statements(system, &layout, &sites(&["b", place]), &of_database("d"))
                .unwrap_err()
                .to_string();
            assert!(error.contains("site"), "{place:?}: {error}");
        }
    }
    for database in ["", "a\nb", "a\0", "blank ", &"a".repeat(129)] {
        for system in [System::CockroachDb, System::TiDb] {
            let names = sites(&["a", "b"]);
            let error = statements(system, &layout, &names, &of_database(database))
                .unwrap_err()
                .to_string();
            assert!(error.contains("name"), "{database:?}: {error}");
        }
    }
    assert!(
        System::parse("oracle").unwrap_err().to_string().contains("cockroachdb, yugabytedb, tidb")
    );
    let unknown = statements(System::TiDb, &layout, &sites(&["a"]), &of_database("d"));
    assert!(unknown.is_err(), "a site without a name");
}

proptest! {
    #[test]
    fn any_name_of_a_database_is_one_identifier(database in "[ -~éß中]{1,20}") {
        let layout = layout(0, &[0, 1, 2], &[0, 1, 2]);
        for (system, quote, prefix) in
            [(System::CockroachDb, '"', ""), (System::TiDb, '`', "evenkeel_")]
        {
            let made = statements(system, &layout, &sites(&REGIONS), &of_database(&database));
            prop_assert_eq!(made.is_err(), database.ends_with(' '));
            let policy = Token::Name(format!("{prefix}{database}"));
            let expected = [Token::Name(database.clone()), policy];
            for line in made.unwrap_or_default().iter().filter(|line| !line.starts_with("--")) {
                let tokens = tokens(line, quote);
                let is_end = |token: &Token| *token == Token::Sign(';');
                prop_assert_eq!(tokens.iter().filter(|token| is_end(token)).count(), 1);
                let is_name = |token: &&Token| matches!(token, Token::Name(_));
                prop_assert!(tokens.iter().filter(is_name).all(|name| expected.contains(name)));
            }
        }
    }
}
