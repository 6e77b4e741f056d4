//! Typed calls, for tests/test_component_typed.py.

use std::hint::black_box;

use exports::example::shop::orders::{Currency, Guest as Orders, Item, Problem, Total, Wishes};

wit_bindgen::generate!({ world: "shop", path: "wit" });

struct Shop;

export!(Shop);

impl Guest for Shop {
    fn version() -> String {
        "1.2.0".to_owned()
    }
}

impl Orders for Shop {
    fn quote(items: Vec<Item>, currency: Option<Currency>) -> Result<Total, Problem> {
        if items.is_empty() {
            return Err(Problem::Empty);
        }
        let mut total = Total { cents: 0, items: 0, currency: currency.unwrap_or(Currency::Euro) };
        for Item { name, count, price } in items {
            if count > 1000 {
                return Err(Problem::TooMany((count, 1000)));
            }
            let price = price.ok_or(Problem::UnknownItem(name))?;
            total.cents = total.cents.wrapping_add(u64::from(count).wrapping_mul(price));
            total.items += count;
        }
        Ok(total)
    }

    fn echo(
        bytes: Vec<u8>,
        letter: char,
        ratio: f64,
        large: i64,
        wishes: Wishes,
        pair: (String, bool),
        nested: Option<Option<u8>>,
        outcome: Result<u8, String>,
    ) -> (Vec<u8>, char, f64, i64, Wishes, (String, bool), Option<Option<u8>>, Result<u8, String>) {
        (bytes, letter, ratio, large, wishes, pair, nested, outcome)
    }

    fn forget(_: Option<Item>) {}

    fn fail(why: String) -> u32 {
        panic!("{why}")
    }

    fn hang() {
        loop {
            black_box(());
        }
    }
}
