//! Colours and types of the picture, for a light page and for a dark one.
//!
//! Each colour is written out in both: custom properties would be shorter, and not every viewer knows them.

/// The style sheet.
pub(super) const STYLE: &str = r#"
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; font-size: 13px; }
text.title { font-size: 21px; font-weight: 650; }
text.name { font-size: 17px; font-weight: 700; }
text.small { font-size: 11.5px; }
text.halo { paint-order: stroke; stroke-width: 4; stroke-linejoin: round; }
text.figure { font-size: 14px; font-weight: 650; }
line, path { fill: none; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round; }
line.grid { stroke-width: 1; }
line.guide { stroke-width: 1; stroke-dasharray: 2 4; }
line.life { stroke-width: 2; }
line.tick { stroke-width: 2; }
line.stripe { stroke-width: 3; }
path.cross, path.check { stroke-width: 2.5; }
.record { opacity: 0.25; }
.hatch { fill: url(#hatch); }
.page { fill: #ffffff; stroke: #d1d9e0; }
.halo { stroke: #ffffff; }
.text { fill: #1f2328; }
.muted { fill: #59636e; }
.grid { stroke: #e6eaef; }
.guide, .arrow { stroke: #59636e; }
.life { stroke: #aeb6bf; fill: #aeb6bf; }
.tick { stroke: #ffffff; }
.stripe { stroke: #ffffff; stroke-opacity: 0.55; }
.bad { fill: #c21c2b; }
.cross, .flag { stroke: #c21c2b; }
.good { fill: #1a7f37; }
.check { stroke: #1a7f37; }
.a { fill: #0b7f83; }
.b { fill: #7a46cf; }
.c { fill: #b65a06; }
@media (prefers-color-scheme: dark) {
.page { fill: #0f141a; stroke: #2f3742; }
.halo { stroke: #0f141a; }
.text { fill: #e6edf3; }
.muted { fill: #9aa5b1; }
.grid { stroke: #222a33; }
.guide, .arrow { stroke: #9aa5b1; }
.life { stroke: #55606c; fill: #55606c; }
.tick { stroke: #0f141a; }
.stripe { stroke: #0f141a; stroke-opacity: 0.55; }
.bad { fill: #ff7b72; }
.cross, .flag { stroke: #ff7b72; }
.good { fill: #4cc564; }
.check { stroke: #4cc564; }
.a { fill: #35c4bd; }
.b { fill: #b18af8; }
.c { fill: #f0964a; }
}
"#;
