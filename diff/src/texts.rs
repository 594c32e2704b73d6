//! Searches in text: words, phrases and their negations, by indexes with weights and languages.

use crate::tree::{Tree, tree};
use crate::values::Maker;

const WORDS: [&str; 24] = [
    "run",
    "running",
    "runs",
    "the",
    "dog",
    "Dogs",
    "dog's",
    "café",
    "cafe",
    "CAFE",
    "blue",
    "sky-blue",
    "foo_bar",
    "2020",
    "über",
    "Häuser",
    "haus",
    "a",
    "is",
    "chien",
    "e\u{301}te",
    "x.y",
    "--",
    "日本",
];
const LANGUAGES: [&str; 8] =
    ["english", "en", "german", "french", "none", "es", "porter", "klingon"];

impl Maker {
    /// Returns documents with text in `a`, `b` and deeper fields.
    pub(crate) fn written_documents(&mut self, count: usize) -> Vec<Tree> {
        let document = |maker: &mut Maker, number: usize| {
            let mut fields = vec![("_id".to_owned(), Tree::of(number as i32))];
            let beside = maker.random.percent(30);
            for name in ["a", "b", "c"] {
                if maker.random.percent(60) {
                    let value = match maker.random.below(8) {
                        0 => Tree::Array((0..2).map(|_| maker.phrase(3)).collect()),
                        1 => tree! { "a" => maker.phrase(3) },
                        2 => Tree::Array(vec![
                            tree! { "a" => maker.phrase(3), "language" => maker.language() },
                        ]),
                        3 => maker.value(1),
                        _ if name != "b" && beside => maker.beside_text(),
                        _ => maker.phrase(6),
                    };
                    fields.push((name.to_owned(), value));
                }
            }
            if maker.random.percent(20) {
                let language = maker.language();
                fields.push(("language".to_owned(), language));
            }
            Tree::Doc(fields)
        };
        (1..=count).map(|number| document(self, number)).collect()
    }

    /// Returns the key of a text index with other fields, of which some are in arrays: those
    /// refuse more than one value.
    pub(crate) fn key_of_text(&mut self) -> Tree {
        match self.random.below(8) {
            0 => tree! { "a.0" => 1, "b" => "text" },
            1 => tree! { "b" => "text", "a.0" => -1 },
            2 => tree! { "c.a" => 1, "b" => "text" },
            3 => tree! { "c.0.a" => 1, "a" => "text" },
            4 => tree! { "a.0" => 1, "a" => "text" },
            5 => tree! { "c.0" => 1, "a" => "text", "c.1" => 1 },
            _ => tree! { "c" => 1, "a" => "text" },
        }
    }

    /// Returns an array or a document with few values, for the fields next to a text.
    fn beside_text(&mut self) -> Tree {
        let number = self.small();
        match self.random.below(10) {
            0 => Tree::Array(Vec::new()),
            1 => Tree::Array(vec![Tree::Array(vec![number, self.small()])]),
            2 => Tree::Array(vec![tree! { "a" => number }, tree! { "a" => self.small() }]),
            3 => Tree::Array(vec![tree! { "a" => number }]),
            4 => tree! { "0" => number },
            5 => tree! { "a" => Tree::Array(vec![number]) },
            6 => number,
            7 => tree! { "0" => tree! { "a" => number } },
            _ => Tree::Array(vec![number, self.small()]),
        }
    }

    /// Returns the specification of a text index.
    pub(crate) fn index_of_text(&mut self) -> Tree {
        let key = match self.random.below(10) {
            0..3 => tree! { "a" => "text" },
            3 | 4 => tree! { "a" => "text", "b" => "text" },
            5 => tree! { "a.a" => "text", "b" => "text" },
            6 => tree! { "$**" => "text" },
            _ => self.key_of_text(),
        };
        let mut fields = vec![("key".to_owned(), key)];
        if self.random.percent(30) {
            let weight = Tree::of(*self.random.pick(&[1, 2, 10, 99_999]));
            fields.push(("weights".to_owned(), Tree::field("a", self.spoiled(weight))));
        }
        if self.random.percent(40) {
            let language = self.language();
            fields.push(("default_language".to_owned(), language));
        }
        if self.random.percent(15) {
            fields.push(("language_override".to_owned(), Tree::of("c")));
        }
        if self.random.percent(20) {
            fields.push(("textIndexVersion".to_owned(), Tree::of(*self.random.pick(&[2, 3]))));
        }
        Tree::Doc(fields)
    }

    /// Returns a `find` by text, with scores or without; now and then a command that shows the
    /// index itself, or which documents it refused.
    pub(crate) fn search_in_text(&mut self) -> Tree {
        match self.random.below(40) {
            0 => return tree! { "validate" => "c" },
            1 => return tree! { "find" => "c", "batchSize" => 1000 },
            _ => {}
        }
        let count = self.random.between(1, 4);
        let mut words = Vec::new();
        for _ in 0..count {
            let word = *self.random.pick(&WORDS);
            words.push(match self.random.below(10) {
                0 => format!("-{word}"),
                1 => format!("\"{word}\""),
                2 => format!("\"{word} {}\"", self.random.pick(&WORDS)),
                3 => format!("-\"{word}\""),
                _ => word.to_owned(),
            });
        }
        let mut text = vec![("$search".to_owned(), Tree::of(words.join(" ").as_str()))];
        if self.random.percent(25) {
            let language = self.language();
            text.push(("$language".to_owned(), language));
        }
        for name in ["$caseSensitive", "$diacriticSensitive"] {
            if self.random.percent(20) {
                let flag = Tree::of(self.random.percent(80));
                let flag = self.spoiled(flag);
                text.push((name.to_owned(), flag));
            }
        }
        let mut filter = vec![("$text".to_owned(), Tree::Doc(text))];
        match self.random.below(16) {
            0 => filter.push(("b".to_owned(), tree! { "$exists" => Tree::of(true) })),
            1 => filter.push(("c".to_owned(), self.value(0))),
            // The fields before the text must have one value each.
            2..5 => {
                let path = *self.random.pick(&["a.0", "c.0", "c", "c.a", "c.0.a"]);
                let value = self.small();
                filter.insert(0, (path.to_owned(), value));
            }
            5 => {
                let value = self.small();
                filter.push(("a.0".to_owned(), tree! { "$gte" => value }));
            }
            6 => {
                let either = vec![Tree::Doc(std::mem::take(&mut filter)), tree! { "_id" => 1 }];
                filter = vec![("$or".to_owned(), Tree::Array(either))];
            }
            _ => {}
        }
        let score = || tree! { "$meta" => "textScore" };
        let mut command = vec![("find".to_owned(), Tree::of("c"))];
        command.push(("filter".to_owned(), Tree::Doc(filter)));
        if self.random.percent(60) {
            command.push(("projection".to_owned(), tree! { "s" => score() }));
        }
        if self.random.percent(30) {
            command.push(("sort".to_owned(), tree! { "s" => score(), "_id" => 1 }));
        }
        command.push(("batchSize".to_owned(), Tree::of(1000)));
        Tree::Doc(command)
    }

    pub(crate) fn phrase(&mut self, longest: usize) -> Tree {
        let count = self.random.between(1, longest);
        let words: Vec<&str> = (0..count).map(|_| *self.random.pick(&WORDS)).collect();
        Tree::of(words.join(*self.random.pick(&[" ", " ", ", ", "  "])).as_str())
    }

    fn language(&mut self) -> Tree {
        // The last one does not exist.
        let count = if self.random.percent(95) { LANGUAGES.len() - 1 } else { LANGUAGES.len() };
        let language = Tree::of(LANGUAGES[self.random.below(count)]);
        self.spoiled(language)
    }
}
