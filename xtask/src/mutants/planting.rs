//! All mutants of a file in one text: a function with mutants has a branch for each, and [`VARIABLE`] chooses one.

use super::{Mutant, Position, Span};
use proc_macro2::{Delimiter, LexError, LineColumn, TokenStream, TokenTree};
use std::{collections::BTreeMap, ops::Range};

/// Has the number of the mutant that is at work.
pub(super) const VARIABLE: &str = "VVM_MUTANT";

/// A file as read, and the places of its blocks.
pub(super) struct Source {
    text: String,
    /// The byte with which each line begins.
    lines: Vec<usize>,
    blocks: Vec<Span>,
}

/// A text with mutants, and the lines of each.
pub(super) struct Planted {
    pub(super) text: String,
    lines: Vec<(Range<usize>, usize)>,
}

impl Planted {
    /// Returns the mutant whose branch has this line.
    pub(super) fn of_line(&self, line: usize) -> Option<usize> {
        self.lines.iter().find(|(lines, _)| lines.contains(&line)).map(|(_, number)| *number)
    }
}

impl Source {
    pub(super) fn of(text: String) -> Result<Self, LexError> {
        let mut blocks = Vec::new();
        collect(text.parse()?, &mut blocks);
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Ok(Self { text, lines, blocks })
    }

    fn offset(&self, at: Position) -> usize {
        let line = self.lines.get(at.line - 1).copied().unwrap_or(self.text.len());
        let chars = self.text[line..].char_indices().map(|(index, _)| index);
        chars.chain([self.text.len() - line]).nth(at.column - 1).map_or(self.text.len(), |index| line + index)
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.offset(span.start)..self.offset(span.end)
    }

    /// Returns the line in which a mutant begins.
    pub(super) fn line(&self, mutant: &Mutant) -> &str {
        self.text.lines().nth(mutant.span.start.line - 1).unwrap_or_default().trim()
    }

    /// Returns the text with one mutant and nothing to choose.
    pub(super) fn with(&self, number: usize, mutant: &Mutant) -> Planted {
        let Range { start, end } = self.range(mutant.span);
        let text = [&self.text[..start], &mutant.replacement, &self.text[end..]].concat();
        Planted { text, lines: vec![(0..usize::MAX, number)] }
    }

    /// Returns the block of the mutant's function. `None` if no run of the program can choose the mutant: in a constant,
    /// and where each branch would have a type of its own.
    pub(super) fn body(&self, mutant: &Mutant) -> Option<Range<usize>> {
        let function = mutant.function.as_ref().filter(|function| !function.return_type.contains("impl "))?;
        let block = self.blocks.iter().find(|block| block.end == function.span.end)?;
        let body = self.range(*block);
        let head = &self.text[self.offset(function.span.start)..body.start];
        let inner = self.range(mutant.span);
        (!head.contains("const fn") && body.start < inner.start && inner.end < body.end).then_some(body)
    }

    /// Returns the text with these mutants, which all have bodies. A function within another one has none.
    pub(super) fn plant(&self, mutants: &[(usize, &Mutant)]) -> Planted {
        let mut of_bodies: BTreeMap<(usize, usize), Vec<&(usize, &Mutant)>> = BTreeMap::new();
        for mutant in mutants {
            if let Some(body) = self.body(mutant.1) {
                of_bodies.entry((body.start, body.end)).or_default().push(mutant);
            }
        }
        let (mut text, mut lines, mut done) = (String::new(), Vec::new(), 0);
        for ((start, end), mutants) in of_bodies {
            text += &self.text[done..start];
            text += &format!(
                "{{ static CHOSEN: ::std::sync::LazyLock<Option<usize>> = ::std::sync::LazyLock::new(|| \
                 ::std::env::var({VARIABLE:?}).ok().and_then(|chosen| chosen.parse().ok())); match *CHOSEN {{"
            );
            for (number, mutant) in mutants {
                let begins = text.matches('\n').count() + 2;
                let Range { start: from, end: to } = self.range(mutant.span);
                let (before, behind) = (&self.text[start..from], &self.text[to..end]);
                text += &format!("\nSome({number}) => {before}{}{behind}", mutant.replacement);
                lines.push((begins..text.matches('\n').count() + 2, *number));
            }
            text += &format!("\n_ => {} }} }}", &self.text[start..end]);
            done = end;
        }
        text += &self.text[done..];
        Planted { text, lines }
    }
}

/// Notes the places of all blocks, outer ones first.
fn collect(tokens: TokenStream, blocks: &mut Vec<Span>) {
    // Columns count from 0 here, and from 1 in the list of mutants.
    let position = |at: LineColumn| Position { line: at.line, column: at.column + 1 };
    for tree in tokens {
        if let TokenTree::Group(group) = tree {
            if group.delimiter() == Delimiter::Brace {
                let (start, end) = (group.span_open().start(), group.span_close().end());
                blocks.push(Span { start: position(start), end: position(end) });
            }
            collect(group.stream(), blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::Function;

    const TEXT: &str = "const N: u8 = 1 + 2;\n\nfn ä(a: u8) -> bool {\n    // é\n    a < N\n}\n\nconst fn c() -> u8 {\n    1 + 1\n}\n";

    fn span(start: (usize, usize), end: (usize, usize)) -> Span {
        let at = |(line, column)| Position { line, column };
        Span { start: at(start), end: at(end) }
    }

    fn mutant(of: Option<Span>, at: (usize, usize), replacement: &str) -> Mutant {
        let function = of.map(|span| Function { return_type: "-> bool".into(), span });
        let span = span(at, (at.0, at.1 + 1));
        Mutant {
            name: String::new(),
            package: String::new(),
            file: "a.rs".into(),
            function,
            span,
            replacement: replacement.into(),
        }
    }

    #[test]
    fn function_has_a_branch_for_each_mutant_and_its_own_body_without_one() {
        let source = Source::of(TEXT.into()).unwrap();
        let function = span((3, 1), (6, 2));
        let [less, more] = ["<=", ">"].map(|sign| mutant(Some(function), (5, 7), sign));
        let planted = source.plant(&[(4, &less), (7, &more)]);
        let branches = [
            "\nSome(4) => {\n    // é\n    a <= N\n}",
            "\nSome(7) => {\n    // é\n    a > N\n}",
            "\n_ => {\n    // é\n    a < N\n}",
        ];
        assert!(planted.text.contains(&branches.concat()), "{}", planted.text);
        let chosen: Vec<_> = (1..16).map(|line| planted.of_line(line)).collect();
        let lines = |number| chosen.iter().filter(|chosen| **chosen == Some(number)).count();
        assert_eq!((lines(4), lines(7), chosen[2]), (4, 4, None), "{}", planted.text);
    }

    #[test]
    fn constant_has_one_mutant_at_a_time() {
        let source = Source::of(TEXT.into()).unwrap();
        let of_constant = mutant(None, (1, 17), "*");
        let of_function = mutant(Some(span((8, 1), (10, 2))), (9, 7), "-");
        assert!(source.body(&of_constant).is_none() && source.body(&of_function).is_none());
        assert!(source.with(3, &of_constant).text.starts_with("const N: u8 = 1 * 2;\n"));
        assert_eq!(source.line(&of_function), "1 + 1");
    }
}
