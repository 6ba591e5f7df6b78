//! The words that titles, texts, people and comments are made of.

use std::sync::LazyLock;

use serde::Deserialize;

use super::random::Random;

/// All words there are.
pub(crate) static WORDS: LazyLock<Words> = LazyLock::new(|| {
    toml::from_str(include_str!("words.toml")).expect("the file is as its tests found it")
});

/// The lists of `words.toml`.
#[derive(Debug, Deserialize)]
pub(crate) struct Words {
    pub(crate) categories: Vec<Category>,
    pub(crate) cities: Vec<String>,
    eras: Vec<String>,
    remarks: Vec<String>,
    conditions: Vec<String>,
    closings: Vec<String>,
    comments: Vec<String>,
    comment_endings: Vec<String>,
    first_names: Vec<String>,
    last_names: Vec<String>,
}

/// A thing with its words.
#[derive(Debug)]
pub(crate) struct Thing {
    pub(crate) title: String,
    pub(crate) description: String,
    /// What it is worth, in whole euros.
    pub(crate) value: u32,
}

/// A category: six nouns, what they are made of, and what may be said of one.
#[derive(Debug, Deserialize)]
pub(crate) struct Category {
    pub(crate) name: String,
    nouns: Vec<String>,
    materials: Vec<String>,
    details: Vec<String>,
    /// Where among the eras they begin to exist.
    first_era: usize,
    /// What a thing of this category is worth at least, in whole euros.
    value: u32,
}

impl Category {
    /// A thing of the noun `noun`.
    pub(crate) fn thing(&self, noun: usize, random: &mut Random) -> Thing {
        let noun = &self.nouns[noun];
        let material = random.one_of(&self.materials);
        let era = random.one_of(&WORDS.eras[self.first_era..]);
        let maker = maker(random);
        let title = match random.below(5) {
            0 => format!("{material} {noun}, {era}"),
            1 => format!("{material} {noun} by {maker}"),
            2 => format!("{material} {noun}, {maker}, {era}"),
            3 => format!("{material} {noun}, {}", random.one_of(&WORDS.remarks)),
            _ => format!("{material} {noun}, {era}, {}", random.one_of(&WORDS.remarks)),
        };
        let value = self.value * random.between(4, 40) / 4;
        Thing { title, description: self.describe(noun, &maker, random), value }
    }

    fn describe(&self, noun: &str, maker: &str, random: &mut Random) -> String {
        let first = random.one_of(&self.details);
        let height = random.between(6, 90);
        let place = random.one_of(&WORDS.cities);
        let origin = match random.below(4) {
            0 => format!("It came to us from a house clearance near {place}."),
            1 => format!("Bought in {place} some thirty years ago and used with care ever since."),
            2 => format!("The workshop label of {maker}, {place}, is still in place."),
            _ => format!("From a private collection in {place}, with the original receipt."),
        };
        let condition = random.one_of(&WORDS.conditions);
        let closing = random.one_of(&WORDS.closings);
        format!(
            "{first} {origin} {condition} The {noun} measures about {height} cm at its longest. \
             {closing}"
        )
    }
}

/// A bidder, seller or author: "Marta Lindqvist".
pub(crate) fn person(random: &mut Random) -> String {
    format!("{} {}", random.one_of(&WORDS.first_names), random.one_of(&WORDS.last_names))
}

/// What a visitor writes below an item.
pub(crate) fn comment(random: &mut Random) -> String {
    format!("{} {}", random.one_of(&WORDS.comments), random.one_of(&WORDS.comment_endings))
}

fn maker(random: &mut Random) -> String {
    let first = random.one_of(&WORDS.last_names);
    match random.below(4) {
        0 => format!("{first} & Sons"),
        1 => format!("{first} & {}", random.one_of(&WORDS.last_names)),
        2 => format!("the {first} workshop"),
        _ => first.clone(),
    }
}
