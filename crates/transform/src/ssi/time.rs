//! Times in the formats of `strftime`. They are in UTC.

use dunlin_http::semantics::date::civil_from_days;

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Returns a time in seconds since 1970 in a format. A conversion that does not exist is kept as it stands.
pub(super) fn format(format: &str, seconds: u64) -> String {
    let mut out = String::with_capacity(format.len() + 16);
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        match chars.next() {
            // Modifiers concern other calendars.
            Some('E' | 'O' | '-') => {
                if let Some(of) = chars.next() {
                    convert(of, seconds, &mut out);
                }
            }
            Some(of) => convert(of, seconds, &mut out),
            None => out.push('%'),
        }
    }
    out
}

fn convert(conversion: char, seconds: u64, out: &mut String) {
    let days = seconds / 86_400;
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let (day_name, month_name) =
        (DAYS[((days + 4) % 7) as usize], MONTHS[(month.clamp(1, 12) - 1) as usize]);
    let half = if hour % 12 == 0 { 12 } else { hour % 12 };
    let day_of_year = days - dunlin_http::semantics::date::days_from_civil(year, 1, 1) + 1;
    let text = match conversion {
        'a' => day_name[..3].to_owned(),
        'A' => day_name.to_owned(),
        'b' | 'h' => month_name[..3].to_owned(),
        'B' => month_name.to_owned(),
        'c' => return out.push_str(&format("%a %b %e %H:%M:%S %Y", seconds)),
        'C' => format!("{:02}", year / 100),
        'd' => format!("{day:02}"),
        'D' | 'x' => return out.push_str(&format("%m/%d/%y", seconds)),
        'e' => format!("{day:2}"),
        'F' => format!("{year:04}-{month:02}-{day:02}"),
        'H' => format!("{hour:02}"),
        'I' => format!("{half:02}"),
        'j' => format!("{day_of_year:03}"),
        'k' => format!("{hour:2}"),
        'l' => format!("{half:2}"),
        'm' => format!("{month:02}"),
        'M' => format!("{minute:02}"),
        'n' => "\n".to_owned(),
        'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
        'P' => if hour < 12 { "am" } else { "pm" }.to_owned(),
        'r' => return out.push_str(&format("%I:%M:%S %p", seconds)),
        'R' => format!("{hour:02}:{minute:02}"),
        's' => seconds.to_string(),
        'S' => format!("{second:02}"),
        't' => "\t".to_owned(),
        'T' | 'X' => format!("{hour:02}:{minute:02}:{second:02}"),
        'u' => ((days + 3) % 7 + 1).to_string(),
        'w' => ((days + 4) % 7).to_string(),
        'y' => format!("{:02}", year % 100),
        'Y' => year.to_string(),
        'z' => "+0000".to_owned(),
        'Z' => "GMT".to_owned(),
        '%' => "%".to_owned(),
        other => format!("%{other}"),
    };
    out.push_str(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_those_of_strftime() {
        // 2001-09-09 01:46:40, a Sunday.
        for (of, expected) in [
            ("%A, %d-%b-%Y %H:%M:%S %Z", "Sunday, 09-Sep-2001 01:46:40 GMT"),
            ("%a %B %e %I:%M %p", "Sun September  9 01:46 AM"),
            ("%F %T %z %j %u %w %y %s", "2001-09-09 01:46:40 +0000 252 7 0 01 1000000000"),
            ("%D %R 100%% %Q %", "09/09/01 01:46 100% %Q %"),
            ("%c", "Sun Sep  9 01:46:40 2001"),
        ] {
            assert_eq!(format(of, 1_000_000_000), expected);
        }
    }
}
