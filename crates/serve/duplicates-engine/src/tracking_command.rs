//! `CLIENT TRACKING`, `CACHING`, `GETREDIR` and `TRACKINGINFO`, in Redis's words.

use std::collections::BTreeSet;

use evenkeel_ordered::{Tracker, TrackingOptions};

use super::Inner;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::commands::integer;
use evenkeel_stores::resp::connections::Tracked;
use evenkeel_stores::resp::encode;

type Options = TrackingOptions<ClientId>;

const SYNTAX: &str = "ERR syntax error";
const NO_SUCH_CLIENT: &str = "ERR The client ID you want redirect to does not exist";
const ONE_REDIRECT: &str = "ERR A client can only redirect to a single other client";
const NO_NUMBER: &str = "ERR value is not an integer or out of range";
const PREFIX_ALONE: &str = "ERR PREFIX option requires BCAST mode to be enabled";
const OTHER_MODE: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for \
    this client, and then re-enabling it with a different mode.";
const BCAST_OPT: &str = "ERR OPTIN and OPTOUT are not compatible with BCAST";
const OPTIN_OPTOUT: &str = "ERR You can't specify both OPTIN mode and OPTOUT mode";
const OTHER_OPT: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this \
    client, and then re-enabling it with a different mode.";
const NOT_TRACKING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking \
    mode with OPTIN or OPTOUT mode enabled";
const NO_OPTIN: &str =
    "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
const NO_OPTOUT: &str =
    "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";

/// Two prefixes of which one begins as the other does.
fn overlap(one: &[u8], other: &[u8]) -> bool {
    one.iter().zip(other).all(|(one, other)| one == other)
}

fn overlapping(prefix: &[u8], with: &str, other: &[u8]) -> String {
    let [prefix, other] = [prefix, other].map(String::from_utf8_lossy);
    format!(
        "ERR Prefix '{prefix}' overlaps with {with} prefix '{other}'. Prefixes for a single client \
         must not overlap."
    )
}

/// Why a client cannot track so, that tracks already as it said before; `None`: it can.
fn why_not(known: Option<&Options>, options: &Options, prefixes: &[&[u8]]) -> Option<String> {
    let conflicts = [
        (!options.is_bcast && !prefixes.is_empty(), PREFIX_ALONE),
        (known.is_some_and(|known| known.is_bcast != options.is_bcast), OTHER_MODE),
        (options.is_bcast && (options.is_optin || options.is_optout), BCAST_OPT),
        (options.is_optin && options.is_optout, OPTIN_OPTOUT),
        (
            known.is_some_and(|known| {
                options.is_optin && known.is_optout || options.is_optout && known.is_optin
            }),
            OTHER_OPT,
        ),
    ];
    if let Some((_, why)) = conflicts.iter().find(|(is_so, _)| *is_so) {
        return Some((*why).to_owned());
    }
    prefixes.iter().enumerate().find_map(|(at, prefix)| {
        let mut before = known.into_iter().flat_map(|known| &known.prefixes);
        let before = before.find(|other| overlap(prefix, other));
        let before = before.map(|other| overlapping(prefix, "an existing", other));
        before.or_else(|| {
            let other = prefixes[at + 1..].iter().find(|other| overlap(prefix, other))?;
            Some(overlapping(prefix, "another provided", other))
        })
    })
}

fn flags(tracker: &Tracker<ClientId>) -> Vec<&'static str> {
    let Tracker { options, is_said, is_broken, .. } = tracker;
    let all = [
        (true, "on"),
        (options.is_bcast, "bcast"),
        (options.is_optin, "optin"),
        (options.is_optin && *is_said, "caching-yes"),
        (options.is_optout, "optout"),
        (options.is_optout && *is_said, "caching-no"),
        (options.is_noloop, "noloop"),
        (*is_broken, "broken_redirect"),
    ];
    all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).collect()
}

impl Inner {
    /// `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX p …] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`
    pub(super) fn set_tracking(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        if let Some(lacks) = self.lacks(b"CLIENT TRACKING") {
            return self.refuse(id, &lacks);
        }
        let (mut options, mut prefixes) = (Options::default(), Vec::new());
        let (arguments, mut at) = (parsed.arguments(), 3);
        while at < parsed.len() {
            let has_more = at + 1 < parsed.len();
            match parsed.argument(at).to_ascii_lowercase().as_slice() {
                b"redirect" if has_more && options.redirect.is_some() => {
                    return self.refuse(id, ONE_REDIRECT);
                }
                b"redirect" if has_more => {
                    at += 1;
                    let Some(number) = integer(parsed.argument(at)) else {
                        return self.refuse(id, NO_NUMBER);
                    };
                    options.redirect = self.client_of_number(number);
                    if options.redirect.is_none() {
                        return self.refuse(id, NO_SUCH_CLIENT);
                    }
                }
                b"prefix" if has_more => {
                    at += 1;
                    prefixes.push(parsed.argument(at));
                }
                b"bcast" => options.is_bcast = true,
                b"optin" => options.is_optin = true,
                b"optout" => options.is_optout = true,
                b"noloop" => options.is_noloop = true,
                _ => return self.refuse(id, SYNTAX),
            }
            at += 1;
        }
        if arguments.is(2, "off") {
            self.stop_tracking(id);
            return self.ok(id);
        }
        if !arguments.is(2, "on") {
            return self.refuse(id, SYNTAX);
        }
        let known = self.tracking.core.tracker(id).map(|tracker| tracker.options.clone());
        if let Some(why) = why_not(known.as_ref(), &options, &prefixes) {
            return self.refuse(id, &why);
        }
        options.prefixes = prefixes.into_iter().map(Box::from).collect();
        if options.is_bcast && options.prefixes.is_empty() {
            options.prefixes = BTreeSet::from([Box::default()]);
        }
        self.begin_tracking(id, options);
        self.ok(id);
    }

    fn begin_tracking(&mut self, id: ClientId, options: Options) {
        let sent: Vec<_> = self.sent_in_all().collect();
        let Some(client) = self.client(id) else { return };
        client.tracks = true;
        self.tracking.core.begin(id, options, sent.into_iter());
    }

    fn client_of_number(&self, number: i64) -> Option<ClientId> {
        let mut clients = self.clients.iter();
        let found = clients.find(|(_, client)| client.number() == number && !client.is_part());
        found.map(|(key, client)| client.id(key))
    }

    /// `CLIENT CACHING YES|NO`
    pub(super) fn set_caching(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let is_executing = self.client(id).is_some_and(|client| client.captured.is_some());
        let Some(tracker) = self.tracking.core.tracker(id) else {
            return self.refuse(id, NOT_TRACKING);
        };
        let arguments = parsed.arguments();
        let refusal = match (arguments.is(2, "yes"), arguments.is(2, "no")) {
            (true, _) if tracker.options.is_optin => None,
            (true, _) => Some(NO_OPTIN),
            (_, true) if tracker.options.is_optout => None,
            (_, true) => Some(NO_OPTOUT),
            _ => Some(SYNTAX),
        };
        if let Some(refusal) = refusal {
            return self.refuse(id, refusal);
        }
        match is_executing {
            true => tracker.is_said_now = true, // of what the transaction reads
            false => tracker.is_said = true,
        }
        self.ok(id);
    }

    /// `CLIENT GETREDIR`
    pub(super) fn tell_redirect(&mut self, id: ClientId) {
        let redirect = self.tracked(id).redirect;
        self.reply_now(id, |out, _| encode::integer(out, redirect));
    }

    /// `CLIENT TRACKINGINFO`
    pub(super) fn tell_tracking(&mut self, id: ClientId) {
        let redirect = self.tracked(id).redirect;
        let tracker = self.tracking.core.tracker(id);
        let flags = tracker.as_deref().map_or(vec!["off"], flags);
        let prefixes = tracker.map(|it| it.options.prefixes.clone()).unwrap_or_default();
        self.reply_now(id, |out, protocol| {
            encode::map(out, 3, protocol);
            encode::bulk(out, b"flags");
            encode::set(out, flags.len(), protocol);
            flags.iter().for_each(|flag| encode::bulk(out, flag.as_bytes()));
            encode::bulk(out, b"redirect");
            encode::integer(out, redirect);
            encode::bulk(out, b"prefixes");
            encode::array(out, prefixes.len());
            prefixes.iter().for_each(|prefix| encode::bulk(out, prefix));
        });
    }

    /// As `CLIENT LIST` has it.
    pub(super) fn tracked(&mut self, id: ClientId) -> Tracked {
        self.tracking.core.tracker(id).map_or_else(Tracked::default, |tracker| Tracked {
            is_on: true,
            is_broken: tracker.is_broken,
            is_bcast: tracker.options.is_bcast,
            redirect: tracker.options.redirect.map_or(0, ClientId::number),
        })
    }
}
