//! A plan as a page: what each site is asked for and serves, who serves whom, why, and how sure
//! that is. One file, no outside resources, light or dark as the reader prefers.

use std::fmt::Write as _;

use evenkeel_geo::{Answer, Problem};

use super::violations::{percent, violations, violations_if_local};
use crate::html::{escape, svg};

const STYLE: &str = include_str!("../paper/page.css");
/// What the reports of papers have no use for.
const OWN_STYLE: &str = include_str!("page.css");
const WIDTH: f64 = 960.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 250.0;
const ROW: f64 = 38.0;
/// The style's colours in an order in which neighbours differ; from there on they come again.
const COLOURS: [usize; 12] = [2, 5, 4, 8, 6, 11, 12, 1, 9, 7, 10, 3];
/// More sites than this are no matrix that fits a page.
const MATRIX_MAX: usize = 24;
/// More sentences than this open on demand.
const SENTENCES_SHOWN: usize = 12;

/// A plan with what was said of it.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// What was planned: a file's name, or the name in it.
    pub(super) title: &'a str,
    /// By site.
    pub(super) names: &'a [String],
    pub(super) problem: &'a Problem,
    pub(super) answer: &'a Answer,
    /// Requests per second of one quantum, when they are known.
    pub(super) quantum_rps: Option<f64>,
    /// The outcome in a sentence or two, a line each.
    pub(super) summary: String,
    /// The largest flow first.
    pub(super) sentences: Vec<String>,
    /// How it was asked and searched: names and values.
    pub(super) facts: Vec<(&'static str, String)>,
}

impl View<'_> {
    /// The whole page.
    pub(super) fn page(&self) -> String {
        let title = escape(self.title);
        let summary = escape(&self.summary).replace('\n', "<br>");
        let mut page = format!(
            "<!doctype html><html lang=en><meta charset=utf-8>\
             <meta name=viewport content='width=device-width'><title>{title}</title>\
             <style>{STYLE}{OWN_STYLE}</style><main class=plan>\
             <p class=kicker>evenkeel plan redirect</p><h1>{title}</h1><p>{summary}</p>\
             <h2>What each site serves</h2>{}{}<h2>Who misses the objective</h2>{}",
            self.legend(),
            self.loads(),
            self.late(),
        );
        if self.answer.redirected > 0 {
            page += "<h2>Who serves whom</h2>";
            page += &if self.names.len() <= MATRIX_MAX { self.matrix() } else { String::new() };
            page += &self.reasons();
        }
        let fact = |(name, value): &(&str, String)| format!("<dt>{name}<dd>{}", escape(value));
        let facts: String = self.facts.iter().map(fact).collect();
        let _ = write!(page, "<h2>How sure that is</h2><dl class=facts>{facts}</dl>");
        page + "</main></html>\n"
    }

    fn legend(&self) -> String {
        const SWATCH: &str = "<svg viewBox='0 0 28 10'><rect width=28 height=10 /></svg>";
        let entry = |(site, name): (usize, &String)| {
            format!("<li class=c{}>{SWATCH}{}", colour(site), escape(name))
        };
        let entries: String = self.names.iter().enumerate().map(entry).collect();
        format!(
            "<p class=note>A bar is a site’s load, coloured by where requests come from; the frame \
             is what its own users ask for, the mark where its queues begin to grow.</p>\
             <ul class=legend>{entries}</ul>"
        )
    }

    /// A bar for each site.
    fn loads(&self) -> String {
        let sites = self.names.len();
        let saturation = |site: usize| match self.problem.saturation()[site] {
            u32::MAX => None,
            load => Some(load),
        };
        let ends = (0..sites).flat_map(|site| {
            let (demand, load) = (self.problem.demand()[site], self.answer.loads[site]);
            [demand, load, saturation(site).unwrap_or(0)]
        });
        let most = f64::from(ends.max().unwrap_or(1).max(1));
        let x = |load: u32| LEFT + (WIDTH - LEFT - RIGHT) * f64::from(load) / most;
        let mut svg = svg(WIDTH, ROW * sites as f64 + 6.0, "load of each site");
        for site in 0..sites {
            let y = ROW * site as f64 + 6.0;
            let (demand, load) = (self.problem.demand()[site], self.answer.loads[site]);
            let name = shortened(&self.names[site]);
            let _ = write!(svg, "<text class=name x={} y={}>{name}</text>", LEFT - 10.0, y + 18.0);
            let mut start = 0;
            for (from, amount) in self.guests(site) {
                let (left, right) = (x(start), x(start + amount));
                let _ = write!(
                    svg,
                    "<rect class='load c{}' x={left:.1} y={y} width={:.1} height=26><title>{} from \
                     {}</title></rect>",
                    colour(from),
                    right - left,
                    self.amount(amount),
                    escape(&self.names[from]),
                );
                start += amount;
            }
            let _ = write!(
                svg,
                "<rect class=asked x={LEFT} y={y} width={:.1} height=26 />",
                x(demand) - LEFT
            );
            if let Some(end) = saturation(site) {
                let _ = write!(
                    svg,
                    "<line class=full x1={x:.1} x2={x:.1} y1={} y2={} />",
                    y - 5.0,
                    y + 31.0,
                    x = x(end)
                );
            }
            let words = self.load_words(site, demand, load, saturation(site));
            let at = WIDTH - RIGHT + 14.0;
            let _ = write!(svg, "<text x={at} y={}>{words}</text>", y + 18.0);
        }
        svg + "</svg>"
    }

    /// Who is served at a site, its own first.
    fn guests(&self, site: usize) -> Vec<(usize, u32)> {
        let sites = self.names.len();
        let order = std::iter::once(site).chain((0..sites).filter(|&from| from != site));
        let amounts = order.map(|from| (from, self.answer.rates[from][site]));
        amounts.filter(|&(_, amount)| amount > 0).collect()
    }

    fn load_words(&self, site: usize, demand: u32, load: u32, end: Option<u32>) -> String {
        let share = match end {
            Some(end) if end > 0 => format!(", {:.0} %", 100.0 * f64::from(load) / f64::from(end)),
            _ => String::new(),
        };
        let shed = match self.answer.shed[site] {
            0 => String::new(),
            shed => format!(", {} shed", self.number(shed)),
        };
        format!("{} → {}{share}{shed}", self.number(demand), self.amount(load))
    }

    /// Two bars for each site: on its own, and with the plan.
    fn late(&self) -> String {
        let sites = self.names.len();
        let of = |violations: u64, site: usize| {
            let demand = self.problem.demand()[site].max(1);
            violations as f64 / f64::from(demand)
        };
        let alone = |site: usize| violations_if_local(self.problem, site);
        let planned = |site: usize| violations(self.problem, self.answer, site);
        let all = (0..sites).flat_map(|site| [of(alone(site), site), of(planned(site), site)]);
        let most = all.fold(1e-9, f64::max);
        let mut table =
            "<table class='measures late'><tr><th>users of<th class=number>late if all \
                         stay local<th class=number>late with the plan"
                .to_owned();
        for site in 0..sites {
            let _ = write!(table, "<tr class=c{}><td class=label>", colour(site));
            table += &escape(&self.names[site]);
            for value in [alone(site), planned(site)] {
                let bar = 100.0 * of(value, site) / most;
                let words = percent(value, self.problem.demand()[site]);
                let _ = write!(table, "<td class=number style='--bar:{bar:.1}%'>{words}");
            }
        }
        let sum = |one: &dyn Fn(usize) -> u64| {
            percent((0..sites).map(one).sum(), self.problem.demand_total())
        };
        let (alone, planned) = (sum(&alone), sum(&planned));
        table
            + &format!(
                "<tr class=all><td>all<td class=number>{alone}<td class=number>{planned}</table>"
            )
    }

    /// A row for each origin, a column for each destination.
    fn matrix(&self) -> String {
        let head = |(site, name): (usize, &String)| {
            format!("<th class='number c{}'>{}", colour(site), escape(name))
        };
        let head: String = self.names.iter().enumerate().map(head).collect();
        let unit = if self.quantum_rps.is_some() { "requests/s" } else { "quanta" };
        let mut table = format!(
            "<p class=note>{unit}; below, how many of those sent are late, their way included\
             </p><table class='measures flows'><tr><th>users of ↓ served at →{head}"
        );
        let away = self.answer.rates.iter().enumerate();
        let away = away.flat_map(|(i, row)| {
            row.iter().enumerate().filter(move |(j, _)| *j != i).map(|(_, &amount)| amount)
        });
        let most = f64::from(away.max().unwrap_or(1).max(1));
        for (from, row) in self.answer.rates.iter().enumerate() {
            let _ = write!(table, "<tr class=c{}><td class=label>", colour(from));
            table += &escape(&self.names[from]);
            for (to, &amount) in row.iter().enumerate() {
                table += &match (amount, from == to) {
                    (0, _) => "<td class=number>".to_owned(),
                    (_, true) => format!("<td class='number own'>{}", self.number(amount)),
                    (_, false) => self.cell(from, to, amount, f64::from(amount) / most),
                };
            }
        }
        table + "</table>"
    }

    fn cell(&self, from: usize, to: usize, amount: u32, part: f64) -> String {
        let late = self.problem.violation_ppm(from, to, self.answer.loads[to]);
        format!(
            "<td class='number sent' style='--part:{:.0}%'>{}<small>{}</small>",
            12.0 + 58.0 * part,
            self.number(amount),
            percent(late.into(), 1),
        )
    }

    fn reasons(&self) -> String {
        let item = |sentence: &String| format!("<li>{}", escape(sentence));
        let list = |part: &[String]| part.iter().map(item).collect::<String>();
        let (shown, more) = self.sentences.split_at(self.sentences.len().min(SENTENCES_SHOWN));
        let more = match more.len() {
            0 => String::new(),
            count => format!(
                "<details><summary>{count} more</summary><ul class=why>{}</ul></details>",
                list(more)
            ),
        };
        format!("<h3>Why</h3><ul class=why>{}</ul>{more}", list(shown))
    }

    /// `4 730 requests/s`, or `12 quanta` when nobody said how much a quantum is.
    fn amount(&self, quanta: u32) -> String {
        let unit = if self.quantum_rps.is_some() { "/s" } else { " quanta" };
        format!("{}{unit}", self.number(quanta))
    }

    fn number(&self, quanta: u32) -> String {
        match self.quantum_rps {
            None => quanta.to_string(),
            Some(rps) => grouped((f64::from(quanta) * rps).round() as u64),
        }
    }
}

/// Thin spaces between thousands, from 10 000 on.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let place = |(place, digit): (usize, char)| {
        let is_start = place > 0 && (digits.len() - place).is_multiple_of(3);
        format!("{}{digit}", if is_start { "\u{2009}" } else { "" })
    };
    digits.chars().enumerate().map(place).collect()
}

const fn colour(site: usize) -> usize {
    COLOURS[site % COLOURS.len()]
}

/// A name that fits beside a bar.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 16;
    if name.chars().count() <= LONGEST {
        return escape(name);
    }
    let start: String = name.chars().take(LONGEST - 1).collect();
    escape(&(start + "…"))
}

#[cfg(test)]
mod tests {
    use evenkeel_geo::{Question, solve};

    use super::*;

    #[test]
    fn a_page_needs_nothing_from_outside_and_escapes_what_people_wrote() {
        let near = vec![0, 0, 0, 100_000, 1_000_000];
        let far = vec![10_000, 10_000, 10_000, 110_000, 1_000_000];
        let curves = vec![vec![near.clone(), far.clone()], vec![far, near]];
        let problem = Problem::new(vec![4, 0], curves).unwrap();
        let problem = problem.with_saturation(vec![3, 3]).unwrap();
        let answer = solve(&problem, &Question::violations()).unwrap();
        let view = View {
            title: "a < b",
            names: &["O'Hare".to_owned(), "<script>".to_owned()],
            problem: &problem,
            answer: &answer,
            quantum_rps: Some(5_500.0),
            summary: "first\nsecond".to_owned(),
            sentences: vec!["because & so".to_owned()],
            facts: vec![("bound", "20000".to_owned())],
        };
        let page = view.page();
        assert!(page.contains("a &lt; b") && page.contains("because &amp; so"));
        assert!(page.contains("first<br>second") && page.contains("O&#39;Hare"));
        assert!(!page.contains("http") && !page.contains("<script"));
        // Half of 22 000/s is sent, and 1 % of it is late over the distance.
        assert!(page.contains("11\u{2009}000<small>1.000 %</small>"), "{page}");
        assert!(page.contains("22\u{2009}000 → 11\u{2009}000/s, 67 %"), "{page}");
    }
}
