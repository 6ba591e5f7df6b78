//! A picture for every item, drawn from its number.
//!
//! The category gives the motif; the number gives hue, backdrop, size, side and the time that
//! clocks show. Colours follow the reader's light or dark mode, since the style sheet has them.

use std::fmt;
use std::sync::LazyLock;

/// Twelve drawings with empty lines between, one for each category in the order of `words.toml`.
///
/// On a field of 200 by 150, standing on y = 122. Colours are classes that the style sheet makes
/// from the picture's hue: `a` main, `d` dark, `e` accent, `w` pale; `s` and `k` are strokes, dark
/// and main. `m` and `n` are the hands of clock and dial.
static MOTIFS: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("motifs.svg").trim_end().split("\n\n").collect());

/// The picture of item `number` of category `category` (from 1), as inline SVG.
pub(crate) fn picture(number: i64, category: i64) -> Picture {
    Picture { number: number.unsigned_abs(), category: category.unsigned_abs() }
}

/// See [`picture`].
#[derive(Debug)]
pub(crate) struct Picture {
    number: u64,
    category: u64,
}

/// What stands or hangs behind the motif.
const BACKDROPS: [&str; 4] = [
    "<circle class=b2 cx=100 cy=68 r=58 />",
    "<path class=b2 d=\"M52 112V64a48 48 0 0 1 96 0v48z\"/>",
    "<path class=b2 d=\"M0 112l50-42 34 26 52-50 64 58v8z\"/>",
    "<path class=b2 d=\"M0 34l200-26v70L0 104z\"/>",
];

impl fmt::Display for Picture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neighbours in a list have neighbouring numbers: the golden angle sets their hues apart.
        let hue = self.number * 137 % 360;
        let turn = self.number * 53 % 360;
        let backdrop = BACKDROPS[(self.number / 3 % 4) as usize];
        let motif = MOTIFS[(self.category.wrapping_sub(1) % MOTIFS.len() as u64) as usize];
        let size = 0.88 + (self.number * 7 % 5) as f64 * 0.04;
        let side = if self.number.is_multiple_of(2) { size } else { -size };
        write!(
            formatter,
            "<svg class=picture viewBox=\"0 0 200 150\" style=\"--h:{hue};--t:{turn}deg\" \
             aria-hidden=true><path class=b0 d=\"M0 0h200v150H0z\"/>{backdrop}\
             <path class=b1 d=\"M0 112h200v38H0z\"/>\
             <g transform=\"translate(100 122) scale({side:.2} {size:.2}) translate(-100 -122)\">\
             {motif}</g></svg>"
        )
    }
}
