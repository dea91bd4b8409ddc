use std::cmp::Ordering;

/// The place of a period among those of one form: dates and times that begin with the year, counters, and dotted
/// numbers such as versions. Numbers are compared part by part. Texts of two forms are not comparable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeriodOrder {
    form: String,
    numbers: Vec<u128>,
}

/// A number of so many digits may be a date without separators: a day, an hour and a second have unlike lengths.
const DIGITS_OF_A_DAY: usize = 8;

impl PeriodOrder {
    /// Returns the place of `period`. `None` if its form shows no order, or if in its form a later text may come first.
    pub fn parse(period: &str) -> Option<Self> {
        let is_digit = |letter: char| letter.is_ascii_digit();
        let digits = period.split(|letter| !is_digit(letter)).filter(|digits| !digits.is_empty());
        let digits = digits.collect::<Vec<_>>();
        let between = period.trim_matches(|letter| !is_digit(letter)).split(is_digit);
        let is_dotted = between.filter(|text| !text.is_empty()).all(|text| text == ".");
        let (first, last) = (digits.first()?, digits.last()?);
        // A day, week or hour of a larger unit, which begins anew: 52 is followed by 01.
        let begins_anew = first.len() > 1 && first.starts_with('0');
        let is_year = |digits: &str| digits.len() == 4 && ["19", "20"].contains(&&digits[..2]);
        // A month or day before its year: 12/31/2026.
        let ends_with_year = !is_year(first) && is_year(last);
        let has_order = match digits.len() {
            1 => !begins_anew,
            _ => first.len() >= 4 || (is_dotted && !begins_anew && !ends_with_year),
        };
        let numbers = digits.iter().map(|digits| digits.parse().ok());
        let numbers = numbers.collect::<Option<Vec<_>>>().filter(|_| has_order)?;
        let mut form = String::new();
        for (at, letter) in period.char_indices() {
            let is_first_digit = is_digit(letter) && !period[..at].ends_with(is_digit);
            match is_digit(letter) {
                true if is_first_digit => form.push('0'),
                true => {}
                false => form.push(letter),
            }
        }
        if first.len() >= DIGITS_OF_A_DAY {
            form.push_str(&format!(" {}", first.len()));
        }
        Some(Self { form, numbers })
    }

    /// Whether both texts have the same form.
    pub fn is_comparable_to(&self, other: &Self) -> bool {
        self.form == other.form && self.numbers.len() == other.numbers.len()
    }
}

/// `None` for two texts of unlike forms.
impl PartialOrd for PeriodOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.is_comparable_to(other).then(|| self.numbers.cmp(&other.numbers))
    }
}
