//! Enums whose variants have names, in files, metrics or reports: each name is written once,
//! beside its variant.

/// Declares an enum without data, each variant with its name after `=`, and with its number after
/// `as` where a protocol gives it one.
///
/// It gets `ALL`, the variants in the order in which they stand; `NAMED`, the same behind their
/// names, as settings take them; `name`; and `named`, the way back.
///
/// ```
/// evenkeel_core::named! {
///     /// How a day ends.
///     #[derive(Clone, Copy, PartialEq, Debug)]
///     pub enum End {
///         /// With supper.
///         Evening = "evening",
///         /// With nothing.
///         Midnight = "midnight",
///     }
/// }
/// assert_eq!(End::Evening.name(), "evening");
/// assert_eq!(End::named("midnight"), Some(End::Midnight));
/// assert_eq!(End::NAMED.map(|(_, end)| end), End::ALL);
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Enum:ident {
            $($(#[$doc:meta])* $Variant:ident = $name:literal $(as $number:literal)?,)+
        }
    ) => {
        $(#[$meta])*
        $vis enum $Enum {
            $($(#[$doc])* $Variant $(= $number)?,)+
        }

        #[allow(dead_code, reason = "an enum of one file seldom needs all of it")]
        impl $Enum {
            /// All of them, in the order in which they are declared.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// All of them behind their names.
            pub const NAMED: [(&'static str, Self); Self::ALL.len()] =
                [$(($name, Self::$Variant)),+];

            /// Its name in files, metrics and reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }

            /// The one of this name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}
