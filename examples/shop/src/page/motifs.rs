//! Twelve drawings, one for each category in the order of the catalogue's list.
//!
//! On a field of 200 by 150, standing on y = 122. Colours are classes that the style sheet makes
//! from the picture's hue: `a` main, `d` dark, `e` accent, `w` pale; `s` and `k` are strokes, dark
//! and main. `m` and `n` are the hands of clock and dial.

pub(crate) const MOTIFS: [&str; 12] =
    [CLOCK, LAMP, VASE, CHAIR, CAMERA, RADIO, BOOKS, VIOLIN, BOAT, BICYCLE, MAP, RING];

const CLOCK: &str = r#"<path class="d" d="M58 122h84l-7-12H65z"/>
<path class="a" d="M66 112V66a34 34 0 0 1 68 0v46z"/><circle class="e" cx="100" cy="69" r="30"/>
<circle class="w" cx="100" cy="69" r="26"/><circle class="d" cx="100" cy="102" r="4"/>
<path class="s" stroke-width="2.5" d="M100 47v5M100 86v5M78 69h5M117 69h5"/>
<path class="s m" stroke-width="2.5" d="M100 69V50"/>
<path class="s n" stroke-width="4" d="M100 69V57"/><circle class="d" cx="100" cy="69" r="3.5"/>"#;

const LAMP: &str = r#"<path class="w glow" d="M68 68L34 122h132l-34-54z"/>
<ellipse class="d" cx="100" cy="118" rx="30" ry="6"/>
<path class="s" stroke-width="6" d="M100 116V66"/><circle class="w" cx="100" cy="69" r="8"/>
<path class="a" d="M82 26h36l18 42H64z"/><path class="e" d="M67.4 60h65.200l3.4 8H64z"/>
<path class="s" stroke-width="2" d="M118 69v16"/><circle class="d" cx="118" cy="87" r="2.5"/>"#;

const VASE: &str = r#"<path class="s" stroke-width="2.5" d="M99 40C97 26 104 14 116 8M99 30C95
20 88 16 80 15M100 24c4-3 9-4 14-3"/><circle class="e" cx="117" cy="8" r="6"/>
<circle class="e" cx="79" cy="15" r="5"/><circle class="a" cx="116" cy="21" r="4"/>
<path class="a" d="M88 38h24c-2 10 4 15 13 25 13 15 7 45-8 59H83c-15-14-21-44-8-59 9-10 15-15
13-25z"/><path class="e" d="M71 70c18 7 40 7 58 0 3 5 4 10 4 15-20 8-46 8-66 0 0-5 1-10 4-15z"/>
<ellipse class="d" cx="100" cy="38" rx="13" ry="3.5"/>
<path class="w glow" d="M80 76c-5 12-3 26 4 38-11-11-14-28-9-40z"/>"#;

const CHAIR: &str = r#"<path class="k" stroke-width="6" d="M86 90v24M114 90v24"/>
<rect class="a" x="70" y="20" width="60" height="48" rx="15"/>
<rect class="e" x="77" y="27" width="46" height="34" rx="10"/>
<path class="k" stroke-width="6" d="M80 66v16M120 66v16"/>
<path class="s" stroke-width="7" d="M69 92l-5 29M131 92l5 29"/>
<rect class="d" x="60" y="79" width="80" height="14" rx="7"/>
<rect class="e" x="66" y="75" width="68" height="9" rx="4.5"/>"#;

const CAMERA: &str = r#"<path class="d" d="M80 50l6-14h28l6 14z"/>
<rect class="d" x="52" y="42" width="16" height="10" rx="3"/>
<rect class="a" x="44" y="48" width="112" height="74" rx="11"/>
<path class="e" d="M44 64h112v42H44z"/><circle class="d" cx="100" cy="85" r="29"/>
<circle class="w" cx="100" cy="85" r="23"/><circle class="d" cx="100" cy="85" r="18"/>
<circle class="a" cx="100" cy="85" r="10"/><circle class="w" cx="94" cy="78" r="4"/>
<rect class="w" x="130" y="53" width="16" height="7" rx="2"/>"#;

const RADIO: &str = r#"<path class="s" stroke-width="3" d="M136 42l22-32"/>
<circle class="d" cx="158" cy="10" r="3.5"/>
<path class="d" d="M54 116h14v6H54zM132 116h14v6h-14z"/>
<rect class="a" x="38" y="40" width="124" height="78" rx="15"/>
<rect class="w" x="48" y="50" width="60" height="58" rx="8"/>
<path class="s" stroke-width="2" d="M54 60h48M54 68h48M54 76h48M54 84h48M54 92h48M54 100h48"/>
<circle class="e" cx="135" cy="71" r="20"/><circle class="w" cx="135" cy="71" r="15"/>
<g transform="translate(35 2)"><path class="s m" stroke-width="2.5" d="M100 69V57"/></g>
<circle class="d" cx="124" cy="102" r="6"/><circle class="d" cx="146" cy="102" r="6"/>"#;

const BOOKS: &str = r#"<rect class="a" x="40" y="102" width="110" height="20" rx="4"/>
<path class="w" d="M50 106h100v12H50z"/>
<rect class="e" x="54" y="84" width="94" height="18" rx="4"/>
<path class="w" d="M62 88h86v10H62z"/><rect class="d" x="62" y="24" width="19" height="60" rx="2"/>
<path class="e" d="M62 34h19v4H62zM62 70h19v4H62z"/>
<rect class="a" x="83" y="34" width="15" height="50" rx="2"/><path class="w" d="M87 44h7v14h-7z"/>
<g transform="rotate(15 120 84)"><rect class="e" x="103" y="26" width="17" height="58" rx="2"/>
<path class="d" d="M103 36h17v3h-17zM103 42h17v3h-17z"/></g>"#;

const VIOLIN: &str = r#"<g transform="rotate(24 100 75)"><path class="k" stroke-width="2.5"
d="M142 18L136 132"/><path class="a" d="M100 56c15-6 27 4 23 17-2 7-7 9-4 17 5 15-4 34-19
34s-24-19-19-34c3-8-2-10-4-17-4-13 8-23 23-17z"/><path class="e" d="M100 61c11-4 21 3 18 13-2
7-6 10-4 17 4 13-3 28-14 28s-18-15-14-28c2-7-2-10-4-17-3-10 7-17 18-13z"/>
<rect class="d" x="96" y="16" width="8" height="64" rx="2"/>
<circle class="d" cx="100" cy="14" r="6"/>
<path class="d" d="M95 104h10l-2 16h-6z"/><rect class="w" x="91" y="95" width="18" height="3"/>
<path class="s" stroke-width="2" d="M87 84c-4 4 3 8-1 13M113 84c4 4-3 8 1 13"/>
<path class="s" stroke-width="2.5" d="M92 20h16M92 26h16"/>
<path class="hair" d="M98 18v88M100 18v88M102 18v88"/></g>"#;

const BOAT: &str = r#"<path class="s" stroke-width="4" d="M100 14v92"/>
<path class="e" d="M100 14l20 6-20 7z"/><path class="w" d="M105 30c28 20 38 44 39 66h-39z"/>
<path class="w glow" d="M96 24c-24 20-34 46-37 72h37z"/>
<path class="a" d="M42 102h118c-6 15-16 20-30 20H72c-14 0-24-7-30-20z"/>
<path class="e" d="M46 108h109l3-6H42z"/><circle class="w" cx="84" cy="114" r="3"/>
<circle class="w" cx="100" cy="114" r="3"/><circle class="w" cx="116" cy="114" r="3"/>
<path class="s" stroke-width="2" d="M28 127q8-6 16 0t16 0 16 0 16 0 16 0 16 0 16 0 16 0 16 0"/>"#;

const BICYCLE: &str = r#"<circle class="s" stroke-width="4" cx="56" cy="95" r="27"/>
<circle class="s" stroke-width="4" cx="146" cy="95" r="27"/>
<path class="hair" d="M56 68v54M29 95h54M37 76l38 38M75 76l-38 38M146 68v54M119 95h54M127 76l38
38M165 76l-38 38"/><path class="k" stroke-width="5" d="M56 95l26-42h48l16 42M82 53l18 42H56M100
95l31-40M130 53l-4-14"/><path class="s" stroke-width="4.5" d="M140 34c-4 0-14 3-14 5h10"/>
<rect class="d" x="70" y="46" width="26" height="7" rx="3.5"/>
<circle class="e" cx="100" cy="95" r="8"/><circle class="d" cx="100" cy="95" r="3"/>
<path class="s" stroke-width="3" d="M100 95l7 12h7"/>"#;

const MAP: &str = r#"<path class="w" d="M38 40l42-14v84l-42 14z"/>
<path class="e" d="M80 26l42 14v84l-42-14z"/><path class="w" d="M122 40l40-14v84l-40 14z"/>
<path class="a glow" d="M38 92c14-12 22-2 42-16 14-10 26 10 42 4 14-6 26-20 40-16v46l-40
14-42-14-42 14z"/><path class="s route" stroke-width="3" d="M52 60c18-10 26 16 44 8s22 22 42 12"/>
<circle class="d" cx="52" cy="60" r="4"/>
<path class="d" d="M138 80c-9-13-12-17-12-23a12 12 0 0 1 24 0c0 6-3 10-12 23z"/>
<circle class="w" cx="138" cy="57" r="5"/>"#;

const RING: &str = r#"<circle class="k" stroke-width="10" cx="100" cy="90" r="32"/>
<path class="hair" d="M73 78a30 30 0 0 0 3 34"/><path class="d" d="M84 66h32l-6 10H90z"/>
<path class="e" d="M82 28h36l15 17-33 29-33-29z"/><path class="w" d="M82 28l7 17h22l7-17z"/>
<path class="w glow" d="M89 45l11 29 11-29z"/>
<path class="s" stroke-width="2.5" d="M140 20v12M134 26h12M60 16v8M56 20h8"/>"#;
