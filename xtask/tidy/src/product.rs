//! What a crate ships: its files under `src` with the tests blanked out.
//!
//! Tests are the items under `#[cfg(test)]`, or under a feature that exists for other crates' tests
//! (`any(test, feature = "testing")`), the files that such an item declares (`mod tests;`), and
//! what a file name says: `tests.rs`, `*_tests.rs` and everything in a folder `tests`.

use std::collections::BTreeSet;

use super::source::{Source, is_word, words};
use super::{File, Tree};

/// One file of a crate, tests left out.
pub(super) struct Product<'a> {
    pub(super) file: &'a File,
    /// Comments, literals and tests are blanks; offsets are those of the file.
    pub(super) code: String,
    /// Lines, comments included, tests left out.
    pub(super) lines: usize,
    /// `["request", "select"]` for `src/request/select.rs` and `src/request/select/mod.rs`.
    pub(super) module: Vec<&'a str>,
    source: Source,
}

impl<'a> Product<'a> {
    fn new(file: &'a File, module: Vec<&'a str>) -> Self {
        let source = Source::new(&file.text);
        let mut code = source.code().as_bytes().to_vec();
        for item in source.test_items() {
            let item = code[item].iter_mut().filter(|byte| **byte != b'\n');
            item.for_each(|byte| *byte = b' ');
        }
        let code = String::from_utf8(code).expect("items begin and end with ASCII");
        let tests: BTreeSet<usize> = source.test_lines().into_iter().flatten().collect();
        let lines = source.count_lines() - tests.len();
        Self { file, code, lines, module, source }
    }

    /// The line, from 1, of a byte offset.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.source.line(offset)
    }

    /// Modules in files of their own that only tests have: `#[cfg(test)] mod fixtures;`.
    fn modules_of_tests(&self) -> impl Iterator<Item = Vec<String>> {
        let items = self.source.test_items().into_iter();
        items.filter_map(|item| {
            let code = &self.source.code()[item];
            let name = &code[words(code, "mod").next()? + "mod ".len()..];
            let name: String = name.chars().take_while(is_word).collect();
            let module = self.module.iter().map(|part| (*part).to_owned());
            code.ends_with(';').then(|| module.chain([name]).collect())
        })
    }
}

/// The files of the crate in `folder` in the order of their paths, those of tests left out.
pub(super) fn of_crate<'a>(tree: &'a Tree, folder: &str) -> Vec<Product<'a>> {
    let mut products: Vec<Product<'_>> = tree
        .with_extension("rs")
        .filter_map(|file| {
            let path = file.path.strip_prefix(folder)?.strip_prefix("/src/")?;
            let module = module_of(path);
            let is_test = |part: &&str| *part == "tests" || part.ends_with("_tests");
            (!module.iter().any(is_test)).then(|| Product::new(file, module))
        })
        .collect();
    let tests: Vec<Vec<String>> = products.iter().flat_map(Product::modules_of_tests).collect();
    let is_test = |module: &[&str]| tests.iter().any(|test| is_under(module, test));
    products.retain(|product| !is_test(&product.module));
    products
}

/// Whether `module` is `test` or lies in it.
fn is_under(module: &[&str], test: &[String]) -> bool {
    module.len() >= test.len() && module.iter().zip(test).all(|(part, of)| part == of)
}

/// `path` is relative to `src`.
fn module_of(path: &str) -> Vec<&str> {
    let mut module: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let is_root = module.len() == 1 && ["lib", "main"].contains(&module[0]);
    if is_root || module.last() == Some(&"mod") {
        module.pop();
    }
    module
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let tree = Tree::of(files);
        let products = of_crate(&tree, "crates/keel");
        products.iter().map(|product| (product.module.join("::"), product.lines)).collect()
    }

    #[test]
    fn tests_are_left_out_whatever_form_they_have() {
        let found = files(&[
            ("crates/keel/src/lib.rs", "//! Doc.\nmod bow;\n#[cfg(test)]\nmod made_up;\n"),
            (
                "crates/keel/src/mast.rs",
                "#[cfg(any(test, feature = \"testing\"))]\npub mod fake;\n",
            ),
            ("crates/keel/src/mast/fake.rs", "one\n"),
            ("crates/keel/src/made_up.rs", "one\n"),
            ("crates/keel/src/made_up/deeper.rs", "one\n"),
            ("crates/keel/src/bow/mod.rs", "one\n\n#[cfg(test)]\nmod tests {\n    a\n}\n// b\n"),
            ("crates/keel/src/bow/tests.rs", "one\n"),
            ("crates/keel/src/bow/tests/deeper.rs", "one\n"),
            ("crates/keel/src/bow_tests.rs", "one\n"),
            ("crates/keel/tests/whole.rs", "one\n"),
            ("crates/keel/benches/speed.rs", "one\n"),
            ("crates/keel-side/src/lib.rs", "one\n"),
        ]);
        let expected = [("bow", 3), ("", 2), ("mast", 0)];
        let expected = expected.map(|(module, lines)| (module.to_owned(), lines));
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    }

    #[test]
    fn the_code_of_a_product_keeps_its_places() {
        let text = "a\n#[cfg(test)]\nuse b;\n// c\nd\n";
        let tree = Tree::of(&[("crates/keel/src/lib.rs", text)]);
        let products = of_crate(&tree, "crates/keel");
        let [product] = &products[..] else { panic!("{}", products.len()) };
        assert_eq!(product.code.split_whitespace().collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!(product.line(product.code.find('d').unwrap()), 5);
        assert_eq!(product.code.len(), text.len());
    }
}
