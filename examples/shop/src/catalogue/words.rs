//! The words that titles, texts, people and comments are made of.

use super::random::Random;

/// A thing with its words.
#[derive(Debug)]
pub(crate) struct Thing {
    pub(crate) title: String,
    pub(crate) description: String,
    /// What it is worth, in whole euros.
    pub(crate) value: u32,
}

/// A category: six nouns, what they are made of, and what may be said of one. Words of a list are
/// told apart by commas.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) name: &'static str,
    nouns: &'static str,
    materials: &'static str,
    details: [&'static str; 5],
    /// Where in [`ERAS`] they begin to exist.
    first_era: usize,
    /// What a thing of this category is worth at least, in whole euros.
    value: u32,
}

impl Words {
    /// A thing of the noun `noun`.
    pub(crate) fn thing(&self, noun: usize, random: &mut Random) -> Thing {
        let noun = self.nouns.split(", ").nth(noun).expect("a category has six nouns");
        let material = one_of(self.materials, random);
        let era = random.one_of(&ERAS[self.first_era..]);
        let maker = maker(random);
        let title = match random.below(5) {
            0 => format!("{material} {noun}, {era}"),
            1 => format!("{material} {noun} by {maker}"),
            2 => format!("{material} {noun}, {maker}, {era}"),
            3 => format!("{material} {noun}, {}", one_of(REMARKS, random)),
            _ => format!("{material} {noun}, {era}, {}", one_of(REMARKS, random)),
        };
        let value = self.value * random.between(4, 40) / 4;
        Thing { title, description: self.describe(noun, &maker, random), value }
    }

    fn describe(&self, noun: &str, maker: &str, random: &mut Random) -> String {
        let first = self.details[random.below(5) as usize];
        let height = random.between(6, 90);
        let place = random.one_of(&CITIES);
        let origin = match random.below(4) {
            0 => format!("It came to us from a house clearance near {place}."),
            1 => format!("Bought in {place} some thirty years ago and used with care ever since."),
            2 => format!("The workshop label of {maker}, {place}, is still in place."),
            _ => format!("From a private collection in {place}, with the original receipt."),
        };
        let condition = random.one_of(&CONDITIONS);
        let closing = random.one_of(&CLOSINGS);
        format!(
            "{first} {origin} {condition} The {noun} measures about {height} cm at its longest. \
             {closing}"
        )
    }
}

/// A bidder, seller or author: "Marta Lindqvist".
pub(crate) fn person(random: &mut Random) -> String {
    format!("{} {}", one_of(FIRST_NAMES, random), one_of(LAST_NAMES, random))
}

/// What a visitor writes below an item.
pub(crate) fn comment(random: &mut Random) -> String {
    format!("{} {}", random.one_of(&COMMENTS), random.one_of(&COMMENT_ENDINGS))
}

fn one_of(list: &'static str, random: &mut Random) -> &'static str {
    random.one_of(&list.split(", ").collect::<Vec<_>>())
}

fn maker(random: &mut Random) -> String {
    let first = one_of(LAST_NAMES, random);
    match random.below(4) {
        0 => format!("{first} & Sons"),
        1 => format!("{first} & {}", one_of(LAST_NAMES, random)),
        2 => format!("the {first} workshop"),
        _ => first.to_owned(),
    }
}

/// The order of the pictures in `page/motifs.rs` is the same.
pub(crate) const CATEGORIES: [Words; 12] = [
    Words {
        name: "Clocks",
        nouns: "ship's clock, mantel clock, carriage clock, wall clock, alarm clock, station clock",
        materials: "Brass, Walnut, Oak, Marble, Nickel, Enamelled, Mahogany, Gilt",
        details: [
            "An eight-day movement that keeps time to a minute a week.",
            "The dial is original, with spade hands and a small seconds ring.",
            "Strikes the hours on a coiled gong with a warm, low note.",
            "The movement was cleaned and oiled last winter; the key is included.",
            "A quiet lever movement behind bevelled glass.",
        ],
        first_era: 0,
        value: 60,
    },
    Words {
        name: "Lamps",
        nouns: "desk lamp, table lamp, banker's lamp, reading lamp, bedside lamp, piano lamp",
        materials: "Brass, Green glass, Chromed, Copper, Bakelite, Ceramic, Opaline, Bronze",
        details: [
            "Rewired with a fabric cable and tested by an electrician.",
            "The shade gives a soft, even light and has no chips.",
            "The weighted foot stands firmly and is lined with new felt.",
            "The joint turns easily and stays where it is put.",
            "Takes an ordinary bulb; the switch has a satisfying click.",
        ],
        first_era: 3,
        value: 25,
    },
    Words {
        name: "Vases & jugs",
        nouns: "vase, bottle vase, milk jug, ginger jar, water jug, storage jar",
        materials: "Stoneware, Porcelain, Salt-glazed, Blue-and-white, Celadon, Earthenware, \
         Slipware, Crackle-glazed",
        details: [
            "Thrown by hand; the throwing rings can be felt inside.",
            "The glaze runs from deep blue to a pale grey at the rim.",
            "Painted freely with a brush, no two sides are alike.",
            "Heavy for its size, with a foot ring left unglazed.",
            "Signed below the foot with an incised mark.",
        ],
        first_era: 0,
        value: 15,
    },
    Words {
        name: "Chairs",
        nouns: "armchair, dining chair, kitchen chair, side chair, nursing chair, desk chair",
        materials: "Beech, Oak, Teak, Elm, Bentwood, Rush-seated, Leather, Rosewood",
        details: [
            "The joints were glued again and do not creak.",
            "The seat has the polish that only decades of use give.",
            "A light chair that is easily carried with one hand.",
            "The curve of the back fits better than it looks.",
            "Oiled twice this year; the grain is lively.",
        ],
        first_era: 0,
        value: 40,
    },
    Words {
        name: "Cameras",
        nouns: "folding camera, rangefinder, box camera, travel camera, view camera, press camera",
        materials: "Leather-cased, Chromed, Black-enamelled, Brass-bound, Mahogany, Coated-lens, \
         Nickel-plated, Bakelite",
        details: [
            "All shutter speeds sound right, also the slow ones.",
            "The glass is clear, with faint cleaning marks on the front element.",
            "The bellows is light-tight; it was tested with a lamp in the dark.",
            "A film was run through it in spring, and all frames came out well.",
            "The viewfinder is bright and the distance scale is in metres.",
        ],
        first_era: 2,
        value: 35,
    },
    Words {
        name: "Radios",
        nouns: "valve radio, table radio, kitchen radio, shortwave receiver, travel radio, \
         bedside radio",
        materials: "Bakelite, Walnut, Ivory, Oak, Teak, Cherry, Green, Two-tone",
        details: [
            "Plays on medium and long wave, and finds far stations at night.",
            "The magic eye still glows a good green.",
            "Paper capacitors were replaced; the valves are the first ones.",
            "The cloth of the loudspeaker is whole and clean.",
            "The dial names cities that one no longer finds on the air.",
        ],
        first_era: 5,
        value: 30,
    },
    Words {
        name: "Books",
        nouns: "atlas, cookery book, field guide, poetry volume, travel diary, seafaring novel",
        materials: "Leather-bound, Cloth-bound, Illustrated, Gilt-edged, Half-calf, First-edition, \
         Annotated, Slipcased",
        details: [
            "The binding is tight and all plates are there.",
            "With pencil notes of a careful reader in the margins.",
            "The paper is clean but for some foxing on the first leaves.",
            "With the bookplate of a former owner and a pressed flower.",
            "The gilt on the spine is still bright.",
        ],
        first_era: 0,
        value: 8,
    },
    Words {
        name: "Strings",
        nouns: "violin, viola, fiddle, cello, half-size violin, baroque violin",
        materials: "Spruce-top, Flamed maple, Two-piece-back, Dark-varnished, Inlaid, Student's, \
         Concert, Amber-varnished",
        details: [
            "Set up by a luthier, with new strings and a low action.",
            "A warm tone that carries to the end of a room.",
            "An old repair at the rib is stable and hardly seen.",
            "The neck is straight and the pegs hold.",
            "Comes in its case, with a bow and a spare set of strings.",
        ],
        first_era: 0,
        value: 70,
    },
    Words {
        name: "Model boats",
        nouns: "pond yacht, model schooner, model cutter, model ketch, model sloop, \
         fishing boat model",
        materials: "Mahogany, Pine, Plank-on-frame, Painted, Cedar, Teak, Varnished, Brass-fitted",
        details: [
            "The rigging is complete and was tied with patience.",
            "Sails well: it crossed our pond in a light breeze.",
            "The hull is planked, with a lead keel let in.",
            "On a stand of its own, which is included.",
            "The sails were sewn anew from old shirt cotton.",
        ],
        first_era: 0,
        value: 30,
    },
    Words {
        name: "Bicycles",
        nouns: "touring bicycle, racing bicycle, city bicycle, delivery bicycle, track bicycle, \
         post bicycle",
        materials: "Steel, Chromed, Lugged-frame, Black-enamelled, Hand-brazed, Three-speed, \
         Single-speed, Leather-saddled",
        details: [
            "The frame is straight and the lugs are lined by hand.",
            "Wheels were trued, bearings greased, brakes set.",
            "The saddle has found its shape and keeps it.",
            "The bell alone is worth the journey.",
            "Rides as quietly as on its first day.",
        ],
        first_era: 2,
        value: 55,
    },
    Words {
        name: "Maps",
        nouns: "sea chart, city plan, railway map, county map, survey map, island map",
        materials: "Hand-coloured, Linen-backed, Framed, Engraved, Folding, Large, Lithographed, \
         Annotated",
        details: [
            "The colours are as fresh as if the sheet had lain in a drawer, which it had.",
            "Soundings in fathoms, with pencilled courses of a real voyage.",
            "Dissected and laid on linen, with the seller's ticket.",
            "A fine compass rose and a sea monster of modest size.",
            "The folds are strengthened and the margins complete.",
        ],
        first_era: 0,
        value: 20,
    },
    Words {
        name: "Rings",
        nouns: "signet ring, cluster ring, solitaire ring, cocktail ring, keeper ring, posy ring",
        materials: "Gold, Silver, Rose gold, Platinum, Sapphire, Garnet, Opal, Emerald",
        details: [
            "The setting was checked and every stone sits firmly.",
            "With clear hallmarks inside the band.",
            "The stone has a small inclusion that makes it easy to tell apart.",
            "A wide band, comfortable to wear; it can be made larger.",
            "In its first box, with the jeweller's name in the lid.",
        ],
        first_era: 0,
        value: 80,
    },
];

const ERAS: [&str; 12] = [
    "late Victorian",
    "1880s",
    "1890s",
    "circa 1900",
    "1910s",
    "1920s",
    "Art Deco",
    "1930s",
    "1940s",
    "1950s",
    "1960s",
    "1970s",
];

const REMARKS: &str = "\
    restored, in working order, with its first box, signed, a fine example, barn find, one owner, \
    rare colour, for the collector, with patina";

const CONDITIONS: [&str; 8] = [
    "Condition is good, with the small marks that honest use leaves.",
    "In very good condition; we looked for faults and found one scratch.",
    "Some wear at the edges, nothing that one sees from across a room.",
    "A small repair at the back was done long ago and done well.",
    "Cleaned gently and left otherwise as it was.",
    "Ready to use today.",
    "There is a chip on the underside, shown on request.",
    "The patina is even and we would leave it alone.",
];

const CLOSINGS: [&str; 7] = [
    "Collected in person or sent well packed.",
    "Sent insured; returns within a fortnight.",
    "We are happy to send more pictures.",
    "Sold to make room, not because we tired of it.",
    "Can be seen by appointment on weekday evenings.",
    "It deserves a place where it is used.",
    "Questions are answered the same day.",
];

const COMMENTS: [&str; 14] = [
    "My grandmother had one just like this.",
    "Does anybody know how old it really is?",
    "I saw a similar one go for twice as much last spring.",
    "Lovely condition.",
    "Bought from this seller before: careful packing, quick answer.",
    "The pictures do not do it justice, I saw it in person.",
    "Is the maker's mark visible?",
    "Would it fit on a shelf of 25 cm?",
    "I restored one of these, spare parts are easy to find.",
    "Outbid again, well done whoever you are!",
    "The colour is unusual for its time.",
    "Exactly what the hallway needs.",
    "A fair price so far.",
    "I would leave the patina alone.",
];

const COMMENT_ENDINGS: [&str; 8] = [
    "Good luck to all.",
    "Thank you for the detailed text.",
    "Watching this one.",
    "I shall sleep on it.",
    "Greetings from the coast.",
    "May it go to someone who uses it.",
    "My last offer, promised.",
    "What a find.",
];

/// Where people live and things come from.
pub(crate) const CITIES: [&str; 24] = [
    "Aarhus", "Antwerp", "Bergen", "Bologna", "Bristol", "Cork", "Delft", "Dundee", "Gdansk",
    "Ghent", "Girona", "Graz", "Haarlem", "Lisbon", "Lübeck", "Malmö", "Nantes", "Porto", "Riga",
    "Tallinn", "Trieste", "Turku", "Umeå", "Whitby",
];

const FIRST_NAMES: &str = "\
    Ada, Alma, Anton, Bea, Carl, Clara, David, Edith, Elias, Emil, Esther, Felix, Frida, George, \
    Greta, Hanna, Ida, Ivo, Jakob, Jonas, Karin, Leo, Lotte, Marta, Nils, Nora, Oscar, Paula, \
    Ruth, Simon, Thea, Viktor";

const LAST_NAMES: &str = "\
    Abbott, Almeida, Arnesen, Bauer, Bell, Bergman, Brandt, Calder, Castell, Dahl, Dekker, Ferro, \
    Fischer, Grey, Hale, Harrow, Holm, Jansen, Keller, Kowalski, Larkin, Lindqvist, Marsh, Moreau, \
    Nyberg, O'Dwyer, Okafor, Pereira, Quist, Rossi, Sands, Solberg, Tamm, Thorne, Vidal, Voss, \
    Weaver, Winter, Ylönen, Zeller";
